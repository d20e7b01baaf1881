"""Figures against brute force, tables and simulation."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.statistics import (
    interval,
    maj_at_k,
    mean_at_k,
    paired,
    pass_at_k,
    t_quantile,
)

binary = st.sampled_from([0.0, 1.0])
shares = st.floats(min_value=0, max_value=1)


def by_problem(samples: st.SearchStrategy[float], least: int = 1) -> st.SearchStrategy:
    return st.dictionaries(
        st.text(max_size=3), st.lists(samples, min_size=least, max_size=7), min_size=1, max_size=6
    )


@given(by_problem(shares))
def test_mean_at_k_is_the_mean_over_problems_of_their_means(rewards: dict) -> None:
    found = mean_at_k(rewards)
    assert found.mean == pytest.approx(fmean(fmean(r) for r in rewards.values()))
    assert found.problems == len(rewards)
    assert 0 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1


@given(by_problem(binary, least=3), st.integers(1, 3))
def test_pass_at_k_is_the_share_of_all_choices_of_k_that_hold_a_right_one(
    rewards: dict, k: int
) -> None:
    brute = fmean(
        fmean(float(any(choice)) for choice in combinations(samples, k))
        for samples in rewards.values()
    )
    assert pass_at_k(rewards, k).mean == pytest.approx(brute)


@given(by_problem(binary, least=4))
def test_pass_at_k_grows_with_k_from_mean_at_k(rewards: dict) -> None:
    passes = [pass_at_k(rewards, k).mean for k in (1, 2, 3, 4)]
    assert passes[0] == pytest.approx(mean_at_k(rewards).mean)
    assert all(a <= b + 1e-12 for a, b in pairwise(passes))


def test_pass_at_k_counts_only_full_rewards_and_refuses_too_few_samples() -> None:
    assert pass_at_k({"a": [0.9, 0.5], "b": [1.0, 0.0]}, 1).mean == 0.25
    with pytest.raises(ValueError, match="pass@3"):
        pass_at_k({"a": [1.0, 0.0]}, 3)


MAJORITIES = [
    ([("1", 1.0), ("1", 1.0), ("2", 0.0)], 1.0),
    ([("1", 1.0), ("2", 0.0), ("2", 0.0)], 0.0),
    ([("1", 1.0), ("2", 0.0)], 0.5),
    ([("1", 1.0), ("2", 0.0), ("3", 0.0)], 1 / 3),
    ([(None, 0.0), (None, 0.0), ("1", 1.0)], 1.0),
    ([(None, 0.0)], 0.0),
]


@pytest.mark.parametrize(("given_", "expected"), MAJORITIES)
def test_maj_at_k_is_the_reward_of_the_commonest_answer_and_ties_share_it(
    given_: list[tuple[str | None, float]], expected: float
) -> None:
    assert maj_at_k({"a": given_}).mean == pytest.approx(expected)
    assert maj_at_k({"a": list(reversed(given_))}).mean == pytest.approx(expected)


T_TABLE = [
    (0.95, 1, 6.314),
    (0.975, 1, 12.706),
    (0.975, 2, 4.303),
    (0.975, 4, 2.776),
    (0.975, 9, 2.262),
    (0.99, 10, 2.764),
    (0.975, 29, 2.045),
    (0.995, 30, 2.750),
    (0.975, 120, 1.980),
    (0.975, 100_000, 1.960),
]


@pytest.mark.parametrize(("p", "df", "expected"), T_TABLE)
def test_quantiles_of_students_t_are_those_of_the_tables(
    p: float, df: int, expected: float
) -> None:
    assert t_quantile(p, df) == pytest.approx(expected, abs=6e-4)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(20251)
    for level in (0.8, 0.95):
        covered = 0
        for _ in range(2000):
            found = interval([chance.gauss(0.4, 0.3) for _ in range(9)], level=level)
            covered += found.low <= 0.4 <= found.high
        assert covered / 2000 == pytest.approx(level, abs=0.025)


def test_samples_of_one_problem_are_not_taken_for_so_many_facts() -> None:
    once = {str(n): [float(n % 2)] for n in range(10)}
    often = {problem: samples * 50 for problem, samples in once.items()}
    assert mean_at_k(often) == mean_at_k(once)


def test_of_a_single_problem_nothing_is_known_about_others() -> None:
    found = interval([0.5])
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert paired({"a": [0.0]}, {"a": [1.0]}).verdict == "undecided"


@given(by_problem(shares))
def test_a_library_compared_with_itself_is_undecided(rewards: dict) -> None:
    found = paired(rewards, rewards)
    assert (found.estimate.mean, found.verdict) == (0.0, "undecided")


@given(by_problem(shares), by_problem(shares))
def test_a_comparison_the_other_way_round_says_the_opposite(a: dict, b: dict) -> None:
    if not set(a) & set(b):
        with pytest.raises(ValueError, match="in common"):
            paired(a, b)
        return
    one, other = paired(a, b), paired(b, a)
    assert one.estimate.mean == pytest.approx(-other.estimate.mean)
    assert one.estimate.low == pytest.approx(-other.estimate.high)
    opposite = {"better": "worse", "worse": "better", "undecided": "undecided"}
    assert other.verdict == opposite[one.verdict]


def test_pairing_sees_what_the_spread_between_problems_would_hide() -> None:
    a = {str(n): [n / 20] for n in range(20)}
    b = {p: [r[0] + 0.02 + 0.001 * (int(p) % 3)] for p, r in a.items()}
    assert mean_at_k(b).low < mean_at_k(a).mean
    assert paired(a, b).verdict == "better"
    assert paired(b, a).verdict == "worse"


def test_only_problems_that_both_have_are_compared() -> None:
    a = {"x": [0.0], "y": [0.0], "only a": [1.0]}
    b = {"x": [1.0], "y": [1.0], "only b": [0.0]}
    found = paired(a, b)
    assert (found.estimate.mean, found.estimate.problems) == (1.0, 2)
