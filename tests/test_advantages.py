"""What attempts say of effects: the shares of those that help, units of reward, lost verdicts."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tfgrpo.learn.advantage import Advantages, Effect, Observation
from tfgrpo.learn.decide import ByChance
from tfgrpo.rendering.experience_texts import EXAMPLES


def attempts(
    seed: int, effects: dict[str, float], *, unit: float = 1.0, groups: int = 12
) -> list[Observation]:
    """Attempts at problems, six each, that are shown a random half of some things. Rewards are 0
    and `unit`, above 0.5 less half of that."""
    dice = random.Random(seed)
    made = []
    for group, _ in product(range(groups), range(6)):
        shown = frozenset(name for name in effects if dice.random() < 0.5)
        right = dice.random() < 0.4 + sum(effects[name] for name in shown)
        made.append(Observation(f"0/{group}", tuple(effects), shown, 0.5 + unit * (right - 0.5)))
    return made


def measured(*given: Observation) -> dict[str, Effect]:
    sums = Advantages()
    sums.add(given)
    return sums.effects()


def test_where_others_help_less_evidence_is_needed_of_one_more() -> None:
    good, bad = ({"x": 0.15, **{f"y{n}": sign * 0.15 for n in range(4)}} for sign in (1, -1))
    chances = [
        [measured(*attempts(seed, worth))["x"].chance for seed in range(60)]
        for worth in (good, bad)
    ]
    assert sum(chances[0]) > sum(chances[1]) + 3
    above = [
        [measured(*attempts(seed, worth))["x"].above for seed in range(60)] for worth in (good, bad)
    ]
    assert sum(above[0]) == pytest.approx(sum(above[1]), abs=3), "nothing leaves for what others do"


@pytest.mark.parametrize("unit", [0.5, 0.1, 0.01])
def test_rewards_of_a_narrow_scale_tell_as_much(unit: float) -> None:
    worth = {"a": 0.3, "b": 0.0, "c": -0.3}
    for seed in range(5):
        usual = measured(*attempts(seed, worth, groups=24))
        narrow = measured(*attempts(seed, worth, unit=unit, groups=24))
        for name, effect in usual.items():
            assert narrow[name].chance == pytest.approx(effect.chance, abs=0.12)
            assert narrow[name].mean == pytest.approx(unit * effect.mean, abs=0.06 * unit)


def test_a_set_of_examples_without_effect_seldom_enters() -> None:
    """Decided about after each of eight steps, as in a run."""
    entered = {0.0: 0, 0.2: 0}
    for worth, seed in product(entered, range(100)):
        sums, rule = Advantages(), ByChance()
        for step in range(8):
            seen = attempts(1000 * step + seed, {EXAMPLES: worth}, groups=8)
            sums.add(one._replace(group=f"{step}/{one.group[2:]}") for one in seen)
            decided = rule.decide(sums.effects(), [EXAMPLES], ())
            if decided.promoted or decided.retired:
                entered[worth] += bool(decided.promoted)
                break
    assert entered[0.0] <= 10
    assert entered[0.2] >= 90


def enters(seen: list[Observation]) -> bool:
    return bool(ByChance().decide(measured(*seen), ["a"], ()).promoted)


@pytest.mark.parametrize("lost", [0.3, 0.8])
def test_what_makes_wrong_attempts_unreadable_does_not_help(lost: float) -> None:
    promoted = 0
    for seed in range(40):
        dice = random.Random(seed)
        seen = [
            one._replace(reward=None)
            if "a" in one.shown and not one.reward and dice.random() < lost
            else one
            for one in attempts(seed, {"a": 0.0}, groups=16)
        ]
        promoted += enters(seen)
    assert promoted <= 4


def test_what_is_lost_by_chance_hides_little() -> None:
    judged = entered = 0
    for seed in range(40):
        dice = random.Random(seed)
        seen = [
            one._replace(reward=None) if dice.random() < 0.2 else one
            for one in attempts(seed, {"a": 0.35}, groups=16)
        ]
        judged += enters([one for one in seen if one.reward is not None])
        entered += enters(seen)
    assert judged > 20
    assert entered >= judged - 1


def test_a_group_of_which_nothing_could_be_judged_says_nothing() -> None:
    known = attempts(1, {"a": 0.3})
    lost = [one._replace(group="1/lost", reward=None) for one in known[:6]]
    assert measured(*known, *lost) == measured(*known)
