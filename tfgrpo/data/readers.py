"""Rows of a file of any usual kind: JSONL, JSON, CSV, TSV or parquet.

A row comes with where it stands (`data.csv:7`, counted as an editor counts lines; for parquet and
JSON the row's number from 1), so that whatever is wrong with it can be told by file and line.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.store.errors import TfgrpoError

EXTRA = "pip install 'tfgrpo[hub]'"
"""What brings pyarrow and datasets."""
LONGEST_FIELD = 10_000_000


class DatasetError(TfgrpoError):
    """A dataset that cannot be used; the message names the file and the line."""


Fields: TypeAlias = dict[str, Any]


class Row(NamedTuple):
    """A row: the number it is called by, where it stands in words, and its fields."""

    number: int
    where: str
    fields: Fields


def read(path: Path) -> Iterator[Row]:
    """Yields the rows of a file; what kind it is its name's ending says, and JSONL is the rest.

    Raises DatasetError at the first row that cannot be read.
    """
    if path.is_dir():
        raise DatasetError(f"{path} is a folder", hint="give a file of problems")
    ending = path.suffix.lower()
    if ending == ".parquet":
        return _parquet(path)
    if ending in (".csv", ".tsv"):
        return _csv(path, "\t" if ending == ".tsv" else ",")
    if ending == ".json":
        return _json(path)
    return _jsonl(path)


def text(path: Path) -> str:
    """Returns a text file, without its byte order mark. Raises DatasetError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DatasetError(
            f"no file {path}", hint="give a file of problems, such as JSONL"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read {path}: {error}", hint="the file must be UTF-8") from None


def _jsonl(path: Path, content: str | None = None) -> Iterator[Row]:
    lines = (text(path) if content is None else content).split("\n")  # at nothing but newlines
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}:{number}"
            yield Row(number, where, _object(_parsed(line, where), where))


def _json(path: Path) -> Iterator[Row]:
    content = text(path)
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError):
        yield from _jsonl(path, content)  # many a file of lines is called .json
        return
    if isinstance(rows, dict):
        lists = [value for value in rows.values() if isinstance(value, list)]
        rows = lists[0] if len(lists) == 1 else [rows]
    if not isinstance(rows, list):
        raise DatasetError(f"{path} is not a list of objects", hint='write [{"problem": …}, …]')
    for number, row in enumerate(rows, 1):
        where = f"{path}:{number}"
        yield Row(number, where, _object(_whole(row, where), where))


def _csv(path: Path, separator: str) -> Iterator[Row]:
    csv.field_size_limit(LONGEST_FIELD)
    reader = csv.DictReader(io.StringIO(text(path), newline=""), delimiter=separator, strict=True)
    try:
        for row in reader:
            where = f"{path}:{reader.line_num}"
            if None in row or None in row.values():
                raise DatasetError(
                    f"{where}: does not have as many fields as the first line",
                    hint="the first line gives the field names; quote values that contain commas",
                )
            yield Row(reader.line_num, where, dict(row))
    except csv.Error as error:
        raise DatasetError(
            f"{path}:{reader.line_num}: {error}", hint="the file must be CSV"
        ) from None


def _parquet(path: Path) -> Iterator[Row]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise DatasetError(f"cannot read {path}: pyarrow is not installed", hint=EXTRA) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(1000):
                for row in batch.to_pylist():
                    number += 1
                    yield Row(number, f"{path}:{number}", row)
    except FileNotFoundError:
        raise DatasetError(f"no file {path}", hint="give a file of problems") from None
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors and OSErrors
        raise DatasetError(
            f"cannot read {path}: {error}", hint="the file must be Parquet"
        ) from None


def _parsed(line: str, where: str) -> object:
    try:
        return _whole(json.loads(line), where)
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{where}: not JSON: {error}"[:200], hint="expected one JSON object per line"
        ) from None


def _whole(row: object, where: str) -> object:
    """Returns a row that can be written again. Raises DatasetError for half a character."""
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
        raise DatasetError(f"{where}: not an object", hint='write {"problem": …, "answer": …}')
    return row
