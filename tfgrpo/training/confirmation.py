"""How a lesson that was learned without a comparison is tried on the very problem it came from."""

from __future__ import annotations

from typing import NamedTuple

CONFIRMATIONS = 2
TRIAL = "lesson"
"""Stands for the id of a lesson that attempts are to confirm."""


class Confirmation(NamedTuple):
    """So many attempts with a lesson, of which so many have to be right."""

    attempts: int
    right: int


ONE_OF_TWO = Confirmation(CONFIRMATIONS, 1)


def half_of(attempts: int) -> Confirmation:
    """Returns that half of so many attempts have to be right."""
    return Confirmation(attempts, -(-attempts // 2))
