"""The effect of presence on the reward: least squares within strata, with intervals robust to
attempts at one problem being alike (CR1). An interval is wider the fewer problems there are at
which some attempts had the experience and others had not."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfgrpo.evaluation.statistics import APART, NOISE, t_quantile
from tfgrpo.wording import with_bounds

Floats: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]
Flags: TypeAlias = NDArray[np.bool_]

Verdict: TypeAlias = Literal["helpful", "harmful", "inconclusive"]


class Credit(NamedTuple):
    """The effect of one experience's presence, in units of reward, with its 95 % interval; `shrunk`
    is the one to rank by. `present` and `absent` count rollouts."""

    experience: str
    effect: float
    low: float
    high: float
    shrunk: float
    present: int
    absent: int

    @property
    def verdict(self) -> Verdict:
        """Helpful or harmful when the interval leaves 0 out, else inconclusive."""
        return "helpful" if self.low > 0 else "harmful" if self.high < 0 else "inconclusive"

    def __str__(self) -> str:
        return f"{with_bounds(self.effect, self.low, self.high)}, {self.verdict}"


class Chunk(NamedTuple):
    """Some attempts under one library. `columns` are the experiences of `present`'s columns,
    `known` counts the attempts whose library had each. Strata are named within a `lot`."""

    lot: Hashable
    columns: Places
    present: Flags
    known: Floats
    strata: Sequence[str]
    problems: Sequence[str]
    rewards: Floats


class Estimate(NamedTuple):
    """The credits that attempts give, best first, and at how many problems they were."""

    problems: int
    credits: list[Credit]


def estimate(ids: Sequence[str], chunks: Sequence[Chunk]) -> Estimate:
    """The credits of experiences that varied at two problems. Lots are centred twice, for effects
    and for what these leave unexplained: so memory holds what attempts had, one byte for each
    experience, and no numbers of one lot beside those of another."""
    lots: dict[Hashable, list[Chunk]] = {}
    for chunk in chunks:
        lots.setdefault(chunk.lot, []).append(chunk)
    names = dict.fromkeys(problem for chunk in chunks for problem in chunk.problems)
    codes = {problem: code for code, problem in enumerate(names)}
    size = len(codes), len(ids)
    gram, moment, varied = np.zeros((size[1], size[1])), np.zeros(size[1]), np.zeros(size, bool)
    attempts = strata = 0
    for lot in lots.values():
        one = _centred(lot, codes)
        gram[np.ix_(one.columns, one.columns)] += one.present.T @ one.present
        moment[one.columns] += one.present.T @ one.rewards
        varied[:, one.columns] |= _summed(one.problems, one.present**2, size[0]) > 0
        attempts, strata = attempts + len(one.rewards), strata + one.strata
    there = np.flatnonzero(gram.diagonal() > 1e-9)
    if not len(there) or size[0] < 2:
        return Estimate(size[0], [])
    bread: Floats = np.linalg.pinv(gram[np.ix_(there, there)]).astype(np.float64)
    effects, scores = np.zeros(size[1]), np.zeros(size)
    effects[there] = bread @ moment[there]
    for lot in lots.values():
        one = _centred(lot, codes)
        left = one.rewards - one.present @ effects[one.columns]
        scores[:, one.columns] += _summed(one.problems, one.present * left[:, None], size[0])
    score = scores[:, there]
    scale = attempts / max(1, attempts - len(there) - strata)
    covariance: Floats = scale * bread @ (score.T @ score) @ bread
    present, known = np.zeros(size[1]), np.zeros(size[1])
    for chunk in chunks:
        present[chunk.columns] += chunk.present.sum(axis=0)
        known[chunk.columns] += chunk.known
    beta, problems = effects[there], varied.sum(axis=0)[there]
    bounds = _intervals(beta, covariance.diagonal(), problems)
    credits = [
        Credit(ids[i], *bound, present=round(present[i]), absent=round(known[i] - present[i]))
        for i, bound, count in zip(there.tolist(), bounds, problems.tolist(), strict=True)
        if count > 1  # one problem leaves nothing unexplained
    ]
    return Estimate(size[0], sorted(credits, key=lambda one: (-one.shrunk, one.experience)))


class _Centred(NamedTuple):
    """The attempts of a lot: the problem of each, and presence and reward less the means of its
    stratum."""

    columns: Places
    problems: Places
    present: Floats
    rewards: Floats
    strata: int


def _centred(lot: Sequence[Chunk], codes: Mapping[str, int]) -> _Centred:
    names, at = np.unique([name for chunk in lot for name in chunk.strata], return_inverse=True)
    problems = np.array([codes[one] for chunk in lot for one in chunk.problems], dtype=np.intp)
    present = np.concatenate([chunk.present for chunk in lot]).astype(np.float64)
    rewards = np.concatenate([chunk.rewards for chunk in lot])
    count = np.bincount(at, minlength=len(names))
    present -= (_summed(at, present, len(names)) / count[:, None])[at]
    rewards = rewards - (np.bincount(at, rewards, len(names)) / count)[at]
    return _Centred(lot[0].columns, problems, present, rewards, len(names))


def _summed(at: Places, values: Floats, size: int) -> Floats:
    sums = np.empty((size, values.shape[1]))
    for column in range(values.shape[1]):
        sums[:, column] = np.bincount(at, values[:, column], size)
    return sums


def _intervals(
    beta: Floats, variance: Floats, problems: Places
) -> list[tuple[float, float, float, float]]:
    """Effects, each with its bounds, and shrunk, from their cluster-robust variances."""
    beta = np.where(np.abs(beta) > NOISE, beta, 0.0)  # equal rewards leave rounding
    freedom = np.maximum(problems - 1, 1)
    sampled = np.maximum(variance, 0.0) * (1 + 1 / freedom)  # rounding may take it below zero
    error = np.sqrt(sampled + APART / np.maximum(problems, 1) ** 2)
    t = {n: t_quantile(0.975, n) for n in set(freedom.tolist())}
    wide = error * [t[n] for n in freedom.tolist()]
    known = problems > 1
    shrink = np.zeros_like(beta)
    shrink[known] = _shrinkage(beta[known], sampled[known], error[known] ** 2)
    columns = (beta, beta - wide, beta + wide, beta * shrink)
    return list(zip(*(one.tolist() for one in columns), strict=True))


def _shrinkage(beta: Floats, sampled: Floats, noise: Floats) -> Floats:
    """Shares of variance that are no noise: true effects normal around 0, with a spread by the
    method of moments, for which the `sampled` variance counts alone."""
    spread = max(0.0, float(np.sum(beta**2 - sampled) / max(len(beta), 1)))
    return spread / (spread + noise)
