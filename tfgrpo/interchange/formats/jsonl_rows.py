"""JSONL of a library, an experience a line. Read from any rows with a text; their other short
values become evidence, and long ones are listed as skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tfgrpo.interchange.format_types import Content, Format, Item, Skipped, SourceFile
from tfgrpo.interchange.write_out import Outgoing
from tfgrpo.store.canonical import is_id

TEXTS = ("text", "content", "experience", "insight", "memory")
SHORT = 200


def _field(row: Mapping[str, object]) -> str | None:
    return next((key for key in TEXTS if isinstance(row.get(key), str)), None)


def detect(source: SourceFile) -> int:
    row = source.first_row
    if not isinstance(row, dict) or "op" in row:
        return 0
    if _field(row) is None:
        return int(source.json is None)
    return 3 if isinstance(row.get("id"), str) or source.json is None else 1


def read(source: SourceFile) -> Content:
    items = []
    dropped: dict[str, list[int]] = {}
    for number, row in source.rows():
        field = _field(row)
        if field is None:
            raise source.wrong(
                f"has no text among {', '.join(row) or 'nothing'}"[:150],
                number,
                hint=f"the text is looked for in {', '.join(TEXTS)}",
            )
        own = str(row.get("id", ""))
        evidence = {
            key: value
            for key, value in row.items()
            if key != field and isinstance(value, str | int | float) and len(str(value)) <= SHORT
        }
        for key in row.keys() - evidence.keys() - {field}:
            if row[key] not in (None, "", [], {}):
                dropped.setdefault(key, []).append(number)
        id = own if is_id(own) else None
        if id:
            del evidence["id"]
        items.append(Item(str(row[field]), id, None, evidence, number))
    skipped = [
        Skipped(lines[0], lines[0], f"a field that is no short text, in {len(lines)} rows", key)
        for key, lines in dropped.items()
    ]
    return Content(items, skipped=skipped)


def write(out: Outgoing) -> Iterator[str]:
    for e in out.library.readable:
        row = {"id": e.id, "label": out.library.label_of[e.id], "text": e.text}
        yield json.dumps(row, ensure_ascii=False) + "\n"


FORMAT = Format(
    "rows", "tables and notebooks: JSONL, an experience a line", "jsonl", "ids", detect, read, write
)
