"""Whether a thing helps, from pairs of attempts at one problem of which one was shown it, by a
coin.

A pair is one outcome of the bets in `anytime_tests.py`: the candidate's value is half of 1 and the
difference of its rewards, control's is one half. A third answer is that an effect is too small to
matter: the attempts that are left would not show one a standard error above the one seen. It claims
no effect, so it makes no error of the other two likelier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy

from tfgrpo.evaluation import anytime_tests
from tfgrpo.wording import with_bounds

Verdict: TypeAlias = Literal["helps", "harms", "too small", "not tried", "undecided"]
LEVEL = 0.95
"""How sure an answer is: of things that do nothing at most 2.5 % are ever said to help, and as many
to harm, whenever one looks."""
NEEDED = math.log(2 / (1 - LEVEL))
FEWEST = 8
"""Pairs before something may be called too small."""
SPREAD, WORTH = 0.5, 2.0
"""The variance of a pair's difference before any was seen, and the pairs that is worth."""


class Judged(NamedTuple):
    """What is known of a thing: the verdict, the mean effect of showing it on the reward with its
    95 % interval, which holds at all times together, and the number of pairs."""

    verdict: Verdict
    effect: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{with_bounds(self.effect, self.low, self.high)}, {self.pairs} pairs"


def judge(differences: Sequence[float], left: float) -> Judged:
    """What pairs say, in the order in which they were planned: for each the reward with the
    thing less that without it. `left` is how many pairs may still come."""
    test, pairs = _test(differences), len(differences)
    evidence = max(test(True, 0.0), 0.0), max(test(False, 0.0), 0.0)
    low, high = anytime_tests.bounds(test, 0.5, NEEDED) if pairs else (-0.5, 0.5)
    effect = math.fsum(differences) / pairs if pairs else 0.0
    verdict: Verdict = "undecided"
    if max(evidence) >= NEEDED:
        verdict = "helps" if evidence[0] >= evidence[1] else "harms"
    elif left <= 0 and not pairs:
        verdict = "not tried"
    elif left <= 0 or (pairs >= FEWEST and not _may_show(differences, max(evidence), left)):
        verdict = "too small"
    return Judged(verdict, effect, 2 * low, 2 * high, pairs)


def _test(differences: Sequence[float]) -> anytime_tests.Test:
    values = numpy.full(2 * len(differences), 0.5)
    values[1::2] = (1 + numpy.asarray(differences, float)) / 2
    return anytime_tests.means(anytime_tests.in_blocks(values, [(1, 1)] * len(differences)))


def _may_show(differences: Sequence[float], evidence: float, left: float) -> bool:
    """Whether pairs to come would decide, were the effect a standard error larger than it looks:
    evidence grows by half the square of effect by deviation with each of them at most."""
    pairs = len(differences)
    mean = math.fsum(differences) / pairs
    square = math.fsum((one - mean) ** 2 for one in differences)
    variance = (square + WORTH * SPREAD) / (pairs + WORTH)
    largest = abs(mean) + math.sqrt(variance / pairs)
    return evidence + left * largest**2 / (2 * variance) >= NEEDED
