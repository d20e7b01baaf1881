"""Credit against a simulated policy whose experiences have known effects."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from tfgrpo.training.dropout import Trial, estimate, left_out

EFFECTS = {"helps": 0.3, "harms": -0.25, "idle": 0.0, "a little": 0.05, "idle too": 0.0}


def trials(seed: int, *, problems: int = 30, samples: int = 10, late: str = "") -> list[Trial]:
    """Returns simulated rollouts; the experience `late` joins the library in the second round."""
    dice = random.Random(seed)
    found = []
    for step in range(2):
        library = [id for id in EFFECTS if step or id != late]
        for problem in range(problems):
            ease = dice.uniform(0.3, 0.55)
            for sample in range(samples):
                without = left_out(library, 0.2, seed, (step, problem, sample))
                chance = ease + sum(EFFECTS[id] for id in library if id not in without)
                reward = float(dice.random() < chance)
                stratum = f"{step}/{problem}"
                found.append(Trial(stratum, f"p{problem}", library, without, reward))
    return found


def test_intervals_cover_the_true_effects_at_their_stated_rate() -> None:
    covered = [
        credit.low <= EFFECTS[credit.experience] <= credit.high
        for seed in range(120)
        for credit in estimate(trials(seed))
    ]
    assert len(covered) == 120 * len(EFFECTS)
    assert 0.92 <= fmean(covered) <= 0.98


def test_helpful_and_harmful_experiences_are_told_apart_and_ranked() -> None:
    found = estimate(trials(1, samples=20))
    verdicts = {credit.experience: credit.verdict for credit in found}
    assert (verdicts["helps"], verdicts["harms"]) == ("helpful", "harmful")
    assert found[0].experience == "helps"
    assert found[-1].experience == "harms"


def test_an_experience_without_effect_is_rarely_called_helpful_or_harmful() -> None:
    called = [
        credit.verdict != "inconclusive"
        for seed in range(120)
        for credit in estimate(trials(seed, problems=16, samples=6))
        if credit.experience.startswith("idle")
    ]
    assert fmean(called) < 0.09


def test_a_library_that_changes_between_steps_does_not_bias_a_late_experience() -> None:
    effects = [
        next(c.effect for c in estimate(trials(seed, late="helps")) if c.experience == "helps")
        for seed in range(40)
    ]
    assert fmean(effects) == pytest.approx(EFFECTS["helps"], abs=0.03)


def test_shrinkage_pulls_towards_nothing_and_never_past_it() -> None:
    for credit in estimate(trials(3)):
        assert abs(credit.shrunk) <= abs(credit.effect)
        assert credit.shrunk * credit.effect >= 0


def test_counts_are_of_rollouts_that_had_or_lacked_the_experience() -> None:
    made = trials(4, late="a little")
    for credit in estimate(made):
        had = [t for t in made if credit.experience in t.library]
        lacked = sum(credit.experience in t.without for t in had)
        assert (credit.present, credit.absent) == (len(had) - lacked, lacked)


def test_what_was_always_there_has_no_estimate() -> None:
    made = [t._replace(without=t.without - {"idle"}) for t in trials(5)]
    assert "idle" not in {credit.experience for credit in estimate(made)}
    assert estimate([]) == []
    assert estimate(trials(5, problems=1)) == [], "one problem tells nothing about others"


def test_coins_are_the_same_when_they_are_thrown_again() -> None:
    ids = [f"id{i}" for i in range(2000)]
    assert left_out(ids, 0.2, 7, (1, "p", 3)) == left_out(ids, 0.2, 7, (1, "p", 3))
    assert left_out(ids, 0.2, 7, (1, "p", 3)) != left_out(ids, 0.2, 7, (1, "p", 4))
    assert len(left_out(ids, 0.2, 7, (1, "p", 3))) == pytest.approx(400, abs=60)
    assert left_out(ids, 0.0, 7, ()) == frozenset()
