"""The web domain: answers judged against a ground truth, lessons reconciled with the library."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, steps
from desk import made as made_desk
from scripted import LESSON, Reply, ScriptedEndpoint, comparison_of, opened_calls, teachable

from tfgrpo import domains
from tfgrpo.data import datasets
from tfgrpo.data.problems import Problem
from tfgrpo.domains import web
from tfgrpo.domains.base import Context, Sampling, Trajectory, Verdict
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.endpoint import CallFailed

Script = Callable[[dict[str, Any]], str | Reply]


def judged(
    folder: Path, verifier: Verifier, response: str, script: Script, **problem: Any
) -> tuple[Verdict, int]:
    """Judges a response; also returns how many calls that took."""
    asked = Problem("p", "Which island exports salt?", **{"answer": "the Isle of Sund", **problem})
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:
        context = Context(asked, (), calls, calls, verifier, Sampling(), 0, (0, "p"))
        return asyncio.run(web.verify(context, Trajectory(response))), len(server.requests)


def nobody(request: dict[str, Any]) -> str:
    raise AssertionError("no judge is asked")


@pytest.mark.parametrize(
    "response",
    [
        "<answer>The Isle of Sund</answer>",
        "I looked it up. <answer>Isle of Sund.</answer>",
        "isle of  sund",
        "<answer>“the isle of Sund”</answer>",
    ],
)
def test_the_ground_truth_in_its_own_words_is_right_without_asking(
    tmp_path: Path, verifier: Verifier, response: str
) -> None:
    verdict, calls = judged(tmp_path, verifier, response, nobody)
    assert (verdict.reward, calls) == (1.0, 0)
    assert verdict.details == {"judge": "none"}


@pytest.mark.parametrize(
    "response",
    [
        r"\boxed{Sund}. That is wrong.",
        r"It is not \boxed{Sund}",
        r"\boxed{Holm} or \boxed{Sund}",
        "<answer>Holm</answer> or <answer>Sund</answer>",
        "<answer>Sund</answer>. Das ist falsch.",
    ],
)
def test_an_answer_that_is_taken_back_or_one_of_several_is_put_to_the_judge(
    tmp_path: Path, verifier: Verifier, response: str
) -> None:
    def judge(request: dict[str, Any]) -> str:
        assert request["messages"][-1]["content"].endswith(response)
        return json.dumps({"ground_truth": "Sund", "answer": "?", "verdict": "incorrect"})

    verdict, calls = judged(tmp_path, verifier, response, judge, answer="Sund")
    assert (verdict.reward, calls) == (0.0, 1)


@pytest.mark.parametrize("response", ["<think>Holm?</think>Sund", r"\boxed{\text{Sund}}"])
def test_what_was_thought_and_how_it_is_set_are_no_part_of_an_answer(
    tmp_path: Path, verifier: Verifier, response: str
) -> None:
    verdict, calls = judged(tmp_path, verifier, response, nobody, answer="Sund")
    assert (verdict.reward, calls) == (1.0, 0)


def test_any_of_several_answers_will_do(tmp_path: Path, verifier: Verifier) -> None:
    both = {"answers": ["Sund", "Holm"]}
    verdict, _ = judged(tmp_path, verifier, "Holm", nobody, answer="", meta=both)
    assert verdict.reward == 1.0


@pytest.mark.parametrize(
    ("said", "reward"), [("correct", 1.0), ("incorrect", 0.0), ("Correct.", 1.0)]
)
def test_other_words_are_put_to_the_judge_and_its_verdict_is_kept(
    tmp_path: Path, verifier: Verifier, said: str, reward: float
) -> None:
    def judge(request: dict[str, Any]) -> str:
        user = request["messages"][-1]["content"]
        assert "Ground truth: the Isle of Sund" in user
        assert user.endswith("Sund, I think")
        return json.dumps({"ground_truth": "Sund", "answer": "Sund", "verdict": said})

    verdict, calls = judged(tmp_path, verifier, "<answer>Sund, I think</answer>", judge)
    assert (verdict.reward, calls) == (reward, 1)
    assert verdict.details["verdict"] == said.strip(".").lower()
    assert verdict.details["judge"] == "scripted"
    assert len(verdict.details["prompt"]) == 16


def test_a_judge_that_cannot_be_read_leaves_the_answer_unjudged(
    tmp_path: Path, verifier: Verifier
) -> None:
    with pytest.raises(CallFailed):
        judged(tmp_path, verifier, "Sund", lambda _: "perhaps")


def test_an_answer_that_is_an_article_is_an_answer(tmp_path: Path, verifier: Verifier) -> None:
    verdict, calls = judged(tmp_path, verifier, "<answer>A</answer>", nobody, answer="a")
    assert (verdict.reward, calls) == (1.0, 0)
    assert web.check(Problem("p", "?", "A")) is None


def test_no_answer_is_wrong_without_asking(tmp_path: Path, verifier: Verifier) -> None:
    for nothing in ("", "<answer> . </answer>"):
        assert judged(tmp_path, verifier, nothing, nobody)[0].reward == 0.0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("12,000", "12000", True),
        ("3.5 km", "3,5 km", False),
        ("1-2", "12", False),
        ("ＡＢＣ", "abc", True),
        ("St. John's", "st john s", True),
        ("Theatre", "atre", False),
        ("-5", "5", False),
        ("−5", "-5", True),
        ("−5", "5", False),
        (".5", "5", False),
        (".5", "0.5", True),
        ("-.5 °C", "-0.5 C", True),
        ("COVID-19", "covid 19", True),
        ("C++", "C", False),
        ("C#", "C", False),
        ("$100", "€100", False),
        ("A", "B", False),
        ("Hepatitis A", "hepatitis", False),
        ("Hepatitis A", "hepatitis a", True),
        ("The Beatles", "beatles", True),
        ("A violin", "violin", True),
        ("Lord of the Flies", "Lord of Flies", False),
        ("A*", "a", False),
        ("A*", "a*", True),
        ("A-", "a", False),
        ("an A-", "A-", True),
        ("Cl-", "Cl", False),
        ("*Paris*", "Paris", True),
        ("**A**", "a", True),
        ("1/2", "1 2", False),
        ("1/2", "½", True),
        ("and/or", "and or", True),
        ("2½", "21/2", False),
        ("2½", "2 1/2", True),
        ("10⁶", "106", False),
        ("10^6", "10 6", False),
        ("a^b", "b", False),
        ("-$5", "$5", False),
        ("- 5", "5", False),
        ("− 5", "-5", True),
        ("-∞", "∞", False),
        ("-√2", "√2", False),
        ("-π", "π", False),
        ("50‰", "50", False),
        ("5!", "5", False),
        ("|5|", "5", False),
        ("3,5", "3 5", False),
        ("12,000.5", "12000.5", True),
        ("Paris – France", "Paris, France", True),
    ],
)
def test_what_counts_as_the_same_words(one: str, other: str, same: bool) -> None:
    assert (web.normalize(one) == web.normalize(other)) == same


def test_questions_of_the_usual_formats_load(tmp_path: Path) -> None:
    rows = [
        {"question": "Q1", "answer": "A1", "root_url": "https://x.example"},
        {"extra_info": {"question": "Q2", "answer": "A2"}},
        {"question": "Q3", "answers": ["A3", "B3"]},
    ]
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems = domains.find("web").problems(str(path))
    assert [p.problem for p in problems] == ["Q1", "Q2", "Q3"]
    assert [web.ground_truths(p) for p in problems] == [("A1",), ("A2",), ("A3", "B3")]
    assert web.check(Problem("p", "?")) == "there is none"
    assert {"webwalkerqa", "afm-web"} <= set(datasets.KNOWN)


# reconciling:


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    return partial(made_desk, tmp_path, verifier)


def searched(script: Callable[[dict[str, Any]], str], seen: list[dict[str, Any]]) -> Script:
    """Answers as in math, without a box; `script` reconciles."""

    def answer(request: dict[str, Any]) -> str:
        if "bring them in line" in request["messages"][0]["content"]:
            seen.append(request)
            return script(request)
        if "against the ground truth" in request["messages"][0]["content"]:
            return json.dumps({"ground_truth": "a", "answer": "b", "verdict": "incorrect"})
        return teachable(request)

    return answer


def trained(there: Desk, script: Script) -> None:
    there.prepare()
    with ScriptedEndpoint(script) as server:
        there.train(server, domain=domains.find("web"))


def test_what_a_group_taught_is_reconciled_with_the_library_first(
    make: Callable[..., Desk],
) -> None:
    seen: list[dict[str, Any]] = []

    def better(request: dict[str, Any]) -> str:
        assert LESSON in request["messages"][-1]["content"]
        return json.dumps(comparison_of([{"reason": "shorter", "text": "Add one more."}]))

    there = make(epochs=1, domain="web")
    trained(there, searched(better, seen))
    assert seen
    with there.store() as store:
        assert [e.text for e in store.library("main")] == ["Add one more."]
        (event, *_) = store.events(store.version(1))
        assert event.evidence is not None
        assert len(event.evidence["calls"]) >= 2


def test_lessons_that_add_nothing_can_be_left_out_and_trouble_leaves_them_as_they_were(
    make: Callable[..., Desk],
) -> None:
    none = make("none", epochs=1, domain="web")
    trained(none, searched(lambda _: json.dumps(comparison_of([])), []))
    with none.store() as store:
        assert len(store.library("main")) == 0
    mute = make("mute", epochs=1, domain="web")
    trained(mute, searched(lambda _: "no idea", []))
    with mute.store() as store:
        assert [e.text for e in store.library("main")] == [LESSON]
    failed = [f for v in steps(mute.path) for f in v.meta.get("failed", ())]
    assert {f["stage"] for f in failed} == {"reconcile"}
