"""Files of exchanges: JSON objects, one a line, or one value: a batch, a list, a page (`{"data":
[…]}`). Rows are told by their fields (`otlp_files.py`, `openai_files.py`), others named by line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfgrpo.data import contents
from tfgrpo.improvement import openai_files, otlp_files
from tfgrpo.improvement.exchange import Exchange, Unread, Unusable, read_json

PAGES = ("data", "output_items", "items", "rows")
"""What holds the rows where a whole file is one object."""


def read_exchanges(path: Path) -> Iterator[Exchange | Unread]:
    """Yields the exchanges of a file, and what could not be read of it. Raises DatasetError."""
    batches: list[tuple[str, Mapping[str, Any]]] = []
    for where, row in _rows(path):
        if isinstance(row, Unread):
            yield row
        elif otlp_files.is_otlp(row):
            batches.append((where, row))
        else:
            try:
                yield openai_files.exchange(row, where)
            except Unusable as error:
                yield Unread(where, str(error))
    yield from otlp_files.exchanges(batches)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any] | Unread]]:
    text = contents.text(contents.read_contents(path))
    try:
        whole = read_json(text)
    except (ValueError, RecursionError):
        whole = None
    if whole is None:
        for number, line in enumerate(text.split("\n"), 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                yield _object(read_json(line), where)
            except (ValueError, RecursionError) as error:
                yield where, Unread(where, f"not JSON: {error}"[:120])
        return
    if isinstance(whole, dict) and not otlp_files.is_otlp(whole):
        pages = [whole[name] for name in PAGES if isinstance(whole.get(name), list)]
        whole = pages[0] if pages and openai_files.kind_of(whole) is None else whole
    for number, row in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield _object(row, f"{path}:{number}")


def _object(row: object, where: str) -> tuple[str, Mapping[str, Any] | Unread]:
    return where, row if isinstance(row, dict) else Unread(where, "not an object")
