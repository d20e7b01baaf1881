"""Semantic advantage: which groups are compared, what the model is shown, what is on record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import LESSON, Reply, ScriptedEndpoint, opened_calls, stage, teachable

from tfgrpo.data.problems import Problem
from tfgrpo.learn.reflection import Advantage, Reflection, compare, verdict_words
from tfgrpo.rendering import prompt_templates
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store import ROOT, Experience, Library, derived_id

PROBLEM = Problem("p1", "What is 2 op 3?", "GOLD-777")
KNOWN = Library(ROOT, (Experience(derived_id(1), "Carry the ten.", 1),))

Script = Callable[[dict[str, Any]], str | Reply]


def rollout(sample: int, reward: float | None, answer: str | None = "5") -> Rollout:
    outcome = "unverifiable" if reward is None else "answered"
    return Rollout(
        PROBLEM, sample, f"Attempt {sample}.", outcome, reward, answer, "", (f"{sample}",)
    )


def group(*rewards: float | None) -> Group:
    return Group(PROBLEM, tuple(rollout(n, reward) for n, reward in enumerate(rewards)))


def reflection(**more: Any) -> Reflection:
    return Reflection(
        prompt_templates.load("summary"),
        prompt_templates.load("comparison"),
        prompt_templates.load("lesson"),
        prompt_templates.load("plan"),
        agent_objective="Solve it.",
        learning_objective="Rules that help.",
        **more,
    )


def compared(
    folder: Path, found: Group, script: Script = teachable, **more: Any
) -> tuple[Advantage, ScriptedEndpoint]:
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:

        async def run() -> Advantage:
            try:
                return await compare(calls, reflection(**more), found, KNOWN, step=4)
            finally:
                await calls.endpoint.close()

        return asyncio.run(run()), server


def said(server: ScriptedEndpoint, name: str) -> list[str]:
    """Returns the whole text of the requests of a stage."""
    return [
        "\n".join(message["content"] for message in request["messages"])
        for request in server.requests
        if stage(request) == name
    ]


@pytest.mark.parametrize(
    ("rewards", "mixed"),
    [
        ((1.0, 0.0), True),
        ((1.0, 1.0), False),
        ((0.0, 0.0), False),
        ((1.0, None), False),
        ((0.0, None), False),
        ((None, None), False),
        ((), False),
        ((1.0, None, 0.0), True),
        ((0.5, 0.5), False),
        ((0.4, 0.5), True),
        ((0.1, 0.1, 0.1), False),
        ((0.7,) * 6, False),
    ],
)
def test_only_a_group_with_better_and_worse_attempts_is_mixed(
    rewards: tuple[float | None, ...], mixed: bool
) -> None:
    found = group(*rewards)
    assert found.mixed is mixed
    assert bool(found.losers) is mixed
    assert not set(found.winners) & set(found.losers)


def test_attempts_without_a_reward_are_neither_winners_nor_losers_nor_summarised(
    tmp_path: Path,
) -> None:
    found = group(1.0, None, 0.0)
    assert [r.sample for r in found.winners] == [0]
    assert [r.sample for r in found.losers] == [2]
    assert found.rewards == (1.0, 0.0)
    _, server = compared(tmp_path, found)
    assert server.stages == {"summary": 2, "comparison": 1}
    assert not any("Attempt 1." in text for text in said(server, "summary"))


def test_each_attempt_is_summarised_with_its_verdict(tmp_path: Path) -> None:
    _, server = compared(tmp_path, group(1.0, 0.0, 0.0))
    texts = said(server, "summary")
    verdicts = {n: next(t for t in texts if f"Attempt {n}." in t) for n in range(3)}
    assert "Verdict: right" in verdicts[0]
    assert "Verdict: wrong" in verdicts[1]
    assert all(PROBLEM.problem in text for text in texts)
    assert not any(PROBLEM.answer in text for text in texts)


@pytest.mark.parametrize(
    ("reward", "words"), [(1.0, "right"), (0.0, "wrong"), (0.25, "25 % right")]
)
def test_a_reward_is_told_in_words(reward: float, words: str) -> None:
    assert verdict_words(rollout(0, reward)) == words


def test_the_comparison_sees_problem_library_summaries_verdicts_and_ground_truth(
    tmp_path: Path,
) -> None:
    def script(request: dict[str, Any]) -> str:
        if stage(request) == "summary":
            number = request["messages"][-1]["content"].split("Attempt ")[1][0]
            return f"Summary of {number}."
        return teachable(request)

    found = Group(PROBLEM, (rollout(0, 0.0, None), rollout(1, 1.0, "6"), rollout(2, 0.0, "5")))
    comparison, server = compared(tmp_path, found, script)
    text = said(server, "comparison")[0].rpartition("Known already:")[2]  # after the worked example
    assert "[G0] Carry the ten." in text
    assert PROBLEM.problem in text
    assert PROBLEM.answer in text
    wrong, right = text.split("Right attempts:")
    assert "1. (right, answer 6) Summary of 1." in right
    assert "1. (wrong, no answer) Summary of 0." in wrong
    assert "2. (wrong, answer 5) Summary of 2." in wrong
    (lesson,) = comparison.lessons
    assert (lesson.text, lesson.reason) == (LESSON, "The right answer is one more.")
    assert lesson.group is found
    assert comparison.failures == ()


def test_without_ground_truth_the_right_answer_is_in_no_request(tmp_path: Path) -> None:
    comparison, server = compared(tmp_path, group(1.0, 0.0), ground_truth=False)
    assert comparison.lessons
    assert PROBLEM.answer not in json.dumps(server.requests)


def test_a_failed_summary_is_on_record_and_the_others_are_compared(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "summary" and "Attempt 1." in request["messages"][-1]["content"]:
            return Reply({"error": {"message": "not allowed"}}, status=400)
        return teachable(request)

    comparison, server = compared(tmp_path, group(1.0, 0.0, 0.0), script)
    (failure,) = comparison.failures
    assert (failure.stage, failure.problem) == ("summary", "p1")
    assert "not allowed" in failure.reason
    assert comparison.lessons
    assert said(server, "comparison")[0].rpartition("Known already:")[2].count("(wrong,") == 1


def test_a_group_whose_winners_could_not_be_summarised_is_not_compared(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) == "summary" and "Attempt 0." in request["messages"][-1]["content"]:
            return Reply({"error": {"message": "not allowed"}}, status=400)
        return teachable(request)

    comparison, server = compared(tmp_path, group(1.0, 0.0), script)
    assert (comparison.lessons, len(comparison.failures)) == ((), 1)
    assert server.stages["comparison"] == 0


def test_an_unreadable_comparison_is_asked_again_and_then_on_record(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str:
        return "I am not sure." if stage(request) == "comparison" else teachable(request)

    comparison, server = compared(tmp_path, group(1.0, 0.0), script)
    (failure,) = comparison.failures
    assert (failure.stage, failure.problem) == ("comparison", "p1")
    assert comparison.lessons == ()
    assert server.stages["comparison"] == 2


def test_a_repaired_comparison_says_so(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str:
        answer = teachable(request)
        return answer[:-1] if stage(request) == "comparison" else answer

    comparison, _ = compared(tmp_path, group(1.0, 0.0), script)
    assert comparison.repaired
    assert [lesson.text for lesson in comparison.lessons] == [LESSON]


def test_a_lesson_is_one_line_and_blank_ones_are_none(tmp_path: Path) -> None:
    lessons = [{"reason": " r ", "text": "When  a,\n\nthen b. "}, {"reason": "", "text": " \n"}]

    def script(request: dict[str, Any]) -> str:
        return json.dumps({"lessons": lessons}) if stage(request) == "comparison" else "s"

    comparison, _ = compared(tmp_path, group(1.0, 0.0), script)
    assert [(x.text, x.reason) for x in comparison.lessons] == [("When a, then b.", "r")]


def test_a_comparison_without_lessons_teaches_nothing_and_is_no_failure(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str:
        return '{"lessons": []}' if stage(request) == "comparison" else "s"

    comparison, _ = compared(tmp_path, group(1.0, 0.0), script)
    assert (comparison.lessons, comparison.failures) == ((), ())


def test_lessons_beyond_two_are_left_out_on_record(tmp_path: Path) -> None:
    texts = ["Add one.", " ", "Add two.", "Add three."]

    def script(request: dict[str, Any]) -> str:
        if stage(request) != "comparison":
            return teachable(request)
        return json.dumps({"lessons": [{"reason": "r", "text": text} for text in texts]})

    found, _ = compared(tmp_path, group(1.0, 0.0), script)
    assert [lesson.text for lesson in found.lessons] == ["Add one.", "Add two."]
    (failure,) = found.failures
    assert (failure.stage, failure.reason) == ("comparison", "more than 2 lessons: Add three.")


def test_a_long_answer_is_shown_by_its_beginning(tmp_path: Path) -> None:
    found = Group(PROBLEM, (rollout(0, 1.0, "7" * 5000), rollout(1, 0.0)))
    _, server = compared(tmp_path, found)
    (text,) = said(server, "comparison")
    assert "7" * 280 in text
    assert "7" * 301 not in text
