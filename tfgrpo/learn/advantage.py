"""The advantage of each thing that attempts were shown: what showing it does to the reward.

A group's attempts differ in what they were shown, by chance (`assign.py`). Rewards are regressed on
that within groups, so the difficulty of a problem drops out: GRPO's group-relative advantage, one
level down. Evidence adds up over steps as sums of products, so an attempt is read once. The noise
of an effect is estimated from the groups that the thing was shown in: problems that are always
right, or never, say nothing of the noise at others. An effect differs between problems, and the
question is what it is at new ones: six attempts at one problem, of which a thing turns three, say
less about that than six problems do. So the noise includes the spread between problems (the
sandwich of Liang and Zeger, Biometrika 1986). Where there are few problems, that is shrunk towards
the estimate from all effects of a run.

An effect is assumed to be none, or drawn from a normal distribution around 0: the two-groups model
(Efron, Large-Scale Inference, 2010). The posterior is the mean over a few spreads of that normal,
each weighted by the likelihood of what was seen; the share of effects that are none is learned from
all of them. So 1 minus the chance to help is the local false-discovery rate. Many lessons do
nothing, but dozens of examples before a problem always do something: their effect is assumed not to
be none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.evaluation.statistics import Estimate
from tfgrpo.rendering.experience_texts import EXAMPLES
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


FEW = 16.0
"""How many problems it takes to change the mind that a thing does the same at all of them."""


class Observation(NamedTuple):
    """One attempt: its group, what belonged to its problem, which of that it was shown, and its
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


class GroupSums(NamedTuple):
    """One group as the sums take it: what belonged to its problem, the products of presence (0 or 1
    for each attempt and thing), and `sums`: the products of presence with the rewards, the noise,
    and how many attempts were shown each thing and how many not. Presence and rewards are centred
    on their means."""

    group: str
    names: tuple[str, ...]
    gram: NDArray[np.float64]
    sums: NDArray[np.float64]


def summed(observations: Iterable[Observation]) -> list[GroupSums]:
    """Attempts as the sums take them. Give whole groups: each is centred within itself."""
    groups: dict[str, list[Observation]] = {}
    for one in observations:
        groups.setdefault(one.group, []).append(one)
    return [_summed(name, group) for name, group in groups.items()]


def _summed(name: str, group: Sequence[Observation]) -> GroupSums:
    import numpy as np

    size, names = len(group), tuple(dict.fromkeys(id for one in group for id in one.belongs))
    shown = np.array([[id in one.shown for id in names] for one in group], float)
    rewards, counts = np.array([one.reward for one in group]), shown.sum(axis=0)
    shown, rewards = shown - counts / size, rewards - rewards.mean()
    gram, moment = shown.T @ shown, rewards @ shown
    noise = rewards @ rewards / max(size - 1, 1) * gram.diagonal()
    return GroupSums(name, names, gram, np.array((moment, noise, counts, size - counts)))


class Advantages:
    """Sums over attempts."""

    def __init__(self) -> None:
        import numpy as np

        self._places: dict[str, int] = {}
        self._at: dict[tuple[str, int], tuple[float, float]] = {}
        self._gram, self._sums = np.zeros((0, 0)), np.zeros((4, 0))

    def add(self, observations: Iterable[Observation]) -> None:
        """Adds attempts: all those of each group that is among them."""
        self.add_groups(summed(observations))

    def add_groups(self, groups: Sequence[GroupSums]) -> None:
        """Adds the attempts of whole groups."""
        import numpy as np

        for id in dict.fromkeys(id for group in groups for id in group.names):
            self._places.setdefault(id, len(self._places))
        more = len(self._places) - len(self._gram)
        if more:
            self._gram = np.pad(self._gram, (0, more))
            self._sums = np.pad(self._sums, ((0, 0), (0, more)))
        for group in groups:
            places = np.array([self._places[id] for id in group.names], int)
            self._gram[places[:, None], places] += group.gram
            self._sums[:, places] += group.sums
            parts = zip(places.tolist(), group.sums[0], group.gram.diagonal(), strict=True)
            for place, moment, weight in parts:
                at = (problem_of(group.group), place)
                before = self._at.get(at, (0.0, 0.0))
                self._at[at] = before[0] + float(moment), before[1] + float(weight)

    @property
    def names(self) -> tuple[str, ...]:
        """The things of which anything was seen."""
        return tuple(self._places)

    def set_aside(self, name: str) -> None:
        """Starts the sums of a thing anew. What was seen of it so far is kept, under another
        name."""
        place = self._places.pop(name)
        self._places[f"{name} #{place}"] = place

    def effects(self) -> dict[str, Effect]:
        """The effect of each thing, by its id."""
        if not self._places:
            return {}
        moment, noise, shown, hidden = self._sums
        noise = between_problems(noise, [(at, *both) for (_, at), both in self._at.items()])
        some = [self._places[EXAMPLES]] if EXAMPLES in self._places else []
        beliefs = posterior(self._gram, moment, noise, some)
        return {
            id: Effect(*beliefs[place], int(shown[place]), int(hidden[place]))
            for id, place in self._places.items()
        }


def problem_of(group: str) -> str:
    """The problem of a group, read from the group's name, `STEP/PROBLEM`."""
    return group.partition("/")[2] or group


def between_problems(
    noise: NDArray[np.float64], sums: Sequence[tuple[int, float, float]]
) -> NDArray[np.float64]:
    """The noise of each effect as it is where problems differ in it. `sums` holds, for
    each thing (by its place in `noise`) and problem, the products with rewards and with itself, of
    the problem's attempts."""
    import numpy as np

    size = len(noise)
    places, moments, weights = np.array([one for one in sums if one[2]]).reshape(-1, 3).T
    places = places.astype(int)
    count = np.bincount(places, minlength=size)
    slopes = np.bincount(places, moments, size) / np.bincount(places, weights, size).clip(1e-9)
    left = np.bincount(places, (moments - slopes[places] * weights) ** 2, size)
    free = np.where(noise > 0, np.maximum(count - 1, 0), 0)
    ratio = left * count / np.maximum(free, 1) / np.where(noise > 0, noise, 1.0)
    usual = (free @ ratio + FEW) / (free.sum() + FEW)
    scaled: NDArray[np.float64] = noise * (free * ratio + FEW * usual) / (free + FEW)
    return scaled


def posterior(
    gram: NDArray[np.float64],
    moment: NDArray[np.float64],
    noise: NDArray[np.float64],
    some: Sequence[int] = (),
) -> list[tuple[float, float, float, float]]:
    """The beliefs about effects, in order. `gram` holds the sums of products of what was shown,
    centred within groups, and `moment` those with rewards; `noise` the sums of squares of what was
    shown, each times the variance of rewards in its group. Those at the places `some` are not none.
    """
    import numpy as np

    variance = (noise + WEIGHT * NOISE) / (gram.diagonal() + WEIGHT)
    gram, moment = gram / np.sqrt(np.outer(variance, variance)), moment / variance
    solutions = [_under(gram, moment, spread) for spread in SPREADS]
    most = max(one.evidence for one in solutions)
    weights = [math.exp(one.evidence - most) for one in solutions]
    weights = [weight / math.fsum(weights) for weight in weights]
    size, none = len(moment), 0.5
    mixed = np.zeros((4, size))
    for weight, one in zip(weights, solutions, strict=True):
        square = one.deviation**2 + one.mean**2
        mixed += weight * np.array((one.mean, square, _all_above(one), one.odds))
    mean, square, above, odds = mixed
    for _ in range(ROUNDS):
        there = none / (none + (1 - none) * odds)
        there[[*some]] = 0
        none = (NONE / 2 + math.fsum(there)) / (NONE + size - len(some))
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    beliefs = np.array((mean, deviation, (1 - there) * above, above))
    return [tuple(one) for one in beliefs.T.tolist()]


class _Under(NamedTuple):
    """Means and deviations under one spread, the odds of each effect against none, and how likely
    the spread makes what was seen (a log)."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    odds: NDArray[np.float64]
    evidence: float


def _all_above(under: _Under) -> list[float]:
    return [_above(z) for z in (under.mean / under.deviation).tolist()]


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
    return _Under(mean, deviation, odds, evidence)


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
