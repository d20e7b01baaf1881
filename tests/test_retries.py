"""What a trial could not decide is tried again with the next step's lessons, and says so."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint, stage, teachable, write_problems

import tfgrpo
from tfgrpo.store import Event, Operation, Store, Version
from tfgrpo.store.fsck import fsck
from tfgrpo.store.redact import Target, redact
from tfgrpo.training.retries import is_undecided, to_retry, waiting

FIRST = "When the number before op is odd, add one more to the sum."
SECOND = "When the number after op is even, add one more to the sum."
SOLVES = {(): {0, 1}, (FIRST,): {0, 2, 3}, (SECOND,): {0, 4, 5}, (FIRST, SECOND): set(range(8))}
"""Which of twelve held-out problems come out right, by what is in the prompt: either lesson gains
two and loses one, which shows nothing; both together gain six."""


def small_effects(request: dict[str, Any]) -> str:
    """A model that draws another lesson from each of two problems."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    held = re.search(r"What is (7\d\d) op", user)
    match stage(request):
        case "rollout" if held is not None:
            number = int(held[1])
            there = tuple(text for text in (FIRST, SECOND) if text in system)
            return f"\\boxed{{{2 * number + 4 if number - 700 in SOLVES[there] else 0}}}"
        case "comparison":
            text = FIRST if "What is 1 op" in user else SECOND
            lessons = [{"reason": "It came out right.", "text": text}]
            return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
        case "controller":
            text = SECOND if SECOND in user else FIRST
            return json.dumps({"closest": None, "decision": "new", "text": text})
    return teachable(request)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_problems(tmp_path / "problems.jsonl", 2)
    write_problems(tmp_path / "gate.jsonl", 12, start=700)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(endpoint: ScriptedEndpoint, **more: Any) -> tfgrpo.TrainResult:
    where = {"model": "m", "base_url": endpoint.base_url, "store": "."}
    how = {"gate": "gate.jsonl", "epochs": 1, "batch_size": 1, "group_size": 8}
    return tfgrpo.train_sync("problems.jsonl", **{**how, **where, **more})


@pytest.fixture
def endpoint() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(small_effects) as server:
        yield server


def test_lessons_that_show_nothing_alone_enter_together(
    folder: Path, endpoint: ScriptedEndpoint, cli: Cli
) -> None:
    result = train(endpoint, deploy="last")
    first, second = (version.meta["gate"] for version in result.versions)
    assert (first["verdict"], first["difference_is"]) == ("rejected", "inconclusive")
    assert (second["verdict"], "retried" in second) == ("accepted", False)
    assert (second["before"], second["after"]) == (round(2 / 12, 6), round(8 / 12, 6))
    assert {e.text for e in result.library} == {FIRST, SECOND}
    with Store.open(folder / ".tfgrpo/store.db") as store:
        added = {event.text: event for event in store.events(result.versions[1])}
        (aside,) = store.events(store.tip(first["branch"]))
        assert fsck(store).problems == ()
    assert first["retried"] == [aside.experience] == [added[FIRST].experience]
    evidence = added[FIRST].evidence
    assert evidence is not None
    assert (evidence["step"], evidence["retried"]) == (0, 1)
    assert {**evidence, "retried": 0} == {**(aside.evidence or {}), "retried": 0}
    assert "retried" not in (added[SECOND].evidence or {})
    decided = [r for r in endpoint.requests if stage(r) == "controller"]
    assert all(FIRST in request["messages"][-1]["content"] for request in decided)
    log = " ".join(cli("log").stdout.split())
    assert "1 change to be tried again with the next" in log
    blame = " ".join(cli("blame").stdout.split())
    assert "step 1 of run problems, tried again in 1 later step" in blame


def test_what_waits_is_tried_by_its_own_effect_in_a_factorial_trial(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    result = train(endpoint, deploy="last", gate_trial="factorial")
    first, second = (version.meta["gate"] for version in result.versions)
    assert (first["trial"], first["verdict"]) == ("bundle", "rejected")
    assert second["trial"] == "factorial"
    assert [change["kept"] for change in second["changes"]] == [True, True]
    assert second["changes"][0]["experience"] == first["retried"][0]
    assert {e.text for e in result.library} == {FIRST, SECOND}


def test_what_waits_in_one_run_does_not_enter_another_untried(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    first, _ = train(endpoint, deploy="last").versions
    assert first.meta["gate"]["retried"]
    with Store.open(folder / ".tfgrpo/store.db", author="tests") as store:
        store.move_branch("main", first)
    held = len(endpoint.requests)
    after = train(endpoint, run="other", gate=None)
    assert len(endpoint.requests) > held
    assert all("retried" not in (e.evidence or {}) for e in _events(folder, after))


def _events(folder: Path, result: tfgrpo.TrainResult) -> list[Event]:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        return [event for version in result.versions for event in store.events(version)]


def test_without_retries_each_step_stands_or_falls_alone(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    result = train(endpoint, retry_lessons=0)
    gates = [version.meta["gate"] for version in result.versions]
    assert [gate["verdict"] for gate in gates] == ["rejected", "rejected"]
    assert not any("retried" in gate for gate in gates)
    assert len(result.library) == 0


def test_what_the_last_step_leaves_open_is_not_promised_another_trial(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    (version,) = train(endpoint, batch_size=2, max_edits=1).versions
    assert version.meta["gate"]["verdict"] == "rejected"
    assert "retried" not in version.meta["gate"]
    assert "tried again" not in version.message


@pytest.mark.parametrize(
    ("mean", "error", "undecided"),
    [
        (0.02, 0.07, True),
        (0.0, 0.0, True),
        (-0.03, 0.07, True),
        (-0.04, 0.07, False),
        (0.5, float("inf"), True),
        (-0.5, float("inf"), False),
    ],
)
def test_what_seems_to_harm_is_not_tried_again(mean: float, error: float, undecided: bool) -> None:
    assert is_undecided(mean, error) is undecided


def test_nothing_is_tried_again_more_often_than_is_wanted() -> None:
    operations = [
        Operation("ADD", "new", "a"),
        Operation("ADD", "old", "b", None, {"retried": 2}),
        Operation("KEEP", "there"),
        Operation("MODIFY", "new", "c"),
    ]
    assert to_retry(operations, 2) == ["new"]
    assert to_retry(operations, 3) == ["new", "old"]
    assert to_retry(operations, 0) == []


def waiting_store(folder: Path, *operations: Operation) -> tuple[Store, Version]:
    """Makes a store where operations wait since a step that the gate rejected."""
    store = Store.init(folder / "s.db", author="tests")
    store.create_branch("aside")
    candidate = store.commit("aside", operations, message="rejected")
    gate = {"candidate": candidate.digest.hex(), "retried": [o.experience for o in operations]}
    return store, store.commit("main", [], message="a step", meta={"gate": gate})


A, B = "a" * 12, "b" * 12


def test_what_waits_was_neither_redacted_nor_made_for_want_of_room(tmp_path: Path) -> None:
    made = {"pruned": True, "room_for": A}
    store, base = waiting_store(
        tmp_path,
        Operation("ADD", A, "Call 0170 555."),
        Operation("ADD", B, "Check the sign."),
        Operation("DELETE", B, evidence=made),
    )
    with store:
        there = [(o.op, o.text) for o in waiting(store, base, store.library(base), None)]
        assert there == [("ADD", "Call 0170 555."), ("ADD", "Check the sign.")]
        assert waiting(store, base, store.library(base), 4) == []
        assert waiting(store, store.version(0), store.library(base), None) == []
        redact(store, Target(texts=("Call 0170 555.",)), reason="a number")
        left = waiting(store, base, store.library(base), None)
        assert [o.experience for o in left] == [B]


def test_what_somebody_has_added_meanwhile_is_confirmed(tmp_path: Path) -> None:
    store, base = waiting_store(tmp_path, Operation("ADD", A, "Check the sign."))
    with store:
        moved = store.commit("main", [Operation("ADD", B, "Check the sign.")], message="by hand")
        (again,) = waiting(store, base, store.library(moved), None)
        assert (again.op, again.experience, again.text) == ("KEEP", B, None)
        assert again.evidence == {"retried": 1}
