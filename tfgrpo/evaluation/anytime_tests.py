"""Tests that may be looked at after every call, and still err no more often than they say.

A test of a fixed size errs in one of twenty; looked at every day until it says something, in one
of three. These are made for looking. Two arms are compared, control and candidate; there is one
value for each subject, in the order in which they became known, and a higher one is better.

**Means of values between 0 and 1**, right and wrong among them. Evidence is what a gambler has who
began with 1 and bets against "no better" (Waudby-Smith and Ramdas, *Estimating means of bounded
random variables by betting*, Journal of the Royal Statistical Society B 86, 2024). The two arms
come in blocks of `a` values of control and `b` of candidate (Turner, Ly and Grünwald, *Generic
E-variables for exact sequential k-sample tests that allow for optional stopping*, Journal of
Statistical Planning and Inference 230, 2024). Before a block is seen, its middle c and the bet s
are put down from what the blocks before it say. A value x of control multiplies the evidence by
1 - (s / a) (x - c), a value y of the candidate by 1 + (s / b) (y - c). If all have one mean m, a
block multiplies it on average by (1 - (s / a) (m - c))^a (1 + (s / b) (m - c))^b, which is 1 at
most, whatever m and c are: its logarithm is concave in m and flat at c. Where the candidate is
worse it is less. So the evidence grows beyond 1 / alpha in at most a share alpha of all
experiments in which the candidate is no better, however long they go on (Ville's inequality).
Nothing is asked of the distribution but its bounds, and no number of calls is too small. Of right
and wrong it is the test of two proportions of Turner and others. How large the difference is, is
not known beforehand: the evidence is the mean over the sizes in `EFFECTS`, weighted, which again
is worth 1 at most on average. "Better by more than d" is tested with the candidate's values less
d; the differences that no test leaves out bound the true one, at all times together.

**Ranks.** Numbers without bounds (logarithms of times, of tokens) are replaced by their places
among the values of earlier blocks, between 0 and 1. Places keep the order, so where candidate and
control are distributed alike, or the candidate lower, its places are no higher on average. What is
tested is therefore whether one arm tends to be higher, and not a mean. Bounds are those of a shift
between two distributions of one shape.

**Mismatch of the sample's ratio.** An e-process for the share of subjects in the candidate
(Lindon and Malek, *Anytime-valid inference for multinomial count data*, NeurIPS 2022).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[numpy.float64]

EFFECTS = {0.1: 0.20, 0.2: 0.35, 0.4: 0.32, 0.8: 0.10, 1.6: 0.03}
"""Differences between the arms that evidence is collected for, in standard deviations, with their
weights. At a rate of one half 0.1, 0.2 and 0.4 are 5, 10 and 20 points."""
MOST_LOST = 0.9
"""The largest part of the evidence that one value may take away."""
NARROWEST = 1e-6
"""What a standard deviation is taken for at least, beside values between 0 and 1."""
STEPS = 16
"""Halvings by which a bound of a difference is found."""
FEWEST_RANKED = 4
"""Values among which another is given a place."""
MOST_AHEAD = 24
"""Outcomes of both arms that one of them may be ahead, beside a block; of more, its oldest values
are left out (4 to 13 % are). So the values of a block are of about one time, and what changes with
time for both arms, as in an outage, is not taken for a difference between them."""
LARGEST_BLOCK = 100
"""Outcomes in a block at most."""
PRIOR = 200.0
"""How much a share of subjects is believed before any are seen, in subjects."""


class Blocks(NamedTuple):
    """Values in blocks, each with its control's and then its candidate's. `values` may have axes of
    experiments before its last; `sizes` has control's and candidate's numbers by rows."""

    values: Floats
    candidate: NDArray[numpy.bool_]
    starts: NDArray[numpy.int64]
    sizes: NDArray[numpy.int64]


def block_sizes(share: float) -> tuple[int, int]:
    """How many outcomes of control and candidate make a block: 9 and 1 for a share of a tenth.
    Where one arm gets all of them the other has none, and nothing can be compared."""
    if not 0 < share < 1:
        return (0, 1) if share >= 1 else (1, 0)
    most = 10 if 0.1 <= share <= 0.9 else LARGEST_BLOCK
    ratio = Fraction(share).limit_denominator(most)
    if not 0 < ratio < 1:
        ratio = Fraction(1 if ratio <= 0 else most - 1, most)
    return ratio.denominator - ratio.numerator, ratio.numerator


class Outcome(NamedTuple):
    """One subject's outcome: whether the candidate's, its value, and its block's sizes."""

    candidate: bool
    value: float
    sizes: tuple[int, int] = (1, 1)


def blocks_of(outcomes: Iterable[Outcome]) -> Blocks:
    """Outcomes, in the order in which they became known, in blocks; what is over waits for its
    block, as long as its arm is not too far ahead. Blocks depend on arms and sizes alone, never on
    a value, and one that is whole stays as it is whatever comes later. Outcomes whose sizes lack an
    arm are in none."""
    waiting: dict[tuple[int, int], tuple[list[float], list[float]]] = {}
    values: list[float] = []
    sizes: list[tuple[int, int]] = []
    for candidate, value, size in outcomes:
        if not all(size):
            continue
        queues = waiting.setdefault(size, ([], []))
        queues[candidate].append(value)
        a, b = size
        if len(queues[candidate]) > size[candidate] * (1 + MOST_AHEAD / (a + b)):
            del queues[candidate][0]
        if len(queues[0]) >= a and len(queues[1]) >= b:
            values += queues[0][:a] + queues[1][:b]
            sizes.append(size)
            del queues[0][:a], queues[1][:b]
    return in_blocks(numpy.asarray(values, float), sizes)


def in_blocks(values: Floats, sizes: Sequence[tuple[int, int]]) -> Blocks:
    """Values that lie in the order of `Blocks` already, with the sizes of the blocks."""
    rows = numpy.asarray(sizes, numpy.int64).reshape(len(sizes), 2)
    of_arms = numpy.tile([False, True], len(rows))
    whole = rows.sum(axis=1)
    starts = (numpy.cumsum(whole) - whole).astype(numpy.int64)
    return Blocks(values, numpy.repeat(of_arms, rows.ravel()), starts, rows)


def log_evidence(blocks: Blocks, *, benefit: bool, bound: float = 0.0) -> Floats:
    """The natural logarithm of the evidence after each block: that the candidate's mean is above
    control's by more than `bound`, or else that it is by less. Values lie between 0 and 1."""
    values, candidate, starts, sizes = blocks
    if not len(starts):
        return numpy.zeros((*values.shape[:-1], 0))
    shifted = values - bound * candidate
    middle, spread = _before(shifted, starts)
    a, b = sizes[:, 0].astype(float), sizes[:, 1].astype(float)
    if benefit:  # what the worst value of either arm lies off the middle
        low, high = middle + bound, 1 - middle
    else:
        low, high = 1 - bound - middle, middle
    most = MOST_LOST / numpy.maximum(numpy.maximum(low / b, high / a), NARROWEST)
    whole = sizes.sum(axis=1)
    stakes = numpy.where(candidate, numpy.repeat(1 / b, whole), numpy.repeat(-1 / a, whole))
    off = (shifted - numpy.repeat(middle, whole, axis=-1)) * (stakes if benefit else -stakes)
    total: Floats | None = None
    for effect, weight in EFFECTS.items():
        bet = numpy.minimum(effect / (spread * (1 / a + 1 / b)), most)
        gained = numpy.log1p(numpy.repeat(bet, whole, axis=-1) * off)
        grown = numpy.cumsum(numpy.add.reduceat(gained, starts, axis=-1), axis=-1)
        grown += math.log(weight)
        total = grown if total is None else numpy.logaddexp(total, grown)
    assert total is not None
    return total


def _before(values: Floats, starts: NDArray[numpy.int64]) -> tuple[Floats, Floats]:
    """For each block the mean and the standard deviation of the values before it, and of one right
    and one wrong, each with half the weight of a value."""
    sums = []
    for power in (values, values**2):
        of_blocks = numpy.add.reduceat(power, starts, axis=-1)
        sums.append(numpy.cumsum(of_blocks, axis=-1) - of_blocks)
    mean = (sums[0] + 0.5) / (starts + 1.0)
    square = (sums[1] + 0.5) / (starts + 1.0)
    return mean, numpy.sqrt(numpy.maximum(square - mean**2, NARROWEST**2))


def ranked(blocks: Blocks, shift: float = 0.0) -> Blocks:
    """Each value's place, from 0 to 1, among the values of earlier blocks (one half without any),
    the candidate's less `shift`; places are taken anew whenever those values have doubled."""
    shifted = blocks.values - shift * blocks.candidate
    places = numpy.full(shifted.shape, 0.5)
    ends = [*blocks.starts.tolist(), shifted.shape[-1]]
    begin = bisect_left(ends, FEWEST_RANKED)
    while begin < len(ends) - 1:
        end = max(begin + 1, bisect_left(ends, 2 * ends[begin]))
        known, span = (
            numpy.sort(shifted[: ends[begin]]),
            slice(ends[begin], ends[min(end, len(ends) - 1)]),
        )
        below = numpy.searchsorted(known, shifted[span], "left")
        upto = numpy.searchsorted(known, shifted[span], "right")
        places[span] = (below + upto) / (2 * len(known))
        begin = end
    return blocks._replace(values=places)


Test: TypeAlias = Callable[[bool, float], float]
"""Benefit or harm, and a bound → the logarithm of the most evidence that there was for a
difference above, or else below, that bound."""


def means(blocks: Blocks) -> Test:
    """The test of means of values between 0 and 1."""

    def test(benefit: bool, bound: float) -> float:
        return float(log_evidence(blocks, benefit=benefit, bound=bound).max(initial=0.0))

    return test


def ranks(blocks: Blocks) -> Test:
    """The test of ranks of any numbers."""

    def test(benefit: bool, bound: float) -> float:
        placed = ranked(blocks, bound)
        return float(log_evidence(placed, benefit=benefit).max(initial=0.0))

    return test


def bounds(test: Test, reach: float, needed: float) -> tuple[float, float]:
    """The differences, between `-reach` and `reach`, within which the true one is at all times
    together: those for which a test has not the evidence that is `needed`, a logarithm."""
    ends = []
    for benefit, outer in ((True, -reach), (False, reach)):
        if test(benefit, 0.0) >= needed:
            left_out, inside = 0.0, -outer
        else:
            left_out, inside = outer, 0.0
        if test(benefit, left_out) >= needed:
            for _ in range(STEPS):
                half = (left_out + inside) / 2
                if test(benefit, half) >= needed:
                    left_out = half
                else:
                    inside = half
        ends.append(left_out)
    return ends[0], ends[1]


def log_mismatch(control: int, candidate: int, share: float) -> float:
    """The log of the evidence that subjects do not come to the candidate at its share in (0, 1)."""
    ahead, behind = PRIOR * share, PRIOR * (1 - share)
    return (
        _log_beta(ahead + candidate, behind + control)
        - _log_beta(ahead, behind)
        - candidate * math.log(share)
        - control * math.log(1 - share)
    )


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
