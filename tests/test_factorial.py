"""A factorial trial tells the lessons of one step apart, and keeps those that help."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from hypothesis import given
from hypothesis import strategies as st
from scripted import LESSON, ScriptedEndpoint, stage, teachable, write_problems
from test_gate import BAD

import tfgrpo
from tfgrpo.evaluation.credit import Observation
from tfgrpo.store.fsck import fsck
from tfgrpo.store.records import Operation
from tfgrpo.training.factorial import (
    _trial,
    can_be_factorial,
    changed_experiences,
    left_out_of,
)
from tfgrpo.training.gate_words import rejections


def mixed_up(request: dict[str, Any]) -> str:
    """A model that draws a lesson that helps and one that harms."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    match stage(request):
        case "rollout" if BAD in system:
            return "\\boxed{0}"
        case "comparison":
            lessons = [{"reason": "It looked so.", "text": text} for text in (LESSON, BAD)]
            return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
        case "controller":
            text = next(t for t in (LESSON, BAD) if f"New lesson: {t}" in user)
            return json.dumps({"closest": None, "decision": "new", "text": text})
    return teachable(request)


@given(
    changes=st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True),
    seed=st.integers(),
    problem=st.text(),
    pair=st.integers(0, 50),
)
def test_the_two_attempts_of_a_pair_have_opposite_halves(
    changes: list[str], seed: int, problem: str, pair: int
) -> None:
    first, second = (left_out_of(changes, seed, problem, 2 * pair + n) for n in (0, 1))
    assert first | second == set(changes)
    assert not first & second


def test_what_made_room_for_another_is_not_tried_apart() -> None:
    add = Operation("ADD", "a", "text")
    keep, change = Operation("KEEP", "b"), Operation("MODIFY", "c", "text")
    pruned = Operation("DELETE", "d", evidence={"pruned": True, "room_for": "a"})
    assert changed_experiences([add, keep, change, change]) == ["a", "c"]
    assert can_be_factorial([add, change])
    assert not can_be_factorial([add, keep])
    assert not can_be_factorial([add, change, pruned])


def observations(effects: dict[str, float], problems: int, samples: int) -> Iterator[Observation]:
    """Rewards of one attempt each: a problem's own ease, and what is in the prompt."""
    dice, changes = random.Random(5), list(effects)
    for number in range(problems):
        ease = dice.uniform(0.3, 0.6)
        for sample in range(samples):
            missing = left_out_of(changes, 0, f"p{number}", sample)
            chance = ease + sum(effect for id, effect in effects.items() if id not in missing)
            reward = float(dice.random() < chance)
            yield Observation(f"p{number}", f"p{number}", changes, missing, reward)


def test_effects_are_estimated_apart_and_the_means_are_those_without_and_with() -> None:
    effects = {"good": 0.3, "idle": 0.0, "bad": -0.25}
    trial = _trial(list(observations(effects, 60, 16)), list(effects), "one-se")
    for one in trial.effects:
        assert one.low < effects[one.experience] < one.high
        assert abs(one.mean - effects[one.experience]) < 0.1
    kept = {one.experience for one in trial.effects if one.is_kept}
    assert "good" in kept
    assert "bad" not in kept
    assert trial.keeps(Operation("ADD", "good", "t"))
    assert trial.keeps(Operation("KEEP", "another"))
    assert not trial.keeps(Operation("KEEP", "bad"))
    assert 0.35 < trial.before < 0.55
    assert trial.after > trial.before + 0.2
    assert trial.verdict == "accepted"


def test_effects_that_fit_without_a_rest_have_numbers_for_intervals() -> None:
    changes, rewards = ["a", "b", "c", "d", "e"], (1.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0)
    attempts = [(f"p{problem}", sample) for problem in range(2) for sample in range(4)]
    fitted = [
        Observation(problem, problem, changes, left_out_of(changes, 63, problem, sample), reward)
        for (problem, sample), reward in zip(attempts, rewards, strict=True)
    ]
    for one in _trial(fitted, changes, "one-se").effects:
        assert one.low <= one.mean <= one.high


def test_of_one_problem_nothing_is_known_and_nothing_enters() -> None:
    trial = _trial(list(observations({"a": 0.3, "b": 0.3}, 1, 8)), ["a", "b"], "one-se")
    assert [(one.mean, one.high, one.is_kept) for one in trial.effects] == [
        (0.0, float("inf"), False)
    ] * 2
    assert trial.verdict == "rejected"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_problems(tmp_path / "problems.jsonl", 2)
    write_problems(tmp_path / "gate.jsonl", 12, start=700)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(endpoint: ScriptedEndpoint, **more: Any) -> tfgrpo.TrainResult:
    how = {"gate": "gate.jsonl", "gate_trial": "factorial", "epochs": 1, "group_size": 8}
    where = {"model": "m", "base_url": endpoint.base_url, "store": "."}
    return tfgrpo.train_sync("problems.jsonl", **how, **where, **more)


def test_a_step_keeps_what_helps_and_the_rest_is_on_a_branch_of_its_own(
    folder: Path, cli: Cli
) -> None:
    with ScriptedEndpoint(mixed_up) as endpoint:
        result = train(endpoint, deploy="last")
        held = [r for r in endpoint.requests if "What is 7" in r["messages"][-1]["content"]]
    assert len(held) == 2 * 12 * 4, "as many attempts as two libraries take"
    assert [e.text for e in result.library] == [LESSON]
    (version,) = result.versions
    gate = version.meta["gate"]
    effects = {one["experience"]: one for one in gate["changes"]}
    assert (gate["trial"], gate["verdict"], gate["problems"]) == ("factorial", "accepted", 12)
    assert len(effects) == 2
    assert "1 of 2 changes kept by the gate: " in version.message
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        aside = store.library(store.tip(gate["branch"]))
        assert [e.text for e in aside] == [BAD]
        assert all(effects[e.id]["kept"] is False for e in aside)
        assert all(effects[e.id]["kept"] is True for e in store.library(version))
        (told,) = rejections(store, version)
        assert f'added: "{BAD}"' in told
        assert fsck(store).problems == ()
    assert "changes kept by the gate" in cli("log").stdout


def test_a_single_change_is_tried_as_a_bundle(folder: Path) -> None:
    with ScriptedEndpoint(teachable) as endpoint:
        result = train(endpoint)
    (version,) = result.versions
    assert version.meta["gate"]["trial"] == "bundle"
