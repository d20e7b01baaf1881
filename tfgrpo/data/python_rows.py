"""Rows that are Python objects, as the lines of a JSONL file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import Any
from uuid import UUID

from tfgrpo.data.readers import DatasetError

TEXTS = (date, time, timedelta, Decimal, PurePath, UUID)
"""What is a text as Python writes it."""
ABSENT = ("NAType", "NaTType")
"""What pandas has where there is no value."""


def row_lines(rows: Sequence[object]) -> list[str]:
    """A line of JSON for each row, a mapping. Arrays and numbers of numpy, pandas and the like
    are lists and numbers, dates are texts. Raises DatasetError for what is none of these."""
    return [_line(number, row) for number, row in enumerate(rows, 1)]


def _line(number: int, row: object) -> str:
    if not isinstance(row, Mapping):
        raise DatasetError(
            f"row {number} is a {type(row).__name__}, and no mapping",
            hint='give rows as [{"problem": …, "answer": …}, …]',
        )
    fields = dict(row)
    try:
        return _json(fields)
    except (TypeError, ValueError, RecursionError) as error:
        name, cause = next(_unusable(fields), (None, error))
        where = "" if name is None else f", field {name!r}"
        raise DatasetError(
            f"row {number}{where}: {cause}"[:300],
            hint="a field holds text, numbers, lists, mappings or dates: convert the rest",
        ) from None


def _unusable(fields: dict[object, object]) -> Iterator[tuple[object, Exception]]:
    """Yields the fields that cannot be written, each with the reason."""
    for name, value in fields.items():
        try:
            _json({name: value})
        except (TypeError, ValueError, RecursionError) as error:
            yield name, error


def _json(fields: dict[object, object]) -> str:
    line = json.dumps(fields, ensure_ascii=False, default=_plain) + "\n"
    try:
        line.encode()
    except UnicodeEncodeError:
        raise ValueError("contains half a character (a lone surrogate)") from None
    return line


def _plain(value: Any) -> object:
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
