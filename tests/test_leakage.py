"""Problems that stand twice are told: within a dataset, and between training and evaluation."""

from __future__ import annotations

import random
import time
from pathlib import Path
from string import ascii_lowercase

import pytest
from conftest import Cli
from conftest import problems as lines
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import ScriptedEndpoint

from tfgrpo.data.leakage import describe_duplicates, describe_leaks, duplicates, leaks
from tfgrpo.data.problems import Problem

LIMIT = 40
"""Seconds of work for what takes a few here."""
LONG = (
    "A train leaves the town of Alder at {a} in the morning and travels east at {b} miles an hour,"
    " while another leaves Birch, which lies {c} miles away, and travels west at the same speed."
    " How many minutes pass until the two trains meet on the single track between the towns?"
)


def problem(id: str, text: str, answer: str = "1") -> Problem:
    return Problem(id, text, answer)


def test_equal_texts_are_found_whatever_their_case_blanks_and_stops() -> None:
    found = duplicates(
        [
            problem("a", "What is $1 + 1$?"),
            problem("b", "What is 1 - 1?"),
            problem("c", "  what is 1+1"),
            problem("d", "What is 1 + 1 ?", "2"),
        ]
    )
    assert [(d.ids, d.answers, d.conflicting) for d in found] == [
        (("a", "c", "d"), ("1", "2"), True)
    ]


def test_duplicates_and_conflicting_answers_are_told_in_a_line_each() -> None:
    found = [problem("a", "q"), problem("b", "q", "2"), problem("c", "r"), problem("d", "r")]
    first, second = describe_duplicates(found, "d.jsonl")
    assert first == "d.jsonl: 2 problems in it more than once (a = b, c = d)"
    assert second == "d.jsonl: 1 of them with answers that differ, as a and b: 1 and 2"
    assert describe_duplicates(found[:1], "d.jsonl") == []


def test_a_problem_that_was_trained_on_is_a_leak_equal_or_nearly() -> None:
    text = LONG.format(a=6, b=40, c=300)
    training = [problem("other", "What is 1 + 1?"), problem("t", text)]
    reworded = text.replace("the single track", "a single track").replace("How many", "how many")
    evaluation = [
        problem("same", text.upper()),
        problem("near", reworded),
        problem("numbers", LONG.format(a=7, b=45, c=310)),
        problem("short", "What is 2 + 2?"),
    ]
    found = leaks(training, evaluation)
    assert [(leak.evaluation, leak.training) for leak in found] == [("same", "t"), ("near", "t")]
    assert found[0].likeness == 100
    assert 90 <= found[1].likeness < 100
    (line,) = describe_leaks(training, evaluation, "train.jsonl")
    assert line.endswith(
        "2 of 4 evaluation problems are in train.jsonl too, 1 of them nearly "
        "(same = t, near = t): their scores reflect memorisation"
    )


def test_a_leak_with_another_answer_is_told_as_less_of_one() -> None:
    text = LONG.format(a=6, b=40, c=300)
    training = [problem("t", text)]
    near = problem("near", text.replace("How many", "how many,"), "2")
    (found,) = leaks(training, [near])
    assert not found.same_answer
    (line,) = describe_leaks(training, [near], "t.jsonl")
    assert line.endswith("1 with another answer (near = t): their scores may reflect memorisation")
    both = [near, problem("same", text)]
    (line,) = describe_leaks(training, both, "t.jsonl")
    assert "1 with another answer (near = t, same = t): their scores reflect memorisation" in line


SYSTEM = ("system", "You answer for a bicycle shop in three towns. " * 20)
EXAMPLES = (("user", "What is a derailleur, in two words?"), ("assistant", "A gear changer. " * 30))


@pytest.mark.parametrize("before", [(SYSTEM,), EXAMPLES, (SYSTEM, *EXAMPLES)])
@pytest.mark.parametrize("text", ["", "all of it as text"])
def test_what_an_application_says_before_every_question_makes_no_two_alike(
    before: tuple[tuple[str, str], ...], text: str
) -> None:
    asked = ["Is the shop in Alder open?", "Do you mend tandems?", "What does a tyre cost?"]
    asked += ["May I bring my own chain?", "Where are you in Birch?", "Do you take old wheels?"]
    chats = [
        Problem(f"p{n}", text and f"{before}{one}", "1", (*before, ("user", one)))
        for n, one in enumerate(asked)
    ]
    assert leaks(chats[:3], chats[3:]) == []
    long = LONG.format(a=6, b=40, c=300)
    near = [
        Problem(id, "", "1", (*before, ("user", words)))
        for id, words in (("t", long), ("e", long.replace("How many", "how many,")))
    ]
    (found,) = leaks([*chats[:3], near[0]], [*chats[3:], near[1]])
    assert (found.evaluation, found.training) == ("e", "t")


def test_the_nearest_is_found_among_many_of_the_same_form() -> None:
    training = [problem(f"t{n}", LONG.format(a=n % 24, b=n, c=7 * n)) for n in range(3000)]
    evaluation = [problem("e", "So: " + LONG.format(a=1000 % 24, b=1000, c=7000))]
    (found,) = leaks(training, evaluation)
    assert found.training == "t1000"


words = st.lists(st.sampled_from("abcdef123+"), max_size=12).map(" ".join)


@settings(max_examples=60)
@given(st.lists(words, max_size=12), st.lists(words, max_size=12))
def test_every_equal_is_found_and_nothing_is_told_twice(left: list[str], right: list[str]) -> None:
    training = [problem(f"t{n}", text) for n, text in enumerate(left)]
    evaluation = [problem(f"e{n}", text) for n, text in enumerate(right)]
    found = leaks(training, evaluation)
    told = [leak.evaluation for leak in found]
    assert len(set(told)) == len(told)
    assert {f"e{n}" for n, text in enumerate(right) if text in left} <= set(told)


def test_training_and_evaluation_tell_before_anything_is_asked(cli: Cli, tmp_path: Path) -> None:
    twice = lines([1, 2, 1]) + '{"problem": "What is 2 op 5?", "answer": "9"}\n'
    (tmp_path / "d.jsonl").write_text(twice)
    (tmp_path / "h.jsonl").write_text(lines([2, 30]))
    with ScriptedEndpoint() as server:
        model = ("--model", "m", "--base-url", server.base_url)
        once = ("--epochs", "1", "--batch-size", "4", "--group-size", "2")
        done = cli("train", "d.jsonl", "--heldout", "h.jsonl", *once, *model)
        assert "warning: d.jsonl: 2 problems in it more than once" in done.stderr
        assert "answers that differ, as line-2 and line-4: 8 and 9" in done.stderr
        assert "1 of 2 evaluation problems are in d.jsonl too (line-1 = line-2)" in done.stderr
        done = cli("eval", "h.jsonl", "--samples", "1", *model)
        assert "1 of 2 evaluation problems are in d.jsonl too" in done.stderr
        assert "warning" not in done.stdout
        several = ("h.jsonl", "d.jsonl", "--samples", "1", "--model", "n", *model)
        told = " ".join(cli("compare", *several).stderr.split())
        assert told.count("h.jsonl: 1 of 2 evaluation problems") == 1
        assert told.count("evaluation problems are in d.jsonl too") == 2
        (tmp_path / "d.jsonl").unlink()
        done = cli("eval", "h.jsonl", "--samples", "1", *model)
        assert "cannot tell whether these problems were trained on: no file" in done.stderr


def test_a_score_on_what_chose_the_library_says_so(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text(lines([1, 2]))
    (tmp_path / "g.jsonl").write_text(lines([7, 8]))
    with ScriptedEndpoint() as server:
        model = ("--model", "m", "--base-url", server.base_url)
        once = ("--epochs", "1", "--batch-size", "2", "--group-size", "2")
        cli("train", "d.jsonl", "--gate", "g.jsonl", *once, *model)
        cli("add", "Write the number alone.")
        for command in ("eval", "compare", "regress"):
            told = " ".join(cli(command, "g.jsonl", "--samples", "2", *model).stderr.split())
            assert "2 of 2 evaluation problems are in g.jsonl too" in told, command
            assert "their scores reflect the gate's own choice" in told, command


def test_problems_that_stand_twice_among_those_to_evaluate_with_are_told(
    cli: Cli, tmp_path: Path
) -> None:
    for n, name in enumerate(("h", "g", "s"), start=1):
        numbers = [10 * n, 10 * n + 1, 10 * n, 10 * n + 2]
        (tmp_path / f"{name}.jsonl").write_text(lines(numbers))
    (tmp_path / "d.jsonl").write_text(lines([1, 2]))
    cli("init")
    with ScriptedEndpoint() as server:
        model = ("--model", "m", "--base-url", server.base_url)
        parts = ("--heldout", "h.jsonl", "--gate", "g.jsonl", "--sealed", "s.jsonl")
        for command in (("eval", "h.jsonl", "--samples", "1"), ("train", "d.jsonl", *parts)):
            told = " ".join(cli(*command, *model).stderr.split())
            for name in ("h",) if command[0] == "eval" else ("h", "g", "s"):
                assert f"{name}.jsonl: 1 problem in it more than once (line-1 = line-3)" in told


def test_texts_without_a_number_are_compared_in_seconds() -> None:
    dice = random.Random(1)
    words = [f"{a}{b}" for a in ascii_lowercase for b in ascii_lowercase]
    texts = [" ".join(dice.choices(words, k=150)) for _ in range(10_000)]
    known = [problem(f"t{n}", text) for n, text in enumerate(texts)]
    asked = [problem(f"e{n}", " ".join(dice.choices(words, k=150))) for n in range(3_000)]
    asked.append(problem("near", texts[7].replace(texts[7].split()[75], "x")))
    began = time.process_time()
    assert [(leak.evaluation, leak.training) for leak in leaks(known, asked)] == [("near", "t7")]
    assert time.process_time() - began < LIMIT
