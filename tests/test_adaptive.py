"""Adaptive groups: what is believed of a problem, and who gets which attempts."""

from __future__ import annotations

import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.training import adaptive
from tfgrpo.training.adaptive import Belief, chosen, enough, extra

counts = st.floats(min_value=0, max_value=50)
rewards = st.lists(st.sampled_from([0.0, 1.0]), max_size=6)


@given(counts, counts, st.integers(2, 8))
def test_chances_are_those_of_the_posterior(wins: float, losses: float, n: int) -> None:
    dice = random.Random(0)
    draws = [dice.betavariate(wins + 0.5, losses + 0.5) for _ in range(4000)]
    belief = Belief(wins, losses)
    mixed = fmean(1 - p**n - (1 - p) ** n for p in draws)
    assert belief.mixed_within(n) == pytest.approx(mixed, abs=0.03)
    assert belief.turns_within(n, wins=True) == pytest.approx(
        fmean(1 - p**n for p in draws), abs=0.03
    )


@given(counts, counts)
def test_more_attempts_make_a_mixed_group_likelier(wins: float, losses: float) -> None:
    chances = [Belief(wins, losses).mixed_within(n) for n in range(1, 9)]
    assert chances[0] == pytest.approx(0)
    assert chances == sorted(chances)


def test_a_belief_counts_and_forgets() -> None:
    belief = Belief().after([1.0, 0.0, 1.0])
    assert belief == Belief(2, 1)
    assert belief.faded() == Belief(2 * adaptive.FORGET, adaptive.FORGET)


@given(rewards)
def test_a_group_is_enough_when_it_is_mixed_or_full(given_rewards: list[float]) -> None:
    mixed = 0.0 in given_rewards and 1.0 in given_rewards
    assert enough(given_rewards, 5) == (mixed or len(given_rewards) >= 5)


def test_hopeless_and_mastered_problems_are_passed_over_but_for_a_tenth() -> None:
    names = [f"p{i}" for i in range(1000)]
    mastered = dict.fromkeys(names, Belief(wins=20))
    kept = chosen(names, mastered, 5, seed="a")
    assert len(kept) == pytest.approx(100, abs=35)
    assert kept == chosen(names, mastered, 5, seed="a"), "a resumed run chooses alike"
    assert kept != chosen(names, mastered, 5, seed="b")


def test_problems_never_tried_or_even_are_always_worth_it() -> None:
    beliefs = {"even": Belief(3, 3), "lost": Belief(losses=30)}
    assert {"new", "even"} <= set(chosen(["new", "even", "lost"], beliefs, 5, seed=""))


def test_what_is_saved_goes_to_the_likeliest_first_and_never_beyond_what_is_there() -> None:
    alike = {"even": [1.0] * 5, "lost": [0.0] * 5, "new": [0.0] * 5}
    beliefs = {"even": Belief(4, 4), "lost": Belief(losses=30)}
    assert extra(alike, beliefs, 7, 5) == {"even": 5}, "the others are not likely enough"
    assert extra(alike, beliefs, 3, 5) == {"even": 3}
    assert extra(alike, beliefs, 0, 5) == {}
    assert extra({"nothing scored": []}, {}, 9, 5) == {}
