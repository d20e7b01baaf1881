"""Values from a file that may be damaged, checked column by column before anything relies on them,
so that damage is an error with a hint. `fsck` finds values that are wrong but well formed: a
`Defect`. Of JSON that a stranger wrote only values of the expected kind are taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from math import isfinite
from typing import Any, NamedTuple, TypeVar

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
MOST = 1 << 53
"""No number that is counted is as large."""
COUNTED = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")


def damage_error(what: str) -> StoreError:
    """The error for a store with values that no valid store has."""
    return StoreError(
        f"the store is damaged: {what}",
        hint="run `tfgrpo fsck` for details; restore a backup, and keep this file",
    )


def check_rows(rows: list[Any], shape: str, what: str) -> list[Any]:
    """Rows whose columns are of the types that `shape` has letters for: `i` integer, `t` time, `r`
    real, `s` text, `b` bytes; in upper case null too. Raises StoreError naming `what`."""
    if rows:
        for letter, column in zip(shape, zip(*rows, strict=True), strict=True):
            values = [v for v in column if v is not None] if letter.isupper() else column
            if list(map(type, values)).count(KINDS[letter.lower()]) != len(values):
                raise damage_error(f"{what} hold a value of another kind")
            if letter == "t" and not (min(column) >= 0 and max(column) < LATEST):
                raise damage_error(f"{what} have a time that is none")
    return rows


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


def is_json(text: object) -> bool:
    """Whether a value is a text of JSON."""
    import json

    try:
        json.loads(text)  # type: ignore[arg-type]
    except (ValueError, TypeError, RecursionError):
        return False
    return True


class Defect(NamedTuple):
    """Something wrong: where (a version, event, snapshot or name), and what."""

    where: str
    what: str
    derived: bool = False


def attempt(name: str, check: Callable[[], Iterator[Defect]]) -> list[Defect]:
    """The defects that a check finds, and one more where damage ended it."""
    defects: list[Defect] = []
    try:
        for defect in check():
            defects.append(defect)
    except StoreError as error:
        defects.append(Defect(name, f"cannot be read to the end: {error}"))
    return defects


def call_defects(rows: Iterable[tuple[Any, ...]]) -> Iterator[Defect]:
    """The defects of calls: rows of id, answer, attempts, seconds and the counts. An answer repeats
    its seconds and its tokens; the counts also include tokens of earlier tries."""
    import json

    for id, answer, attempts, seconds, *counts in rows:
        try:
            fields = json.loads(answer)
        except (ValueError, TypeError, RecursionError):
            yield Defect(f"row {id} of journal", "has an answer that is no JSON")
            continue
        if not isinstance(fields, dict):
            yield Defect(f"call {id}", "has an answer that is none")
            continue
        own = [fields.get(name, count) for name, count in zip(COUNTED, counts, strict=True)]
        alike = own == counts or (attempts > 1 and all(map(_no_more, own, counts)))
        if not alike or fields.get("seconds", seconds) != seconds:
            yield Defect(f"call {id}", "counts something else than its answer does")


def _no_more(own: object, count: Any) -> bool:
    return isinstance(own, int | float) and own <= count


def listed(value: object) -> list[Any]:
    """A list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def objects(value: object) -> list[dict[str, Any]]:
    """The objects of a list; none for anything else."""
    return [one for one in listed(value) if isinstance(one, dict)]


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def texts(value: object) -> tuple[str, ...]:
    """The texts of a list."""
    return tuple(one for one in listed(value) if isinstance(one, str))


def text(value: object) -> str:
    """A text; "" for anything else."""
    return value if isinstance(value, str) else ""


def whole(value: object) -> int | None:
    """A whole number; None for anything else, and for one that is too large to be counted."""
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= MOST:
        return None
    return value


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    try:
        given = float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None
    return given if given is not None and isfinite(given) else None
