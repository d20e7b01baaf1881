"""Markdown: a list for people, whose comments carry the ids, so that edits come back as edits."""

from __future__ import annotations

from collections.abc import Iterator

from tfgrpo.interchange import lists
from tfgrpo.interchange.outgoing import Outgoing
from tfgrpo.interchange.records import Content, Format, SourceFile


def detect(source: SourceFile) -> int:
    if any(item.id for item in lists.items(source.lines)):
        return 3
    return int(any(lists.BULLET.match(line.lstrip()) for line in source.lines))


def read(source: SourceFile) -> Content:
    return Content(list(lists.items(source.lines)))


def write(out: Outgoing) -> Iterator[str]:
    yield f"# Library {out.version.name} ({out.version.digest.hex()[:12]})\n\n"
    for experience in out.library.readable:
        yield lists.written(experience) + "\n"


FORMAT = Format(
    "md", "people: a list with ids, to edit and read back", "md", "ids", detect, read, write
)
