"""Figures against brute force, tables and simulation."""

from __future__ import annotations

import math
import random
from itertools import combinations, pairwise, product
from statistics import NormalDist, fmean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.evaluation.statistics import (
    APART,
    ChangeEstimate,
    differences,
    interval,
    maj_at_k,
    mean_at_k,
    paired,
    pass_at_k,
    permutation,
    problems_for,
    problems_needed,
    spread_of,
    spreads,
    t_quantile,
)
from tfgrpo.learn.advantage import Effect

binary = st.sampled_from([0.0, 1.0])
shares = st.floats(min_value=0, max_value=1)


def by_problem(samples: st.SearchStrategy[float], least: int = 1) -> st.SearchStrategy:
    return st.dictionaries(
        st.text(max_size=3), st.lists(samples, min_size=least, max_size=7), min_size=1, max_size=6
    )


@settings(deadline=None)
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
    ([("1", 1.0), ("1", 0.5), ("2", 0.0)], 0.75),
]


@pytest.mark.parametrize(("given_", "expected"), MAJORITIES)
def test_maj_at_k_is_the_reward_of_the_commonest_answer_and_ties_share_it(
    given_: list[tuple[str | None, float]], expected: float
) -> None:
    for one in (given_, given_[::-1]):
        found = maj_at_k({"a": one})
        assert found is not None
        assert found.mean == pytest.approx(expected)


def test_without_an_answer_a_problem_has_no_majority_and_an_evaluation_no_maj_at_k() -> None:
    found = maj_at_k({"a": [("1", 1.0)], "b": [(None, 0.0)]})
    assert found is not None
    assert found.mean == 0.5
    assert maj_at_k({"a": [(None, 1.0)], "b": [(None, 0.0)]}) is None


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


@pytest.mark.parametrize("p", [0.8, 0.9, 0.975, 0.995])
def test_quantiles_for_many_degrees_go_on_where_the_exact_ones_end(p: float) -> None:
    around = [t_quantile(p, df) for df in (199, 200, 201, 202)]
    assert around[2] - around[1] == pytest.approx(around[1] - around[0], rel=0.03)
    assert around[2] - around[1] == pytest.approx(around[3] - around[2], rel=0.03)
    assert t_quantile(p, 10**30) == pytest.approx(NormalDist().inv_cdf(p))


def test_what_rounding_leaves_of_no_difference_needs_no_number_of_problems() -> None:
    a = {"x": [0.7, 0.1, 0.6], "y": [0.6, 0.3, 0.8]}
    b = {"x": [0.0, 0.4, 0.9], "y": [0.8, 0.3, 0.7]}
    found = paired(a, b)
    assert 0 < abs(found.estimate.mean) < 1e-15
    assert found.problems_needed is None
    assert problems_for(1e-17, 0.1) > 10**30


def test_what_rounding_leaves_of_no_difference_is_neither_better_nor_worse() -> None:
    a, b = [0.1, 0.7], [0.4, 0.4]
    for before, after in ((a, b), (b, a)):
        found = paired(dict.fromkeys("xy", before), dict.fromkeys("xy", after))
        assert found.estimate.mean
        assert found.verdict == "inconclusive"


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
    assert paired({"a": [0.0]}, {"a": [1.0]}).verdict == "inconclusive"


@given(by_problem(shares))
def test_a_library_compared_with_itself_is_inconclusive(rewards: dict) -> None:
    found = paired(rewards, rewards)
    assert (found.estimate.mean, found.verdict) == (0.0, "inconclusive")


@given(by_problem(shares), by_problem(shares))
def test_a_comparison_the_other_way_round_says_the_opposite(a: dict, b: dict) -> None:
    if not set(a) & set(b):
        with pytest.raises(ValueError, match="in common"):
            paired(a, b)
        return
    one, other = paired(a, b), paired(b, a)
    assert one.estimate.mean == pytest.approx(-other.estimate.mean)
    assert one.estimate.low == pytest.approx(-other.estimate.high)
    opposite = {"better": "worse", "worse": "better", "inconclusive": "inconclusive"}
    assert other.verdict == opposite[one.verdict]


def test_pairing_sees_what_the_spread_between_problems_would_hide() -> None:
    a = {str(n): [n / 25] for n in range(20)}
    b = {p: [r[0] + 0.06 + 0.001 * (int(p) % 3)] for p, r in a.items()}
    assert mean_at_k(b).low < mean_at_k(a).mean
    assert paired(a, b).verdict == "better"
    assert paired(b, a).verdict == "worse"


def test_only_problems_that_both_have_are_compared() -> None:
    a = {"x": [0.0], "y": [0.0], "only a": [1.0]}
    b = {"x": [1.0], "y": [1.0], "only b": [0.0]}
    found = paired(a, b)
    assert (found.estimate.mean, found.estimate.problems) == (1.0, 2)


differing = st.lists(st.floats(-1, 1), min_size=1, max_size=8)


@given(differing)
def test_the_permutation_test_counts_the_signs_that_differ_as_much(values: list[float]) -> None:
    observed = abs(sum(values))
    signs = list(product((1, -1), repeat=len(values)))
    extreme = [abs(sum(s * v for s, v in zip(sign, values, strict=True))) for sign in signs]
    brute = sum(total >= observed - 1e-9 for total in extreme) / len(signs)
    assert permutation(values) == pytest.approx(brute)


def test_the_sampled_permutation_test_agrees_with_the_exact_one() -> None:
    dice = random.Random(1)
    values = [dice.gauss(0.2, 0.5) for _ in range(14)]
    exact = permutation(values)
    beyond = permutation([*values, 1e-12])  # one more problem than are enumerated
    assert beyond == pytest.approx(exact, abs=0.02)
    assert permutation([*values, 1e-12]) == beyond, "the same question has one answer"


def test_the_permutation_test_rejects_at_its_level_when_nothing_differs() -> None:
    dice = random.Random(2)
    rejected = sum(permutation([dice.gauss(0, 1) for _ in range(9)]) <= 0.05 for _ in range(400))
    assert rejected / 400 < 0.08


@pytest.mark.parametrize(("difference", "spread"), [(0.1, 0.3), (0.03, 0.4), (0.4, 0.3)])
def test_as_many_problems_as_are_asked_for_show_the_difference_that_often(
    difference: float, spread: float
) -> None:
    n = problems_for(difference, spread)
    dice = random.Random(3)
    runs = 200
    shown = sum(
        interval([dice.gauss(difference, spread) for _ in range(n)]).low > 0 for _ in range(runs)
    )
    assert 0.7 < shown / runs < 0.92


def test_spreads_tell_sampling_from_problems() -> None:
    dice = random.Random(4)
    a, b = {}, {}
    for i in range(3000):
        before, gain = dice.uniform(0.3, 0.5), dice.choice((0.0, 0.4))
        a[str(i)] = [float(dice.random() < before) for _ in range(4)]
        b[str(i)] = [float(dice.random() < before + gain) for _ in range(4)]
    between, within = spreads(a, b)
    assert between == pytest.approx(0.2, abs=0.03)
    assert spread_of(between, within, 4) == pytest.approx(stdev(differences(a, b)), rel=0.02)
    assert spread_of(between, within, 10_000) == pytest.approx(between, abs=0.01)


def test_no_bound_of_a_difference_is_beyond_what_rewards_can_be() -> None:
    a, b = {"x": [0.0], "y": [0.0], "z": [0.0]}, {"x": [1.0], "y": [1.0], "z": [0.0]}
    found = paired(a, b)
    assert found.words.endswith(", +1.000]")
    assert found.estimate.recorded[2] == 1.0
    assert paired(b, a).estimate.recorded[1] == -1.0
    assert paired({"x": [0.0]}, {"x": [1.0]}).words == "+1.000", "of one problem there are none"
    assert Effect(0.9, 0.5, 0.9, 0.9, 3, 3).interval[1] == 1.0
    change = interval([-2.0, -1.0])
    assert ChangeEstimate(*change).bounds == (-2.0, 2.0), "of what two libraries add"


def test_a_difference_says_how_many_problems_would_show_it() -> None:
    a = {str(i): [0.0, 1.0] for i in range(6)}
    b = {str(i): [1.0, 1.0] if i < 2 else [0.0, 1.0] for i in range(6)}
    found = paired(a, b)
    assert found.verdict == "inconclusive"
    assert found.p == 0.5  # two differ: both signs alike in half of the four ways
    assert found.problems_needed == problems_needed(1 / 6, stdev(differences(a, b)))
    nothing = interval([0.0] * 6, apart=APART)
    assert paired(a, a) == (nothing, "inconclusive", (0.5, 0.5), 1.0, None)
    assert nothing.high > 0.1, "six that agree do not say that all others do"


def test_a_difference_has_the_means_of_the_problems_that_it_is_about() -> None:
    easy, hard = {f"e{n}": [1.0] for n in range(8)}, {f"h{n}": [0.0] for n in range(8)}
    less = {f"e{n}": [0.75] for n in range(8)}  # nobody could judge the hard ones
    assert paired(easy | hard, less).means == (1.0, 0.75)
    assert paired(less, easy | hard).means == (0.75, 1.0)


@pytest.mark.parametrize("difference", [0.01, 0.1, 0.4])
def test_no_fewer_problems_would_do(difference: float) -> None:
    def is_enough(n: int, ratio: float) -> bool:
        return ((t_quantile(0.975, n - 1) + t_quantile(0.8, n - 1)) * ratio) ** 2 <= n

    for spread in (difference * ratio / 20 for ratio in range(1, 400)):
        n = problems_for(difference, spread)
        assert is_enough(n, spread / difference)
        assert n == 2 or not is_enough(n - 1, spread / difference)


def test_equal_gains_on_few_problems_need_the_six_that_a_permutation_test_needs() -> None:
    a, b = ({str(i): [reward] for i in range(6)} for reward in (0.0, 1.0))
    for count in (2, 5):
        few = {problem: b[problem] for problem in list(b)[:count]}
        found = paired(a, few)
        assert (found.verdict, found.problems_needed) == ("inconclusive", 6)
    assert paired(a, b).verdict == "better"


def simulated(mean: float, alike: float, dice: random.Random) -> dict[str, list[float]]:
    """Returns 8 samples of each of 10 problems, whose rates are as much alike as `alike` says."""
    weight = 1 / alike - 1
    rates = [dice.betavariate(mean * weight, (1 - mean) * weight) for _ in range(10)]
    return {str(n): [float(dice.random() < rate) for _ in range(8)] for n, rate in enumerate(rates)}


@pytest.mark.parametrize("alike", [0.02, 0.3, 0.6])
@pytest.mark.parametrize("mean", [0.02, 0.05, 0.2, 0.5, 0.9, 0.98])
def test_the_interval_of_a_mean_covers_it_near_0_and_1_too(mean: float, alike: float) -> None:
    dice = random.Random(f"{mean}/{alike}")
    found = [mean_at_k(simulated(mean, alike, dice)) for _ in range(400)]
    assert sum(one.low <= mean <= one.high for one in found) / len(found) >= 0.93


def test_what_was_always_right_or_never_is_not_taken_for_certain() -> None:
    for reward in (0.0, 1.0):
        rewards = {str(n): [reward] * 8 for n in range(10)}
        for found in (mean_at_k(rewards), pass_at_k(rewards, 8), pass_at_k(rewards, 1)):
            assert found.mean == reward
            assert 0.2 < found.high - found.low < 0.5
    assert (mean_at_k({"a": [1.0] * 8}).low, mean_at_k({"a": [1.0] * 8}).high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("problems", "verdict"), [(3, "inconclusive"), (5, "inconclusive"), (6, "better")]
)
def test_equal_gains_at_a_few_problems_are_not_better(problems: int, verdict: str) -> None:
    before = {str(n): [0.0, 0.0, 1.0, 0.0] for n in range(problems)}
    after = {str(n): [1.0, 0.0, 1.0, 0.0] for n in range(problems)}
    assert paired(before, after).verdict == verdict
    assert paired(after, before).verdict == verdict.replace("better", "worse")


@pytest.mark.parametrize(("usual", "spread", "failing"), [(0.9, 0.02, 0.1), (0.6, 0.05, 0.05)])
@pytest.mark.parametrize("problems", [3, 6, 12, 40])
def test_the_interval_of_grades_covers_a_mean_that_rare_failures_lower(
    usual: float, spread: float, failing: float, problems: int
) -> None:
    dice = random.Random(f"{usual}/{problems}")

    def graded() -> list[float]:
        return [0.0 if dice.random() < failing else min(1.0, dice.gauss(usual, spread))]

    found = [mean_at_k({str(n): graded() for n in range(problems)}) for _ in range(400)]
    mean = usual * (1 - failing)
    least = 0.87 if problems > 12 else 0.96
    assert sum(one.low <= mean <= one.high for one in found) / len(found) >= least


@pytest.mark.parametrize("problems", [6, 12])
def test_small_gains_do_not_hide_that_some_problem_may_break(problems: int) -> None:
    dice, better = random.Random(problems), 0
    for _ in range(200):
        before = {str(n): [0.9] for n in range(problems)}
        gains = [-0.9 if dice.random() < 0.06 else dice.gauss(0.05, 0.01) for _ in before]
        after = {one: [0.9 + gain] for one, gain in zip(before, gains, strict=True)}
        better += paired(before, after).verdict == "better"
    assert better <= 10


@pytest.mark.parametrize("differing", [0.1, 0.3, 0.6, 0.9])
def test_as_many_problems_as_would_decide_do_so_where_answers_are_always_alike(
    differing: float,
) -> None:
    n = problems_needed(differing, math.sqrt(differing * (1 - differing)))
    assert n is not None
    dice, shown, runs = random.Random(f"{differing}"), 0, 200
    for _ in range(runs):
        before = {str(one): [0.0] for one in range(n)}
        after = {one: [float(dice.random() < differing)] for one in before}
        shown += paired(before, after).verdict == "better"
    assert shown / runs >= 0.7


def test_a_tiny_difference_needs_so_many_problems_that_nobody_has_them() -> None:
    for difference in (2e-9, 1e-6):
        needed = problems_needed(difference, 0.5)
        assert needed == pytest.approx(7.85 * (0.5 / difference) ** 2, rel=0.1)


@pytest.mark.parametrize(("difference", "spread"), [(0.1, 0.02), (0.05, 0.3), (-0.5, 0.5), (1, 0)])
def test_one_problem_less_than_would_decide_is_too_few(difference: float, spread: float) -> None:
    n = problems_needed(difference, spread)
    assert n is not None
    assert n >= 6

    def decides(n: int) -> bool:
        wide = math.sqrt(spread**2 + APART / n)
        rate = difference**2 / (difference**2 + spread**2)
        few = sum(math.comb(n, k) * rate**k * (1 - rate) ** (n - k) for k in range(6))
        return n >= problems_for(difference, wide) and few <= 0.2

    assert decides(n)
    assert n == 6 or not decides(n - 1)
