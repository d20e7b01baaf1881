"""Tests that may be looked at any time: exact where they say so, and as their sources have them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy
import pytest

from tfgrpo.evaluation.anytime_tests import (
    Blocks,
    Floats,
    Outcome,
    block_sizes,
    blocks_of,
    bounds,
    in_blocks,
    log_evidence,
    log_mismatch,
    means,
    ranked,
    ranks,
)

RATES = (0.0, 0.02, 0.3, 0.5, 0.77, 1.0)


def expected(sizes: tuple[int, int], rates: tuple[float, float], *, benefit: bool) -> float:
    """The mean of the evidence after some blocks, over all that may come out of them."""
    a, b = sizes
    count = 3 if a + b == 2 else 2
    total = 0.0
    for rights in product(range(a + 1), range(b + 1), repeat=count):
        chance = math.prod(
            math.comb(n, k) * rate**k * (1 - rate) ** (n - k)
            for block in range(count)
            for n, rate, k in zip(sizes, rates, rights[2 * block : 2 * block + 2], strict=True)
        )
        values = [
            float(place < k)
            for block in range(count)
            for n, k in zip(sizes, rights[2 * block : 2 * block + 2], strict=True)
            for place in range(n)
        ]
        blocks = in_blocks(numpy.array(values), [sizes] * count)
        total += chance * math.exp(log_evidence(blocks, benefit=benefit)[-1])
    return total


@pytest.mark.parametrize("sizes", [(1, 1), (3, 1), (1, 2)])
def test_evidence_is_at_most_one_on_average_whatever_rate_the_arms_share(
    sizes: tuple[int, int],
) -> None:
    for rate in RATES:
        for benefit in (False, True):
            assert expected(sizes, (rate, rate), benefit=benefit) <= 1 + 1e-12


def test_evidence_is_so_too_where_the_other_side_is_true_and_grows_where_its_own_is() -> None:
    for low, high in ((0.3, 0.5), (0.02, 0.77), (0.5, 1.0)):
        assert expected((2, 1), (low, high), benefit=False) <= 1 + 1e-12
        assert expected((2, 1), (high, low), benefit=True) <= 1 + 1e-12
        assert expected((2, 1), (high, low), benefit=False) > 1
        assert expected((2, 1), (low, high), benefit=True) > 1


def test_a_block_stays_as_it_is_whatever_comes_later_and_knows_nothing_of_what_is_right() -> None:
    dice = numpy.random.default_rng(3)
    outcomes = [
        Outcome(bool(arm), float(right), (9, 1) if n < 200 else (1, 1))
        for n, (arm, right) in enumerate(dice.integers(0, 2, (400, 2)))
    ]
    whole = blocks_of(outcomes)
    evidence = log_evidence(whole, benefit=True)
    for upto in (0, 1, 57, 203, 399):
        part = blocks_of(outcomes[:upto])
        count, values = len(part.starts), len(part.values)
        assert (part.values == whole.values[:values]).all()
        assert (part.sizes == whole.sizes[:count]).all()
        assert log_evidence(part, benefit=True) == pytest.approx(evidence[:count])
    other = blocks_of([one._replace(value=1 - one.value) for one in outcomes])
    assert (other.sizes == whole.sizes).all()
    assert (other.candidate == whole.candidate).all()
    assert (other.values == 1 - whole.values).all()
    assert set(map(tuple, whole.sizes.tolist())) == {(9, 1), (1, 1)}


def test_blocks_have_the_arms_in_the_share_that_they_come_in() -> None:
    sizes = {share: block_sizes(share) for share in (0.1, 0.25, 0.3, 0.5, 0.9, 0.01)}
    assert sizes == {
        0.1: (9, 1),
        0.25: (3, 1),
        0.3: (7, 3),
        0.5: (1, 1),
        0.9: (1, 9),
        0.01: (99, 1),
    }
    assert (block_sizes(0.0), block_sizes(1.0)) == ((1, 0), (0, 1))
    alone = [Outcome(True, 1.0, (0, 1)), Outcome(False, 0.0, (1, 0))]
    assert not len(blocks_of(alone).values), "who was alone in coming is compared with nobody"
    for share in (1e-9, 0.001, 0.07, 0.15, 0.95, 0.9999999):
        a, b = block_sizes(share)
        assert a >= 1
        assert b >= 1
        assert a + b <= 100


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 3)])
@pytest.mark.parametrize("bound", [-0.3, 0.0, 0.2])
def test_evidence_of_grades_is_at_most_one_on_average_at_the_bound_and_beyond(
    sizes: tuple[int, int], bound: float
) -> None:
    """Of candidates that are as good as control and the bound, or worse: exactly, over all that
    may come of two grades in control, and of right and wrong in the candidate."""
    a, b = sizes
    count = 2
    for off in (0.0, -0.1):
        right = 0.5 + bound + off
        outcomes = {
            False: [(0.25, 0.5), (0.75, 0.5)],
            True: [(0.0, 1 - right), (1.0, right)],
        }
        arms = ([False] * a + [True] * b) * count
        mean = {True: 0.0, False: 0.0}
        for combined in product(*(outcomes[arm] for arm in arms)):
            chance = math.prod(c for _, c in combined)
            blocks = in_blocks(numpy.array([v for v, _ in combined]), [sizes] * count)
            for benefit in mean:
                log = log_evidence(blocks, benefit=benefit, bound=bound)[-1]
                mean[benefit] += chance * math.exp(log)
        assert mean[True] <= 1 + 1e-12
        if not off:
            assert mean[False] <= 1 + 1e-12


def test_one_experiment_is_as_it_is_among_many() -> None:
    dice = numpy.random.default_rng(6)
    sizes = [(3, 1)] * 20
    many = dice.random((5, 80))
    found = log_evidence(in_blocks(many, sizes), benefit=True, bound=0.1)
    for row, values in zip(found, many, strict=True):
        assert row == pytest.approx(log_evidence(in_blocks(values, sizes), benefit=True, bound=0.1))


def test_evidence_is_enough_exactly_where_the_bounds_leave_a_difference_out() -> None:
    dice = numpy.random.default_rng(4)
    needed = math.log(40)
    for shift in (-0.4, -0.1, 0.0, 0.1, 0.4):
        rates = (0.5, 0.5 + shift)
        drawn = [
            Outcome(bool(arm), float(dice.random() < rates[arm]))
            for arm in dice.integers(0, 2, 400)
        ]
        test = means(blocks_of(drawn))
        low, high = bounds(test, 1.0, needed)
        assert -1 <= low < high <= 1
        assert low - 0.02 < shift < high + 0.02
        assert (test(True, 0.0) >= needed) == (low >= 0)
        assert (test(False, 0.0) >= needed) == (high <= 0)
        for end, benefit in ((low, True), (high, False)):
            inside = 1e-3 if benefit else -1e-3
            assert test(benefit, end + inside) < needed <= test(benefit, end - inside)


def test_too_little_and_what_is_all_alike_says_nothing() -> None:
    needed = math.log(40)
    for values in ([], [0.5], [0.1] * 1000):
        blocks = blocks_of(Outcome(bool(n % 2), value) for n, value in enumerate(values))
        for test in (means(blocks), ranks(blocks)):
            assert max(test(True, 0.0), test(False, 0.0)) < math.log(2)
    assert bounds(means(blocks_of([])), 1.0, needed) == (-1, 1)
    rounded = means(blocks_of(Outcome(bool(n % 2), 0.1 + n % 2 * 1e-16) for n in range(1000)))
    assert max(rounded(True, 0.0), rounded(False, 0.0)) < math.log(2)


def test_ranks_are_places_among_values_of_earlier_blocks_alone() -> None:
    dice = numpy.random.default_rng(7)
    values = numpy.round(dice.normal(0, 3, 60))
    whole = ranked(in_blocks(values, [(2, 1)] * 20)).values
    assert (whole[:6] == 0.5).all()
    assert ((whole >= 0) & (whole <= 1)).all()
    for blocks in (3, 7, 13):
        part = ranked(in_blocks(values[: 3 * blocks], [(2, 1)] * blocks)).values
        assert (part == whole[: 3 * blocks]).all()
    known = values[:6]
    place = ((known < values[6]).sum() + (known <= values[6]).sum()) / 12
    assert whole[6] == pytest.approx(place)
    turned = ranked(in_blocks(numpy.exp(values), [(2, 1)] * 20)).values
    assert (turned == whole).all(), "only the order counts"


def test_looking_after_every_call_decides_falsely_in_at_most_one_of_twenty() -> None:
    dice = numpy.random.default_rng(5)
    sizes = [(1, 1)] * 150
    values = (dice.random((1500, 300)) < 0.8).astype(float)
    drawn = in_blocks(values, sizes)
    crossed = numpy.zeros(1500, dtype=bool)
    for benefit in (False, True):
        crossed |= (log_evidence(drawn, benefit=benefit) >= math.log(40)).any(axis=1)
    assert 0 < crossed.mean() <= 0.05
    values[:, drawn.candidate] = dice.random((1500, 150)) < 0.6
    worse = drawn._replace(values=values)
    found = log_evidence(worse, benefit=False) >= math.log(40)
    assert numpy.median(numpy.where(found.any(axis=1), found.argmax(axis=1) + 1, 999)) <= 110


def test_evidence_of_a_mismatch_is_at_most_one_on_average() -> None:
    for share in (0.1, 0.5):
        mean = math.fsum(
            math.comb(30, k)
            * share**k
            * (1 - share) ** (30 - k)
            * math.exp(log_mismatch(30 - k, k, share))
            for k in range(31)
        )
        assert mean == pytest.approx(1)
    assert log_mismatch(0, 0, 0.3) == 0
    assert log_mismatch(500, 500, 0.1) > math.log(1000) > log_mismatch(900, 100, 0.1)


def outage(dice: numpy.random.Generator) -> Floats:
    values = (dice.random(1000) < 0.9).astype(float)
    begin = int(dice.integers(1000))
    values[begin : begin + 50] = 0
    return values


def rising(dice: numpy.random.Generator) -> Floats:
    return dice.normal(0, 1, 1000) + numpy.arange(1000) / 200


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(("draw", "test"), [(outage, means), (rising, ranks)])
def test_what_changes_with_time_for_both_arms_decides_in_at_most_one_of_twenty(
    draw: Callable[[numpy.random.Generator], Floats],
    test: Callable[[Blocks], Callable[[bool, float], float]],
    share: float,
) -> None:
    dice, size, decided = numpy.random.default_rng(7), block_sizes(share), 0
    for _ in range(120):
        values, arms = draw(dice), dice.random(1000) < share
        blocks = blocks_of(
            Outcome(arm, value, size)
            for arm, value in zip(arms.tolist(), values.tolist(), strict=True)
        )
        evidence = test(blocks)
        decided += max(evidence(False, 0.0), evidence(True, 0.0)) >= math.log(40)
    assert decided <= 12, "6 of 120, and what chance adds"
