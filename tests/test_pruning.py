"""The cap: the library never has more tokens than it may, and what does not fit is on record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error
from desk import Desk, libraries, steps
from desk import made as made_desk
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Reply, ScriptedEndpoint, opened_calls, restless, stage
from test_controller import decision, planned, short
from test_reflection import reflection

from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.tokens import count
from tfgrpo.rendering.render import prompt_text
from tfgrpo.store import ROOT, Experience, Library, Operation, Store, derived_id
from tfgrpo.training.pruning import LibraryTooLong, Pruning, bring_under, split_fitting
from tfgrpo.training.reflection import StepOrigin

A, B, C = (derived_id(letter) for letter in "abc")
FRESH = derived_id("run", 3, 0)
TEXTS = ("Carry the ten first.", "Carry every ten over.", "Check the sign.")
FULL = Library(ROOT, tuple(Experience(*e) for e in zip((A, B, C), TEXTS, (1, 2, 3), strict=True)))
CAP = count(prompt_text(FULL))


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    return partial(made_desk, tmp_path, verifier)


def action(kind: str, labels: list[str], text: str = "", why: str = "It says less.") -> str:
    return json.dumps({"why": why, "action": kind, "experiences": labels, "text": text})


def answering(*actions: str, decided: str | None = None) -> Callable[[dict[str, Any]], str | Reply]:
    """A script that decides `new`, and answers the questions of pruning in order."""
    left: Iterator[str] = iter(actions)

    def script(request: dict[str, Any]) -> str:
        return next(left, "") if stage(request) == "prune" else decided or decision(None, "new")

    return script


def size(operations: tuple[Operation, ...], library: Library = FULL) -> int:
    held = {e.id: e for e in library}
    for op, id, text, *_ in operations:
        assert id is not None
        if op == "DELETE":
            del held[id]
        elif op != "KEEP":
            held[id] = Experience(id, text or "", 0)
    return count(prompt_text(Library(ROOT, tuple(held.values()))))


def asked(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [request for request in requests if stage(request) == "prune"]


def test_below_the_cap_nobody_is_asked_to_prune(tmp_path: Path) -> None:
    found, requests = planned(
        tmp_path, answering(), "Round down.", library=FULL, library_tokens=CAP + 20
    )
    assert short(found.operations) == [("ADD", FRESH, "Round down.")]
    assert asked(requests) == []


def test_a_merge_is_a_delete_and_a_modify_with_reason_and_evidence(tmp_path: Path) -> None:
    script = answering(action("merge", ["G1", "G0"], "Carry every ten first."))
    found, requests = planned(tmp_path, script, "Round down.", library=FULL, library_tokens=CAP)
    assert short(found.operations) == [
        ("DELETE", B, None),
        ("MODIFY", A, "Carry every ten first."),
        ("ADD", FRESH, "Round down."),
    ]
    assert size(found.operations) <= CAP
    for operation in found.operations[:2]:
        assert operation.reason == "It says less."
        evidence = operation.evidence
        assert evidence is not None
        assert (evidence["run"], evidence["step"], evidence["pruned"]) == ("r", 3, "merge")
        assert evidence["merged"] == sorted([A, B])
        assert evidence["room_for"] == FRESH
        assert len(evidence["calls"]) == 1
        assert list(evidence["prompts"]) == ["prune"]
    (request,) = asked(requests)
    schema = request["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["experiences"]["items"]["enum"] == ["G0", "G1", "G2"]
    system, user = (message["content"] for message in request["messages"])
    assert f"{CAP} tokens at most" in system
    assert "[G0] Carry the ten first." in user
    assert "What should enter: Round down." in user


def test_a_merge_into_one_of_them_leaves_it_as_it_is(tmp_path: Path) -> None:
    script = answering(action("merge", ["G0", "G1"], "carry every  ten over"))
    found, _ = planned(tmp_path, script, "Round down.", library=FULL, library_tokens=CAP)
    assert short(found.operations) == [("DELETE", A, None), ("ADD", FRESH, "Round down.")]


def test_it_is_asked_until_it_fits(tmp_path: Path) -> None:
    lesson = "When a long lesson comes along, it takes the room of two."
    script = answering(action("delete", ["G2"]), action("delete", ["G0"]))
    found, requests = planned(tmp_path, script, lesson, library=FULL, library_tokens=CAP)
    assert [o.op for o in found.operations] == ["DELETE", "DELETE", "ADD"]
    assert size(found.operations) <= CAP
    first, second = (request["messages"][-1]["content"] for request in asked(requests))
    assert "[G2]" in first
    assert "[G2]" not in second


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (action("delete", ["G7"]), "there is no experience G7"),
        (action("merge", ["G0"], "Carry."), "a merge takes at least two"),
        (action("merge", ["G0", "G0"], "Carry."), "a merge takes at least two"),
        (action("merge", ["G0", "G1"]), "needs the text"),
        (action("merge", ["G0", "G1"], "Check the sign."), "another experience says just that"),
        (action("merge", ["G0", "G1"], "a b c d e f g h i j k l m n o p"), "no shorter"),
        (action("merge", ["G0", "G1"], "a " * 40), "40 words"),
        (action("drop", ["G0"]), "action"),
        ("I would rather not.", "not JSON"),
    ],
)
def test_what_cannot_be_done_goes_back_once_and_the_lesson_is_then_refused_on_record(
    tmp_path: Path, answer: str, complaint: str
) -> None:
    script = answering(answer, answer)
    found, requests = planned(tmp_path, script, "Round down.", library=FULL, library_tokens=CAP)
    assert found.operations == ()
    (refusal,) = found.refused
    assert (refusal.text, refusal.problem) == ("Round down.", "p1")
    assert complaint in asked(requests)[1]["messages"][-1]["content"]
    assert len(asked(requests)) == 2


def test_what_does_not_fit_in_the_end_costs_the_library_nothing(tmp_path: Path) -> None:
    many = Library(ROOT, tuple(Experience(derived_id(n), f"Rule {n}.", n) for n in range(20)))
    script = answering(*[action("delete", ["G0"])] * 4, decided=decision(None, "new"))
    lesson = " ".join(["consideration"] * 30)
    found, requests = planned(
        tmp_path, script, lesson, library=many, library_tokens=count(prompt_text(many))
    )
    assert found.operations == ()
    assert "after 4 turns of pruning" in found.refused[0].reason
    assert len(asked(requests)) == 4


def test_a_lesson_longer_than_the_cap_is_refused_without_asking(tmp_path: Path) -> None:
    lesson = " ".join(["consideration"] * 30)
    found, requests = planned(tmp_path, answering(), lesson, library=FULL, library_tokens=CAP)
    assert "it alone has" in found.refused[0].reason
    assert asked(requests) == []


def test_a_text_that_grows_makes_room_but_is_not_given_up_for_itself(tmp_path: Path) -> None:
    better = decision("G0", "refines", "Carry the ten first, and write it above the next column.")
    script = answering(action("delete", ["G0"]), action("delete", ["G1", "G2"]), decided=better)
    found, requests = planned(tmp_path, script, "Round down.", library=FULL, library_tokens=CAP)
    assert [o[:2] for o in found.operations] == [("DELETE", B), ("DELETE", C), ("MODIFY", A)]
    schema = asked(requests)[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["experiences"]["items"]["enum"] == ["G1", "G2"]


def test_one_refusal_does_not_cost_the_next_lesson(tmp_path: Path) -> None:
    script = answering("no", "no", action("delete", ["G0"]))
    found, _ = planned(
        tmp_path, script, "Round down.", "Round up.", library=FULL, library_tokens=CAP
    )
    assert [r.text for r in found.refused] == ["Round down."]
    assert [o.op for o in found.operations] == ["DELETE", "ADD"]


labels = st.lists(st.sampled_from(["G0", "G1", "G2", "G3", "G4", "G9"]), max_size=4)
texts = st.sampled_from(["", "Carry.", TEXTS[2], "one two three", "word " * 30])
prunings = st.one_of(
    st.builds(action, st.sampled_from(["merge", "delete"]), labels, texts),
    st.sampled_from(["", "no", "{", '{"action": "delete"}']),
)
decisions = st.builds(
    decision,
    st.sampled_from([None, "G0", "G1", "G2", "G3"]),
    st.sampled_from(["new", "same", "refines", "contradicts"]),
    st.sampled_from(["", "Carry it.", "Carry everything there is, and then carry it again."]),
)


@given(
    st.lists(prunings, min_size=1, max_size=12),
    st.lists(decisions, min_size=1, max_size=6),
    st.lists(st.sampled_from(["Add.", "Round the number down.", "w " * 31]), max_size=6),
    st.integers(16, 60),
)
@settings(max_examples=25, deadline=None)
def test_whatever_the_controller_answers_the_library_stays_within_the_cap(
    tmp_path_factory: pytest.TempPathFactory,
    pruned: list[str],
    decided: list[str],
    lessons: list[str],
    cap: int,
) -> None:
    state = {"prune": 0, "controller": 0}

    def script(request: dict[str, Any]) -> str:
        name = stage(request)
        answers = pruned if name == "prune" else decided
        state[name] += 1
        return answers[(state[name] - 1) % len(answers)]

    start = FULL if cap >= CAP else Library(ROOT, ())
    folder = tmp_path_factory.mktemp("cap")
    found, _ = planned(folder, script, *lessons, library=start, library_tokens=cap)
    kept = [o for o in found.operations if "pruned" not in (o.evidence or {})]
    assert len(kept) + len(found.refused) == len(lessons)
    for end in range(len(found.operations) + 1):
        assert size(found.operations[:end], start) <= cap
    with Store.init(folder / "other.db") as store:
        store.commit("main", [Operation("ADD", e.id, e.text) for e in start], message="known")
        store.commit("main", found.operations, message="plan")
        assert count(prompt_text(store.library())) <= cap


# a library that is over the cap to begin with:


def brought(folder: Path, script: Callable[[dict[str, Any]], str | Reply], cap: int) -> Pruning:
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:

        async def run() -> Pruning:
            try:
                origin = StepOrigin("run", 0, {"run": "r"})
                return await bring_under(calls, reflection(library_tokens=cap), FULL, origin)
            finally:
                await calls.endpoint.close()

        return asyncio.run(run())


def test_a_library_over_the_cap_is_pruned_before_anything_else(tmp_path: Path) -> None:
    room = brought(tmp_path, answering(*[action("delete", ["G0"])] * 3), 16)
    assert [o[:2] for o in room.operations] == [("DELETE", A), ("DELETE", B)]
    assert size(room.operations) <= 16


def test_one_that_cannot_be_pruned_stops_the_run_before_anything_is_spent_on_it(
    tmp_path: Path,
) -> None:
    with pytest.raises(LibraryTooLong, match=rf"has {CAP} tokens, {CAP - 16} over the cap"):
        brought(tmp_path, answering("no", "no"), 16)


def test_a_branch_that_somebody_filled_meanwhile_takes_only_what_fits() -> None:
    fit, lost = split_fitting(
        [Operation("ADD", "x" * 12, "Round down."), Operation("KEEP", A)], FULL, CAP
    )
    assert [o.op for o in fit] == ["KEEP"]
    assert lost[0]["text"] == "Round down."
    assert "no room under" in lost[0]["reason"]


# whole runs:


def test_a_run_stays_within_its_cap_at_every_step(make: Callable[..., Desk]) -> None:
    desk = make(library_tokens=36)
    desk.prepare()
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
        assert server.stages["prune"] > 0
    with Store.open(desk.path) as store:
        for version in steps(desk.path):
            assert count(prompt_text(store.library(version))) <= 36
            for event in store.events(version):
                assert event.reason
        assert store.runs.get("run").config["library_tokens"] == 36


def test_a_run_with_a_cap_that_is_cut_off_ends_with_the_same_library(
    make: Callable[..., Desk], tmp_path: Path
) -> None:
    whole = make("whole", library_tokens=36)
    whole.prepare()
    with ScriptedEndpoint(restless) as server:
        whole.train(server)
        calls = sum(server.answered.values())
    cut = make("cut", library_tokens=36)
    cut.prepare()
    seen = 0

    def dying(request: dict[str, Any]) -> str | Reply:
        nonlocal seen
        if stage(request) == "prune":
            seen += 1
            if seen in (1, 3):
                return Reply({"error": {"message": "bad key"}}, status=401)
        return restless(request)

    with ScriptedEndpoint(dying) as server:
        for _ in range(8):
            try:
                cut.train(server)
                break
            except Exception as error:
                assert "bad key" in str(error)  # noqa: PT017
        assert sum(server.answered.values()) == calls
    assert seen > 3
    assert libraries(cut.path) == libraries(whole.path)


def test_the_cap_is_told_when_it_cannot_be_kept(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    cli("init")
    for text in TEXTS:
        cli("add", text)
    (tmp_path / "problems.jsonl").write_text('{"problem": "What is 1 op 2?", "answer": 4}\n')
    arguments = ("train", "problems.jsonl", "--base-url", endpoint.base_url, "--model", "m")
    done = cli(*arguments, "--library-tokens", "16", ok=False)
    one_line_error(done, "over the cap, and could not be pruned")
    done = cli(*arguments, "--library-tokens", "5", ok=False)
    one_line_error(done, "library_tokens", code=2)
