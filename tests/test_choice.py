"""A run ends at its best library, by fresh attempts, and says when none of them helps."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Cli
from scripted import (
    LESSON,
    Reply,
    ScriptedEndpoint,
    comparison_of,
    stage,
    teachable,
    write_problems,
)
from test_gate import BAD

import tfgrpo
from tfgrpo.evaluation.scoring import EvalProgress, figures
from tfgrpo.learn import best_version
from tfgrpo.learn.best_version import _means
from tfgrpo.notices import Notice, RunStarted, StepFinished
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.runs import Score
from tfgrpo.store.fsck import fsck

RUN: dict[str, Any] = {
    "policy": "paper",
    "epochs": 1,
    "batch_size": 4,
    "group_size": 3,
    "model": "m",
    "gate": "gate.jsonl",
}
LAX = {"gate_rule": "not-worse", "heldout_problems": 1}
"""A gate that lets everything in: of one problem nothing is known."""


def spoiling(request: dict[str, Any]) -> str:
    """A model that draws a lesson that helps, and then one that harms."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    match stage(request):
        case "rollout" if BAD in system:
            return "\\boxed{0}"
        case "rollout" if LESSON in system and "What is 7" not in user:
            return teachable({**request, "messages": [{"content": ""}, request["messages"][-1]]})
        case "comparison":
            text = BAD if LESSON in user else LESSON
            lessons = [{"reason": "It looked so.", "text": text}]
            return json.dumps(comparison_of(lessons))
    return teachable(request)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_problems(tmp_path / "problems.jsonl", 8)
    write_problems(tmp_path / "gate.jsonl", 3, start=700)
    write_problems(tmp_path / "heldout.jsonl", 3, start=790)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(endpoint: ScriptedEndpoint, **more: Any) -> tfgrpo.TrainResult:
    return tfgrpo.train_sync(
        "problems.jsonl", **{**RUN, **LAX, "base_url": endpoint.base_url, "store": ".", **more}
    )


def test_a_run_ends_at_the_version_that_is_best_on_fresh_attempts(folder: Path, cli: Cli) -> None:
    with ScriptedEndpoint(spoiling) as endpoint:
        result = train(endpoint, heldout="heldout.jsonl")
        asked = len(endpoint.requests)
        again = tfgrpo.train_sync(resume="problems", store=".")
        assert len(endpoint.requests) == asked
    first, last = result.versions
    assert [e.text for e in result.library] == [e.text for e in again.library] == [LESSON]
    assert result.chosen is not None
    assert again.chosen is not None
    assert str(result.chosen) == str(again.chosen)
    assert (result.chosen.version.name, result.chosen.last.name) == (first.name, last.name)
    assert result.chosen.scores.mean == 1.0
    assert f"{first.name}, not the last (1.000; the empty one" in str(result)
    assert result.heldout is not None
    assert result.heldout.libraries[0].version.name == first.name
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        assert store.tip("main").number == store.tags()["problems/best"] == first.number
        assert [e.text for e in store.library(last)] == [LESSON, BAD]
        assert fsck(store).problems == ()
    assert "choose v1 as the best of problems" in cli("undo").stdout
    assert json.loads(cli("status", "--json").stdout)["experiences"] == 2


def test_a_run_that_is_stopped_while_it_chooses_asks_for_nothing_twice(folder: Path) -> None:
    choosing, stopped = threading.Event(), threading.Event()
    numbers = iter(range(1000))
    steps: list[Notice] = []

    def stop(notice: Notice) -> None:
        if isinstance(notice, RunStarted | StepFinished):
            steps.append(notice)
            started = steps[0]
            if isinstance(started, RunStarted) and len(steps) == 1 + started.steps:
                choosing.set()
        elif isinstance(notice, EvalProgress) and notice.done == 3:
            task.cancel()
            stopped.set()

    def script(sent: dict[str, Any]) -> str | Reply:
        if choosing.is_set() and next(numbers) == 3:  # so that something is left to be asked
            assert stopped.wait(120)
        return spoiling(sent)

    with ScriptedEndpoint(script) as endpoint:

        async def cell() -> None:
            nonlocal task
            task = asyncio.create_task(
                tfgrpo.train(
                    "problems.jsonl",
                    **{**RUN, **LAX, "base_url": endpoint.base_url, "store": "."},
                    concurrency=1,
                    on_progress=stop,
                )
            )
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()

        task: asyncio.Task[Any]
        asyncio.run(cell())
        before = len(endpoint.requests)
        result = tfgrpo.train_sync(resume="problems", store=".")
        bodies = [json.dumps(request, sort_keys=True) for request in endpoint.requests]
    assert [e.text for e in result.library] == [LESSON]
    assert len(bodies) > before
    assert len(set(bodies)) == len(bodies)


def test_nothing_is_asked_where_there_is_nothing_to_choose(folder: Path) -> None:
    with ScriptedEndpoint(lambda request: "\\boxed{0}") as endpoint:
        result = train(endpoint)
        assert set(endpoint.stages) == {"rollout"}
        assert endpoint.stages["rollout"] == 8 * 3
    assert result.chosen is None
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        assert store.tags()["problems/best"] == store.tip("main").number


def test_a_best_library_that_is_worse_than_none_is_said_first(folder: Path, cli: Cli) -> None:
    def misled_at_the_gate(request: dict[str, Any]) -> str:
        system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
        return "\\boxed{0}" if BAD in system and "What is 7" in user else teachable(request)

    cli("init")
    cli("add", BAD)
    gate = ("--gate", "gate.jsonl", "--gate-rule", "not-worse")
    with ScriptedEndpoint(misled_at_the_gate) as endpoint:
        where = (
            "--base-url",
            endpoint.base_url,
            "--model",
            "m",
            "--epochs",
            "1",
            "--policy",
            "paper",
        )
        done = cli("train", "problems.jsonl", *where, *gate)
    _, first, *_ = done.stdout.splitlines()
    assert first.startswith("warning: the best library of the run, v2, scored below the empty one")


def test_a_library_is_no_better_for_a_hard_problem_that_was_not_judged_under_it() -> None:
    def scores(*rewards: float | None) -> list[Score]:
        return [Score(f"p{n}", 0, None, reward, None) for n, reward in enumerate(rewards)]

    judged = {1: scores(0.7, 0.8, None), 2: scores(0.9, 0.9, 0.1)}
    runs = SimpleNamespace(evaluation=lambda number, _: number, scores=judged.get)
    versions = [SimpleNamespace(number=number) for number in judged]
    means = _means(SimpleNamespace(runs=runs), versions, SimpleNamespace(key=""))  # type: ignore[arg-type]
    assert means == {1: pytest.approx(0.75), 2: pytest.approx(0.9)}


def test_what_is_printed_of_a_choice_is_what_it_was_chosen_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the problems that all were judged on v2 is better than the empty library; over its own
    it has a lower mean."""
    models = SimpleNamespace(model="m")
    settings = SimpleNamespace(data="d", models=models, temperature=0.3)
    run: Any = SimpleNamespace(base=0, name="r")
    task: Any = SimpleNamespace(settings=settings, key="ab" * 32, conditions={})
    with Store.init(tmp_path / "store.db") as store:
        versions = [
            store.commit("main", [Operation("ADD", text=f"t{n}")], message="m") for n in range(2)
        ]
        rewards = {0: (1.0, 0.0, None), 1: (1.0, 0.0, 0.0), 2: (1.0, 1.0, 0.0, 0.0, 0.0)}
        for number, given in rewards.items():
            rows = [Score(f"p{n}", 0, None, reward, "a") for n, reward in enumerate(given)]
            summary = {"samples": 1, **figures(rows)}
            store.runs.put_evaluation(number, "d", task.key, {"samples": 1}, summary, rows)
        for name in ("_candidates", "versions_of"):
            monkeypatch.setattr(best_version, name, lambda *_: versions)
        choice = str(best_version.read_choice(store, run, task))
    assert "v2, the last (1.000; the empty one 0.500;" in choice
