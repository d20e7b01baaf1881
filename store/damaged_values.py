"""Values from a file that may be damaged, checked column by column before anything relies on them,
so that damage is an error with a hint. What `fsck` finds wrong is well formed (`defects.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar

from tfgrpo.store.errors import StoreError

KINDS: dict[str, type] = {
    "i": int,
    "s": str,
    "b": bytes,
    "t": int,  # a time: microseconds since 1970, in a year of four digits
    "r": float,
}
_fitting: dict[tuple[str, tuple[type, ...]], list[int]] = {}
"""The types of columns that were found to fit a shape, and which of those are times."""
R = TypeVar("R")
LATEST = 253_402_300_800_000_000


def damage_error(what: str) -> StoreError:
    """The error for a store that holds what no store holds."""
    return StoreError(
        f"the store is damaged: {what}",
        hint="run `tfgrpo fsck` for details; restore a backup, and keep this file",
    )


def check_rows(rows: list[Any], shape: str, what: str) -> list[Any]:
    """Rows whose columns are of the types that `shape` has a letter for, one each. `i` integer, `t`
    time, `r` real, `s` text, `b` bytes; in upper case null is one as well. Raises StoreError naming
    `what`."""
    if rows:
        for letter, column in zip(shape, zip(*rows, strict=True), strict=True):
            if not _is_of(letter, column):
                raise damage_error(f"{what} hold a value of another kind")
            if letter == "t" and not (min(column) >= 0 and max(column) < LATEST):
                raise damage_error(f"{what} have a time that is none")
    return rows


def _is_of(letter: str, column: Sequence[Any]) -> bool:
    """Whether a column's values are of a letter's type: one look at all of them."""
    if letter.isupper():
        column = [value for value in column if value is not None]
    kind = KINDS[letter.lower()]
    return list(map(type, column)).count(kind) == len(column)


def as_rows(kind: type[R], rows: Iterable[Sequence[Any]]) -> list[R]:
    """Checked rows as named tuples: as `_make` does, in half of the time."""
    new: Any = tuple.__new__
    return list(map(new, repeat(kind), rows))


def check_row(row: Sequence[object] | None, shape: str, what: str) -> Any:
    """A row, or None where there is none, checked as `check_rows` does."""
    if row is not None:
        types = tuple(map(type, row))
        times = _fitting.get((shape, types))
        if times is None or not all(0 <= row[at] < LATEST for at in times):  # type: ignore[operator]
            check_rows([row], shape, what)  # which says what is wrong
            _fitting[shape, types] = [at for at, letter in enumerate(shape) if letter == "t"]
    return row


def parse_json(text: str | None, what: str, kind: type = dict) -> Any:
    """The value of a JSON text, which must be of `kind`. Raises StoreError naming `what`."""
    if text is None:
        return kind()
    import json  # which a view of a store without evidence and meta does not need

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise damage_error(f"{what} is no JSON") from None
    if not isinstance(value, kind):
        raise damage_error(f"{what} is JSON of another kind")
    return value
