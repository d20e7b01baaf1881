"""How a lesson is tried on the very problem that it came from, before it counts."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

CONFIRMATIONS = 2
TRIAL = "lesson"
"""Stands for the id of a lesson that attempts are to confirm."""


class Confirmation(NamedTuple):
    """So many attempts with a lesson, of which so many have to get more than a reward `above`."""

    attempts: int
    right: int
    above: float = 0.0


ONE_OF_TWO = Confirmation(CONFIRMATIONS, 1)


def half_of(attempts: int) -> Confirmation:
    """Returns that half of so many attempts have to be right."""
    return Confirmation(attempts, -(-attempts // 2))


def better_than(rewards: Sequence[float], attempts: int) -> Confirmation:
    """Returns that each of so many attempts has to get more than a mixed group on average."""
    return Confirmation(attempts, attempts, fmean(rewards))
