"""Figures for evaluations from problem → its samples' rewards, with problems as the unit.
Intervals of differences are Student's t, those of shares Wilson's. Both count in what few problems
cannot show: where those at hand agree, others may not."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import NormalDist, fmean, stdev, variance
from typing import Any, NamedTuple

from tfgrpo.wording import plural, sampled, with_bounds

EXACT = 200
"""The degrees of freedom up to which quantiles of t are worked out exactly."""
NOISE = 1e-9
"""A mean difference of rewards that is no more than this is what rounding leaves of none."""
DRAWS = 20_000
SIGNIFICANT = 0.05
"""The p of the permutation test under which a difference is called one."""

APART = 0.25
"""The variance of effects between problems before any was seen, worth one problem: three problems
that agree do not make an effect sure."""

Rewards = Mapping[str, Sequence[float]]


class Estimate(NamedTuple):
    """A mean over problems with its confidence interval (95 % unless asked otherwise), of rewards
    or of differences of two: neither can be beyond 1."""

    mean: float
    low: float
    high: float
    problems: int

    @property
    def bounds(self) -> tuple[float, float]:
        """The interval as it is shown: no further than what is possible. Infinite bounds stay."""
        if math.isinf(self.low):
            return self.low, self.high
        most = max(self._most(), abs(self.mean))
        return max(self.low, -most), min(self.high, most)

    def _most(self) -> float:
        return 1.0

    @property
    def recorded(self) -> tuple[float, float | None, float | None]:
        """Mean and bounds as they are recorded: to six digits, None for a bound at infinity."""
        low, high = (round(end, 6) if math.isfinite(end) else None for end in self.bounds)
        return round(self.mean, 6), low, high

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


class ChangeEstimate(Estimate):
    """A mean of differences of two differences, which can be as far as 2 from 0."""

    __slots__ = ()

    def _most(self) -> float:
        return 2.0


def interval(values: Sequence[float], *, level: float = 0.95, apart: float = 0.0) -> Estimate:
    """The mean of one value for each problem, with its interval; infinite for a single problem.
    `apart` is the variance of one more problem, of unknown value, that is counted in."""
    mean, n = fmean(values), len(values)
    if n < 2:
        return Estimate(mean, -math.inf, math.inf, n)
    half = t_quantile(0.5 + level / 2, n - 1) * math.sqrt((variance(values) + apart / n) / n)
    return Estimate(mean, mean - half, mean + half, n)


def share(values: Sequence[float], most: float) -> Estimate:
    """The mean of one share in [0, 1] for each problem, with Wilson's interval (1927). It uses the
    effective sample size m(1 - m) / variance of the mean with Student's quantile, as for clustered
    samples (Dean and Pagano, 2015), at most `most`, and that much only as far as samples of a
    problem disagree. Simulated, it covers at least 93 % at every mean from .02 to .98. Without a
    `most`, for graded values, two more problems that are right or wrong are counted into the
    variance: six grades that agree would hide that every tenth fails. Then it covers 97 % at up to
    12 problems, and 89 to 97 % at 24 to 40."""
    mean, n = fmean(values), len(values)
    if n < 2:
        return Estimate(mean, 0.0, 1.0, n)
    spread, room = variance(values), mean * (1.0 - mean)
    if most == math.inf:
        spread = ((n - 1) * spread + 2 * room) / (n + 1)
    size = room * n / spread if spread > NOISE else float(n)
    mixed = sum(0.0 < value < 1.0 for value in values)
    sure = min(sum(value >= 1.0 for value in values), sum(value <= 0.0 for value in values))
    size = min(size, n + (most - n) * min(1.0, (mixed + sure) / n)) if most < math.inf else size
    z = t_quantile(0.975, n - 1) ** 2
    middle = (mean + z / (2 * size)) / (1 + z / size)
    half = math.sqrt(z * (room / size + z / (4 * size * size))) / (1 + z / size)
    return Estimate(mean, max(0.0, min(mean, middle - half)), min(1.0, max(mean, middle + half)), n)


def mean_at_k(rewards: Rewards) -> Estimate:
    """The mean reward of a sample: mean@k for k samples of each problem."""
    means = [fmean(samples) for samples in rewards.values()]
    graded = any(0.0 < reward < 1.0 for samples in rewards.values() for reward in samples)
    return share(means, math.inf if graded else sum(map(len, rewards.values())))


def pass_at_k(rewards: Rewards, k: int) -> Estimate:
    """The unbiased chance that one of k samples is right (a reward of 1): 1 - C(n-c, k) / C(n, k)
    (Chen et al., arXiv 2107.03374). Raises ValueError when a problem has under k."""
    values = [_pass(samples, k) for samples in rewards.values()]
    return share(values, sum(len(samples) / k for samples in rewards.values()))


def _pass(samples: Sequence[float], k: int) -> float:
    n, right = len(samples), sum(reward >= 1.0 for reward in samples)
    if k > n:
        raise ValueError(f"pass@{k} of {n} samples")
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def maj_at_k(samples: Mapping[str, Sequence[tuple[str | None, float]]]) -> Estimate | None:
    """maj@k of problem → (answer, reward): what the most frequent answers earn, ties shared. None
    where no sample has an answer: there is nothing to vote on."""
    if all(answer is None for given in samples.values() for answer, _ in given):
        return None
    return share([_majority(given) for given in samples.values()], len(samples))


def _majority(given: Sequence[tuple[str | None, float]]) -> float:
    earned: dict[str, list[float]] = {}
    for answer, reward in given:
        if answer is not None:
            earned.setdefault(answer, []).append(reward)
    most = max(map(len, earned.values()), default=0)
    return fmean([fmean(one) for one in earned.values() if len(one) == most] or [0.0])


class Difference(NamedTuple):
    """How much better `b` is than `a`, paired by problem, with the permutation test's `p`, and the
    `means` of both over the problems that they share. `problems_needed` would show it 80 % of the
    time; None where no number would."""

    estimate: Estimate
    verdict: str
    means: tuple[float, float]
    p: float = 1.0
    problems_needed: int | None = None

    @property
    def words(self) -> str:
        """The difference with its interval: `+0.354 [+0.079, +0.629]`."""
        return with_bounds(self.estimate.mean, *self.estimate.bounds)


LONGEST = 30
"""How many characters of one condition are shown at most, where it tells two evaluations apart."""
OPTION = re.compile("[=:]")
"""What the readable words of a domain's identity have, and digests of files and code have not."""
FEWEST = 6
"""Problems that have to differ before a permutation test can say p < 0.05: 2 / 2**5 is more."""


def paired(a: Rewards, b: Rewards) -> Difference:
    """The mean over shared problems of (mean reward in b - in a). It is better or worse when the
    interval, with one more problem of unknown effect, leaves out 0 and p < 0.05. Raises ValueError
    when they share no problem."""
    values = differences(a, b)
    estimate, p = interval(values, apart=APART), permutation(values)
    verdict = "inconclusive"
    if p < SIGNIFICANT and estimate.low > NOISE:
        verdict = "better"
    elif p < SIGNIFICANT and estimate.high < -NOISE:
        verdict = "worse"
    spread = stdev(values) if len(values) > 1 else 0.0
    before, after = (fmean(fmean(one[p]) for p in a if p in b) for one in (a, b))
    return Difference(estimate, verdict, (before, after), p, problems_needed(estimate.mean, spread))


def differences(a: Rewards, b: Rewards) -> list[float]:
    """(Mean reward in b - in a) of each shared problem, by a's order. Raises ValueError for
    none."""
    shared = [problem for problem in a if problem in b]
    if not shared:
        raise ValueError("the two have no problem in common")
    return [fmean(b[p]) - fmean(a[p]) for p in shared]


def permutation(values: Sequence[float]) -> float:
    """The sign-flip permutation test's two-sided p: all 2**n signs for n <= 14 problems that
    differ, else `DRAWS` random ones and the observed one (Phipson and Smyth, 2010)."""
    moved = [value for value in values if value]
    if not moved:
        return 1.0
    observed = abs(sum(moved)) - 1e-9
    if len(moved) <= 14:
        sums = [0.0]
        for value in moved:
            sums = [total + value for total in sums] + [total - value for total in sums]
        return sum(abs(total) >= observed for total in sums) / len(sums)
    import numpy as np

    dice, size = np.random.default_rng(0), np.asarray(moved)
    extreme = 0
    for _ in range(DRAWS // 1000):  # in slices, so that memory stays small
        signs = dice.integers(0, 2, (1000, len(moved))) * 2 - 1
        extreme += int((abs(signs @ size) >= observed).sum())
    return (extreme + 1) / (DRAWS + 1)


def problems_needed(difference: float, spread: float) -> int | None:
    """How many problems let `paired` show a difference with a power of 80 %, for its standard
    deviation over problems; None for a difference that is no more than rounding. The permutation
    test has to see enough problems that differ: where those that do differ alike, their share is
    that of the squared mean in the mean square."""
    if abs(difference) <= NOISE:
        return None
    differing = difference**2 / (difference**2 + spread**2)

    def is_enough(n: int) -> bool:
        needed = problems_for(difference, math.sqrt(spread**2 + APART / n))
        return needed <= n and _binomial_below(FEWEST, n, differing) <= 0.2

    low = max(FEWEST, problems_for(difference, spread))
    high = low
    while not is_enough(high):
        low, high = high + 1, high * 2
    return bisect_left(range(low, high), True, key=is_enough) + low


def _binomial_below(count: int, n: int, share: float) -> float:
    """The chance of fewer than `count` of n, for a share that may be as small as it likes."""
    if share >= 1:
        return float(n < count)
    ways = (math.fsum(math.log((n - i) / (i + 1)) for i in range(k)) for k in range(count))
    logs = (k * math.log(share) + (n - k) * math.log1p(-share) for k in range(count))
    return math.fsum(math.exp(one + log) for one, log in zip(ways, logs, strict=True))


def problems_for(difference: float, spread: float) -> int:
    """How many problems show a mean difference at 95 % with a power of 80 %, for its standard
    deviation `spread` over problems. Raises ValueError for a difference of 0."""
    if not difference:
        raise ValueError("no number of problems shows a difference of 0")
    ratio = spread / abs(difference)

    def needed(n: int) -> int:
        return math.ceil(((t_quantile(0.975, n - 1) + t_quantile(0.8, n - 1)) * ratio) ** 2)

    n = 2
    while (more := needed(n)) > n:
        n = max(n + 1, min(more, n * 2))
    while n > 2 and needed(n - 1) < n:
        n -= 1
    return n


def spread_of(between: float, within: float, samples: int) -> float:
    """The standard deviation over problems of a paired difference of means: `between` that of true
    differences, `within` that of a sample's reward, so sampling adds 2 within**2 / samples."""
    return math.sqrt(between**2 + 2 * within**2 / samples)


def spreads(a: Rewards, b: Rewards) -> tuple[float, float]:
    """(between, within) for `spread_of`, from data: within is pooled over both arms, between is
    what sampling leaves of the differences' variance."""
    values = differences(a, b)
    arms = [rewards[p] for rewards in (a, b) for p in a if p in b]
    pooled = [variance(samples) for samples in arms if len(samples) > 1]
    within = fmean(pooled) if pooled else 0.0
    noise = fmean([within / len(samples) for samples in arms]) * 2
    total = variance(values) if len(values) > 1 else 0.0
    return math.sqrt(max(0.0, total - noise)), math.sqrt(within)


@cache
def t_quantile(p: float, df: int) -> float:
    """The p-quantile of Student's t with df degrees of freedom, p > 0.5, by its finite series
    (Abramowitz and Stegun 26.7.3 and 26.7.4); beyond 200 by four terms of the normal's expansion
    (26.7.5), right to nine digits."""
    if df > EXACT:
        z = NormalDist().inv_cdf(p)
        first = (z**3 + z) / 4
        second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
        third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
        fourth = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92_160
        return z + first / df + second / df**2 + third / df**3 + fourth / df**4

    def above(t: float) -> float:
        angle = math.atan2(t, math.sqrt(df))
        odd, square = df % 2, math.cos(angle) ** 2
        term = math.cos(angle) if odd else 1.0
        terms = [term] if df > 1 else []
        for n in range(2 + odd, df - 1, 2):
            terms.append(term := term * square * (n - 1) / n)
        between = math.sin(angle) * math.fsum(terms)
        return (1 - ((angle + between) * 2 / math.pi if odd else between)) / 2

    low, high = 0.0, 1.0
    while above(high) > 1 - p:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > 1 - p else (low, middle)
    return (low + high) / 2


def interval_object(mean: float, low: float | None, high: float | None) -> dict[str, float | None]:
    """A mean with the bounds of its interval, None for a bound that is not finite."""
    bounds = {"low": low, "high": high}
    finite = {k: v if v is not None and math.isfinite(v) else None for k, v in bounds.items()}
    return {"mean": mean, **finite}


def summary_object(summary: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation's recorded summary, in which intervals are lists, with named ones."""
    ks = sorted(summary["pass"], key=int)
    passes = {k: interval_object(*summary["pass"][k]) for k in ks}
    mean, maj = interval_object(*summary["mean"]), summary["maj"]
    return {**summary, "mean": mean, "maj": maj and interval_object(*maj), "pass": passes}


def conditions_words(conditions: Mapping[str, Any]) -> str:
    """The conditions that figures are comparable under: `settings: 8 samples each, seed 0`."""
    samples = conditions["samples"]
    parts = [
        f"{plural(samples, 'sample')} each",
        f"temperature {conditions['temperature']:g}",
        f"at most {conditions['max_tokens']:,} tokens",
        f"seed {conditions['seed']}",
    ]
    if conditions.get("mode", "prompt") != "prompt":
        parts.append(f"{conditions['mode']} of {conditions['turns']} turns")
    if "top_k" in conditions:
        parts.append(f"{conditions['top_k']} experiences a prompt")
    if "domain" in conditions:
        options = [one for one in str(conditions.get("identity", "")).split() if OPTION.search(one)]
        parts.append(
            f"domain {conditions['domain']}" + (f" ({', '.join(options)})" if options else "")
        )
    return f"settings: {', '.join(parts)}"


def distinctions(conditions: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> list[str]:
    """The differences, in words, between conditions that are otherwise described by the same
    words."""
    names = {n for one in others for n in (*conditions, *one) if one.get(n) != conditions.get(n)}
    words = {name: str(value) for name, value in conditions.items() if name in names}
    return [
        ("" if name == "identity" else f"{name.replace('_', ' ')} ")
        + (value if len(value) <= LONGEST else f"{value[:LONGEST]}…")
        for name, value in words.items()
    ]


def verdict_words(difference: Difference, samples: int) -> str:
    """A verdict; where it is inconclusive, with the number of problems that would decide it."""
    if difference.verdict != "inconclusive":
        return difference.verdict
    if difference.problems_needed is None:
        return "inconclusive"
    needed = sampled(difference.problems_needed, samples)
    return f"inconclusive; about {needed} would decide"
