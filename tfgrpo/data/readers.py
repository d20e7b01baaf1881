"""Rows of JSONL, JSON, CSV, TSV, parquet, Excel and folders of `datasets`, packed as `.gz` or
`.zip` or not, each with where it stands (`data.csv:7`) so that errors can name it; and of Python
objects, as the lines of a JSONL file."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from tfgrpo.data import compressed_files, file_tables
from tfgrpo.data.cell_types import plain
from tfgrpo.data.column_roles import is_filled
from tfgrpo.data.compressed_files import Contents
from tfgrpo.data.compressed_files import DatasetError as DatasetError
from tfgrpo.data.file_tables import EXTRA as EXTRA
from tfgrpo.data.file_tables import rows_in

LONGEST_FIELD = 10_000_000
SEPARATORS = (",", ";", "\t", "|")
"""What stands between the values of a line, the likeliest first."""
LOOKED_AT = 50
"""Records that are read to tell which of them it is."""

Fields: TypeAlias = dict[str, Any]


class Row(NamedTuple):
    """A row: the number it is called by, where it stands in words, and its fields."""

    number: int
    where: str
    fields: Fields


def read(path: Path) -> Iterator[Row]:
    """Yields the rows of a file by its ending (JSONL is the rest). Raises DatasetError."""
    yield from _rows(path)


def _rows(path: Path) -> Iterator[Row]:
    if os.path.isdir(path):
        return _numbered(str(path), file_tables.saved_folder(path))
    content = compressed_files.read_contents(path)
    if content.ending == ".parquet":
        return _numbered(content.name, file_tables.parquet(content))
    if content.ending in (".xlsx", ".xlsm"):
        return _table(content.name, file_tables.workbook(content))
    if content.ending == ".xls":
        raise DatasetError(
            f"{path} is a workbook of Excel's old kind", hint="save it as .xlsx or CSV UTF-8"
        )
    if content.ending in (".csv", ".tsv"):
        return _csv(content)
    return _json(content) if content.ending == ".json" else _jsonl(content)


def _numbered(name: str, rows: Iterable[Fields]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        yield Row(number, f"{name}:{number}", {key: _known(cell) for key, cell in row.items()})


def _known(cell: Any) -> Any:
    """A cell with None for what is no number, as tables of numbers have where there is none:
    NaN, and what division by nothing leaves; a date is a text."""
    if isinstance(cell, dict):
        return {key: _known(value) for key, value in cell.items()}
    if isinstance(cell, list):
        return [_known(value) for value in cell]
    return None if isinstance(cell, float) and not math.isfinite(cell) else plain(cell)


def _loads(text: str) -> Any:
    return json.loads(
        text, parse_constant=lambda _: None, parse_float=lambda digits: _known(float(digits))
    )


def _jsonl(content: Contents) -> Iterator[Row]:
    lines = compressed_files.text(content).split("\n")  # at nothing but newlines
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{content.name}:{number}"
            try:
                row = _whole(_loads(line), where)
            except (ValueError, RecursionError) as error:
                raise DatasetError(
                    f"{where}: not JSON: {error}"[:200], hint="expected one JSON object per line"
                ) from None
            yield Row(number, where, _object(row, where))


def _json(content: Contents) -> Iterator[Row]:
    try:
        rows = _loads(compressed_files.text(content))
    except (ValueError, RecursionError):
        yield from _jsonl(content)  # many a file of lines is called .json
        return
    if isinstance(rows, dict):
        rows = rows_in(rows, content.name)
    if not isinstance(rows, list):
        raise DatasetError(
            f"{content.name} is not a list of objects", hint='write [{"problem": …}, …]'
        )
    for number, row in enumerate(rows, 1):
        where = f"{content.name}:{number}"
        yield Row(number, where, _object(_whole(row, where), where))


def _csv(content: Contents) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    whole = compressed_files.text(content)
    first, newline, rest = whole.partition("\n")
    skipped = 0
    if first.strip().lower().startswith("sep=") and len(first.strip()) == 5:  # Excel's own line
        separator, whole, skipped = first.strip()[4], rest, len(newline)
    else:
        separator = "\t" if content.ending == ".tsv" else _separator(whole)
    return _table(content.name, _records(content.name, whole, separator, skipped))


def _records(
    name: str, whole: str, separator: str, skipped: int
) -> Iterator[tuple[int, list[object]]]:
    reader = csv.reader(io.StringIO(whole, newline=""), delimiter=separator, strict=True)
    start = 1 + skipped
    try:
        for record in reader:
            yield start, list(record)
            start = reader.line_num + skipped + 1
    except csv.Error as error:
        raise DatasetError(
            f"{name}:{start}: {error}",
            hint="the file must be CSV: is a quotation mark that this row opens never closed?",
        ) from None


def _separator(whole: str) -> str:
    """What separates the values: what gives most columns, in every record looked at."""

    def columns(separator: str) -> tuple[bool, int]:
        reader = csv.reader(io.StringIO(whole, newline=""), delimiter=separator)
        try:
            widths = [len(record) for record in itertools.islice(reader, LOOKED_AT) if record]
        except csv.Error:
            return False, 0
        return len(set(widths)) == 1 and widths[0] > 1, widths[0] if widths else 0

    return max(SEPARATORS, key=columns)  # the first of equals


def _table(name: str, records: Iterator[tuple[int, list[object]]]) -> Iterator[Row]:
    """Yields rows by the first record's names, but nameless and empty ones. Raises DatasetError."""
    head: list[str] = []
    for number, cells in records:
        where = f"{name}:{number}"
        if not any(map(is_filled, cells)):
            continue
        if not head:
            head = _head(where, cells)
            continue
        while len(cells) > len(head) and not is_filled(cells[-1]):
            cells.pop()
        if len(cells) != len(head):
            raise DatasetError(
                f"{where}: has {len(cells)} values, not as many fields as the first line "
                f"({len(head)}: {', '.join(filter(None, head))})"[:300],
                hint="the first line gives the field names; quote values that contain the "
                "separator",
            )
        for column, (key, cell) in enumerate(zip(head, cells, strict=True), 1):
            if not key and is_filled(cell):
                raise DatasetError(
                    f"{where}: column {column} has the value {str(cell)[:40]!r} and no name",
                    hint="the first line gives the field names: name that column",
                )
        yield Row(number, where, {k: cell for k, cell in zip(head, cells, strict=True) if k})


def _head(where: str, cells: Sequence[object]) -> list[str]:
    head = ["" if cell is None else str(cell).strip() for cell in cells]
    while not head[-1]:
        head.pop()
    twice = next((key for n, key in enumerate(head) if key and key in head[:n]), None)
    if twice is not None:
        raise DatasetError(
            f"{where}: two columns are called {twice!r}", hint="give each its own name"
        )
    return head


def _whole(row: object, where: str) -> object:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DatasetError(
            f"{where}: contains half a character (a lone surrogate)",
            hint="use valid Unicode characters",
        ) from None
    return row


def _object(row: object, where: str) -> Fields:
    if not isinstance(row, dict):
        kind = {list: "a list", str: "a text", bool: "true or false"}.get(type(row), "a number")
        raise DatasetError(
            f"{where}: not an object but {'null' if row is None else kind}",
            hint='write {"problem": …, "answer": …}',
        )
    return row


TEXTS = (date, time, timedelta, Decimal, PurePath, UUID)
"""What is a text as Python writes it."""
ABSENT = ("NAType", "NaTType")
"""What pandas has where there is no value."""


def row_lines(rows: Sequence[object]) -> list[str]:
    """A line of JSON for each row, a mapping. Arrays and numbers of numpy, pandas and the like
    are lists and numbers, dates are texts. Raises DatasetError for what is none of these."""
    return [_row_line(number, row) for number, row in enumerate(rows, 1)]


def _row_line(number: int, row: object) -> str:
    if not isinstance(row, Mapping):
        raise DatasetError(
            f"row {number} is a {type(row).__name__}, and no mapping",
            hint='give rows as [{"problem": …, "answer": …}, …]',
        )
    fields = dict(row)
    try:
        return _json_line(fields)
    except (TypeError, ValueError, RecursionError) as error:
        name, cause = next(_unusable(fields), (None, error))
        where = "" if name is None else f", field {name!r}"
        raise DatasetError(
            f"row {number}{where}: {cause}"[:300],
            hint="a field holds text, numbers, lists, mappings or dates: convert the rest",
        ) from None


def _unusable(fields: dict[object, object]) -> Iterator[tuple[object, Exception]]:
    for name, value in fields.items():
        try:
            _json_line({name: value})
        except (TypeError, ValueError, RecursionError) as error:
            yield name, error


def _json_line(fields: dict[object, object]) -> str:
    line = json.dumps(fields, ensure_ascii=False, default=_as_json) + "\n"
    try:
        line.encode()
    except UnicodeEncodeError:
        raise ValueError("contains half a character (a lone surrogate)") from None
    return line


def _as_json(value: Any) -> object:
    """What JSON has for an object. Raises TypeError where it has nothing."""
    if type(value).__name__ in ABSENT:
        return None
    if isinstance(value, TEXTS):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M"):  # numbers in a list
        return value.astype(str).tolist()
    if callable(getattr(value, "tolist", None)) and not isinstance(value, type):
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} cannot be used: {value!r:.80}")
