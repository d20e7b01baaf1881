"""A step's examples are tried before its lessons, which enter only where they add to them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint, stage
from test_controller import EMPTY

import tfgrpo
from tfgrpo.notices import Notice
from tfgrpo.store import Experience, Library, Operation, Store
from tfgrpo.store.fsck import fsck
from tfgrpo.training.draft import Draft
from tfgrpo.training.gate import split_examples
from tfgrpo.training.gate_words import describe_gate, gate_word, rejections
from tfgrpo.training.progress import Progress

LESSON = "When a message names what is owed, the answer is refund, not fraud."
SOLVED = {
    "harmful": {(): 4, ("lesson",): 6, ("examples",): 10, ("examples", "lesson"): 3},
    "helpful": {(): 2, ("lesson",): 3, ("examples",): 6, ("examples", "lesson"): 11},
    "examples harm": {(): 6, ("lesson",): 11, ("examples",): 1, ("examples", "lesson"): 2},
}
"""How many of twelve held-out messages come out right, by what is in the prompt."""


def model(request: dict[str, Any], solved: dict[tuple[str, ...], int]) -> str:
    """A model that a lesson serves otherwise beside examples than without."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    match stage(request):
        case "rollout":
            held = re.search(r"Message 7(\d\d)", user)
            turns = [message["role"] for message in request["messages"]]
            parts = {"examples": "assistant" in turns, "lesson": LESSON in system}
            there = tuple(name for name, is_there in parts.items() if is_there)
            right = int(held[1]) < solved[there] if held else int(request["seed"]) % 2
            return "\\boxed{refund}" if right else "\\boxed{fraud}"
        case "comparison":
            lessons = [{"reason": "It came out right.", "text": LESSON}]
            return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
        case "controller":
            return json.dumps({"closest": None, "decision": "new", "text": LESSON})
    return "It answered."


def write_messages(path: Path, count: int, start: int) -> None:
    rows = [
        {"id": f"m-{n}", "problem": f"Message {n} about a sum.", "answer": "refund"}
        for n in range(start, start + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_messages(tmp_path / "train.jsonl", 3, 100)
    write_messages(tmp_path / "gate.jsonl", 12, 700)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(lambda asked: model(asked, SOLVED[request.param])) as server:
        yield server


def train(endpoint: ScriptedEndpoint, data: str = "train.jsonl", **more: Any) -> tfgrpo.TrainResult:
    how = {"gate": "gate.jsonl", "epochs": 1, "batch_size": 1, "group_size": 8, "exemplars": 2}
    how["exemplars_first"] = False
    where = {"model": "m", "base_url": endpoint.base_url, "store": ".", "deploy": "last"}
    return tfgrpo.train_sync(
        data, **{**how, **where, "domain": 'choice:["refund", "fraud"]', **more}
    )


def gate_of(result: tfgrpo.TrainResult) -> dict[str, Any]:
    return dict(result.versions[0].meta["gate"])


@pytest.mark.parametrize("endpoint", ["harmful"], indirect=True)
def test_a_lesson_does_not_enter_on_what_examples_bring(
    folder: Path, endpoint: ScriptedEndpoint, cli: Cli
) -> None:
    result = train(endpoint)
    assert [e.text.partition(":")[0] for e in result.library] == ["Example"] * 2
    gate = gate_of(result)
    assert (gate["trial"], gate["verdict"]) == ("parts", "accepted")
    assert (gate["before"], gate["after"]) == (round(4 / 12, 6), round(10 / 12, 6))
    examples, lessons = gate["examples"], gate["lessons"]
    assert (examples["verdict"], examples["difference_is"]) == ("accepted", "better")
    assert (lessons["verdict"], lessons["difference_is"]) == ("rejected", "worse")
    assert (lessons["before"], lessons["after"]) == (round(10 / 12, 6), round(3 / 12, 6))
    with Store.open(folder / ".tfgrpo/store.db") as store:
        candidate = store.resolve(gate["candidate"])
        assert [e.text for e in store.events(candidate)] == [LESSON]
        line = f'- added: "{LESSON}" (reward 0.833 → 0.250'
        assert rejections(store, result.versions[0])[0].startswith(line)
        assert fsck(store).problems == ()
        scores = [e.summary["mean"] for e in store.runs.evaluations(result.versions[0].number)]
    assert [round(mean[0], 3) for mean in scores] == [0.833]
    words = "examples kept by the gate: 0.333 → 0.833, +0.500"
    assert words in describe_gate(gate)
    assert "; lessons rejected by the gate: 0.833 → 0.250" in describe_gate(gate)
    assert gate_word(gate) == "examples kept, lessons rejected"
    assert words in " ".join(cli("log").stdout.split())
    held = [r for r in endpoint.requests if "Message 7" in r["messages"][-1]["content"]]
    prompts = {json.dumps(r["messages"][:-1]) for r in held}
    assert len(held) == 12 * 4 * len(prompts), "no library is tried twice"


@pytest.mark.parametrize("endpoint", ["helpful"], indirect=True)
def test_lessons_that_add_to_examples_enter_with_them(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    totals: dict[int, set[int]] = {}

    def watch(news: Notice) -> None:
        if isinstance(news, Progress) and news.trial is not None and news.trial.total:
            totals.setdefault(news.step, set()).add(news.trial.total)

    result = train(endpoint, on_progress=watch)
    assert totals[0] == {3 * 12 * 4}, "what is left does not grow with the second part"
    assert LESSON in {e.text for e in result.library}
    gate = gate_of(result)
    assert (gate["examples"]["verdict"], gate["lessons"]["verdict"]) == ("accepted", "accepted")
    assert (gate["lessons"]["before"], gate["after"]) == (0.5, round(11 / 12, 6))
    assert "candidate" not in gate


@pytest.mark.parametrize("endpoint", ["examples harm"], indirect=True)
@pytest.mark.parametrize("trial", ["bundle", "factorial"])
def test_lessons_enter_without_examples_that_harm(
    folder: Path, endpoint: ScriptedEndpoint, trial: str
) -> None:
    result = train(endpoint, gate_trial=trial)
    assert [e.text for e in result.library] == [LESSON]
    gate = gate_of(result)
    assert (gate["examples"]["verdict"], gate["lessons"]["verdict"]) == ("rejected", "accepted")
    assert gate["lessons"]["before"] == 0.5
    with Store.open(folder / ".tfgrpo/store.db") as store:
        texts = [e.text or "" for e in store.events(store.resolve(gate["candidate"]))]
        assert [text.partition(":")[0] for text in texts] == ["Example"] * 2
        assert rejections(store, result.versions[0]) == [], "the controller is told of lessons"


@pytest.mark.parametrize("endpoint", ["harmful"], indirect=True)
def test_a_lesson_is_confirmed_beside_the_examples_that_its_group_saw(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    train(endpoint, confirm=1)
    asked = [
        [message["content"] for message in request["messages"]]
        for request in endpoint.requests
        if stage(request) == "rollout"
    ]
    trials = [texts for texts in asked if LESSON in texts[0] and "Message 1" in texts[-1]]
    assert [texts.count("Label: refund") for texts in trials] == [0, 1, 2]
    assert all(texts.count(texts[-1]) == 1 for texts in trials), "its own answer is not given away"


@pytest.mark.parametrize("endpoint", ["examples harm"], indirect=True)
@pytest.mark.parametrize("epochs", [1, 2])
def test_examples_that_the_gate_rejected_are_not_proposed_again(
    folder: Path, endpoint: ScriptedEndpoint, epochs: int
) -> None:
    result = train(endpoint, epochs=epochs, exemplars=1, retry_lessons=0)
    with Store.open(folder / ".tfgrpo/store.db") as store:
        gates = [v.meta["gate"] for v in result.versions if "candidate" in v.meta.get("gate", {})]
        events = [store.events(store.resolve(gate["candidate"])) for gate in gates]
    added = [event for some in events for event in some if event.op == "ADD"]
    proposed = [(event.evidence or {})["problem"] for event in added]
    assert sorted(proposed) == ["m-100", "m-101", "m-102"]


def test_what_only_fits_beside_the_rest_is_tried_with_it() -> None:
    library = Library(EMPTY.version, (Experience("a" * 12, "When a card is late, call. " * 3, 1),))
    shorter = Operation("MODIFY", "a" * 12, "When a card is late, call.")
    example = Operation("ADD", "b" * 12, "Example: Where is my card? → late")
    whole = Draft(library).after([example]).tokens
    for cap, is_apart in ((None, True), (whole, True), (whole - 1, False)):
        parts = split_examples(library, [shorter, example], cap)
        assert (parts is not None) is is_apart
    assert split_examples(library, [example], None) is None
    assert split_examples(library, [shorter, Operation("KEEP", "a" * 12)], None) is None


@pytest.mark.parametrize("endpoint", ["helpful"], indirect=True)
@pytest.mark.parametrize("data", ["train.jsonl", "train.jsonl:3"])
def test_a_redacted_example_is_gone_with_its_problem_and_does_not_come_back(
    folder: Path, endpoint: ScriptedEndpoint, cli: Cli, data: str
) -> None:
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    rows[0]["problem"] = "Message 100:\n  my name is Zofia Kowalska → help"
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = train(endpoint, data, exemplars=3, run="one")
    id = next(e.id for e in result.library if "Zofia" in e.text)
    shown = cli("redact", id, "--dry-run").stdout
    assert "texts.text" in shown
    done = cli("redact", id, "--reason", "names a customer", "--yes").stdout
    assert "train.jsonl, which is yours, contains it as well" in " ".join(done.split())
    for file in (folder / ".tfgrpo").rglob("*"):
        assert not file.is_file() or b"Zofia" not in file.read_bytes(), file
    assert fsck_problems(folder) == ()
    again = train(endpoint, data, exemplars=3, run="two")
    examples = [e.text for e in again.library if e.text.startswith("Example")]
    assert examples
    assert not any("Zofia" in text for text in examples)


def fsck_problems(folder: Path) -> tuple[object, ...]:
    with Store.open(folder / ".tfgrpo/store.db") as store:
        return fsck(store).problems
