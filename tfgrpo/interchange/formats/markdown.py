"""Markdown: a list for people, whose comments carry the ids, so that edits come back as edits.

Any other Markdown is read too, AGENTS.md, CLAUDE.md, rules; `blocks` says how.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgrpo.interchange import markdown_lists
from tfgrpo.interchange.format_types import Content, Format, SourceFile
from tfgrpo.interchange.write_out import Outgoing

STRUCTURE = re.compile(r"\s{0,3}(?:[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|\|.*\|)")
ENDINGS = (".md", ".markdown", ".mdc", ".mdx")


def detect(source: SourceFile) -> int:
    if any(item.id for item in markdown_lists.items(source.lines)):
        return 3
    if source.path.suffix.lower() in ENDINGS and source.text.strip():
        return 1
    return int(any(STRUCTURE.match(line) for line in source.lines))


def read(source: SourceFile) -> Content:
    from tfgrpo.interchange import markdown_blocks  # a checkout writes, and has nothing to read

    return markdown_blocks.read(source.lines, name=str(source.path)).content


def write(out: Outgoing) -> Iterator[str]:
    yield f"# Library {out.version.name} ({out.version.digest.hex()[:12]})\n\n"
    for experience in out.library.readable:
        yield markdown_lists.written(experience) + "\n"


FORMAT = Format(
    "md", "people: a list with ids, to edit and read back", "md", "ids", detect, read, write
)
