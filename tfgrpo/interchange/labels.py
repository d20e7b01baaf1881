"""Texts as labelled lines, `[G0] …`, which prompts and agents share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tfgrpo.interchange.records import Item

LABELLED = re.compile(r"^\s*\[?(G\d+)\]?[.:)]*\s+(.*\S)\s*$")


def items(lines: Iterable[str], start: int = 1) -> Iterator[Item]:
    """Yields an item for each labelled line and the lines right below it, up to a blank one."""
    label, text, at = "", "", 0
    for number, line in enumerate(lines, start):
        match = LABELLED.match(line)
        if text and (match or not line.strip()):
            yield Item(text, evidence={"label": label}, line=at)
            text = ""
        if match:
            label, text, at = match[1], match[2], number
        elif text:
            text += " " + line.strip()
    if text:
        yield Item(text, evidence={"label": label}, line=at)
