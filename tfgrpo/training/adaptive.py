"""Adaptive groups: no more attempts at a problem than it takes to tell winners from losers.

A group teaches only when it is mixed, and how likely that is differs from problem to problem.
So a group begins with two attempts and stops once it holds a winner and a loser; what that
saves goes to the groups that are still all alike, likeliest first; and a problem whose chance
of a mixed group is small is passed over, but for a random tenth, since what is believed of it
may be wrong. The chance comes from a Beta posterior for each problem, which forgets by a
quarter whenever the library changes. (XRPO, arXiv 2510.06672; arXiv 2506.05316 on difficulty.)

Everything here is decided from rewards and a seed, never from the order of arrival, so a run
that is resumed draws the same attempts. Groups that stop early are biased estimates of success:
evaluation keeps its fixed samples.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

FIRST = 2
"""The attempts that every group begins with."""
FORGET = 0.75
"""The weight that earlier attempts keep when the library changes."""
PRIOR = 0.5
"""Wins and losses that every problem is credited with beforehand (Jeffreys)."""
LEAST_CHANCE = 0.4
"""Problems less likely than this to give a mixed group are passed over."""
FLOOR = 0.1
"""The share of those that are tried all the same."""


@dataclass(frozen=True, slots=True)
class Belief:
    """What is known of one problem: weighted counts of wins and losses."""

    wins: float = 0.0
    losses: float = 0.0

    def after(self, rewards: Iterable[float], *, pivot: float = 0.5) -> Belief:
        """Returns the belief with these rewards seen; above `pivot` is a win."""
        rewards = list(rewards)
        won = sum(reward > pivot for reward in rewards)
        return Belief(self.wins + won, self.losses + len(rewards) - won)

    def faded(self) -> Belief:
        """Returns the belief after the library has changed."""
        return Belief(self.wins * FORGET, self.losses * FORGET)

    def mixed_within(self, attempts: int) -> float:
        """Returns the chance that `attempts` fresh attempts are not all alike."""
        return 1.0 - self._all_win(attempts) - self._all_lose(attempts)

    def turns_within(self, attempts: int, *, wins: bool) -> float:
        """Returns the chance that one of `attempts` differs from a group of all `wins`, or none."""
        return 1.0 - (self._all_win(attempts) if wins else self._all_lose(attempts))

    def _all_win(self, n: int) -> float:
        return _rising(self.wins + PRIOR, self.losses + PRIOR, n)

    def _all_lose(self, n: int) -> float:
        return _rising(self.losses + PRIOR, self.wins + PRIOR, n)


def _rising(a: float, b: float, n: int) -> float:
    """Returns E[p**n] for p ~ Beta(a, b)."""
    return math.prod((a + i) / (a + b + i) for i in range(n))


def chosen(
    problems: Sequence[str], beliefs: Mapping[str, Belief], group: int, *, seed: str
) -> list[str]:
    """Returns the problems worth a group of up to `group` attempts, in order.

    Passed over are those whose chance of a mixed group is below LEAST_CHANCE, but for a random
    share of FLOOR. One that was never tried is always worth it.
    """
    dice = random.Random(seed)
    worth = []
    for problem in problems:
        lucky = dice.random() < FLOOR
        belief = beliefs.get(problem)
        if belief is None or lucky or belief.mixed_within(group) >= LEAST_CHANCE:
            worth.append(problem)
    return worth


def enough(rewards: Sequence[float], group: int) -> bool:
    """Returns whether a group needs no further attempt: it is mixed, or has `group` of them."""
    return len(rewards) >= group or len(set(rewards)) > 1


def extra(
    alike: Mapping[str, Sequence[float]], beliefs: Mapping[str, Belief], saved: int, group: int
) -> dict[str, int]:
    """Returns how many of the `saved` attempts each group that is still all alike may have.

    `alike` is problem → rewards so far, `beliefs` what was known before them. Each may have up to
    `group` more, the likeliest to turn first, and none below LEAST_CHANCE.
    """
    chances = {
        problem: beliefs.get(problem, Belief())
        .after(rewards)
        .turns_within(group, wins=rewards[0] > 0.5)
        for problem, rewards in alike.items()
        if rewards
    }
    given: dict[str, int] = {}
    for problem, chance in sorted(chances.items(), key=lambda item: (-item[1], item[0])):
        if chance < LEAST_CHANCE or saved <= 0:
            break
        given[problem] = min(group, saved)
        saved -= given[problem]
    return given
