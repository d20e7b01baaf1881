"""What a check of a store finds."""

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
    """Returns what a check finds, and that it could not go on where damage ended it."""
    defects: list[Defect] = []
    try:
        for defect in check():
            defects.append(defect)
    except StoreError as error:
        defects.append(Defect(name, f"cannot be read to the end: {error}"))
    return defects
