"""Texts as labelled lines, `[G0] …`, which prompts and agents share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tfgrpo.interchange.records import Item

LABELLED = re.compile(r"^\s*\[?(G\d+)\]?[.:)]*\s+(.*\S)\s*$")


def items(lines: Iterable[str], start: int = 1) -> Iterator[Item]:
    """Yields an item for each labelled line and the lines right below it, up to a blank one."""
    label, said, at = "", "", 0
    for number, line in enumerate(lines, start):
        match = LABELLED.match(line)
        if said and (match or not line.strip()):
            yield Item(said, evidence={"label": label}, line=at)
            said = ""
        if match:
            label, said, at = match[1], match[2], number
        elif said:
            said += " " + line.strip()
    if said:
        yield Item(said, evidence={"label": label}, line=at)
