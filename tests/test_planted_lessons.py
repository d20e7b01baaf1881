"""Planted lessons: a simulation whose truth is known tells good estimators from bad ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.planted import (
    Belief,
    Evidence,
    Planted,
    Policy,
    World,
    as_trained,
    compared,
    page,
    simulate,
    within_groups,
)
from tfgrpo.learn.rivals import are_alike

SMALL = World(steps=4, groups=24, candidates=6)


def certain(evidence: Evidence, candidates: Sequence[int]) -> list[Belief]:
    """Is sure of all that it sees, which is wrong."""
    return [Belief(1.0, 0.01, 1.0, 1.0) for _ in candidates]


def test_a_run_is_the_same_for_a_seed() -> None:
    policy = Policy(within_groups)
    assert simulate(policy, SMALL, 3) == simulate(policy, SMALL, 3)
    assert simulate(policy, SMALL, 3) != simulate(policy, SMALL, 4)


def test_measured_lessons_beat_those_that_all_enter() -> None:
    policies = {"all": Policy(None), "measured": Policy(within_groups)}
    found = compared(policies, {"w": World(0.15, 0.50, 0.35, steps=4)}, 5)
    gain = {name: np.mean([one.gain for one in found["w", name]]) for name in policies}
    assert gain["measured"] > 0 > gain["all"]
    assert all(one.promoted == 48 for one in found["w", "all"])
    assert "| w | measured | +" in page(found)


def test_who_is_always_certain_claims_less_than_is_found() -> None:
    runs = [simulate(Policy(certain), SMALL, seed) for seed in range(5)]
    assert all(one.claimed_fdr == 0 for one in runs)
    assert np.mean([one.found_fdr for one in runs]) > 0.3


def test_of_what_belongs_four_are_tried_where_the_product_chooses() -> None:
    crowded = World(steps=2, groups=24, candidates=16, kinds=1)
    shown: list[int] = []

    def looking(evidence: Evidence, candidates: Sequence[int]) -> list[Belief]:
        shown.append(int(evidence.shown.sum(axis=1).max()))
        return [Belief(0.0, 0.2, 0.5, 0.5) for _ in candidates]

    simulate(Policy(looking), crowded, 0)
    assert max(shown) > 4
    shown.clear()
    simulate(Policy(looking, few=True), crowded, 0)
    assert max(shown) <= 4


def test_what_is_null_everywhere_neither_gains_nor_loses() -> None:
    run = simulate(Policy(None), World(0.0, 1.0, 0.0, steps=2), 0)
    assert run.gain == pytest.approx(0)
    assert not run.below_start
    assert run.found_fdr == 1


def test_two_of_a_pair_help_together_alone() -> None:
    planted = Planted([0, 0, 1], [0.5, 0.5, -0.5], [1, 0, None])
    assert planted.chance(0.4, 0, [0]) == planted.chance(0.4, 0, [1]) == pytest.approx(0.4)
    assert planted.chance(0.4, 0, [0, 1]) == pytest.approx(0.7)
    assert planted.chance(0.4, 1, [0, 1, 2]) == pytest.approx(0.2)
    assert planted.chance(0.4, 0, [2]) == pytest.approx(0.4), "it belongs to another kind"
    assert planted.helps(0, [0, 1])
    assert not planted.helps(0, [0])
    assert not planted.helps(2, [2])


def test_least_squares_within_groups_finds_effects_whatever_the_difficulty() -> None:
    dice, groups, size = np.random.default_rng(1), 400, 8
    group = np.repeat(np.arange(groups), size)
    shown = dice.random((groups * size, 3)) < 0.5
    chance = dice.uniform(0.2, 0.5, groups)[group] + shown @ np.array([0.3, 0.0, -0.2])
    reward = (dice.random(len(group)) < chance).astype(float)
    beliefs = within_groups(Evidence(group, shown, reward), [0, 1, 2])
    for one, truth in zip(beliefs, (0.3, 0.0, -0.2), strict=True):
        assert abs(one.mean - truth) < 4 * one.sd
        assert one.sd < 0.03
    assert beliefs[0].above > 0.99
    assert beliefs[2].above < 0.01


def test_of_two_that_say_the_same_the_better_counts() -> None:
    planted = Planted([0, 0, 0], [0.5, 0.3, 0.1], [None, None, None])
    planted.second(1, says_the_same=False)
    assert planted.chance(0.4, 0, [0, 1]) == pytest.approx(1 - 0.6 * 0.5 * 0.7)
    planted.second(1, says_the_same=True)
    assert planted.chance(0.4, 0, [0, 1]) == planted.chance(0.4, 0, [0]) == pytest.approx(0.7)
    texts = planted.texts([0, 1, 2])
    assert are_alike(texts["0"], texts["1"])
    assert not are_alike(texts["0"], texts["2"])


def test_with_rivals_nothing_enters_twice() -> None:
    said_twice = World(0.6, 0.2, 0.2, steps=5, groups=24, candidates=4, kinds=2, twins=1.0)
    policy = Policy(as_trained, promote=0.8, few=True)
    twice = [simulate(policy, said_twice, seed) for seed in range(24)]
    once = [simulate(policy._replace(rivals=True), said_twice, seed) for seed in range(24)]
    assert 0 < sum(one.promoted for one in once) < sum(one.promoted for one in twice)
    assert sum(one.gain for one in once) > 0


def test_problems_that_are_settled_make_nobody_surer_of_what_belongs_to_others() -> None:
    """Attempts that are all right, or all wrong, tell of no chance in the attempts of others."""
    null = World(0.0, 1.0, 0.0, steps=4, groups=48, candidates=6, settled=0.9)
    runs = [simulate(Policy(as_trained, promote=0.9), null, seed) for seed in range(20)]
    assert sum(one.promoted for one in runs) <= 5, "of 480"
