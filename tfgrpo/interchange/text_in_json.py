"""Texts inside of JSON that other programs wrote, each read as a page of Markdown at the line of
its key, and what is left over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tfgrpo.interchange import markdown_blocks
from tfgrpo.interchange.format_types import Item, Skipped, SourceFile

SHORT = 200


class Texts:
    """Collects the experiences of texts in a file, and what of it was skipped."""

    def __init__(self, source: SourceFile) -> None:
        self._source = source
        self.items: list[Item] = []
        self.skipped: list[Skipped] = []

    def page(self, text: str, key: str, evidence: Mapping[str, object]) -> None:
        """Reads a text as Markdown; `key` is what it is called in the file."""
        at = self._line(key)
        page = markdown_blocks.read(text.replace("\r", "").split("\n"), name=str(self._source.path))
        for item in page.items:
            merged = {**evidence, **(item.evidence or {})}
            self.items.append(item._replace(evidence=merged, line=at or None))
        self.skipped += [
            Skipped(at, at, f"{part.what} in {key}", part.text) for part in page.skipped
        ]

    def skip(self, key: str, what: str, text: str = "") -> None:
        """Lists a part of the file that becomes nothing."""
        at = self._line(key)
        self.skipped.append(Skipped(at, at, what, " ".join(text.split())[:60]))

    def skip_rest(self, value: Mapping[str, object], known: Iterable[str], what: str = "") -> None:
        """Lists the fields of an object, other than those `known`, that hold anything."""
        for key in value.keys() - set(known):
            held = value[key]
            if held in (None, "", [], {}, False):
                continue
            count = f", {len(held)} entries" if isinstance(held, list | dict) else ""
            self.skip(key, f"{what or 'a field'} that is no experience{count}", key)

    def _line(self, key: str) -> int:
        return self._source.key_lines.get(key, 0)


def short(row: Mapping[str, object], keys: Sequence[str]) -> dict[str, object]:
    """The fields of these that are short texts or numbers."""
    return {
        key: value
        for key in keys
        if isinstance(value := row.get(key), str | int | float) and len(str(value)) <= SHORT
    }
