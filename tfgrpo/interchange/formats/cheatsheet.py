"""Dynamic Cheatsheet: memory items between tags, each with a description, an example, a count.

    <memory_item>
    <description>Count both days of a hire. (Reference: Q1, Q7)</description>
    <example>…</example>
    </memory_item>
    ** Count: 3

The description is the experience; example, strategy and count are its evidence.
"""

from __future__ import annotations

import re

from tfgrpo.interchange import labelled_lines
from tfgrpo.interchange.format_types import Content, Format, Item, SourceFile

OPENS, CLOSES = re.compile(r"\s*<memory_item\b[^>]*>"), "</memory_item>"
TAG = re.compile(r"<(/?(?:description|example|strategy|solution|content|note|reference)s?)>")
COUNT = re.compile(r"[\s*]*(?:usage )?count[\s*]*:[\s*]*(\d{1,9})\b", re.IGNORECASE)
HEADING = re.compile(r"\s*#+\s+(\S.*)|([A-Z][A-Z ,&/-]{5,}):?\Z")
FRAME = re.compile(r"\s*(?:</?cheatsheet>|[-=*_\s]*)\Z")


def detect(source: SourceFile) -> int:
    return 4 * ("<memory_item" in source.text and CLOSES in source.text)


def read(source: SourceFile) -> Content:
    items: list[Item] = []
    others: list[tuple[int, str]] = []
    section, at = "", 0
    inside: list[str] = []
    for number, line in enumerate(source.lines, 1):
        if match := OPENS.match(line):
            if at:
                raise source.wrong("a memory item begins in another", number, hint="close it")
            at, inside, line = number, [], line[match.end() :]
        if not at:
            if (count := COUNT.match(line)) and items:
                known = {**(items[-1].evidence or {}), "count": int(count[1])}
                items[-1] = items[-1]._replace(evidence=known)
            elif heading := HEADING.match(line):
                section = (heading[1] or heading[2]).strip(" :#")
            elif line.strip() and not FRAME.match(line):
                others.append((number, line))
            continue
        held, end, rest = line.partition(CLOSES)
        inside.append(held)
        if end:
            items.append(_item(source, at, section, inside))
            at = 0
            if rest.strip():
                others.append((number, rest))
    if at:
        raise source.wrong("a memory item has no end", at, hint="is the file complete?")
    return Content(items, skipped=labelled_lines.skipped(others, "no memory item"))


def _item(source: SourceFile, at: int, section: str, inside: list[str]) -> Item:
    pieces = TAG.split("\n".join(inside))  # text, tag, text, tag, … text
    parts: dict[str, list[str]] = {"": [pieces[0]]}
    for tag, text in zip(pieces[1::2], pieces[2::2], strict=True):
        parts.setdefault("" if tag.startswith("/") else tag, []).append(text)
    texts = {name: "\n".join(held).strip() for name, held in parts.items()}
    text = " ".join((texts.pop("description", "") or texts.pop("", "")).split())
    if not text:
        raise source.wrong("a memory item has no description", at, hint="is the file complete?")
    evidence: dict[str, object] = {"section": section} if section else {}
    evidence |= {name or "note": held for name, held in texts.items() if held}
    return Item(text, evidence=evidence, line=at)


FORMAT = Format(
    "cheatsheet", "Dynamic Cheatsheet: memory items", "txt", "words", detect, read, None
)
