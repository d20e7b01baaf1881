"""Youtu-Agent's agent YAML, whose instructions end in one `[Gi]. text` line for each experience.

What is written holds an agent's name and instructions and nothing else: which model and which
tools it runs with is another file's business, and keys are nobody's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgrpo.interchange import labels, yaml_text
from tfgrpo.interchange.outgoing import Outgoing
from tfgrpo.interchange.records import Content, Format, Item, SourceFile
from tfgrpo.rendering.render import one_line

INTRODUCTION = "Before you solve a problem, read what earlier ones taught and use what applies:"


def detect(source: SourceFile) -> int:
    if source.text.lstrip()[:1] in ("{", "["):
        return 0
    agent = re.search(r"^agent:", source.text, re.MULTILINE)
    return 4 * bool(agent and re.search(r"^[^\S\n]+instructions:", source.text, re.MULTILINE))


def read(source: SourceFile) -> Content:
    agent = yaml_text.loaded(source, source.text).get("agent")
    instructions = agent.get("instructions") if isinstance(agent, dict) else None
    at = source.line_of("instructions:") or source.line_of("agent:")
    if not isinstance(agent, dict) or not isinstance(instructions, str):
        raise source.wrong("has no agent.instructions", at, hint="is it an agent configuration?")
    items: list[Item] = [
        item._replace(line=at) for item in labels.items(instructions.replace("\r", "").split("\n"))
    ]
    if not items:
        raise source.wrong(
            "has no experiences in agent.instructions", at, hint="lines `[G0]. text` are expected"
        )
    name = agent.get("name")
    return Content(items, meta={"agent": name} if isinstance(name, str) else {})


def write(out: Outgoing) -> Iterator[str]:
    label = out.library.label_of
    texts = [f"[{label[e.id]}]. {one_line(e.text)}" for e in out.library.readable]
    agent = {"name": out.name, "instructions": "\n".join([INTRODUCTION, *texts])}
    yield "# @package _global_\n"
    yield yaml_text.dumped({"defaults": ["_self_"], "type": "simple", "agent": agent})


FORMAT = Format(
    "agent",
    "Youtu-Agent: an agent's YAML, texts at the end of its instructions",
    "yaml",
    "words",
    detect,
    read,
    write,
)
