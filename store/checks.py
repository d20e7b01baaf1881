"""What a check of a store finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tfgrpo.store.errors import StoreError


class Defect(NamedTuple):
    """Something wrong: where (a version, event, snapshot or name), and what."""

    where: str
    what: str
    derived: bool = False


def attempt(name: str, check: Callable[[], Iterator[Defect]]) -> list[Defect]:
    """Returns what a check finds, and that it could not go on where damage ended it."""
    defects: list[Defect] = []
    try:
        for defect in check():
            defects.append(defect)
    except StoreError as error:
        defects.append(Defect(name, f"cannot be read to the end: {error}"))
    return defects


COUNTED = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")


def call_defects(rows: Iterable[tuple[Any, ...]]) -> Iterator[Defect]:
    """Yields what is wrong with calls: rows of id, answer, attempts, seconds and the counts. An
    answer repeats its seconds and its tokens; to those come what tries before it have cost."""
    for id, answer, attempts, seconds, *counts in rows:
        try:
            fields = json.loads(answer)
        except ValueError:  # as another check says
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
