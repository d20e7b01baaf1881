"""An experience a row: JSONL, and CSV with every cell in quotes and a mark before what a sheet
would compute. Read from any rows with a text; other short values become evidence."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping

from tfgrpo.data.readers import LONGEST_FIELD
from tfgrpo.interchange.format_types import (
    Content,
    Format,
    Item,
    Skipped,
    SourceFile,
    UnreadableLibrary,
    short_values,
)
from tfgrpo.interchange.library_files import Outgoing
from tfgrpo.store.canonical import is_id
from tfgrpo.wording import inert_cell, read_cell

TEXTS = ("text", "content", "experience", "insight", "memory")


def _field(row: Mapping[str, object]) -> str | None:
    return next((key for key in TEXTS if isinstance(row.get(key), str)), None)


def _without_text(source: SourceFile, names: Iterable[str], line: int) -> UnreadableLibrary:
    what = f"has no text among {', '.join(names) or 'nothing'}"[:150]
    return source.wrong(what, line, hint=f"the text is looked for in {', '.join(TEXTS)}")


def _detect_jsonl(source: SourceFile) -> int:
    row = source.first_row
    if not isinstance(row, dict) or "op" in row:
        return 0
    if _field(row) is None:
        return int(source.json is None)
    return 3 if isinstance(row.get("id"), str) or source.json is None else 1


def _read_jsonl(source: SourceFile) -> Content:
    items = []
    dropped: dict[str, list[int]] = {}
    for number, row in source.rows():
        field = _field(row)
        if field is None:
            raise _without_text(source, row, number)
        own = str(row.get("id", ""))
        evidence = short_values(row, [key for key in row if key != field])
        for key in row.keys() - evidence.keys() - {field}:
            if row[key] not in (None, "", [], {}):
                dropped.setdefault(key, []).append(number)
        id = own if is_id(own) else None
        if id:
            del evidence["id"]
        items.append(Item(str(row[field]), id, None, evidence, number))
    skipped = [
        Skipped.at(lines[0], f"a field that is no short text, in {len(lines)} rows", key)
        for key, lines in dropped.items()
    ]
    return Content(items, skipped=skipped)


def _write_jsonl(out: Outgoing) -> Iterator[str]:
    for e in out.library.readable:
        row = {"id": e.id, "label": out.library.label_of[e.id], "text": e.text}
        yield json.dumps(row, ensure_ascii=False) + "\n"


JSONL = Format(
    "rows",
    "tables and notebooks: JSONL, an experience a line",
    "jsonl",
    "ids",
    _detect_jsonl,
    _read_jsonl,
    _write_jsonl,
)


def _detect_csv(source: SourceFile) -> int:
    csv.field_size_limit(LONGEST_FIELD)
    try:
        header = next(csv.reader([source.first_line], strict=True), [])
    except csv.Error:
        return 0
    if len(header) < 2 or not set(header) & set(TEXTS):
        return 0
    return 4 if "id" in header else 3


def _read_csv(source: SourceFile) -> Content:
    csv.field_size_limit(LONGEST_FIELD)
    rows = csv.DictReader(io.StringIO(source.text, newline=""), strict=True)
    field = next((name for name in TEXTS if name in (rows.fieldnames or ())), None)
    if field is None:
        raise _without_text(source, rows.fieldnames or (), 1)
    items = []
    try:
        for row in rows:
            if row[field] is None or None in row:
                raise source.wrong(
                    "has another number of cells than the header",
                    rows.line_num,
                    hint="a text with a comma has to be in quotes",
                )
            id = row["id"] if is_id(row.get("id") or "") else None
            evidence = {
                key: value for key, value in row.items() if key != field and value and value != id
            }
            items.append(Item(read_cell(row[field]), id, None, evidence, rows.line_num))
    except csv.Error as error:
        raise source.wrong(str(error), rows.line_num, hint="is a quote missing?") from None
    return Content(items)


def _write_csv(out: Outgoing) -> Iterator[str]:
    page = io.StringIO(newline="")
    sheet = csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n")
    sheet.writerow(("id", "label", "text"))
    for e in out.library.readable:
        sheet.writerow((e.id, out.library.label_of[e.id], inert_cell(e.text)))
    yield page.getvalue()


CSV = Format(
    "csv",
    "spreadsheets: CSV, an experience a row",
    "csv",
    "ids",
    _detect_csv,
    _read_csv,
    _write_csv,
)
