"""Youtu-Agent's agent YAML, whose instructions end in one `[Gi]. text` line for each experience.
What was read from one is written alike, but for keys and passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tfgrpo.interchange import yaml_text
from tfgrpo.interchange.format_types import Content, Format, Skipped, SourceFile
from tfgrpo.interchange.formats import labelled_lines
from tfgrpo.interchange.library_files import NAME, Outgoing, about
from tfgrpo.model import secrets
from tfgrpo.rendering.experience_texts import one_line

INTRODUCTION = "Before you solve a problem, read what earlier ones taught and use what applies:"


INSTRUCTIONS = "instructions"


def detect(source: SourceFile) -> int:
    if source.text.lstrip()[:1] in ("{", "["):
        return 0
    agent = re.search(r"^agent:", source.text, re.MULTILINE)
    return 4 * bool(agent and re.search(r"^[^\S\n]+instructions:", source.text, re.MULTILINE))


def read(source: SourceFile) -> Content:
    config = yaml_text.loaded(source, source.text)
    agent = config.get("agent")
    instructions = agent.get(INSTRUCTIONS) if isinstance(agent, dict) else None
    at = source.line_of("instructions:") or source.line_of("agent:")
    if not isinstance(agent, dict) or not isinstance(instructions, str):
        raise source.wrong("has no agent.instructions", at, hint="is it an agent configuration?")
    lines = instructions.replace("\r", "").split("\n")
    labelled = labelled_lines.labelled_items(lines)
    if not labelled.items:
        raise source.wrong(
            "has no experiences in agent.instructions", at, hint="lines `[G0]. text` are expected"
        )
    first = labelled.items[0].line or 0
    name = agent.get("name")
    removed: list[str] = []
    rest = {**config, "agent": {k: v for k, v in agent.items() if k not in ("name", INSTRUCTIONS)}}
    meta: dict[str, object] = {
        "agent_instructions": "\n".join(lines[: first - 1]).rstrip(),
        "agent_config": without_secrets(rest, "", removed),
    }
    after = [text for number, text in labelled.others if number > first]
    skipped = [Skipped.at(at, "a secret, which no store keeps", path) for path in removed]
    skipped += [Skipped.at(at, "instructions behind the experiences", text) for text in after]
    return Content(
        [item._replace(line=at) for item in labelled.items],
        meta={"agent": name, **meta} if isinstance(name, str) else meta,
        skipped=skipped,
    )


def without_secrets(value: object, path: str, removed: list[str]) -> object:
    """A configuration as JSON without possible secrets, whose paths are appended to `removed`."""
    if isinstance(value, dict):
        named = [(key, str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list):
        words = [str(one) for one in value]
        options = ["", *(word if word.startswith("-") else "" for word in words)]
        named = [(str(n), options[n], inner) for n, inner in enumerate(value)]
    else:
        return value
    clean = {}
    for key, name, inner in named:
        there = f"{path}.{key}" if path else key
        if is_secret(name, inner):
            removed.append(there)
        else:
            clean[key] = without_secrets(inner, there, removed)
    return clean if isinstance(value, dict) else [*clean.values()]


def is_secret(name: str, value: object) -> bool:
    """Whether a value may be one, by its name or, where it is no table or list, by itself."""
    if isinstance(value, dict | list):
        return bool(value) and secrets.NAMED.search(name) is not None
    name = "" if str(value).startswith("-") else name
    return value is not None and secrets.literal(name, str(value)) is not None


def write(out: Outgoing) -> Iterator[str]:
    label = out.library.label_of
    texts = [f"[{label[e.id]}]. {one_line(e.text)}" for e in out.library.readable]
    known = about(out)
    config = known.get("agent_config")
    config = dict(config) if isinstance(config, Mapping) else {}
    inner = config.pop("agent", {})
    name = out.name or known.get("agent") or NAME
    introduction = str(known.get("agent_instructions") or INTRODUCTION)
    agent = {
        "name": name,
        INSTRUCTIONS: "\n".join([introduction, *texts]),
        **(inner if isinstance(inner, Mapping) else {}),
    }
    yield "# @package _global_\n"
    head = {"defaults": ["_self_"], "type": "simple"}
    yield yaml_text.dumped({**head, **config, "agent": agent})


FORMAT = Format(
    "agent",
    "Youtu-Agent: an agent's YAML, texts at the end of its instructions",
    "yaml",
    "words",
    detect,
    read,
    write,
)
