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
    """Returns that more of so many attempts than of a mixed group have to beat its mean."""
    mean = fmean(rewards)
    above = sum(reward > mean for reward in rewards)
    return Confirmation(attempts, attempts * above // len(rewards) + 1, mean)
