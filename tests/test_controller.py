"""The controller: what becomes of each lesson, and that nothing unclear becomes an experience."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Reply, ScriptedEndpoint, opened_calls
from test_reflection import group, reflection

from tfgrpo.rollout.attempt import Group
from tfgrpo.store import (
    ROOT,
    Experience,
    Library,
    Operation,
    Store,
    derived_id,
)
from tfgrpo.training.controller import BatchPlan, Controller
from tfgrpo.training.lookahead import LessonStream
from tfgrpo.training.reflection import Lesson, StepOrigin

GROUP = group(1.0, None, 0.0)
A, B = derived_id("a"), derived_id("b")
KNOWN = Library(ROOT, (Experience(A, "Carry the ten.", 1), Experience(B, "Check the sign.", 2)))
EMPTY = Library(ROOT, ())

Script = Callable[[dict[str, Any]], str | Reply]


def lesson(text: str, reason: str = "It helped.", found: Group = GROUP) -> Lesson:
    return Lesson(text, reason, found, ("c" * 64,))


def decision(closest: str | None, kind: str, text: str = "") -> str:
    return json.dumps({"closest": closest, "decision": kind, "text": text})


def planned(
    folder: Path,
    answers: list[str] | Script,
    *texts: str | Lesson,
    library: Library = KNOWN,
    uid: str = "run",
    step: int = 3,
    ahead: int = 1,
    **more: Any,
) -> tuple[BatchPlan, list[dict[str, Any]]]:
    """Plans lessons against a server that gives `answers` in order; returns plan and requests."""

    def next_answer(_: dict[str, Any]) -> str | Reply:
        assert isinstance(answers, list)
        return answers[len(server.requests) - 1]

    script = next_answer if isinstance(answers, list) else answers
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:

        async def run() -> BatchPlan:
            try:
                return await Controller(calls, reflection(**more), ahead=ahead).plan(
                    [text if isinstance(text, Lesson) else lesson(text) for text in texts],
                    library,
                    StepOrigin(uid, step, {"run": "r", "step": step}),
                )
            finally:
                await calls.endpoint.close()

        return asyncio.run(run()), server.requests


def short(operations: tuple[Operation, ...]) -> list[tuple[Any, ...]]:
    return [operation[:3] for operation in operations]


FRESH = derived_id("run", 3, 0)

DECISIONS = [
    (decision("G0", "new", "Add one."), ("ADD", FRESH, "Round down.")),
    (decision(None, "new"), ("ADD", FRESH, "Round down.")),
    (decision("G1", "same"), ("KEEP", B, None)),
    (decision("G1", "same", "Other words."), ("KEEP", B, None)),
    (decision("G0", "refines", "Carry every ten."), ("MODIFY", A, "Carry every ten.")),
    (decision("G0", "contradicts", "Never carry."), ("MODIFY", A, "Never carry.")),
    (decision("G0", "contradicts"), ("DELETE", A, None)),
    (decision("G0", "refines"), ("KEEP", A, None)),
    (decision(None, "new", "carry  THE ten"), ("ADD", FRESH, "Round down.")),
    (decision("G0", "refines", "Carry the ten."), ("KEEP", A, None)),
    (decision("G0", "refines", "carry the TEN"), ("KEEP", A, None)),
    (decision("G0", "refines", "Check the sign."), ("KEEP", B, None)),
]


@pytest.mark.parametrize(("answer", "expected"), DECISIONS)
def test_a_decision_stands_for_one_operation(
    tmp_path: Path, answer: str, expected: tuple[str, str, str | None]
) -> None:
    found, requests = planned(tmp_path, [answer], "Round down.")
    assert short(found.operations) == [expected]
    assert (found.refused, found.repaired, len(requests)) == ((), 0, 1)


ORDER = Library(ROOT, (Experience(A, "Name the order by its number.", 1),))


def test_the_controller_sees_the_lesson_beside_the_labelled_library(tmp_path: Path) -> None:
    _, (request,) = planned(tmp_path, [decision("G0", "same")], "Round down.")
    text = request["messages"][-1]["content"]
    assert "[G0] Carry the ten.\n[G1] Check the sign." in text
    assert "New lesson: Round down." in text
    schema = request["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["closest"]["enum"] == ["G0", "G1", None]


def test_what_is_there_word_for_word_is_kept_without_asking(tmp_path: Path) -> None:
    found, requests = planned(tmp_path, [], "carry the  ten", "Check the sign.")
    assert short(found.operations) == [("KEEP", A, None), ("KEEP", B, None)]
    assert requests == []


def test_the_first_lesson_of_an_empty_library_is_added_without_asking(tmp_path: Path) -> None:
    found, requests = planned(tmp_path, [], "Round down.", "Round down.", library=EMPTY)
    assert short(found.operations) == [("ADD", FRESH, "Round down."), ("KEEP", FRESH, None)]
    assert requests == []


@pytest.mark.parametrize("kind", ["same", "refines", "contradicts"])
@pytest.mark.parametrize("label", ["G2", "G99", "g0", "Carry the ten.", "", None])
def test_an_unknown_label_goes_back_once_and_is_then_refused_never_an_add(
    tmp_path: Path, label: str | None, kind: str
) -> None:
    bad = decision(label, kind, "Better text.")
    found, requests = planned(tmp_path, [bad, bad], "Round down.")
    assert found.operations == ()
    (refusal,) = found.refused
    assert (refusal.text, refusal.problem) == ("Round down.", "p1")
    assert "there is no experience" in refusal.reason
    assert len(requests) == 2
    assert "closest is one of ['G0', 'G1']" in requests[1]["messages"][-1]["content"]


def test_a_label_mended_at_the_second_turn_counts(tmp_path: Path) -> None:
    answers = [decision("G7", "same"), decision("G1", "same")]
    found, _ = planned(tmp_path, answers, "Round down.")
    assert short(found.operations) == [("KEEP", B, None)]
    assert found.refused == ()


LONG = "one two three four five six"


@pytest.mark.parametrize(
    ("kind", "label", "text", "operation"),
    [
        ("refines", "G0", LONG, ("ADD", FRESH, "Check the sign twice.")),
        ("contradicts", "G1", LONG, ("MODIFY", B, "Check the sign twice.")),
        ("contradicts", "G1", "So GOLD-777 it is.", ("MODIFY", B, "Check the sign twice.")),
    ],
)
def test_a_text_that_cannot_be_used_goes_back_and_the_lesson_then_counts_as_it_is(
    tmp_path: Path, kind: str, label: str, text: str, operation: tuple[Any, ...]
) -> None:
    """A right lesson is not lost because the controller words it badly."""
    bad = decision(label, kind, text)
    found, requests = planned(tmp_path, [bad, bad], "Check the sign twice.", max_words=5)
    assert short(found.operations) == [operation]
    assert (found.refused, len(requests)) == ((), 2)
    wrong = {LONG: "5 words are the most"}
    assert wrong.get(text, "gives away") in requests[1]["messages"][-1]["content"]


def test_too_many_words_of_a_lesson_too_long_itself_are_refused(tmp_path: Path) -> None:
    long = decision("G0", "refines", LONG)
    found, requests = planned(tmp_path, [long, long], f"{LONG} seven", max_words=5)
    assert found.operations == ()
    assert "5 words are the most" in found.refused[0].reason
    assert len(requests) == 2


STEP = "When weeks are given and working days asked for, multiply the weeks by 5."


def test_a_lesson_too_long_is_asked_about_even_in_an_empty_library(tmp_path: Path) -> None:
    answers = [decision(None, "new", ""), decision(None, "new", "one two three")]
    found, requests = planned(tmp_path, answers, LONG, library=EMPTY, max_words=5)
    assert short(found.operations) == [("ADD", FRESH, "one two three")]
    assert len(requests) == 2
    schema = requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["decision"]["enum"] == ["new"], "there is nothing to refine"


PIN = "When a PIN is asked for, the label is GOLD-777, not card_linking."


def labelled(*texts: str) -> Library:
    ids = (A, B)
    return Library(ROOT, tuple(Experience(ids[n], text, n + 1) for n, text in enumerate(texts)))


@pytest.mark.parametrize(
    "bad",
    [
        "I cannot decide.",
        '{"closest": "G0", "decision": "merge", "text": "x"}',
        '{"closest": 5, "decision": "same"}',
        Reply({"error": {"message": "not allowed"}}, status=400),
    ],
    ids=["prose", "unknown decision", "label a number", "refused by the server"],
)
def test_one_bad_answer_costs_its_own_lesson_and_not_its_neighbours(
    tmp_path: Path, bad: str | Reply
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        asked = request["messages"][1]["content"]
        return bad if "Bad lesson." in asked else decision(None, "new")

    found, _ = planned(tmp_path, script, "Good one.", "Bad lesson.", "Good two.")
    assert short(found.operations) == [
        ("ADD", derived_id("run", 3, 0), "Good one."),
        ("ADD", derived_id("run", 3, 2), "Good two."),
    ]
    assert [refusal.text for refusal in found.refused] == ["Bad lesson."]


def test_a_decision_sees_what_was_decided_before_it_in_the_batch(tmp_path: Path) -> None:
    answers = [
        decision(None, "new", "Add one."),
        decision("G2", "refines", "Add one more."),
        decision("G0", "contradicts"),
        decision("G1", "same"),
    ]
    found, requests = planned(tmp_path, answers, "alpha", "beta", "gamma", "delta")
    assert short(found.operations) == [
        ("ADD", FRESH, "alpha"),
        ("MODIFY", FRESH, "Add one more."),
        ("DELETE", A, None),
        ("KEEP", FRESH, None),
    ]
    shown = [request["messages"][-1]["content"] for request in requests]
    assert "[G2] alpha\n" in shown[1]
    assert "[G2] Add one more.\n" in shown[2]
    assert "[G0] Check the sign.\n[G1] Add one more.\n" in shown[3]


def test_ids_follow_from_the_runs_uid_the_step_and_the_lessons_number(tmp_path: Path) -> None:
    def script(_: dict[str, Any]) -> str:
        return decision(None, "new")

    found = {}
    for uid, step in (("one", 1), ("one", 2), ("two", 1)):
        folder = tmp_path / f"{uid}{step}"
        folder.mkdir()
        plan_, _ = planned(folder, script, "First.", "Second.", uid=uid, step=step)
        found[uid, step] = [operation.experience for operation in plan_.operations]
        assert found[uid, step] == [derived_id(uid, step, 0), derived_id(uid, step, 1)]
    assert len({id for ids in found.values() for id in ids}) == 6


def test_an_operation_carries_its_reason_and_who_taught_it(tmp_path: Path) -> None:
    found, _ = planned(tmp_path, [decision("G0", "same")], "Round down.", "Check the sign.")
    asked, known = found.operations
    assert asked.reason == "It helped."
    assert asked.evidence is not None
    assert known.evidence is not None
    assert asked.evidence["run"] == "r"
    assert asked.evidence["step"] == 3
    assert asked.evidence["problem"] == "p1"
    assert asked.evidence["rollouts"] == [[0, 1.0], [1, None], [2, 0.0]]
    assert len(asked.evidence["calls"]) == 2
    assert known.evidence["calls"] == ["c" * 16] == asked.evidence["calls"][:1]


def test_repaired_decisions_are_counted(tmp_path: Path) -> None:
    broken = decision("G0", "same")[:-1]
    found, _ = planned(tmp_path, [broken, broken], "Round down.")
    assert short(found.operations) == [("KEEP", A, None)]
    assert found.repaired == 1


decisions = st.builds(
    decision,
    st.sampled_from([None, "G0", "G1", "G2", "G3", "G9"]),
    st.sampled_from(["new", "same", "refines", "contradicts"]),
    st.sampled_from(["", "a", "b", "c", "Carry the ten.", "x y z w v u t"]),
)


@given(st.lists(decisions, max_size=12), st.lists(st.sampled_from("abcdef"), max_size=6))
@settings(max_examples=10, deadline=None)
def test_any_plan_can_be_committed_and_leaves_no_text_twice(
    tmp_path_factory: pytest.TempPathFactory, answers: list[str], lessons: list[str]
) -> None:
    answers = answers * 12 or [decision("G0", "same")] * 12
    folder = tmp_path_factory.mktemp("plan")
    found, _ = planned(folder, answers, *lessons, max_words=5)
    assert len(found.operations) + len(found.refused) == len(lessons)
    with Store.init(folder / "other.db") as store:
        store.commit("main", [Operation("ADD", e.id, e.text) for e in KNOWN], message="known")
        store.commit("main", found.operations, message="plan")
        texts = [e.text.casefold() for e in store.library()]
    assert len(texts) == len(set(texts))


TOPICS = ("units", "signs", "rounding", "carrying")


def by_topic(request: dict[str, Any]) -> str:
    """A controller to whom advice about one topic is the same, and longer advice a refinement."""
    user = request["messages"][-1]["content"]
    listed = dict(re.findall(r"^\[(G\d+)\] (.+)$", user, re.MULTILINE))
    new = re.search(r"New lesson: (.+)", user)[1]  # type: ignore[index]
    for label, text in listed.items():
        if text.split()[1] == new.split()[1]:
            longer = len(new) > len(text) + 4
            return decision(label, "refines" if longer else "same", new if longer else "")
    return decision(None, "new", new)


@settings(max_examples=8, deadline=None)
@given(
    topics=st.lists(st.tuples(st.sampled_from(TOPICS), st.integers(0, 30)), max_size=16),
    ahead=st.sampled_from([2, 3, 8]),
)
def test_lessons_asked_about_ahead_of_their_turn_come_to_the_same(
    topics: list[tuple[str, int]], ahead: int
) -> None:
    texts = [
        f"Mind {topic} {'x' * length}{chr(97 + n)}ly." for n, (topic, length) in enumerate(topics)
    ]
    plans, requests = [], []
    for width in (1, ahead, ahead):
        with tempfile.TemporaryDirectory() as folder:
            plan, asked = planned(Path(folder), by_topic, *texts, library=EMPTY, ahead=width)
            plans.append([(o.op, o.experience, o.text) for o in plan.operations])
            requests.append(sorted(json.dumps(one, sort_keys=True) for one in asked))
    assert plans[0] == plans[1] == plans[2]
    assert requests[1] == requests[2], "what is asked follows from the answers"


def test_what_was_proposed_beside_another_library_is_asked_again_unless_it_is_the_same(
    tmp_path: Path,
) -> None:
    texts = [
        "Mind signs aly.",
        "Mind units aly.",
        "Mind units bly.",
        "Mind signs bly.",
    ]
    plan, asked = planned(tmp_path, by_topic, *texts, library=EMPTY, ahead=8)
    assert [o.op for o in plan.operations] == ["ADD", "ADD", "KEEP", "KEEP"]
    lessons = [re.search(r"New lesson: (.+)", r["messages"][-1]["content"])[1] for r in asked]  # type: ignore[index]
    assert sorted(lessons) == [
        "Mind signs bly.",
        *["Mind units aly."],
        *["Mind units bly."] * 2,
    ]


def test_no_lesson_is_asked_about_more_than_three_times(tmp_path: Path) -> None:
    def contrary(request: dict[str, Any]) -> str:
        """Every lesson is new, whatever is there: nothing that was asked early stands."""
        return decision(None, "new")

    texts = [f"Mind thing {'x' * n}ly." for n in range(1, 21)]
    plan, asked = planned(tmp_path, contrary, *texts, library=KNOWN, ahead=16)
    assert [o.text for o in plan.operations] == texts
    times = Counter(
        re.search(r"New lesson: (.+)", r["messages"][-1]["content"])[1]  # type: ignore[index]
        for r in asked
    )
    assert max(times.values()) <= 3
    last = {
        re.search(r"New lesson: (.+)", r["messages"][-1]["content"])[1]: r  # type: ignore[index]
        for r in asked
    }
    for before, after in pairwise(texts):  # each was decided beside all that had entered by then
        assert f"] {before}" in last[after]["messages"][-1]["content"]


def test_lessons_that_come_one_by_one_are_decided_as_they_come(tmp_path: Path) -> None:
    texts = ["Mind signs aly.", "Mind units aly.", "Mind signs bly.", "Mind units bly."]
    stream = LessonStream()

    with ScriptedEndpoint(by_topic) as server, opened_calls(tmp_path, server.base_url) as calls:

        async def run() -> BatchPlan:
            controller = Controller(calls, reflection(), ahead=2)
            origin = StepOrigin("run", 3, {})
            deciding = asyncio.create_task(controller.plan(stream, EMPTY, origin))
            for text in texts:
                stream.add([lesson(text)])
                await asyncio.sleep(0)
            stream.close()
            try:
                return await deciding
            finally:
                await calls.endpoint.close()

        plan = asyncio.run(run())
    assert [o.op for o in plan.operations] == ["ADD", "ADD", "KEEP", "KEEP"]


STEP = "When days are given and hours asked for, multiply the days by 8."
OTHER_WORDS = {
    "When a printer is used for days, multiply the number of days by 8 for the hours.": True,
    "For the hours of a joiner, multiply the days by 8.": True,
    "For the hours of a joiner, multiply the days by 8 and add 2.": False,
    "For the hours of a joiner, multiply the days by 8, not by 24.": False,
    "For the hours of a joiner, never multiply the days by 8.": False,
    "For the hours of a joiner, multiply the days by 7.": False,
    "For the hours of a joiner, multiply the days by eight.": False,
    "For the hours of a joiner, multiply the weeks by 8.": False,
    "For the euros of a joiner, multiply the days by 8.": False,
}
