"""The prompt block: texts as labelled lines, `[G0] …`, as they stand in a rollout's prompt. Agents
and playbooks have such lines too."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfgrpo.interchange.format_types import Content, Format, Item, Skipped, SourceFile
from tfgrpo.interchange.library_files import Outgoing
from tfgrpo.rendering.render import prompt_text

LABELLED = re.compile(r"^\s*\[?(G\d+)\]?[.:)]*\s+(.*\S)\s*$")

HEADING = re.compile(r"##+\s")


class Labelled(NamedTuple):
    """The items of labelled lines, and the other lines that are not blank, by number."""

    items: list[Item]
    others: list[tuple[int, str]]


def labelled_items(lines: Iterable[str]) -> Labelled:
    """An item for each labelled line and the lines right below it, up to a blank one or a
    heading."""
    labelled = Labelled([], [])
    label, text, at = "", "", 0
    for number, line in enumerate(lines, 1):
        match = LABELLED.match(line)
        if text and (match or HEADING.match(line) or not line.strip()):
            labelled.items.append(Item(text, evidence={"label": label}, line=at))
            text = ""
        if match:
            label, text, at = match[1], match[2], number
        elif text:
            text += " " + line.strip()
        elif line.strip():
            labelled.others.append((number, line))
    if text:
        labelled.items.append(Item(text, evidence={"label": label}, line=at))
    return labelled


def skipped(others: Iterable[tuple[int, str]], what: str) -> list[Skipped]:
    """Lines as parts that were skipped, neighbours as one."""
    parts: list[Skipped] = []
    for number, line in others:
        if parts and parts[-1].last == number - 1:
            parts[-1] = parts[-1]._replace(last=number)
        else:
            parts.append(Skipped.at(number, what, line))
    return parts


def detect(source: SourceFile) -> int:
    if LABELLED.match(source.first_line):
        return 3
    return 2 * any(LABELLED.match(line) for line in source.lines)


def read(source: SourceFile) -> Content:
    labelled = labelled_items(source.lines)
    return Content(labelled.items, skipped=skipped(labelled.others, "no labelled line"))


def write(out: Outgoing) -> Iterator[str]:
    yield prompt_text(out.library) + "\n"


FORMAT = Format(
    "prompt", "any model: the lines `[G0] …` of a prompt", "txt", "words", detect, read, write
)
