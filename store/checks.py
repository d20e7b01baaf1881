"""What a check of a store finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tfgrpo.store.errors import StoreError


class Problem(NamedTuple):
    """Something wrong: where (a version, event, snapshot or name), and what."""

    where: str
    what: str
    derived: bool = False


def attempt(name: str, check: Callable[[], Iterator[Problem]]) -> list[Problem]:
    """Returns what a check finds, and that it could not go on where damage ended it."""
    found: list[Problem] = []
    try:
        for problem in check():
            found.append(problem)
    except StoreError as error:
        found.append(Problem(name, f"cannot be read to the end: {error}"))
    return found
