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

An effect is assumed to be none, or of the size of a draw from a normal distribution around 0: the
two-groups model (Efron, Large-Scale Inference, 2010). The posterior is the mean over a few spreads
of that normal, each weighted by the likelihood of what was seen. The shares of effects that are
none, above zero and below it are learned from all of them: where most lessons help, less evidence
is needed of one more. So 1 minus the chance to help is the local false-discovery rate. Spreads are
in units of how far rewards differ within groups, where those differ less than right and wrong do.

Attempts without a reward tell nothing as long as a lesson has no part in that. If with it more of
what is wrong cannot be judged, it looks as if it helped. So what helps has to be likelier to help
than not where those count as 0 too.
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
"""Standard deviations of effects that are thought possible, in units of reward where rewards are
right or wrong."""
USUAL = 0.35
"""How far rewards that are right or wrong differ within a group at least, as a standard deviation:
those of eight attempts of which one is right."""
NOISE, WEIGHT = 0.2, 2.0
"""The variance of an attempt within its group before any was seen: a reward of 0 or 1 has .25 at
most. It is worth 8 attempts of which half were shown a thing: a sum of squares of 2."""

SHARES = (0.5, 0.25, 0.25)
"""The shares of effects that are thought to be none, above zero, and below it."""
MIND, ROUNDS = 4.0, 20
"""How many effects it takes to change the mind about these shares, and the rounds in which they are
worked out (expectation and maximisation)."""
SHARES_OF_EXAMPLES = (0.05, 0.475, 0.475)
"""The same of the examples, which are measured as one, so that nothing can be learned of it. Dozens
before a problem seldom do nothing. Without that small chance three times as many sets of no effect
would enter, since one looks after each step (`tests/test_advantages.py`)."""

LIKELIER = 0.5
"""The chance to help where attempts without a reward count as 0, below which a thing does not."""
ROUNDING = 1e-12
"""What rounding leaves of a sum of squares that is 0."""
FEW = 16.0
"""How many problems it takes to change the mind that a thing does the same at all of them."""


class Observation(NamedTuple):
    """One attempt: its group, what belonged to its problem, which of that it was shown, and its
    reward in [0, 1]; None where it could not be judged."""

    group: str
    belongs: Sequence[str]
    shown: frozenset[str]
    reward: float | None


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
    on their means. `spread` is the sum of squares of the rewards and its degrees of freedom; both
    are 0 where rewards are all the same. `at_worst` is the group where attempts without a reward
    count as 0; None where there are none."""

    group: str
    names: tuple[str, ...]
    gram: NDArray[np.float64]
    sums: NDArray[np.float64]
    spread: tuple[float, int]
    at_worst: GroupSums | None = None


def summed(observations: Iterable[Observation]) -> list[GroupSums]:
    """Attempts as the sums take them. Give whole groups: each is centred within itself."""
    groups: dict[str, list[Observation]] = {}
    for one in observations:
        groups.setdefault(one.group, []).append(one)
    return [_summed(name, group) for name, group in groups.items()]


def _summed(name: str, group: Sequence[Observation]) -> GroupSums:
    names = tuple(dict.fromkeys(id for one in group for id in one.belongs))
    judged = [one for one in group if one.reward is not None]
    sums = _products(name, names, judged)
    if len(judged) == len(group):
        return sums
    at_worst = [one._replace(reward=one.reward or 0.0) for one in group]
    return sums._replace(at_worst=_products(name, names, at_worst))


def _products(name: str, names: tuple[str, ...], group: Sequence[Observation]) -> GroupSums:
    import numpy as np

    size = len(group)
    if not size:
        empty = np.zeros((len(names), len(names))), np.zeros((4, len(names)))
        return GroupSums(name, names, *empty, (0.0, 0))
    shown = np.array([[id in one.shown for id in names] for one in group], float)
    rewards, counts = np.array([one.reward for one in group], float), shown.sum(axis=0)
    shown, rewards = shown - counts / size, rewards - rewards.mean()
    gram, moment, square = shown.T @ shown, rewards @ shown, float(rewards @ rewards)
    noise = square / max(size - 1, 1) * gram.diagonal()
    sums = np.array((moment, noise, counts, size - counts))
    return GroupSums(name, names, gram, sums, (square, size - 1) if square > ROUNDING else (0.0, 0))


class Advantages:
    """Sums over attempts."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        self._judged, self._at_worst, self._is_whole = _Sums(), _Sums(), True

    def add(self, observations: Iterable[Observation]) -> None:
        """Adds attempts: all those of each group that is among them."""
        self.add_groups(summed(observations))

    def add_groups(self, groups: Sequence[GroupSums]) -> None:
        """Adds the attempts of whole groups."""
        for id in dict.fromkeys(id for group in groups for id in group.names):
            self._places.setdefault(id, len(self._places))
        self._is_whole = self._is_whole and not any(group.at_worst for group in groups)
        self._judged.add(groups, self._places)
        self._at_worst.add([group.at_worst or group for group in groups], self._places)

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
        examples = self._places.get(EXAMPLES)
        effects = self._judged.effects(examples)
        at_worst = effects if self._is_whole else self._at_worst.effects(examples)
        return {
            id: effects[place]
            if at_worst[place].chance >= LIKELIER
            else effects[place]._replace(chance=min(effects[place].chance, at_worst[place].chance))
            for id, place in self._places.items()
        }


class _Sums:
    """The sums of some attempts, by the places of what they were shown."""

    def __init__(self) -> None:
        import numpy as np

        self._gram, self._sums, self._spread = np.zeros((0, 0)), np.zeros((4, 0)), np.zeros(2)
        self._at: dict[tuple[str, int], tuple[float, float]] = {}

    def add(self, groups: Sequence[GroupSums], places: Mapping[str, int]) -> None:
        import numpy as np

        more = 1 + max(places.values(), default=-1) - len(self._gram)
        if more > 0:
            self._gram = np.pad(self._gram, (0, more))
            self._sums = np.pad(self._sums, ((0, 0), (0, more)))
        for group in groups:
            own = np.array([places[id] for id in group.names], int)
            self._gram[own[:, None], own] += group.gram
            self._sums[:, own] += group.sums
            self._spread += group.spread
            parts = zip(own.tolist(), group.sums[0], group.gram.diagonal(), strict=True)
            for place, moment, weight in parts:
                at = (problem_of(group.group), place)
                before = self._at.get(at, (0.0, 0.0))
                self._at[at] = before[0] + float(moment), before[1] + float(weight)

    def effects(self, examples: int | None) -> list[Effect]:
        """The effect of each thing, by its place; `examples` is that of the examples, if any."""
        moment, noise = self._sums[:2]
        noise = between_problems(noise, [(at, *both) for (_, at), both in self._at.items()])
        square, free = self._spread.tolist()
        unit = min(math.sqrt(square / free) / USUAL, 1.0) if free else 1.0
        beliefs = posterior(self._gram, moment / unit, noise / unit**2, examples)
        counts = self._sums[2:].astype(int).T.tolist()
        return [
            Effect(mean * unit, deviation * unit, chance, above, shown, hidden)
            for (mean, deviation, chance, above), (shown, hidden) in zip(
                beliefs, counts, strict=True
            )
        ]


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
    examples: int | None = None,
) -> list[tuple[float, float, float, float]]:
    """The beliefs about effects, in order: mean, deviation, the chance to help, and the chance to
    be above zero if not none, whatever the others are. `gram` holds the sums of products of what
    was shown, centred within groups, and `moment` those with rewards; `noise` the sums of squares
    of what was shown, each times the variance of rewards in its group. `examples` is the place of
    that effect, if any."""
    import numpy as np

    variance = (noise + WEIGHT * NOISE) / (gram.diagonal() + WEIGHT)
    gram, moment = gram / np.sqrt(np.outer(variance, variance)), moment / variance
    solutions = [_under(gram, moment, spread) for spread in SPREADS]
    most = max(one.evidence for one in solutions)
    weights = [math.exp(one.evidence - most) for one in solutions]
    weights = [weight / math.fsum(weights) for weight in weights]
    mixed = np.zeros((4, len(moment)))
    for weight, one in zip(weights, solutions, strict=True):
        square = one.deviation**2 + one.mean**2
        above = np.array([_above(z) for z in (one.mean / one.deviation).tolist()])
        odds = 2 * one.odds * np.array((above, 1 - above))  # against none, of each side of zero
        mixed += weight * np.array((one.mean, square, *odds))
    mean, square, *sides = mixed
    likely = np.array((np.ones(len(moment)), *sides))
    shares = np.array(SHARES)
    for _ in range(ROUNDS):
        chances = likely * shares[:, None]
        if examples is not None:
            chances[:, examples] = likely[:, examples] * SHARES_OF_EXAMPLES
        chances /= chances.sum(axis=0)
        lessons = chances if examples is None else np.delete(chances, examples, axis=1)
        shares = (MIND * np.array(SHARES) + lessons.sum(axis=1)) / (MIND + lessons.shape[1])
    deviation = np.sqrt(np.maximum(square - mean**2, 0.0))
    beliefs = np.array((mean, deviation, chances[1], sides[0] / (sides[0] + sides[1])))
    return [tuple(one) for one in beliefs.T.tolist()]


class _Under(NamedTuple):
    """Means and deviations under one spread, the odds of each effect against none, and how likely
    the spread makes what was seen (a log)."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    odds: NDArray[np.float64]
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
