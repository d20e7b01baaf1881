"""What is learned beside comparisons: problems that nothing solved, blame, and examples."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from desk import made as made_desk
from desk import steps
from scripted import ScriptedEndpoint, restless, stage, teachable
from test_controller import EMPTY, GROUP, A, decision, planned, short

from tfgrpo.data.problems import Problem
from tfgrpo.domains.verifier import Verifier
from tfgrpo.rendering.examples import is_example
from tfgrpo.rendering.render import rules_of
from tfgrpo.rollout.attempt import CONFIRMING, Group
from tfgrpo.store import Experience, Library, Operation, Store, derived_id
from tfgrpo.training.confirmation import better_than
from tfgrpo.training.draft import Draft
from tfgrpo.training.exemplars import (
    MOST_TOKENS,
    add_examples,
    are_answers_alone,
    of_other_problems,
    right_examples,
    winning_attempts,
)


def contents(server: ScriptedEndpoint, wanted: str) -> list[str]:
    """Returns what the endpoint was asked in a stage."""
    return [
        "\n".join(str(m["content"]) for m in request["messages"])
        for request in server.requests
        if stage(request) == wanted
    ]


def operands(request: dict[str, Any]) -> tuple[int, int]:
    """Returns the two numbers of the problem that an attempt is asked about."""
    a, b = re.findall(r"What is (\d+) op (\d+)", request["messages"][-1]["content"])[-1]
    return int(a), int(b)


@pytest.mark.parametrize("helps", [True, False])
def test_what_a_problem_teaches_that_nothing_solved_is_tried_on_it_first(
    tmp_path: Path, verifier: Verifier, helps: bool
) -> None:
    text = "When numbers are joined by op, add one more to what you have."

    def script(request: dict[str, Any]) -> str:
        if stage(request) == "rollout":
            a, b = operands(request)
            taught = helps and text in request["messages"][0]["content"]
            return f"\\boxed{{{a + b + taught}}}"
        if stage(request) == "comparison":
            assert "every one was wrong" in request["messages"][0]["content"]
            lessons = [{"reason": "One more.", "text": text}]
            return json.dumps({"wrong_did": "a", "right_takes": "b", "lessons": lessons})
        return "It added the two numbers."

    desk = made_desk(tmp_path, verifier, count=2, batch_size=2, epochs=1, all_wrong=3)
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    (version,) = steps(desk.path, "problems")
    with desk.store() as store:
        library = [e.text for e in store.library()]
        rows = store.runs.rollouts(store.runs.get("problems"))
    tried = [row for row in rows if row.sample >= CONFIRMING]
    assert len(tried) == 4, "two of three that are alike are enough to know"
    if helps:
        assert library == [text]
        assert "failed" not in version.meta
    else:
        assert library == []
        reasons = [failure["reason"] for failure in version.meta["failed"]]
        assert reasons == [f"fewer than 2 of 3 attempts with it are right: {text}"] * 2


@pytest.mark.parametrize("kind", ["right", "truism", "wrong", "known"])
def test_a_lesson_of_a_mixed_group_is_tried_on_its_problem(
    tmp_path: Path, verifier: Verifier, kind: str
) -> None:
    """Of four attempts two are right; of three with the lesson two, one, or none."""
    text = "When numbers are joined by op, add one more to what you have."
    beats = {"right": [0, 1, 1], "truism": [1, 0, 0], "wrong": [0, 0, 0], "known": [0, 0, 0]}
    tries = dict.fromkeys(("with", "without"), 0)

    def script(request: dict[str, Any]) -> str:
        match stage(request):
            case "rollout":
                a, b = operands(request)
                if kind != "known" and text in request["messages"][0]["content"]:
                    right = beats[kind][tries["with"]]
                    tries["with"] += 1
                else:
                    right = tries["without"] % 2
                    tries["without"] += 1
                return f"\\boxed{{{a + b + right}}}"
            case "comparison":
                lessons = [{"reason": "One more.", "text": text}]
                return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
            case "controller":
                return decision(None, "new")
        return "It added the two numbers."

    settings = {"batch_size": 1, "epochs": 1, "group_size": 4, "concurrency": 1}
    desk = made_desk(tmp_path, verifier, count=1, confirm=3, dropout=0.9, **settings)
    if kind == "known":
        with desk.store() as store:
            store.commit("main", [Operation("ADD", derived_id("k"), text)], message="known")
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    (version,) = steps(desk.path, "problems")
    with desk.store() as store:
        library = [e.text for e in store.library()]
        rows = store.runs.rollouts(store.runs.get("problems"))
    tried = [row.reward for row in rows if row.sample >= CONFIRMING]
    expected: dict[str, list[float]] = {"right": [0, 1, 1], "truism": [1, 0, 0], "wrong": [0, 0]}
    assert tried == expected.get(kind, []), "as many as it takes to know"
    if kind in ("right", "known"):
        assert library == [text]
        assert "failed" not in version.meta
    else:
        assert library == []
        reasons = [failure["reason"] for failure in version.meta["failed"]]
        assert reasons == [f"fewer than 2 of 3 attempts with it beat the group's 0.50: {text}"]


@pytest.mark.parametrize(
    ("rewards", "attempts", "right"),
    [
        ([0, 1], 2, 2),
        ([0, 1], 3, 2),
        ([0, 0, 0, 0, 1], 3, 1),
        ([0, 1, 1, 1, 1], 3, 3),
        ([0, 1, 1, 1, 1], 10, 9),
        ([0.2, 0.3, 0.7, 0.8], 3, 2),  # half of them are above the mean
        ([0.2, 0.3, 0.3, 0.9], 3, 1),
    ],
)
def test_a_lesson_has_to_be_right_more_often_than_its_group(
    rewards: list[float], attempts: int, right: int
) -> None:
    wanted = better_than(rewards, attempts)
    assert wanted == (attempts, right, pytest.approx(sum(rewards) / len(rewards)))


def blaming(request: dict[str, Any]) -> str:
    """A comparison that says what experiences did, beside one lesson."""
    match stage(request):
        case "comparison":
            marks = [("G0", "followed"), ("G1", "misleading"), ("G8", "ignored")]
            return json.dumps(
                {
                    "right_did": "a",
                    "wrong_did": "b",
                    "experiences": [{"label": label, "role": role} for label, role in marks],
                    "lessons": [{"reason": "So.", "text": "Add one more at the end."}],
                }
            )
        case "controller":
            said = "misled attempts at its problem: G1." in request["messages"][-1]["content"]
            changed = decision("G1", "contradicts", "Add one more at the end.")
            return changed if said else decision(None, "new")
        case _:
            return restless(request)


def test_a_comparison_says_what_experiences_did(tmp_path: Path, verifier: Verifier) -> None:
    desk = made_desk(
        tmp_path, verifier, count=1, batch_size=1, epochs=1, group_size=6, blame=True, dropout=0.5
    )
    known = [Operation("ADD", derived_id(w), w) for w in ("Join them.", "Add both at the end.")]
    with desk.store() as store:
        store.commit("main", known, message="known")
    with ScriptedEndpoint(blaming) as server:
        desk.train(server)
        (comparison,) = contents(server, "comparison")
        (controller,) = contents(server, "controller")
        (asked,) = [r for r in server.requests if stage(r) == "comparison"]
    assert re.search(r"Right attempt 1: (G|\(none)", comparison)
    assert re.search(r"Wrong attempt 1: (G|\(none)", comparison)
    marks = asked["response_format"]["json_schema"]["schema"]["properties"]["experiences"]
    assert marks["items"]["properties"]["label"]["enum"] == ["G0", "G1"]
    (version,) = steps(desk.path, "problems")
    ids = [operation.experience for operation in known]
    assert version.meta["blame"] == {ids[0]: {"followed": 1}, ids[1]: {"misleading": 1}}
    assert version.meta["failed"][0]["reason"] == "there is no experience G8"
    with desk.store() as store:
        events = list(store.events(version))
    assert [(e.op, e.experience, e.text) for e in events] == [
        ("MODIFY", ids[1], "Add one more at the end."),
        ("KEEP", ids[0], None),
    ]
    assert (events[-1].evidence or {})["blame"] == "followed"
    assert '"refines" or "contradicts"' in controller


def test_a_winning_attempt_becomes_an_example_that_its_own_problem_does_not_see(
    tmp_path: Path, verifier: Verifier
) -> None:
    desk = made_desk(tmp_path, verifier, count=4, batch_size=4, epochs=2, group_size=5, exemplars=1)
    with ScriptedEndpoint(teachable) as server:
        desk.train(server)
        rollouts = contents(server, "rollout")
    first, second = steps(desk.path, "problems")
    with desk.store() as store:
        (event,) = [e for e in store.events(first) if (e.text or "").startswith("Example: ")]
        evidence = event.evidence or {}
        call = store.runs.call(bytes.fromhex(evidence["call"]))
        library = store.library(first)
    assert evidence["kind"] == "example"
    assert call is not None
    question, answer = str(event.text).removeprefix("Example: ").split(" → ")
    assert question in call.request
    assert answer == call.answer["content"]
    assert is_example(library.by_id[event.experience].text)
    seeing = [question not in text.splitlines()[-1] for text in rollouts[20:]]
    assert [f"{question}\n{answer}" in text for text in rollouts[20:]] == seeing
    assert set(seeing) == {True, False}
    assert second.meta["step"] == 1


@pytest.mark.parametrize(
    ("response", "answer", "alone"),
    [
        ("\\boxed{5}", "5", True),
        ("5 hours", "5 hours", True),
        ("\\boxed{7} hours", "7", True),
        ("2 weeks of 5 days: 2 * 5 = 10, so \\boxed{10}", "10", False),
        ("<think>2 weeks of 5 days: 2 * 5 = 10</think>\\boxed{10}", "10", False),
        ("", None, False),
    ],
)
def test_whether_answers_are_given_alone_is_seen(
    response: str, answer: str | None, alone: bool, tmp_path: Path
) -> None:
    rollouts = tuple(
        replace(one, response=response, answer=answer, calls=()) for one in GROUP.rollouts
    )
    with Store.init(tmp_path / "store.db") as store:
        assert are_answers_alone([replace(GROUP, rollouts=rollouts)], store) is alone
        assert not are_answers_alone([], store)
        unread = tuple(replace(one, answer=None) for one in rollouts)
        assert not are_answers_alone([replace(GROUP, rollouts=unread)], store)


def test_right_examples_are_taken_where_answers_are_given_alone(
    tmp_path: Path, verifier: Verifier
) -> None:
    def curt(request: dict[str, Any]) -> str:
        return teachable(request).removeprefix("Thinking. ")

    desk = made_desk(tmp_path, verifier, count=4, batch_size=4, epochs=1, group_size=5, exemplars=3)
    with ScriptedEndpoint(curt) as server:
        desk.train(server)
    (version,) = steps(desk.path, "problems")
    with desk.store() as store:
        examples = [e for e in store.events(version) if is_example(e.text or "")]
    assert len(examples) == 3
    assert all((e.reason or "") == "a right answer" for e in examples)


@pytest.mark.parametrize(("thinking", "number"), [("", 4), ("Thinking. ", 0)])
def test_examples_of_answers_alone_are_added_where_attempts_say_nothing_else(
    tmp_path: Path, verifier: Verifier, thinking: str, number: int
) -> None:
    def script(request: dict[str, Any]) -> str:
        return teachable(request).replace("Thinking. ", thinking)

    sizes = {"count": 4, "batch_size": 4, "epochs": 1, "group_size": 5}
    desk = made_desk(tmp_path, verifier, **sizes, exemplars=32, exemplars_from="answers")
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    (version,) = steps(desk.path, "problems")
    with desk.store() as store:
        examples = [e for e in store.events(version) if is_example(e.text or "")]
    assert [e.reason for e in examples] == ["a right answer"] * number


def test_a_conversation_is_no_example(tmp_path: Path) -> None:
    """It has several turns, and an example has two."""
    turns = (("user", "Hello"), ("assistant", "Yes?"), ("user", "My card is late"))
    talk = replace(GROUP.problem, problem="user: Hello", messages=turns, answer="late")
    group = replace(GROUP, problem=talk)
    assert winning_attempts([group]) == []
    assert right_examples([group], [talk], EMPTY, "") == []
    assert len(right_examples([GROUP], [], EMPTY, "")) == 1


def test_examples_keep_to_the_cap_and_are_no_matter_of_the_controller(tmp_path: Path) -> None:
    won = replace(GROUP.winners[0], response="\\boxed{5}")
    mixed = replace(GROUP, rollouts=(won, *GROUP.rollouts[1:]))
    first = add_examples(winning_attempts([mixed, mixed]), EMPTY, 2, None, {}, ("run", 0))
    assert [o.text for o in first] == [f"Example: {won.problem.problem} → \\boxed{{5}}"]
    assert add_examples(winning_attempts([mixed]), EMPTY, 1, 5, {}, ("run", 0)) == []
    library = Library(EMPTY.version, (Experience(A, str(first[0].text), 1),))
    assert of_other_problems(library, won.problem.problem).readable == ()
    assert of_other_problems(library, "Another?") is library
    assert rules_of(library).readable == ()
    plan, requests = planned(tmp_path, [], "Box it.", library=library)
    assert requests == [], "the library has nothing that a lesson could be the same as"
    assert short(plan.operations) == [("ADD", plan.operations[0].experience, "Box it.")]


def labelled(id: str, answer: str, *responses: tuple[str, float]) -> Group:
    """Makes a group at a problem with a label."""
    problem = Problem(id, f"Message {id}", answer)
    rollouts = [
        replace(GROUP.rollouts[0], problem=problem, sample=n, response=response, reward=reward)
        for n, (response, reward) in enumerate(responses)
    ]
    return Group(problem, tuple(rollouts))


def test_where_answers_are_shared_every_problem_is_an_example_with_its_ground_truth() -> None:
    groups = [
        labelled("m-1", "refund", ("\\boxed{refund}", 1.0), ("\\boxed{refund}", 1.0)),
        labelled("m-2", "fraud", ("\\boxed{refund}", 0.0), ("refund", 0.0)),
        labelled("m-3", "refund", ("\\boxed{fraud}", 0.0), ("refund", 1.0)),
        labelled("m-4", "late", ("I think that this message is about: late", 1.0), ("x", 0.0)),
        labelled("m-5", "", ("\\boxed{fraud}", 0.0)),
    ]
    others = [Problem("m-6", "Message m-6", "late"), Problem("m-7", "Message m-7")]
    chosen = right_examples(groups, others, EMPTY, "")
    assert [one.text for one in chosen] == [
        "Example: Message m-3 → \\boxed{refund}",  # mixed, and the first of its label
        "Example: Message m-4 → \\boxed{late}",
        "Example: Message m-2 → \\boxed{fraud}",  # nothing solved it
        "Example: Message m-6 → \\boxed{late}",  # the second of its label, and not attempted
        "Example: Message m-1 → \\boxed{refund}",  # every attempt solved it
    ]
    assert "rollouts" not in chosen[3].evidence
    added = add_examples(chosen, EMPTY, 3, None, {"run": "r"}, ("run", 0))
    assert [o.text for o in added] == [one.text for one in chosen[:3]]
    assert added[2].evidence == {
        "run": "r",
        "kind": "example",
        "problem": "m-2",
        "rollouts": [[0, 0.0], [1, 0.0]],
    }
    library = Library(EMPTY.version, (Experience(A, str(added[0].text), 1),))
    left = [one.text for one in right_examples(groups[:3], [], library, "")]
    assert left == [  # a refund is there already, so fraud comes first
        "Example: Message m-2 → \\boxed{fraud}",
        "Example: Message m-1 → \\boxed{refund}",
    ]
    unsolved = right_examples(groups[1:2], [], EMPTY, "")
    assert [one.text for one in unsolved] == ["Example: Message m-2 → fraud"]


@pytest.mark.parametrize(
    ("objective", "text"),
    [
        ("Answer in \\boxed{}.", "\\boxed{refund}"),
        ("Think, then write `Label: NAME`.", "Label: refund"),
        ("Box it: \\boxed{}. But at the end of all write `Label: NAME`.", "Label: refund"),
        ("Say which.", "The label: refund"),
    ],
)
def test_an_example_gives_its_answer_as_the_task_asks_for_it(objective: str, text: str) -> None:
    attempts = [("They want money.\n\nThe label: refund", 1.0)] * 2 + [("refund", 1.0)]
    (example,) = right_examples([labelled("m-1", "refund", *attempts)], [], EMPTY, objective)
    assert example.text == f"Example: Message m-1 → {text}"


def test_examples_stop_where_a_library_grows_long_without_a_cap(tmp_path: Path) -> None:
    groups = [labelled(f"m-{n}", "refund", ("\\boxed{fraud}", 0.0)) for n in range(400)]
    long = [replace_problem(group, " ".join(["message"] * 60)) for group in groups]
    added = add_examples(right_examples(long, [], EMPTY, ""), EMPTY, 100, None, {}, ("run", 0))
    tokens = Draft(EMPTY).after(added).tokens
    assert MOST_TOKENS - 80 < tokens <= MOST_TOKENS
    assert (
        len(add_examples(right_examples(long, [], EMPTY, ""), EMPTY, 100, 9000, {}, ("r", 0)))
        == 100
    )


def replace_problem(group: Group, words: str) -> Group:
    """Returns a group at a longer problem."""
    problem = replace(group.problem, problem=f"{group.problem.problem} {words}")
    return Group(problem, group.rollouts)
