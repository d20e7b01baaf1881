"""CSV of a library, an experience a row, every cell in quotes. A text that a spreadsheet would
compute has a mark before it. Read from any CSV with a column of texts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from tfgrpo.interchange.format_types import Content, Format, Item, SourceFile
from tfgrpo.interchange.formats.jsonl_rows import TEXTS
from tfgrpo.interchange.write_out import Outgoing
from tfgrpo.store.canonical import is_id
from tfgrpo.wording import inert_cell, read_cell


def _header(source: SourceFile) -> list[str]:
    first = next((line for line in source.lines if line.strip()), "")
    try:
        return next(csv.reader([first], strict=True), [])
    except csv.Error:
        return []


def detect(source: SourceFile) -> int:
    header = _header(source)
    if len(header) < 2 or not set(header) & set(TEXTS):
        return 0
    return 4 if "id" in header else 3


def read(source: SourceFile) -> Content:
    rows = csv.DictReader(io.StringIO(source.text, newline=""), strict=True)
    field = next((name for name in TEXTS if name in (rows.fieldnames or ())), None)
    if field is None:
        raise source.wrong(
            f"has no text among {', '.join(rows.fieldnames or ()) or 'nothing'}",
            1,
            hint=f"the text is looked for in {', '.join(TEXTS)}",
        )
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


def write(out: Outgoing) -> Iterator[str]:
    page = io.StringIO(newline="")
    sheet = csv.writer(page, quoting=csv.QUOTE_ALL, lineterminator="\n")
    sheet.writerow(("id", "label", "text"))
    for e in out.library.readable:
        sheet.writerow((e.id, out.library.label_of[e.id], inert_cell(e.text)))
    yield page.getvalue()


FORMAT = Format("csv", "spreadsheets: CSV, an experience a row", "csv", "ids", detect, read, write)
