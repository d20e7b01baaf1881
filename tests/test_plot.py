"""Learning dynamics: figures that come from the record, draw in a terminal."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from conftest import Cli
from desk import made, steps
from scripted import ScriptedEndpoint, teachable

from tfgrpo.data.problems import Problem
from tfgrpo.domains.verifier import Verifier
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout, mean_reward
from tfgrpo.runs.dynamics import Series, draw, dynamics
from tfgrpo.runs.run_status import run_figures
from tfgrpo.store import Operation, Store


@pytest.fixture
def trained(tmp_path: Path, verifier: Verifier) -> Path:
    desk = made(tmp_path, verifier, epochs=2, count=6)
    desk.prepare()
    with ScriptedEndpoint(teachable) as server:
        desk.train(server)
    return desk.path


def test_figures_are_those_of_the_versions_and_the_journal(trained: Path) -> None:
    with Store.open(trained) as store:
        run = store.runs.get("run")
        found = {one.name: one.values for one in dynamics(store, run)}
        versions = steps(trained)
        assert len(versions) == 4
        assert found["mean reward"] == tuple(v.meta["stats"]["mean_reward"] for v in versions)
        assert found["mixed groups"][0] == versions[0].meta["stats"]["mixed"] / 3
        assert found["library"] == tuple(float(len(store.library(v))) for v in versions)
        for op in ("ADD", "KEEP"):
            assert found[op] == tuple(float(store.counts(v).get(op, 0)) for v in versions)
        tokens = sum(
            s.usage.completion_tokens for s in store.runs.spent(run) if s.stage == "rollout"
        )
        assert sum(found["tokens a rollout"]) * 9 == pytest.approx(tokens)  # type: ignore[arg-type]
        assert "tool calls" not in found, "there were none"


def test_tokens_are_of_all_attempts_and_a_reward_is_a_mean_over_problems(tmp_path: Path) -> None:
    """Four attempts at each of two problems, three of which nobody could judge, and four that
    confirm a lesson; each took 100 tokens."""
    rewards: dict[str, list[float | None]] = {"p": [0.0] * 4, "q": [1.0, None, None, None]}
    places = [(of, sample) for of in rewards for sample in range(4)]
    places += [("p", CONFIRMING + sample) for sample in range(4)]
    given = {place: rewards[place[0]][place[1] % CONFIRMING] for place in places}
    groups = [
        Group(problem, tuple(Rollout(problem, n, "", "answered", r, None, "") for n, r in rows))
        for problem, rows in (
            (Problem(of, "q", "a"), list(enumerate(there))) for of, there in rewards.items()
        )
    ]
    assert mean_reward(groups) == 0.5
    with Store.init(tmp_path / "s.db", author="tests") as store:
        run = store.runs.create("run", "5" * 32, "main", 0, {"models": {"model": "m"}}, "tests")
        writer = store.port.records.writer()
        writer.append(
            [
                (
                    hashlib.sha256(b"%d" % n).digest(),
                    run.id,
                    "rollout",
                    0,
                    "m",
                    "[]",
                    "{}",
                    9,
                    0,
                    100,
                    0,
                    1,
                    1.0,
                    n,
                )
                for n, _ in enumerate(places)
            ],
            [
                (run.id, 0, *place, 0, "[]", "answered", reward, "{}", 1)
                for place, reward in given.items()
            ],
        )
        writer.close()
        meta = {"run": "run", "step": 0, "stats": {"rollouts": 8, "mean_reward": 0.5}}
        version = store.commit("main", [Operation("ADD", text="One.")], message="m", meta=meta)
        store.create_tag("run/step_1", version)
        found = {one.name: one.values for one in dynamics(store, run)}
        (step,) = run_figures(store, run, {}).steps
    assert found["tokens a rollout"] == (100.0,) == (step.tokens_a_rollout,)
    assert step.reward is not None
    assert found["mean reward"] == (0.5,) == (step.reward.mean,)


def test_bars_show_the_course_and_fit_the_terminal() -> None:
    series = [
        Series("mean reward", (0.0, 0.25, 0.5, 1.0)),
        Series("library", tuple(float(n) for n in range(500))),
        Series("tool calls", (None, 3.0)),
        Series("nothing", (None, None)),
    ]
    lines = list(draw(series, 80))
    assert len(lines) == 3
    assert lines[0] == "mean reward  ▁▃▅█  0 → 1  (0 to 1)"
    assert "·█" in lines[2]
    assert max(map(len, lines)) <= 80


def test_the_verb_draws_writes_and_tells(trained: Path, cli: Cli, tmp_path: Path) -> None:
    store = ("--store", str(trained))
    assert "run run: 4 steps" in cli(*store, "plot", "run").stdout
    assert json.loads(cli(*store, "plot", "--json").stdout)["run"] == "run"
    page = tmp_path / "run.html"
    assert cli(*store, "plot", "-o", str(page)).stdout == f"wrote {page}\n"
    assert "<html" in page.read_text()


def test_without_a_run_there_is_nothing_to_draw(cli: Cli) -> None:
    cli("init")
    done = cli("plot", ok=False)
    assert done.returncode == 1
    assert "there is no run to plot" in done.stderr
