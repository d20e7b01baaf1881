"""The gate keeps out what is worse, says so on record, and the sealed problems stay sealed."""

from __future__ import annotations

import json
import random
import re
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, get_args

import pytest
from conftest import LONG, Cli, one_line_error, problems, worker_server
from desk import Desk, libraries, made, steps
from forked import Forked
from scripted import (
    LESSON,
    Numbered,
    ScriptedEndpoint,
    comparison_of,
    restless,
    stage,
    teachable,
    write_problems,
)
from test_training import posix
from test_training_killed import Killings, outcome

from tfgrpo.data import datasets
from tfgrpo.data import problems as problem_sets
from tfgrpo.domains import math
from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation import statistics
from tfgrpo.evaluation.scoring import EvalTask
from tfgrpo.learn.gate import Trial, passes
from tfgrpo.runs.run_record import seal
from tfgrpo.settings import EvalSettings, GateRule, TrainSettings
from tfgrpo.store import ROOT, Library, Store
from tfgrpo.store.fsck import fsck

BAD = "When two numbers are joined by op, add them and stop there."


def misled(request: dict[str, Any]) -> str:
    """A model that draws a harmful lesson, under which every answer is wrong."""
    match stage(request):
        case "rollout" if BAD in request["messages"][0]["content"]:
            return "\\boxed{0}"
        case "comparison":
            lessons = [{"reason": "It looked so.", "text": BAD}]
            return json.dumps(comparison_of(lessons))
    return teachable(request)


Gated = Callable[..., Desk]


@pytest.fixture
def gated(tmp_path: Path, verifier: Verifier) -> Gated:
    """Makes a desk whose gate has ten problems of its own."""

    def make(**values: Any) -> Desk:
        held = write_problems(tmp_path / "gate.jsonl", 10, start=700)
        return made(tmp_path, verifier, gate=str(held), epochs=1, **values)

    return make


def test_a_library_that_is_worse_does_not_become_the_next_version(gated: Gated) -> None:
    desk = gated()
    with ScriptedEndpoint(misled) as server:
        desk.train(server)
    run = "problems"
    first, second = steps(desk.path, run)
    gate = first.meta["gate"]
    assert gate["verdict"] == "rejected"
    assert gate["after"] == 0.0 < gate["before"]
    assert gate["difference"][2] < 0
    assert (gate["problems"], gate["samples"]) == (10, 2)
    assert libraries(desk.path, run) == [[], [], []]
    with Store.open(desk.path) as store:
        side = store.tip(gate["branch"])
        assert gate["branch"] == f"rejected/{run}/step_1"
        assert side.digest.hex() == gate["candidate"]
        assert [e.text for e in store.library(side)] == [BAD]
        assert store.tags()[f"{run}/step_1"] == first.number
        assert not store.events(first)
        (scored,) = store.runs.evaluations(side.number)
        assert scored.summary["mean"][0] == gate["after"]
        assert "rejected by the gate" in first.message
        assert fsck(store).problems == ()
    assert second.meta["gate"]["verdict"] == "rejected", "it came again, and was tried again"


def test_a_library_that_is_better_is_accepted_with_its_numbers(gated: Gated) -> None:
    desk = gated()
    with ScriptedEndpoint(teachable) as server:
        desk.train(server)
        evaluated = sum("What is 7" in r["messages"][-1]["content"] for r in server.requests)
    first, second = steps(desk.path, "problems")
    assert first.meta["gate"]["verdict"] == "accepted"
    assert first.meta["gate"]["after"] == 1.0
    assert [text for _, text in libraries(desk.path, "problems")[1]] == [LESSON]
    assert "gate" not in second.meta, "nothing changed, so there was nothing to try"
    assert evaluated == 2 * 10 * 2
    with Store.open(desk.path) as store:
        assert set(store.branches()) == {"main"}
        assert len(store.runs.evaluations(first.number)) == 1
        assert len(store.runs.evaluations(0)) == 1


def test_a_library_that_won_is_compared_by_attempts_that_it_did_not_win_by(gated: Gated) -> None:
    numbers = count(1)

    def script(request: dict[str, Any]) -> str:
        if stage(request) == "comparison":
            lesson = {"reason": "", "text": f"Lesson {next(numbers)}: double, then add four."}
            return json.dumps(comparison_of([lesson]))
        return teachable(request)

    desk = gated(gate_rule="not-worse")
    with ScriptedEndpoint(script) as server:
        desk.train(server)
        tried = [
            (set(re.findall(r"Lesson (\d+):", request["messages"][0]["content"])), request["seed"])
            for request in server.requests
            if "What is 700" in request["messages"][-1]["content"]
        ]
    first, second = (version.meta["gate"] for version in steps(desk.path, "problems"))
    assert (first["verdict"], second["verdict"]) == ("accepted", "accepted")
    assert first["seed"] == 0 != second["seed"]
    won = {text.split(":")[0][7:] for _, text in libraries(desk.path, "problems")[1]}
    of_winner = [seed for lessons, seed in tried if lessons == won]
    assert len(of_winner) == len(set(of_winner)) == 2 + 2, "once as a candidate, once in force"
    assert len(tried) == 4 * 2, "no more than that"


@pytest.mark.parametrize(("rule", "enters"), [("one-se", False), ("not-worse", True)])
def test_what_one_problem_shows_enters_only_where_not_being_worse_is_enough(
    gated: Gated, rule: str, enters: bool
) -> None:
    desk = gated(heldout_problems=1, gate_rule=rule)
    with ScriptedEndpoint(misled) as server:
        desk.train(server)
    first = steps(desk.path, "problems")[0]
    gate = first.meta["gate"]
    assert (gate["rule"], gate["difference_is"]) == (rule, "inconclusive")
    assert gate["verdict"] == ("accepted" if enters else "rejected")
    assert gate["difference"][1:] == [None, None]
    assert [text for _, text in libraries(desk.path, "problems")[1]] == ([BAD] if enters else [])
    assert f"{'kept' if enters else 'rejected'} by the gate" in first.message
    assert ", not significant (about " in first.message
    assert first.message.endswith(" problems × 2 samples would decide)")


@pytest.mark.parametrize(
    ("mean", "error", "accepting"),
    [
        (0.10, 0.04, {"one-se", "above-zero", "significant", "not-worse"}),
        (0.05, 0.04, {"one-se", "above-zero", "not-worse"}),
        (0.04, 0.04, {"above-zero", "not-worse"}),
        (0.0, 0.0, {"not-worse"}),
        (0.0, float("inf"), {"not-worse"}),
        (0.5, float("inf"), {"above-zero", "not-worse"}),
        (-0.05, 0.04, {"not-worse"}),
        (-0.10, 0.04, set()),
    ],
)
def test_each_rule_asks_for_what_it_says(mean: float, error: float, accepting: set[str]) -> None:
    assert {rule for rule in get_args(GateRule) if passes(rule, mean, error, 2.0)} == accepting


@pytest.mark.parametrize("gain", [1.0, 0.5, 1 / 3])
def test_one_problem_that_comes_out_better_is_no_more_than_one_standard_error(gain: float) -> None:
    library, task = Library(ROOT, ()), EvalTask((), EvalSettings(data=""), math.DOMAIN)
    for most in range(2, 100):
        before = {f"{n}": [0.5] for n in range(most)}
        difference = statistics.paired(before, {**before, "1": [0.5 + gain]})
        trial = Trial(task, library, library, (), (), difference, "one-se")
        assert trial.verdict == "rejected", most


def test_without_a_gate_no_record_has_one(tmp_path: Path, verifier: Verifier) -> None:
    desk = made(tmp_path, verifier)
    assert desk.settings.gate is None
    with ScriptedEndpoint(teachable) as server:
        desk.train(server)
        texts = [json.dumps(request) for request in server.requests]
    assert not any("taken back" in text or '"drop"' in text for text in texts)
    assert all("gate" not in version.meta for version in steps(desk.path, "problems"))


# killed:


class GatedKillings(Killings):
    """Runs with a gate and sealed problems, killed now and then."""

    def settings(self, server: ScriptedEndpoint) -> TrainSettings:
        found = super().settings(server)
        more: dict[str, Any] = {"heldout_samples": 2}
        for kind, start in (("gate", 700), ("sealed", 800)):
            path = write_problems(self.folder / f"{kind}.jsonl", 6, start=start)
            more |= {
                kind: str(path),
                f"{kind}_digest": problem_sets.digest(datasets.load(str(path))),
            }
        return found.model_copy(update=more)


def verdicts(path: Path) -> Any:
    """Returns what the gate said, step by step, and what the side branches hold."""
    with Store.open(path) as store:
        log = [v for v in store.log("main") if v.meta.get("run")]
        drop = ("candidate",)
        gates = [
            {k: v for k, v in version.meta.get("gate", {}).items() if k not in drop}
            for version in log
        ]
        sides = {
            name: [e.text for e in store.library(name)]
            for name in store.branches()
            if name.startswith("rejected/")
        }
        (run,) = store.runs.all()
        found = seal(store, run)
    assert found is not None
    return gates, sides, (found.before, found.during, found.opened is not None)


@posix
def test_a_gated_run_that_is_killed_comes_to_the_same_verdicts(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str:
        system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
        held = re.search(r"What is (7\d\d) op", user)
        if held is None:
            return restless(request)
        harms = "[G" in system and zlib.crc32(system.encode()) % 2
        return f"\\boxed{{{0 if harms else 2 * int(held[1]) + 4}}}"

    wanted = 100 if LONG else 12
    numbered = Numbered(script)
    with (
        ScriptedEndpoint(numbered, delay=0.002) as server,
        Forked(tmp_path, worker_server().address) as forked,
    ):
        killings = GatedKillings(tmp_path, wanted, random.Random(5), numbered, forked)
        settings = killings.settings(server)
        calm = killings.run(server, settings, calm=True)
        reference = outcome(calm), verdicts(calm)
        gates, sides, sealed = reference[1]
        assert {gate.get("verdict") for gate in gates} >= {"rejected"}
        assert sides
        assert sealed == (0, 0, True)
        while killings.to_come():
            path = killings.run(server, settings)
            assert (outcome(path), verdicts(path)) == reference


# sealed problems, at the terminal:


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "problems.jsonl").write_text(problems(range(8)))
    (tmp_path / "final.jsonl").write_text(problems(range(500, 506)))
    return tmp_path


def train(cli: Cli, endpoint: ScriptedEndpoint, *more: str, ok: bool = True) -> Any:
    small = ("--epochs", "1", "--batch-size", "4", "--model", "m", "--base-url")
    return cli("train", "problems.jsonl", *small, endpoint.base_url, *more, ok=ok)


def test_sealed_problems_are_touched_once_at_the_end_and_the_record_proves_it(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    said = train(cli, endpoint, "--sealed", "final.jsonl")
    assert "v2 - v0: +" in said.stdout
    assert "not fresh" not in said.stderr
    kinds = ["What is 50" in r["messages"][-1]["content"] for r in endpoint.requests]
    assert kinds == sorted(kinds), "every other call came before the first sealed one"
    shown = cli("runs", "problems").stdout
    assert "sealed final.jsonl" in shown
    assert "nothing was scored on it before" in " ".join(shown.split())
    found = json.loads(cli("runs", "problems", "--json").stdout)
    assert found["sealed"]["intact"]
    assert found["sealed"]["digest"] == found["config"]["sealed_digest"]
    states = [state["state"] for state in found["states"]]
    assert states == ["started", "unsealed", "finished"]


def test_a_second_run_is_told_how_often_sealed_problems_were_looked_at(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    train(cli, endpoint, "--sealed", "final.jsonl")
    cli("eval", "final.jsonl", "--library", "v1", "--samples", "1")
    again = train(cli, endpoint, "--sealed", "final.jsonl", "--new", "--keep-going")
    assert "final.jsonl is not fresh: 2 libraries were scored on it before" in again.stderr


def test_sealed_problems_serve_for_nothing_else(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    done = train(cli, endpoint, "--sealed", "final.jsonl", "--gate", "final.jsonl", ok=False)
    one_line_error(done, "sealed, and used for something else too", code=2)
    assert not endpoint.requests


def test_a_gate_that_changed_since_the_run_began_stops_it(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    train(cli, endpoint, "--gate", "final.jsonl", "--budget", "500tok", ok=False)
    (data / "final.jsonl").write_text(problems(range(600, 606)))
    done = cli("train", "--resume", "problems", ok=False)
    one_line_error(done, "final.jsonl has changed since run problems began")
