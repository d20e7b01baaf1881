"""What a group is shown beside, how often it is asked about, and what comes of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted import ScriptedEndpoint, opened_calls

from tfgrpo.data.problems import Problem
from tfgrpo.learn.propose import ASKINGS, NEAR, Rule, askings, nearest, propose, teaches
from tfgrpo.learn.reflection import Advantage, Manner, Reflection
from tfgrpo.rendering import prompt_templates
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Library

RULE = "When a thing takes days, multiply them by 8."


def days(number: int) -> Problem:
    return Problem(f"d{number}", f"It takes {number} days. How many hours?", str(8 * number))


def group(problem: Problem, *attempts: tuple[str, float | None]) -> Group:
    return Group(
        problem,
        tuple(
            Rollout(problem, n, text, "answered", reward, text.split()[-1], "")
            for n, (text, reward) in enumerate(attempts)
        ),
    )


def reflection(**more: Any) -> Reflection:
    names = ("summary", "comparison", "lesson", "plan")
    return Reflection(
        *map(prompt_templates.load, names),
        agent_objective="Solve it.",
        learning_objective="Rules that help.",
        manner=Manner(0.8, 1000),
        **more,
    )


def proposed(
    folder: Path,
    found: Group,
    near: list[Group],
    times: int,
    text: str = RULE,
    *,
    when: str = "",
    **more: Any,
) -> tuple[Advantage | None, ScriptedEndpoint]:
    def script(request: dict[str, Any]) -> str:
        return json.dumps({"when": when, "do": text})

    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:

        async def run() -> Advantage | None:
            parts: Any = SimpleNamespace(reflector=calls, reflection=reflection(**more))
            try:
                return await propose(parts, found, near, Library(0, ()), (2, times))
            finally:
                await calls.endpoint.close()

        return asyncio.run(run()), server


MIXED = group(days(3), ("3 * 24 = 72", 0.0), ("3 * 8 = 24", 1.0), ("3 * 24 = 72", 0.0))
BESIDE = group(days(5), ("5 * 24 = 120", 0.0), ("5 * 8 = 40", 1.0))


def test_a_group_is_shown_beside_others_with_their_right_answers(tmp_path: Path) -> None:
    advantage, server = proposed(tmp_path, MIXED, [BESIDE], 1)
    assert advantage is not None
    assert [one.text for one in advantage.lessons] == [RULE]
    shown = server.requests[0]["messages"][-1]["content"]
    assert shown.index("It takes 5 days") < shown.index("Right answer: 40")
    assert shown.index("Right answer: 40") < shown.index("It takes 3 days")
    assert "5 * 8 = 40" in shown
    assert "5 * 24" not in shown
    assert shown.count("3 * 24 = 72") == 1
    assert shown.count("3 * 8 = 24") == 1


def test_beside_stands_the_best_attempt_where_none_is_right(tmp_path: Path) -> None:
    letters = group(Problem("l", "Write to Ann."), ("Hi Ann", 0.25), ("Dear Ann", 0.75))
    beside = group(Problem("m", "Write to Bo."), ("Hey", 0.0), ("Hi Bo", 0.25), ("Dear Bo", 0.75))
    _, server = proposed(tmp_path, letters, [beside], 1)
    shown = server.requests[0]["messages"][-1]["content"]
    assert "(75 % right, answer Bo) Dear Bo" in shown
    assert "Hi Bo" not in shown
    assert shown.count("Right answer: (not given)") == 1


def test_each_asking_is_a_call_and_a_lesson_of_its_own(tmp_path: Path) -> None:
    advantage, server = proposed(tmp_path, MIXED, [BESIDE], 3)
    assert advantage is not None
    assert len(advantage.lessons) == len(server.requests) == 3
    assert len({one.calls for one in advantage.lessons}) == 3
    assert len({request["seed"] for request in server.requests}) == 3


@pytest.mark.parametrize(
    ("rewards", "ground_truth", "is_taught"),
    [
        ((0.0, 1.0), True, True),
        ((0.0, 0.0), True, True),
        ((0.5, 0.5), True, True),  # half right: a part of the answer was missed by all
        ((1.0, 1.0), True, False),
        ((None, None), True, False),
        ((0.0, 1.0), False, True),
        ((0.5, 0.5), False, False),
    ],
)
def test_a_group_teaches_where_something_is_wrong_that_can_be_told(
    rewards: tuple[float | None, ...], ground_truth: bool, is_taught: bool
) -> None:
    found = group(days(3), *((f"say {n}", reward) for n, reward in enumerate(rewards)))
    assert teaches(found, reflection(ground_truth=ground_truth)) is is_taught


def test_a_group_that_all_missed_is_asked_about(tmp_path: Path) -> None:
    missed = group(days(3), ("3 * 24 = 72", 0.0), ("3 * 12 = 36", 0.0))
    advantage, server = proposed(tmp_path, missed, [], 1)
    assert advantage is not None
    assert len(advantage.lessons) == 1
    shown = server.requests[0]["messages"][-1]["content"]
    assert "72" in shown
    assert "36" in shown


def test_the_right_answer_is_in_no_request_without_ground_truth(tmp_path: Path) -> None:
    found = group(days(7), ("seven times eight", 1.0), ("no idea", 0.0))
    beside = group(days(9), ("nine times eight", 1.0), ("none", 0.0))
    advantage, server = proposed(tmp_path, found, [beside], 1, ground_truth=False)
    assert advantage is not None
    assert "56" not in json.dumps(server.requests)
    assert "72" not in json.dumps(server.requests)


def test_a_lesson_that_holds_the_answer_of_a_group_beside_is_refused(tmp_path: Path) -> None:
    one = Problem("a", "Who wrote the first letter?", "Marie Antoinette")
    other = Problem("b", "Who wrote the second letter?", "Johanna Schopenhauer")
    found, beside = group(one, ("it was X", 0.0)), group(other, ("it was Y", 0.0))
    advantage, _ = proposed(tmp_path, found, [beside], 1, "Letters are by Johanna Schopenhauer.")
    assert advantage is not None
    assert not advantage.lessons
    assert "gives away" in advantage.failures[0].reason


def test_the_nearest_are_those_that_are_worded_alike() -> None:
    weeks = [Problem(f"w{n}", f"He works for {n} weeks. Which days?", str(5 * n)) for n in (2, 3)]
    batch = [days(3), weeks[0], days(5), weeks[1], days(9)]
    found = nearest(batch, shared_answers=False)
    assert {batch[n].id for n in found[0][:2]} == {"d5", "d9"}
    assert batch[found[1][0]].id == "w3"
    assert all(len(places) == NEAR and n not in places for n, places in enumerate(found))


def test_where_answers_are_shared_half_have_the_same() -> None:
    labels = ("yes", "no")
    batch = [Problem(f"p{n}", f"Note {n} of the day", labels[n % 2]) for n in range(8)]
    for place, places in enumerate(nearest(batch, shared_answers=True)):
        answers = [batch[n].answer for n in places]
        assert answers.count(batch[place].answer) == 2
        assert len(answers) == NEAR


def test_a_batch_of_one_has_none_beside() -> None:
    assert nearest([days(1)], shared_answers=False) == [[]]


def test_no_more_is_asked_than_there_are_places_for() -> None:
    assert askings(24, 8) == ASKINGS
    assert askings(2, 8) == 1
    assert askings(0, 8) == 0
    assert askings(24, 100) == 1


@pytest.mark.parametrize(
    ("when", "do", "text"),
    [
        (
            "when weeks are counted.",
            "multiply them by 5",
            "when weeks are counted: multiply them by 5",
        ),
        ("租车时：", "每天另加10元。", "租车时: 每天另加10元。"),
        ("", "Write a number alone.", "Write a number alone."),
        ("Immer, wenn es regnet …", "Schirm\nnehmen", "Immer, wenn es regnet: Schirm nehmen"),
        ("when nothing is known", " ", ""),
    ],
)
def test_a_rule_is_when_and_do_in_one_line(when: str, do: str, text: str) -> None:
    assert Rule(when=when, do=do).text == text
