"""Tests that may be looked at any time: exact where they say so, and as their sources have them."""

from __future__ import annotations

import math
from itertools import product

import numpy
import pytest

from tfgrpo.evaluation.anytime import (
    FEWEST,
    TIGHTEST,
    Blocks,
    Outcome,
    block_sizes,
    blocks_of,
    difference,
    log_evidence,
    log_mismatch,
    margin,
)

RATES = (0.0, 0.02, 0.3, 0.5, 0.77, 1.0)


def expected(sizes: tuple[int, int], rates: tuple[float, float], *, benefit: bool) -> float:
    """The mean of the evidence after some blocks, over all that may come out of them."""
    a, b = sizes
    count = 3 if a + b == 2 else 2
    total = 0.0
    for rights in product(range(a + 1), range(b + 1), repeat=count):
        of_a, of_b = numpy.array(rights[::2]), numpy.array(rights[1::2])
        chance = math.prod(
            math.comb(n, k) * rate**k * (1 - rate) ** (n - k)
            for n, rate, of_arm in ((a, rates[0], of_a), (b, rates[1], of_b))
            for k in map(int, of_arm)
        )
        blocks = Blocks(numpy.full(count, a), numpy.full(count, b), of_a, of_b)
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
        Outcome(bool(arm), bool(right), (9, 1) if n < 200 else (1, 1))
        for n, (arm, right) in enumerate(dice.integers(0, 2, (400, 2)))
    ]
    whole = blocks_of(outcomes)
    evidence = log_evidence(whole, benefit=True)
    for upto in (0, 1, 57, 203, 399):
        part = blocks_of(outcomes[:upto])
        count = len(part.control)
        assert all((a == b[:count]).all() for a, b in zip(part, whole, strict=True))
        assert log_evidence(part, benefit=True) == pytest.approx(evidence[:count])
    other = blocks_of([one._replace(right=not one.right) for one in outcomes])
    assert (other.control == whole.control).all()
    assert (other.control_right == whole.control - whole.control_right).all()
    assert set(zip(whole.control.tolist(), whole.candidate.tolist(), strict=True)) == {
        (9, 1),
        (1, 1),
    }


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
    for share in (0.0, 1.0):
        assert block_sizes(share) == (1, 1)
    for share in (1e-9, 0.001, 0.07, 0.15, 0.95, 0.9999999):
        a, b = block_sizes(share)
        assert a >= 1
        assert b >= 1
        assert a + b <= 100


def test_a_margin_is_what_the_source_says() -> None:
    for alpha in (0.05, 0.02):
        for variance, n in ((1.0, 50), (7.5, 4000)):
            log = -2 * math.log(alpha)
            rho2 = (log + math.log(log) + 1) / (TIGHTEST * variance)
            grown = n * variance * rho2 + 1
            wanted = math.sqrt(grown / (n**2 * rho2) * math.log(grown / alpha**2))
            found = margin(numpy.array(variance), numpy.array(float(n)), alpha)
            assert float(found) == pytest.approx(wanted)
    at_best, fixed = margin(numpy.array(1.0), numpy.array(float(TIGHTEST)), 0.05), 1.96
    assert float(at_best) * math.sqrt(TIGHTEST) / fixed < 1.6


def test_evidence_of_numbers_is_enough_exactly_where_the_bounds_leave_the_value_out() -> None:
    dice = numpy.random.default_rng(4)
    for shift in (-1.0, -0.4, -0.3, 0.0, 0.3, 0.4, 1.0):
        control, candidate = dice.normal(0, 1, 80).tolist(), dice.normal(shift, 1, 60).tolist()
        found = difference(control, candidate, alpha=0.05)
        assert found is not None
        assert found.low < found.mean < found.high
        for bound in (
            found.low - 1e-6,
            found.low + 1e-6,
            found.high - 1e-6,
            found.high + 1e-6,
            0.0,
        ):
            needed = math.log(2 / 0.05)
            assert (found.log_evidence(bound, above=True) >= needed) == (bound < found.low)
            assert (found.log_evidence(bound, above=False) >= needed) == (bound > found.high)


def test_too_few_numbers_and_numbers_that_are_all_alike_say_nothing() -> None:
    many = [float(n) for n in range(FEWEST)]
    assert difference(many[1:], many, alpha=0.05) is None
    assert difference(many, [], alpha=0.05) is None
    assert difference([0.5] * 100, [0.5] * 100, alpha=0.05) is None
    assert difference(many, many, alpha=0.05) is not None


@pytest.mark.parametrize("value", [0.1, 0.7, 1 / 3, 4.9, 1e-7, 1234.1, 5e9, -0.3])
@pytest.mark.parametrize("sizes", [(38, 42), (42, 38), (30, 1000), (997, 1003)])
def test_what_rounding_leaves_of_numbers_that_are_alike_decides_nothing(
    value: float, sizes: tuple[int, int]
) -> None:
    a, b = ([value] * size for size in sizes)
    assert difference(a, b, alpha=0.02) is None
    b[::2] = [math.nextafter(value, math.inf)] * len(b[::2])  # 0.1 + 0.2 beside 0.3
    assert difference(a, b, alpha=0.02) is None
    b[::2] = [value * 1.0001] * len(b[::2])
    assert difference(a, b, alpha=0.02) is not None


def test_looking_after_every_call_decides_falsely_in_at_most_one_of_twenty() -> None:
    dice = numpy.random.default_rng(5)
    size = (1500, 150)
    ones = numpy.ones(size, dtype=numpy.int64)
    drawn = Blocks(ones, ones, dice.binomial(1, 0.8, size), dice.binomial(1, 0.8, size))
    crossed = numpy.zeros(1500, dtype=bool)
    for benefit in (False, True):
        crossed |= (log_evidence(drawn, benefit=benefit) >= math.log(40)).any(axis=1)
    assert 0 < crossed.mean() <= 0.05
    worse = drawn._replace(candidate_right=dice.binomial(1, 0.6, size))
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
