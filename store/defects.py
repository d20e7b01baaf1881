"""What a check finds wrong that is well formed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tfgrpo.store.errors import StoreError


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
