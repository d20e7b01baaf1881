"""The prompt block: the very lines that stand in a rollout's prompt."""

from __future__ import annotations

from collections.abc import Iterator

from tfgrpo.interchange import labels
from tfgrpo.interchange.outgoing import Outgoing
from tfgrpo.interchange.records import Content, Format, SourceFile
from tfgrpo.rendering.render import prompt_text


def detect(source: SourceFile) -> int:
    first = next((line for line in source.lines if line.strip()), "")
    if labels.LABELLED.match(first):
        return 3
    return 2 * any(labels.LABELLED.match(line) for line in source.lines)


def read(source: SourceFile) -> Content:
    labelled = labels.read(source.lines)
    return Content(labelled.items, skipped=labels.skipped(labelled.others, "no labelled line"))


def write(out: Outgoing) -> Iterator[str]:
    yield prompt_text(out.library) + "\n"


FORMAT = Format(
    "prompt", "any model: the lines `[G0] …` of a prompt", "txt", "words", detect, read, write
)
