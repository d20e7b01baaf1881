"""Right answers are tried as examples in a step of their own, before the first attempt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import Reply, ScriptedEndpoint, stage
from test_examples_apart import LESSON, write_messages

import tfgrpo
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.notices import NothingToLearn
from tfgrpo.store import Store
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.fsck import fsck
from tfgrpo.training.first_look import StoppedEarly
from tfgrpo.training.progress import Progress

LABELS = 'choice:["refund", "fraud"]'
SOLVED = {"help": (3, 11, "mixed"), "harm": (6, 1, "mixed"), "all right": (6, 12, "right")}
"""How many of twelve gate messages come out right without examples and with them, and what comes
of a problem that is learned from."""


def model(request: dict[str, Any], kind: str) -> str:
    without, beside, learned = SOLVED[kind]
    match stage(request):
        case "rollout":
            messages = request["messages"]
            held = re.search(r"Message 7(\d\d)", messages[-1]["content"])
            is_shown = any(message["role"] == "assistant" for message in messages)
            right = learned == "right" or int(request["seed"]) % 2 == 1
            if held:
                right = int(held[1]) < (beside if is_shown else without)
            return "refund" if right else "fraud"
        case "comparison":
            lessons = [{"reason": "It came out right.", "text": LESSON}]
            return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
        case "controller":
            return json.dumps({"closest": None, "decision": "new", "text": LESSON})
    return "It answered."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_messages(tmp_path / "train.jsonl", 6, 100)
    write_messages(tmp_path / "gate.jsonl", 12, 700)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(lambda asked: model(asked, request.param)) as server:
        yield server


def train(endpoint: ScriptedEndpoint, **more: Any) -> tfgrpo.TrainResult:
    how = {"gate": "gate.jsonl", "epochs": 1, "batch_size": 3, "group_size": 8, "exemplars": 2}
    where = {"model": "m", "base_url": endpoint.base_url, "store": ".", "deploy": "last"}
    return tfgrpo.train_sync("train.jsonl", **{**how, **where, "domain": LABELS, **more})


def in_gate(request: dict[str, Any]) -> bool:
    return "Message 7" in request["messages"][-1]["content"]


def is_shown_examples(request: dict[str, Any]) -> bool:
    return any(message["role"] == "assistant" for message in request["messages"])


@pytest.mark.parametrize("endpoint", ["help"], indirect=True)
def test_examples_are_in_force_before_the_first_attempt(
    folder: Path, endpoint: ScriptedEndpoint, cli: Cli
) -> None:
    result = train(endpoint)
    first, second, third = result.versions
    assert first.message.startswith(
        "step 1 of 3: 4 right answers tried as examples before the first attempt; kept by the "
        "gate: 0.250 → 0.917, +0.667"
    )
    assert re.match(r"step 2 of 3: mean reward 0\.\d+, 3 of 3 groups mixed", second.message)
    assert first.meta["gate"]["trial"] == "bundle"
    assert first.meta["stats"]["problems"] == 0
    attempts = [r for r in endpoint.requests if stage(r) == "rollout"]
    trial, rest = attempts[: 2 * 12 * 4], attempts[2 * 12 * 4 :]
    assert all(map(in_gate, trial))
    assert sum(map(is_shown_examples, trial)) == 12 * 4
    learned_from = [r for r in rest if not in_gate(r)]
    assert len(learned_from) == 6 * 8
    assert all(map(is_shown_examples, learned_from))
    with Store.open(folder / ".tfgrpo/store.db") as store:
        assert fsck(store).problems == ()
        counts = [store.counts(version).get("ADD") for version in (first, second, third)]
        assert counts[0] == 4
        assert [tag for tag in store.tags() if tag.endswith("/step_3")]
    shown = " ".join(cli("log").stdout.split())
    assert "4 right answers tried as examples before the first attempt" in shown


@pytest.mark.parametrize("endpoint", ["help"], indirect=True)
def test_examples_are_tried_together_whatever_the_trial(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    first = train(endpoint, gate_trial="factorial").versions[0]
    assert first.meta["gate"]["trial"] == "bundle"
    assert "kept by the gate: 0.250 → 0.917" in first.message


@pytest.mark.parametrize("endpoint", ["harm"], indirect=True)
def test_examples_that_harm_stay_out_and_are_not_proposed_again(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    result = train(endpoint, retry_lessons=0)
    first = result.versions[0]
    assert "; rejected by the gate: 0.500 → 0.083" in first.message
    rejected = {"m-100", "m-101", "m-102", "m-103"}
    with Store.open(folder / ".tfgrpo/store.db") as store:
        assert len(store.library(first)) == 0
        sides = [name for name in store.branches() if name.startswith("rejected/")]
        aside = [e for side in sides for e in store.events(store.tip(side))]
    tried = [e.evidence["problem"] for e in aside if (e.evidence or {}).get("kind") == "example"]
    assert set(tried) >= rejected
    assert len(tried) == len(set(tried))


@pytest.mark.parametrize("endpoint", ["help", "harm"], indirect=True)
def test_what_is_told_of_the_time_left_goes_by_the_attempts(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    seen: list[tuple[int, str]] = []

    def watch(notice: object) -> None:
        if isinstance(notice, Progress):
            seen.append((notice.step, notice.phase))
            assert 0 <= notice.fraction <= 1

    train(endpoint, on_progress=watch)
    phases = list(dict.fromkeys(phase for step, phase in seen if step == 0))
    assert phases == ["starting", "gate", "rollouts"]  # of which the last is the next step's
    assert {"rollouts", "gate"} <= {phase for step, phase in seen if step == 1}


@pytest.mark.parametrize(("kind", "stops"), [("all right", False), ("harm", True)])
def test_a_run_whose_examples_leave_nothing_to_learn_goes_to_its_end(
    folder: Path, kind: str, stops: bool
) -> None:
    def answer(request: dict[str, Any]) -> str:
        if kind == "harm" and stage(request) == "rollout" and not in_gate(request):
            return "refund"
        return model(request, kind)

    seen: list[object] = []
    with ScriptedEndpoint(answer) as server:
        if stops:  # nothing was taught, and the model is right without it
            with pytest.raises(StoppedEarly):
                train(server, on_progress=seen.append)
        else:
            result = train(server, on_progress=seen.append)
            assert len(result.library) == 4
            assert "mean reward 1.00, 0 of 3 groups mixed" in result.versions[1].message
    assert any(isinstance(one, NothingToLearn) for one in seen) is stops


@pytest.mark.parametrize("after", [1, 40, 96, 97, 120])
def test_a_run_that_is_stopped_comes_to_the_same(folder: Path, after: int) -> None:
    class Ends:
        left = 10_000

        def __call__(self, request: dict[str, Any]) -> str | Reply:
            self.left -= 1
            return model(request, "help") if self.left >= 0 else Reply({"error": "no"}, status=401)

    ends = Ends()
    with ScriptedEndpoint(ends) as server:
        calm = train(server, store="calm.db", run="r")
        ends.left = after
        with pytest.raises(EndpointError):
            train(server, store="stopped.db", run="r", concurrency=1)
        ends.left = 10_000
        again = train(server, store="stopped.db", run="r", concurrency=1)
    assert [e.text for e in again.library] == [e.text for e in calm.library]
    assert [v.message for v in again.versions] == [v.message for v in calm.versions]


def test_a_run_with_nothing_to_try_has_a_first_step_all_the_same(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    talks = [
        {
            "id": row["id"],
            "messages": [
                {"role": "user", "content": "Good morning"},
                {"role": "assistant", "content": "Good morning. What is it?"},
                {"role": "user", "content": row["problem"]},
            ],
            "answer": "refund",
        }
        for row in rows
    ]
    (folder / "train.jsonl").write_text("".join(json.dumps(one) + "\n" for one in talks))
    with ScriptedEndpoint(lambda asked: model(asked, "help")) as server:
        result = train(server)
    assert result.versions[0].message == (
        "step 1 of 3: no right answer to try as examples before the first attempt"
    )
    assert len(result.versions) == 3
    with Store.open(folder / ".tfgrpo/store.db") as store:
        assert fsck(store).problems == ()
        assert store.runs.state(result.run) == "finished"


@pytest.mark.parametrize(
    "more",
    [{"domain": "exact"}, {"gate": None}, {"exemplars": 0}, {"ground_truth": False}],
    ids=str,
)
def test_what_cannot_be_tried_first_is_refused(folder: Path, more: dict[str, Any]) -> None:
    with ScriptedEndpoint(lambda asked: model(asked, "help")) as server:
        with pytest.raises(SettingsError, match="--exemplars-first needs labels"):
            train(server, **{"exemplars_first": True, **more})
        assert not server.requests
        train(server, **{"group_size": 2, "keep_going": True, **more})  # by default it is left out


def test_what_is_left_of_a_run_is_told_after_its_first_step(folder: Path, cli: Cli) -> None:
    def ends(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "rollout" and not in_gate(request):
            return Reply({"error": "no"}, status=401)
        return model(request, "help")

    flags = ("--domain", LABELS, "--gate", "gate.jsonl", "--epochs", "1", "--batch-size", "3")
    with ScriptedEndpoint(ends) as server:
        asked = ("train", "train.jsonl", *flags, "--model", "m", "--base-url", server.base_url)
        whole = json.loads(cli(*asked, "--estimate", "--json").stdout)
        cli(*asked, ok=False)
        left = json.loads(cli(*asked, "--estimate", "--json").stdout)
    assert (whole["steps"], left["steps"], left["steps_done"]) == (3, 2, 1)
    stages = [{one["stage"]: one["calls"] for one in said["expected"]} for said in (whole, left)]
    assert stages[1]["rollout"] == stages[0]["rollout"]
    assert stages[1]["comparison"] == stages[0]["comparison"]


def test_the_choice_is_told_and_can_be_left_out(folder: Path, cli: Cli) -> None:
    with ScriptedEndpoint(lambda asked: model(asked, "help")) as server:
        where = ("--model", "m", "--base-url", server.base_url, "--gate", "gate.jsonl")
        asked = ("train", "train.jsonl", "--domain", LABELS, *where, "--epochs", "1")
        with_it = " ".join(cli(*asked, "--run", "a").stdout.split())
        without = " ".join(cli(*asked, "--no-exemplars-first", "--run", "b").stdout.split())
    assert (
        "32 right answers a step as examples, the first examples tried before any attempt"
        in with_it
    )
    assert "before any attempt" not in without
    log = cli("log", "--oneline").stdout
    assert "step 1 of 2: 6 right answers" in log
    assert "step 1 of 1: mean reward" in log


SUMS = ("a fee", "a bill", "a charge", "a price", "a deposit", "a tax")


@pytest.mark.parametrize("kind", ["help", "harm"])
@pytest.mark.parametrize("exemplars", [2, 0])
@pytest.mark.parametrize("trial", ["factorial", "bundle"])
def test_a_gate_asks_no_more_than_the_estimate_at_most(
    folder: Path, trial: str, exemplars: int, kind: str, cli: Cli
) -> None:
    def many(request: dict[str, Any]) -> str:
        """Learns something new from each message."""
        if stage(request) == "comparison":
            number = re.search(r"Message 1(\d\d)", request["messages"][-1]["content"])
            assert number
            text = f"When a message names {SUMS[int(number[1])]}, the answer is refund, not fraud."
            lessons = json.dumps([{"reason": "It came out right.", "text": text}])
            return f'{{"right_did": "a", "wrong_did": "b", "lessons": {lessons}}}'
        if stage(request) == "controller":
            *_, text = re.findall(r"When a message[^.]*\.", request["messages"][-1]["content"])
            return json.dumps({"closest": None, "decision": "new", "text": text})
        return model(request, kind)

    how = {"gate": "gate.jsonl", "domain": LABELS, "deploy": "last", "gate-trial": trial}
    how |= {"epochs": 1, "batch-size": 3, "group-size": 8, "exemplars": exemplars, "model": "m"}
    with ScriptedEndpoint(many) as server:
        flags = {**how, "base-url": server.base_url}
        asked = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
        estimate = json.loads(cli("train", "train.jsonl", *asked, "--estimate", "--json").stdout)
        most = {one["stage"]: one["calls"] for one in estimate["most"]}["evaluation"]
        cli("train", "train.jsonl", *asked)
        trials = sum(map(in_gate, server.requests))
    assert trials <= most
    if trial == "factorial":
        assert trials > most / 3, "there was more than one change to try"
