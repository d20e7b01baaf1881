"""The published method: one call plans a step, and interrupted runs end as others do."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, libraries, steps
from desk import made as made_desk
from scripted import Reply, ScriptedEndpoint, opened_calls, restless, stage, write_problems
from test_reflection import group, reflection

from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.policies.paper import Planner
from tfgrpo.learn.policies.protocol import Learned, Step
from tfgrpo.learn.reflection import Lesson, StepOrigin
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.store import ROOT, Experience, Library, Operation, derived_id

A, B = derived_id("a"), derived_id("b")
KNOWN = Library(ROOT, (Experience(A, "Carry the ten.", 1), Experience(B, "Check the sign.", 2)))
EMPTY = Library(ROOT, ())
GROUP = group(1.0, None, 0.0)


def lesson(text: str) -> Lesson:
    return Lesson(text, "It helped.", GROUP, ("c" * 64,))


def short(operations: tuple[Operation, ...]) -> list[tuple[Any, ...]]:
    return [operation[:3] for operation in operations]


def labelled(*texts: str) -> Library:
    ids = (A, B)
    return Library(ROOT, tuple(Experience(ids[n], text, n + 1) for n, text in enumerate(texts)))


def planned(
    folder: Path,
    answers: list[Any],
    *texts: str | Lesson,
    library: Library = KNOWN,
    cap: int | None = None,
) -> tuple[Learned, list[dict[str, Any]]]:
    """Plans lessons in one call, against a server that gives `answers` in order."""

    def script(_: dict[str, Any]) -> str:
        return json.dumps({"operations": answers[len(server.requests) - 1]})

    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:

        async def run() -> Learned:
            origin = StepOrigin("run", 3, {"run": "r", "step": 3})
            step = Step(3, (), library.version, library, origin, 10)
            lessons = [lesson(one) if isinstance(one, str) else one for one in texts]
            try:
                return await Planner(calls, reflection(), cap).plan(step, lessons)
            finally:
                await calls.endpoint.close()

        return asyncio.run(run()), server.requests


def edit(op: str, *lessons: int, experience: str | None = None, text: str = "") -> dict[str, Any]:
    return {"lessons": list(lessons), "op": op, "experience": experience, "text": text}


def test_one_call_plans_what_becomes_of_all_lessons(tmp_path: Path) -> None:
    plan, (request,) = planned(
        tmp_path,
        [
            [
                edit("add", 1, 2, text="Round down at the end."),
                edit("keep", 3, experience="G0"),
                edit("modify", 4, experience="G1", text="Check the sign twice."),
            ]
        ],
        *("Round down.", "Round down last.", "Carry tens.", "Check the sign two times."),
    )
    fresh = derived_id("run", 3, 0)
    assert short(plan.operations) == [
        ("ADD", fresh, "Round down at the end."),
        ("KEEP", A, None),
        ("MODIFY", B, "Check the sign twice."),
    ]
    assert (plan.refused, plan.repaired) == ((), 0)
    user = request["messages"][-1]["content"]
    assert "[G1] Check the sign." in user
    assert "4. Check the sign two times." in user
    evidence = plan.operations[0].evidence or {}
    assert evidence["problem"] == "p1"
    assert "plan" in evidence["prompts"]


def operations_schema(request: dict[str, Any]) -> dict[str, Any]:
    shape = request["response_format"]["json_schema"]["schema"]
    return dict(shape["properties"]["operations"])


def test_a_plan_may_change_what_is_there_alone(tmp_path: Path) -> None:
    """A small model keeps what is not there, and writes blanks after `"experience": null`."""
    added = [edit("add", 1, text="Round down.")]
    _, (request,) = planned(tmp_path / "empty", [added], "Round down.", library=EMPTY)
    asked = operations_schema(request)
    assert asked["maxItems"] == 1
    assert asked["items"]["properties"]["op"]["enum"] == ["add"]
    assert "experience" not in asked["items"]["properties"]
    _, (request,) = planned(tmp_path / "two", [added], "Round down.")
    asked = operations_schema(request)
    assert asked["maxItems"] == 3
    new, change = asked["items"]["anyOf"]
    assert new["properties"]["op"]["enum"] == ["add"]
    assert change["properties"]["op"]["enum"] == ["keep", "modify", "delete"]
    assert change["properties"]["experience"]["enum"] == ["G0", "G1"]
    assert change["required"] == ["lessons", "op", "experience", "text"]


def test_what_is_wrong_with_a_plan_goes_back_once_and_is_refused_alone(tmp_path: Path) -> None:
    wrong = [
        edit("add", 1, text="Round down."),
        edit("modify", 2, experience="G7", text="Mind the units."),
        edit("add", 3, text="word " * 40),
        edit("keep", 9, experience="G0"),
        edit("delete", 4, experience="G0"),
        edit("keep", 4, experience="G0"),
    ]
    texts = ("Round down.", "Mind the units.", "Be brief.", "Never carry.", "Read twice.")
    plan, requests = planned(tmp_path, [wrong, wrong], *texts)
    assert "no experience G7" in requests[1]["messages"][-1]["content"]
    assert short(plan.operations) == [
        ("ADD", derived_id("run", 3, 0), "Round down."),
        ("DELETE", A, None),
    ]
    reasons = [refusal.reason for refusal in plan.refused]
    for words in (
        "there is no experience G7",
        "the text is too long",
        "names lessons [9]",
        "has deleted G0",
        "no operation of the plan takes it up",
    ):
        assert any(words in reason for reason in reasons), (words, reasons)
    assert len(reasons) == 5


def test_a_plan_is_made_beside_lessons_without_examples(tmp_path: Path) -> None:
    there = labelled("When a code is missing, carry it.", example_text("Where is it?", "late"))
    wrong = [edit("delete", 1, experience="G1"), edit("keep", 2, experience="G0")]
    plan, requests = planned(
        tmp_path, [wrong, wrong], "Read twice.", "Carry it where it is missing.", library=there
    )
    schema = json.dumps(requests[0]["response_format"])
    assert "Where is it?" not in json.dumps(requests[0]["messages"])
    assert "G0" in schema
    assert "G1" not in schema
    assert short(plan.operations) == [("KEEP", A, None)]
    assert plan.refused[0].reason == "there is no experience G1; experiences are ['G0']"


def test_a_plan_that_cannot_be_read_refuses_every_lesson(tmp_path: Path) -> None:
    plan, _ = planned(tmp_path, ["none", "none"], "Round down.", "Be brief.")
    assert plan.operations == ()
    assert [refusal.text for refusal in plan.refused] == ["Round down.", "Be brief."]


def test_what_has_no_room_under_the_cap_is_refused(tmp_path: Path) -> None:
    edits = [edit("add", 1, text="Round down."), edit("modify", 2, experience="G0", text="Carry.")]
    plan, _ = planned(tmp_path, [edits], "Round down.", "Carry it.", cap=4)
    assert short(plan.operations) == [("MODIFY", A, "Carry.")]
    assert [one.reason for one in plan.refused] == ["no room under the cap on tokens (4)"]


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "under a cap": {"library_tokens": 60},
    "with a gate": {"gate": "gate.jsonl", "gate_rule": "not-worse"},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_run_that_is_stopped_anywhere_comes_to_the_same_library(
    tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_problems(tmp_path / "gate.jsonl", 6, start=700)
    monkeypatch.chdir(tmp_path)

    def make(folder: str) -> Desk:
        desk = made_desk(tmp_path, verifier, folder, count=6, **OPTIONS[name])
        desk.prepare()
        return desk

    calm = make("calm")
    with ScriptedEndpoint(restless) as server:
        calm.train(server)
        total = len(server.requests)
    expected = libraries(calm.path)
    assert expected[-1], "the script changes the library at every step"
    if "gate" in OPTIONS[name]:
        assert {version.meta["gate"]["verdict"] for version in steps(calm.path)} >= {"accepted"}

    class Ends:
        """The same model, whose endpoint refuses everything from some request on."""

        def __init__(self, after: int) -> None:
            self.left, self.lock = after, threading.Lock()

        def __call__(self, request: dict[str, Any]) -> str | Reply:
            with self.lock:
                self.left -= 1
            return restless(request) if self.left >= 0 else Reply({"error": "no"}, status=401)

    stopped = make("stopped")
    for after in (total // 5, total // 4, total // 3):
        with ScriptedEndpoint(Ends(after)) as server, pytest.raises(EndpointError):
            stopped.train(server)
    with ScriptedEndpoint(restless) as server:
        stopped.train(server)
    assert libraries(stopped.path) == expected


def test_groups_are_reflected_on_while_others_are_attempted(
    tmp_path: Path, verifier: Verifier
) -> None:
    desk = made_desk(tmp_path, verifier, count=12, batch_size=12, epochs=1)
    with ScriptedEndpoint(restless, delay=0.02) as server:
        training = desk.train(server, concurrency=3)
        stages = [stage(request) for request in server.requests]
    last = len(stages) - 1 - stages[::-1].index("rollout")
    assert "comparison" in stages[:last]
    assert training.progress.fraction == 1.0


def each_of_one(*texts: str) -> list[Lesson]:
    """Lessons from the problems p0, p1, and so on."""
    lessons = map(lesson, texts)
    return [
        replace(one, group=replace(one.group, problem=replace(one.group.problem, id=f"p{n}")))
        for n, one in enumerate(lessons)
    ]


@pytest.mark.parametrize(
    "lessons",
    [
        ("Count eight hours a day.", "A begun box is a full one.", "Round up."),
        ("每一天都要算八个小时。", "打开的箱子算一整箱。", "要进位。"),
    ],
)
def test_an_operation_follows_from_the_lessons_that_the_plan_names(
    tmp_path: Path, lessons: tuple[str, ...]
) -> None:
    first, second, third = lessons
    edits = [
        edit("add", 2, 1, 2, text=second),
        edit("add", 1, text=third),
        edit("add", 2, text=second),
        edit("keep", 3, 1, experience="G1"),
        edit("delete", 3, experience="G0"),
    ]
    plan, _ = planned(tmp_path, [edits], *each_of_one(first, second, third))
    evidence = [(one.op, one.evidence or {}) for one in plan.operations]
    assert [(op, one.get("problems", [one["problem"]])) for op, one in evidence] == [
        ("ADD", ["p1", "p0"]),
        ("ADD", ["p0"]),
        ("KEEP", ["p2", "p0"]),
        ("DELETE", ["p2"]),
    ]
    assert [one.reason for one in plan.refused] == ["an operation before it does so already"]
