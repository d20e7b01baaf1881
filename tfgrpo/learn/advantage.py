"""The advantage of each thing that attempts were shown: what showing it does to the reward.

A group's attempts differ in what they were shown, by chance (`assign.py`). Rewards are regressed on
that within groups, so the difficulty of a problem drops out: GRPO's group-relative advantage, one
level down. Evidence adds up over steps as sums of products, so an attempt is read once. How much
chance there is in it is read from the groups that a thing was shown in: problems that are always
right, or never, say nothing of the noise at others.

An effect is taken to be none, or drawn from a normal around 0: the two-groups model (Efron,
Large-Scale Inference, 2010). The posterior is the mean over a few spreads of that normal, each
weighed by how likely it makes what was seen; the share of effects that are none is learned from all
of them. So 1 less the chance to help is the local false-discovery rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.evaluation.statistics import Estimate
from tfgrpo.wording import with_bounds

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ELSEWHERE = " elsewhere"
"""After the name of an effect at problems that a thing does not belong to."""
SPREADS = (0.05, 0.1, 0.2, 0.4)
"""Standard deviations of effects that are thought possible, in units of reward."""
NOISE, WEIGHT = 0.2, 2.0
"""The variance of an attempt within its group before any was seen: a reward of 0 or 1 has .25 at
most. It is worth 8 attempts of which half were shown a thing: a sum of squares of 2."""

NONE, ROUNDS = 4.0, 20
"""How many effects it takes to change the mind that half of them are none, and the rounds in which
that share is worked out (expectation and maximisation)."""


class Observation(NamedTuple):
    """One attempt: its group, what belonged to its problem, what of that it was shown, and its
    reward in [0, 1]."""

    group: str
    belongs: Sequence[str]
    shown: frozenset[str]
    reward: float


class Effect(NamedTuple):
    """What showing a thing does to the reward, if anything: the posterior mean and standard
    deviation. `chance` is the chance that it helps, and `above` the chance that it is above zero if
    it is not none. `shown` and `hidden` count attempts."""

    mean: float
    deviation: float
    chance: float
    above: float
    shown: int
    hidden: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        wide = 1.96 * self.deviation
        return Estimate(self.mean, self.mean - wide, self.mean + wide, 0).bounds

    @property
    def recorded(self) -> list[float]:
        """Mean and interval as they are recorded: to six digits."""
        return [round(value, 6) for value in (self.mean, *self.interval)]

    def __str__(self) -> str:
        effect = with_bounds(self.mean, *self.interval)
        return f"{effect}, {self.shown} with, {self.hidden} without"


class Centred(NamedTuple):
    """One group: what belonged to its problem, how many attempts were shown each of that, and, less
    their means, who was shown what (a row for each attempt, 0 or 1) and the rewards."""

    group: str
    names: tuple[str, ...]
    counts: NDArray[np.float64]
    shown: NDArray[np.float64]
    rewards: NDArray[np.float64]


def centred(observations: Iterable[Observation]) -> list[Centred]:
    """Attempts as the sums take them. Give whole groups: each is centred within itself."""
    groups: dict[str, list[Observation]] = {}
    for one in observations:
        groups.setdefault(one.group, []).append(one)
    return [_centred(name, group) for name, group in groups.items()]


def _centred(name: str, group: Sequence[Observation]) -> Centred:
    import numpy as np

    names = tuple(dict.fromkeys(id for one in group for id in one.belongs))
    shown = np.array([[id in one.shown for id in names] for one in group], float)
    rewards, counts = np.array([one.reward for one in group]), shown.sum(axis=0)
    return Centred(name, names, counts, shown - counts / len(group), rewards - rewards.mean())


class Advantages:
    """Sums over attempts."""

    def __init__(self) -> None:
        import numpy as np

        self._places: dict[str, int] = {}
        self._gram, self._sums = np.zeros((0, 0)), np.zeros((4, 0))

    def add(self, observations: Iterable[Observation]) -> None:
        """Adds attempts: all those of each group that is among them."""
        for group in centred(observations):
            self.add_group(group)

    def add_group(self, group: Centred) -> None:
        """Adds the attempts of a group."""
        import numpy as np

        places = [self._places.setdefault(id, len(self._places)) for id in group.names]
        more = len(self._places) - len(self._gram)
        if more:
            self._gram = np.pad(self._gram, (0, more))
            self._sums = np.pad(self._sums, ((0, 0), (0, more)))
        size, counts = len(group.rewards), group.counts
        gram, moment = group.shown.T @ group.shown, group.rewards @ group.shown
        noise = group.rewards @ group.rewards / max(size - 1, 1) * gram.diagonal()
        self._gram[np.ix_(places, places)] += gram
        self._sums[:, places] += (moment, noise, counts, size - counts)

    @property
    def names(self) -> tuple[str, ...]:
        """The things of which anything was seen."""
        return tuple(self._places)

    def set_aside(self, name: str) -> None:
        """Begins anew with a thing. What was seen of it stays, as that of another."""
        place = self._places.pop(name)
        self._places[f"{name} #{place}"] = place

    def effects(self) -> dict[str, Effect]:
        """The effect of each thing, by its id."""
        if not self._places:
            return {}
        moment, noise, *counts = self._sums
        beliefs, (shown, hidden) = posterior(self._gram, moment, noise), counts
        return {
            id: Effect(*beliefs[place], int(shown[place]), int(hidden[place]))
            for id, place in self._places.items()
        }


def posterior(
    gram: NDArray[np.float64], moment: NDArray[np.float64], noise: NDArray[np.float64]
) -> list[tuple[float, float, float, float]]:
    """The beliefs about effects, in order. `gram` holds the sums of products of what was shown,
    centred within groups, and `moment` those with rewards; `noise` the sums of squares of what was
    shown, each times the variance of rewards in its group."""
    import numpy as np

    variance = (noise + WEIGHT * NOISE) / (gram.diagonal() + WEIGHT)
    gram, moment = gram / np.sqrt(np.outer(variance, variance)), moment / variance
    solutions = [_under(gram, moment, spread) for spread in SPREADS]
    most = max(one.evidence for one in solutions)
    weights = [math.exp(one.evidence - most) for one in solutions]
    weights = [weight / math.fsum(weights) for weight in weights]
    size = len(moment)

    def mixed(values: Sequence[Sequence[float]]) -> list[float]:
        return [
            math.fsum(w * v[k] for w, v in zip(weights, values, strict=True)) for k in range(size)
        ]

    means = mixed([one.mean for one in solutions])
    squares = mixed([[s * s + m * m for m, s in zip(*one[:2], strict=True)] for one in solutions])
    above = mixed([[_above(m / s) for m, s in zip(*one[:2], strict=True)] for one in solutions])
    odds = mixed([one.odds for one in solutions])
    none = 0.5
    for _ in range(ROUNDS):
        there = [none / (none + (1 - none) * one) for one in odds]
        none = (NONE / 2 + math.fsum(there)) / (NONE + size)
    return [
        (m, math.sqrt(max(q - m * m, 0.0)), (1 - nothing) * a, a)
        for m, q, a, nothing in zip(means, squares, above, there, strict=True)
    ]


class _Under(NamedTuple):
    """Means and deviations under one spread, the odds of each effect against none, and how likely
    the spread makes what was seen (a log)."""

    mean: list[float]
    deviation: list[float]
    odds: list[float]
    evidence: float


def _under(gram: NDArray[np.float64], moment: NDArray[np.float64], spread: float) -> _Under:
    """The posterior of Bayesian linear regression, prior N(0, spread²) for each effect. The odds
    are the Savage-Dickey ratio: the prior's density at zero by the posterior's."""
    import numpy as np

    size = len(moment)
    precision = gram + np.eye(size) / spread**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ moment
    deviation = np.sqrt(covariance.diagonal())
    _, log_size = np.linalg.slogdet(precision)
    evidence = 0.5 * (float(moment @ mean) - float(log_size)) - size * math.log(spread)
    odds = deviation / spread * np.exp(np.minimum(0.5 * (mean / deviation) ** 2, 500.0))
    return _Under(mean.tolist(), deviation.tolist(), odds.tolist(), evidence)


def overall(effects: Mapping[str, Effect], name: str, share: float) -> Effect | None:
    """The effect of what belongs to a share of the problems where it is shown; None where nothing
    is known of it."""
    shares = {name: share, name + ELSEWHERE: 1 - share}
    there = [(effects[one], shares[one]) for one in shares if shares[one] and one in effects]
    return mean_effect(there) if there else None


def mean_effect(effects: Sequence[tuple[Effect, float]]) -> Effect:
    """The mean of effects by their shares: what a thing does over several kinds of problems. They
    are taken to be independent. It helps where one of them is not none and their mean is above
    zero."""
    total = math.fsum(share for _, share in effects)
    shares = [share / total for _, share in effects]
    ones = [one for one, _ in effects]
    mean = math.fsum(share * one.mean for one, share in zip(ones, shares, strict=True))
    deviation = math.sqrt(
        math.fsum((share * one.deviation) ** 2 for one, share in zip(ones, shares, strict=True))
    )
    above = _above(mean / deviation) if deviation else float(mean > 0)
    chance = min(above, max(one.chance for one in ones))
    counts = sum(one.shown for one in ones), sum(one.hidden for one in ones)
    return Effect(mean, deviation, chance, above, *counts)


def _above(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))
