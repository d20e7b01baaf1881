"""Youtu-Agent's agent YAML, whose instructions end in one `[Gi]. text` line for each experience.
What was read from one is written alike, but for keys and passwords."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tfgrpo.interchange import yaml_text
from tfgrpo.interchange.format_types import Content, Format, Skipped, SourceFile
from tfgrpo.interchange.formats import labelled_lines
from tfgrpo.interchange.library_files import NAME, Outgoing, about
from tfgrpo.rendering.experience_texts import one_line

INTRODUCTION = "Before you solve a problem, read what earlier ones taught and use what applies:"


INSTRUCTIONS = "instructions"
SECRET = re.compile(
    r"(?:^|[_-])(?:api_?key|key|secret|password|passwd|credentials?|authorization|bearer"
    r"|(?:auth|access|refresh|api)_?token|token)$",
    re.IGNORECASE,
)
PASSWORD = re.compile(r"\A\w+://[^/\s]*@|\Ask-\w{8}")


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
    secrets: list[str] = []
    rest = {**config, "agent": {k: v for k, v in agent.items() if k not in ("name", INSTRUCTIONS)}}
    meta: dict[str, object] = {
        "agent_instructions": "\n".join(lines[: first - 1]).rstrip(),
        "agent_config": without_secrets(rest, "", secrets),
    }
    after = [text for number, text in labelled.others if number > first]
    skipped = [Skipped.at(at, "a secret, which no store keeps", path) for path in secrets]
    skipped += [Skipped.at(at, "instructions behind the experiences", text) for text in after]
    return Content(
        [item._replace(line=at) for item in labelled.items],
        meta={"agent": name, **meta} if isinstance(name, str) else meta,
        skipped=skipped,
    )


def is_secret(name: str, value: object) -> bool:
    """Whether a setting of that name, in whatever case, may be a secret; or by what it is."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    named = value not in (None, "", [], {}) and SECRET.search(words) is not None
    return named or (isinstance(value, str) and PASSWORD.search(value) is not None)


def _argument_is_secret(arguments: list[Any], number: int) -> bool:
    """Whether one of a command's arguments may be a secret: by itself, or by its option."""
    one, before = arguments[number], arguments[number - 1] if number else None
    if not isinstance(one, str):
        return False
    option, equals, rest = one.partition("=")
    if option.startswith("-") and equals:
        return is_secret(option, rest)
    named = before if isinstance(before, str) and before.startswith("-") else ""
    return is_secret("" if one.startswith("-") else named, one)


def without_secrets(value: object, path: str, removed: list[str]) -> object:
    """A configuration as JSON without possible secrets, whose paths are appended to `removed`."""
    if isinstance(value, dict):
        clean: dict[str, object] = {}
        for key, inner in value.items():
            there = f"{path}.{key}" if path else key
            if is_secret(key, inner):
                removed.append(there)
            else:
                clean[key] = without_secrets(inner, there, removed)
        return clean
    if isinstance(value, list):
        secret = [n for n in range(len(value)) if _argument_is_secret(value, n)]
        removed += [f"{path}.{n}" for n in secret]
        return [
            without_secrets(inner, f"{path}.{n}", removed)
            for n, inner in enumerate(value)
            if n not in secret
        ]
    return value


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
