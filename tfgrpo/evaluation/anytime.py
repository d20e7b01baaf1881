"""Tests that may be looked at after every call, and still err no more often than they say.

A test of a fixed size errs in one of twenty; looked at every day until it says something, in one
of three. These are made for looking. Two arms are compared, control and candidate; there is one
value for each subject, in the order in which they became known, and a higher one is better.

**Right or wrong.** An e-process for two streams of yes and no (Turner, Ly and Grünwald, *Generic
E-variables for exact sequential k-sample tests that allow for optional stopping*, Journal of
Statistical Planning and Inference 230, 2024; in R's `safestats` the safe test of two proportions).
Outcomes are taken in blocks of `a` of control and `b` of candidate. Before a block is seen, a
rate for each arm is put down, p and q, from what the blocks before it say; the block multiplies
the evidence by the likelihood under (p, q) over that under their weighted mean (a p + b q) /
(a + b) for both. Whatever rate the arms share, and even if it drifts from block to block, that
factor is at most 1 on average; where q < p, also for every candidate that is better than control.
So the evidence against "no worse" grows beyond 1 / alpha in at most a share alpha of all
experiments in which it is true, however long they go on (Ville's inequality). That is exact: no
number of calls is too small for it. How far p and q lie apart is not known beforehand: the
evidence is the mean over the log odds ratios in `RATIOS`, weighted, which is again an e-process.

**Numbers.** An asymptotic confidence sequence for the difference of means (Waudby-Smith, Arbour,
Sinha, Kennedy and Ramdas, *Time-uniform central limit theory and asymptotic confidence
sequences*, Annals of Statistics 52, 2024, theorem 2.2): with n values of the variance v, the mean
is within sqrt((n v r² + 1) / (n² r²) · ln((n v r² + 1) / alpha²)) at all times together. As its
name says it holds for many values; nothing is said before there are `FEWEST` in each arm.

**Mismatch of the sample's ratio.** An e-process for the share of subjects in the candidate
(Lindon and Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[numpy.float64]

RATIOS = {0.1: 0.10, 0.2: 0.15, 0.4: 0.25, 0.8: 0.35, 1.6: 0.15}
"""Log odds ratios between the arms that evidence is collected for, with their weights. At a rate
of one half 0.1, 0.4 and 0.8 are differences of 2.5, 10 and 20 points."""
FEWEST = 25
"""Values in each arm from which on a confidence sequence for numbers is given."""
ROUNDING = 1e-9
"""How far apart numbers are, beside the largest of them, that rounding alone tells apart."""
TIGHTEST = 300
"""Values in both arms at which a confidence sequence is as narrow as one can be there."""
LARGEST_BLOCK = 100
"""Outcomes in a block at most."""
PRIOR = 200.0
"""How much a share of subjects is believed before any are seen, in subjects."""


class Blocks(NamedTuple):
    """Outcomes in blocks: how many of control and candidate are in each, and how many of these are
    right. The last axis is that of blocks."""

    control: NDArray[numpy.int64]
    candidate: NDArray[numpy.int64]
    control_right: NDArray[numpy.int64]
    candidate_right: NDArray[numpy.int64]


def block_sizes(share: float) -> tuple[int, int]:
    """Returns how many outcomes of control and candidate make a block, for a share of subjects
    that the candidate gets: 9 and 1 for a tenth."""
    if not 0 < share < 1:
        return 1, 1
    most = 10 if 0.1 <= share <= 0.9 else LARGEST_BLOCK
    ratio = Fraction(share).limit_denominator(most)
    if not 0 < ratio < 1:
        ratio = Fraction(1 if ratio <= 0 else most - 1, most)
    return ratio.denominator - ratio.numerator, ratio.numerator


class Outcome(NamedTuple):
    """One subject's outcome: of the candidate or of control, right or wrong, and in blocks of
    which sizes it belongs."""

    candidate: bool
    right: bool
    sizes: tuple[int, int] = (1, 1)


def blocks_of(outcomes: Iterable[Outcome]) -> Blocks:
    """Returns outcomes, in the order in which they became known, in blocks; what is over waits for
    its block. Blocks depend on arms and sizes alone, never on what is right, and one that is
    whole stays as it is whatever comes later."""
    waiting: dict[tuple[int, int], tuple[list[bool], list[bool]]] = {}
    rows: list[tuple[int, int, int, int]] = []
    for candidate, right, sizes in outcomes:
        queues = waiting.setdefault(sizes, ([], []))
        queues[candidate].append(right)
        a, b = sizes
        if len(queues[0]) >= a and len(queues[1]) >= b:
            rows.append((a, b, sum(queues[0][:a]), sum(queues[1][:b])))
            del queues[0][:a], queues[1][:b]
    return Blocks(*numpy.asarray(rows, numpy.int64).reshape(len(rows), 4).T)


def log_evidence(blocks: Blocks, *, benefit: bool) -> Floats:
    """Returns the natural logarithm of the evidence after each block: that the candidate is better
    than control, or else that it is worse."""
    a, b, right_a, right_b = (array.astype(float) for array in blocks)
    size, right = a + b, right_a + right_b
    before = numpy.cumsum(size, axis=-1) - size
    rate = (numpy.cumsum(right, axis=-1) - right + 0.5) / (before + 1.0)
    middle = numpy.log(rate / (1.0 - rate))
    total: Floats | None = None
    for ratio, weight in RATIOS.items():
        apart = ratio if benefit else -ratio
        p = _expit(middle - apart * b / size)
        q = _expit(middle + apart * a / size)
        both = (a * p + b * q) / size
        gained = right_a * numpy.log(p / both) + (a - right_a) * numpy.log((1 - p) / (1 - both))
        gained += right_b * numpy.log(q / both) + (b - right_b) * numpy.log((1 - q) / (1 - both))
        grown = numpy.cumsum(gained, axis=-1) + math.log(weight)
        total = grown if total is None else numpy.logaddexp(total, grown)
    assert total is not None
    return total


def _expit(value: Floats) -> Floats:
    return numpy.asarray(1.0 / (1.0 + numpy.exp(-value)))


class Difference(NamedTuple):
    """A difference of means, candidate less control, with the bounds that hold at all times in all
    but a share `alpha` of experiments; `variance` is of one of its `size` influences."""

    mean: float
    low: float
    high: float
    variance: float
    size: int
    alpha: float

    def log_evidence(self, bound: float, *, above: bool) -> float:
        """Returns the natural logarithm of the evidence that the true difference is above a bound,
        or else that it is below: over 2 / alpha where the bounds leave it out on that side."""
        off = self.mean - bound
        if (off > 0) is not above or not off:
            return 0.0
        scale = _scale(self.alpha)
        grown = self.size * scale + 1
        square = off**2 * self.size**2 * scale / (grown * self.variance)
        return math.log(2) + (square - math.log(grown)) / 2


def _scale(alpha: float) -> float:
    """Returns r² v by which a margin is tightest at TIGHTEST values: the source's equation for r,
    with values of any variance v."""
    log = -2 * math.log(alpha)
    return (log + math.log(log) + 1) / TIGHTEST


def margin(variance: Floats, count: Floats, alpha: float) -> Floats:
    """Returns how far a mean of `count` values, of that variance each, may be off at all times
    together, in all but a share `alpha` of experiments."""
    scale = _scale(alpha)
    grown = count * scale + 1
    return numpy.sqrt(grown * variance / (count**2 * scale) * numpy.log(grown / alpha**2))


def difference(
    control: Sequence[float], candidate: Sequence[float], *, alpha: float
) -> Difference | None:
    """Returns the difference of the means of numbers, with bounds that leave out the true one
    in at most a share `alpha` of experiments; None while there are too few to say, or all alike."""
    m, n = len(control), len(candidate)
    if min(m, n) < FEWEST:
        return None
    a, b = numpy.asarray(control, float), numpy.asarray(candidate, float)
    mean = float(b.mean() - a.mean())
    # The difference as a mean of m + n influences, whose variance is this:
    variance = (m + n) * (a.var(ddof=1) / m + b.var(ddof=1) / n)
    largest = max(numpy.abs(a).max(), numpy.abs(b).max())
    if variance <= (m + n) * (ROUNDING * largest) ** 2:
        return None  # all alike: what rounding leaves of a variance would decide at once
    within = float(margin(numpy.asarray(variance), numpy.asarray(float(m + n)), alpha))
    return Difference(mean, mean - within, mean + within, float(variance), m + n, alpha)


def log_mismatch(control: int, candidate: int, share: float) -> float:
    """Returns the natural logarithm of the evidence that subjects do not come to the candidate at
    its share (above 0 and below 1)."""
    ahead, behind = PRIOR * share, PRIOR * (1 - share)
    return (
        _log_beta(ahead + candidate, behind + control)
        - _log_beta(ahead, behind)
        - candidate * math.log(share)
        - control * math.log(1 - share)
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
