"""Figures for evaluations, with intervals that know that samples of one problem are alike.

`rewards` is always problem → its samples' rewards. Problems are the unit: every estimate is a
mean over problems, and its interval is Student's t over the problems' values, so eight samples
of one hard problem do not count as eight facts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import fmean, stdev
from typing import NamedTuple

Rewards = Mapping[str, Sequence[float]]


class Estimate(NamedTuple):
    """A mean over problems with its confidence interval (95 % unless asked otherwise)."""

    mean: float
    low: float
    high: float
    problems: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interval(values: Sequence[float], *, level: float = 0.95) -> Estimate:
    """Returns the mean of one value for each problem, with its interval.

    With a single problem nothing is known about others: the interval is infinite.
    """
    mean, n = fmean(values), len(values)
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, n)
    half = t_quantile(0.5 + level / 2, n - 1) * stdev(values) / math.sqrt(n)
    return Estimate(mean, mean - half, mean + half, n)


def bounded(estimate: Estimate) -> Estimate:
    """Returns an estimate of a share with its interval cut to [0, 1]."""
    low, high = max(0.0, estimate.low), min(1.0, estimate.high)
    return estimate._replace(low=low, high=high)


def mean_at_k(rewards: Rewards) -> Estimate:
    """Returns the mean reward of a sample: mean@k for k samples of each problem."""
    return bounded(interval([fmean(samples) for samples in rewards.values()]))


def pass_at_k(rewards: Rewards, k: int) -> Estimate:
    """Returns the chance that one of k samples is right, without bias.

    With c right among n it is 1 - C(n-c, k) / C(n, k) (Chen et al., arXiv 2107.03374). A
    sample counts as right at a reward of 1. Raises ValueError when a problem has under k.
    """
    return bounded(interval([_pass(samples, k) for samples in rewards.values()]))


def _pass(samples: Sequence[float], k: int) -> float:
    n, right = len(samples), sum(reward >= 1.0 for reward in samples)
    if k > n:
        raise ValueError(f"pass@{k} of {n} samples")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def maj_at_k(samples: Mapping[str, Sequence[tuple[str | None, float]]]) -> Estimate:
    """Returns the reward of the answer given most often: maj@k.

    `samples` is problem → (extracted answer, reward). Samples without an answer have no vote;
    answers that tie share the reward evenly.
    """
    return bounded(interval([_majority(given) for given in samples.values()]))


def _majority(given: Sequence[tuple[str | None, float]]) -> float:
    votes = Counter(answer for answer, _ in given if answer is not None)
    if not votes:
        return 0.0
    most = max(votes.values())
    winners = [answer for answer, count in votes.items() if count == most]
    reward = {answer: reward for answer, reward in given if answer is not None}
    return fmean(reward[answer] for answer in winners)


class Difference(NamedTuple):
    """How much better `b` is than `a`, paired by problem."""

    estimate: Estimate
    verdict: str


def paired(a: Rewards, b: Rewards) -> Difference:
    """Returns the mean over the problems that both have of (mean reward in b - in a).

    The verdict is better, worse, or undecided when the interval holds 0. Raises ValueError
    when they share no problem.
    """
    shared = [problem for problem in a if problem in b]
    if not shared:
        raise ValueError("the two have no problem in common")
    found = interval([fmean(b[p]) - fmean(a[p]) for p in shared])
    if found.low > 0:
        return Difference(found, "better")
    return Difference(found, "worse" if found.high < 0 else "undecided")


@cache
def t_quantile(p: float, df: int) -> float:
    """Returns the p-quantile of Student's t with df degrees of freedom, for p > 0.5."""
    import mpmath

    def above(t: float) -> float:
        return float(mpmath.betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True)) / 2

    low, high = 0.0, 1.0
    while above(high) > 1 - p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > 1 - p else (low, middle)
    return (low + high) / 2
