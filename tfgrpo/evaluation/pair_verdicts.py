"""Whether a thing helps, said of pairs of attempts: one was shown it, and the other was not.

Two questions are asked, and both have to be answered. **Is it more than chance at these problems?**
A betting test over pairs says so (`anytime_tests.py`), whenever one looks. **Would it be so at
new ones?** A thing may turn some problems to right and others to wrong. Then twelve pairs at one
problem are one piece of evidence, and problems that happen to be here decide what is seen. So
effects of problems are compared with one another: a t interval for the mean over problems, each
with as much weight as it has pairs (the sandwich of Liang and Zeger, Biometrika 1986).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Literal, NamedTuple, TypeAlias

import numpy

from tfgrpo.evaluation.anytime_tests import Test, bounds, in_blocks, means
from tfgrpo.evaluation.statistics import APART, t_quantile
from tfgrpo.wording import with_bounds

Verdict: TypeAlias = Literal["helps", "harms", "too small", "not tried", "undecided"]
LEVEL = 0.95
"""How sure an answer is: of things that do nothing at these problems at most 2.5 % are ever said to
help, and as many to harm, whenever one looks. How many of those that do nothing at new ones are is
in benchmarks/RESULTS-proof.md."""
NEEDED = math.log(2 / (1 - LEVEL))
FEWEST = 8
"""Pairs before something may be called too small."""
SPREAD, WORTH = 0.5, 2.0
"""The variance of a pair's difference before any was seen, and the pairs that is worth."""
FEWEST_PROBLEMS = 4
"""Problems that say something of new ones. Three that a thing happens to turn alike are no
evidence: in one proof of eleven they were."""


class Pair(NamedTuple):
    """Two attempts at a problem in a step: the reward of that with a thing less that of the
    other."""

    problem: str
    step: int
    difference: float


class Judged(NamedTuple):
    """What is known of a thing: the verdict, the mean effect of showing it on the reward with its
    95 % interval, and the number of pairs."""

    verdict: Verdict
    effect: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{with_bounds(self.effect, self.low, self.high)}, {self.pairs} pairs"


def judge(pairs: Sequence[Pair], left: float) -> Judged:
    """What pairs say, in the order in which they were planned. A pair is one outcome: the
    candidate's value is half of 1 and the difference, the control's one half. `left` is how many
    pairs may still come: where they would not show an effect a standard error above the one seen,
    it is too small, which makes no other error likelier."""
    differences = [pair.difference for pair in pairs]
    count, test = len(pairs), _test(differences)
    evidence = max(test(True, 0.0), 0.0), max(test(False, 0.0), 0.0)
    here = bounds(test, 0.5, NEEDED) if pairs else (-0.5, 0.5)
    effect = math.fsum(differences) / count if pairs else 0.0
    wide, is_over = at_new_problems(pairs)
    low, high = min(2 * here[0], effect - wide), max(2 * here[1], effect + wide)
    verdict: Verdict = "undecided"
    if evidence[0] >= NEEDED and effect > wide:
        verdict = "helps"
    elif evidence[1] >= NEEDED and effect < -wide:
        verdict = "harms"
    elif left <= 0 and not pairs:
        verdict = "not tried"
    elif left <= 0 or (
        count >= FEWEST and (is_over or not _may_show(differences, max(evidence), left))
    ):
        verdict = "too small"
    return Judged(verdict, effect, max(low, -1.0), min(high, 1.0), count)


def at_new_problems(pairs: Sequence[Pair]) -> tuple[float, bool]:
    """Half of the 95 % interval of the effect at problems like those of the pairs, and whether it
    would hold zero however many pairs more there were at the same problems, were the effect here a
    standard error larger than it looks. A second pass tells that no other problems come."""
    at: dict[str, list[float]] = {}
    steps: dict[str, set[int]] = {}
    for problem, step, difference in pairs:
        at.setdefault(problem, []).append(difference)
        steps.setdefault(problem, set()).add(step)
    count, problems = len(pairs), len(at)
    if problems < FEWEST_PROBLEMS:
        return 1.0, False
    mean = math.fsum(pair.difference for pair in pairs) / count
    weight = math.fsum(len(values) ** 2 for values in at.values()) / count**2
    left = math.fsum((math.fsum(values) - len(values) * mean) ** 2 for values in at.values())
    between = (left / count**2 / weight * problems + APART) / problems
    t = t_quantile(0.5 + LEVEL / 2, problems)
    is_over = False
    if min(map(len, steps.values())) > 1:
        within = fmean(variance(values) for values in at.values()) / count
        stays = max(between * weight - within, 0.0)
        is_over = abs(mean) + math.sqrt(within) < t * math.sqrt(stays)
    return t * math.sqrt(between * weight), is_over


def _test(differences: Sequence[float]) -> Test:
    values = numpy.full(2 * len(differences), 0.5)
    values[1::2] = (1 + numpy.asarray(differences, float)) / 2
    return means(in_blocks(values, [(1, 1)] * len(differences)))


def _may_show(differences: Sequence[float], evidence: float, left: float) -> bool:
    """Whether pairs to come would decide, were the effect a standard error larger than it looks:
    evidence grows by half the square of effect by deviation with each of them at most."""
    pairs = len(differences)
    mean = math.fsum(differences) / pairs
    square = math.fsum((one - mean) ** 2 for one in differences)
    noise = (square + WORTH * SPREAD) / (pairs + WORTH)
    largest = abs(mean) + math.sqrt(noise / pairs)
    return evidence + left * largest**2 / (2 * noise) >= NEEDED
