"""The paper's ablations: votes for the ground truth, groups of one, and no rollouts at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, libraries, steps
from desk import made as made_desk
from scripted import LESSON, Reply, ScriptedEndpoint, stage, teachable

from tfgrpo.data.problems import Problem
from tfgrpo.domains.verifier import Verifier
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store.errors import SettingsError
from tfgrpo.training.ablations import by_majority


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    return partial(made_desk, tmp_path, verifier)


def trained(there: Desk, script: Callable[[dict[str, Any]], str | Reply]) -> list[dict[str, Any]]:
    there.prepare()
    with ScriptedEndpoint(script) as server:
        there.train(server)
        return server.requests


@pytest.mark.parametrize(
    ("answers", "rewards"),
    [
        (["4", "4", "5"], [1, 1, 0]),
        (["4", "5"], [None, None]),
        (["4", None, "4"], [1, 0, 1]),
        ([None, None], [None, None]),
        (["4"], [1]),
    ],
)
def test_the_majority_votes(answers: list[str | None], rewards: list[float | None]) -> None:
    problem = Problem("p", "?", "5")
    made = [Rollout(problem, n, "", "answered", 0.5, a, "") for n, a in enumerate(answers)]
    assert [r.reward for r in by_majority(Group(problem, tuple(made))).rollouts] == rewards


def test_with_votes_neither_reward_nor_comparison_knows_the_ground_truth(
    make: Callable[..., Desk],
) -> None:
    there = make(reward="majority", epochs=1)
    asked = trained(there, teachable)
    compared = [r["messages"][-1]["content"] for r in asked if stage(r) == "comparison"]
    assert compared
    assert all("Right answer: (not given)" in content for content in compared)


def test_attempts_of_groups_of_one_are_reflected_on_alone(make: Callable[..., Desk]) -> None:
    def script(request: dict[str, Any]) -> str:
        if "One attempt was made" in request["messages"][0]["content"]:
            return json.dumps({"lessons": [{"reason": "so", "text": LESSON}]})
        return teachable(request)

    there = make(group_size=1, epochs=1, count=3)
    asked = trained(there, script)
    singles = [r for r in asked if "One attempt was made" in r["messages"][0]["content"]]
    assert len(singles) == 3
    assert not any(stage(r) == "comparison" for r in asked if r not in singles)
    assert [text for _, text in libraries(there.path)[-1]] == [LESSON]


def test_experiences_can_be_written_without_rollouts(make: Callable[..., Desk]) -> None:
    texts = ["Add one.", "add one", "Read twice.", "word " * 60]

    def script(request: dict[str, Any]) -> str:
        assert "short pieces of advice" in request["messages"][0]["content"]
        assert "What is 1 op 4?" in json.dumps(request["messages"])
        return json.dumps({"experiences": texts})

    there = make(direct=4)
    assert len(trained(there, script)) == 2  # what is too long goes back once
    assert [text for _, text in libraries(there.path)[-1]] == ["Add one.", "Read twice."]
    (version,) = steps(there.path)
    assert version.message == "2 experiences written without rollouts"


@pytest.mark.parametrize(
    "values",
    [
        {"reward": "majority", "rollouts": "adaptive"},
        {"reward": "majority", "dropout": 0.2, "controller_sees_credit": True},
        {"reward": "coin"},
        {"direct": -1},
    ],
)
def test_ablations_that_do_not_fit_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        build(TrainSettings, {"data": "x", **values})
