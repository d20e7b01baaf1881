"""The prompt block: the very lines that stand in a rollout's prompt."""

from __future__ import annotations

from collections.abc import Iterator

from tfgrpo.interchange import labelled_lines
from tfgrpo.interchange.format_types import Content, Format, SourceFile
from tfgrpo.interchange.write_out import Outgoing
from tfgrpo.rendering.render import prompt_text


def detect(source: SourceFile) -> int:
    first = next((line for line in source.lines if line.strip()), "")
    if labelled_lines.LABELLED.match(first):
        return 3
    return 2 * any(labelled_lines.LABELLED.match(line) for line in source.lines)


def read(source: SourceFile) -> Content:
    labelled = labelled_lines.read(source.lines)
    return Content(
        labelled.items, skipped=labelled_lines.skipped(labelled.others, "no labelled line")
    )


def write(out: Outgoing) -> Iterator[str]:
    yield prompt_text(out.library) + "\n"


FORMAT = Format(
    "prompt", "any model: the lines `[G0] …` of a prompt", "txt", "words", detect, read, write
)
