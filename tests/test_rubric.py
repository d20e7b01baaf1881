"""Rubrics, judges and conversations: what each criterion gives, and what a run makes of it."""

from __future__ import annotations

import asyncio
import json
import re
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import Reply, ScriptedEndpoint, opened_calls

import tfgrpo
from tfgrpo import domains
from tfgrpo.data.problems import DatasetError, Problem
from tfgrpo.domains.base import Context, DomainError, Sampling
from tfgrpo.domains.conversation import persona_of, turns_of
from tfgrpo.domains.judge import ask_question
from tfgrpo.domains.rubric import Criterion, rule
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.client import Calls
from tfgrpo.rollout.attempt import Rollout, attempt

Script = Callable[[dict[str, Any]], str | Reply]

RUBRIC = """
agent_objective = "Answer as the Sund team."

[[criteria]]
name = "signed"
ends_with = "The Sund team"

[[criteria]]
name = "short"
weight = 2
max_words = 12

[[criteria]]
name = "no apology"
regex = "(?i)\\\\bsorry\\\\b"
absent = true
"""

FORMATS = [
    ("<think>a</think>b", True, False),
    ("<think>\na\n\nb\n</think>\n\nIt is 4.\n", True, False),
    ("<think></think> 4", True, False),
    ("<think>\na < b\n</think>\n<answer>\n4\n</answer>", True, True),
    ("<think>\na\n</think>\n<answer>4</answer>", True, False),
    ("<think>\na\n</think>\n<answer>\n4\n</answer> or 5", True, False),
    ("<think>a</think>", False, False),
    ("<think>a</think> \n", False, False),
    ("<think>a", False, False),
    ("a</think>b", False, False),
    ("4", False, False),
    ("Well, <think>a</think>b", False, False),
    ("<think>a<think>b</think></think>c", False, False),
    ("<think>a</think>b<think>c</think>d", False, False),
    ("<think>" + "a " * 50_000 + "</think>" + "b " * 50_000 + "</think>", False, False),
    ("<think>\n" + "\n" * 100_000 + "<answer>", False, False),
]
"""Answers, and whether they keep to each of the two formats of docs/conversations.md."""


@pytest.mark.parametrize(("answer", "once", "tags"), FORMATS)
def test_the_formats_of_the_page_are_kept_or_missed_without_delay(
    answer: str, once: bool, tags: bool
) -> None:
    page = (Path(__file__).parent.parent / "docs/conversations.md").read_text()
    tables = [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)]
    rules = [
        c for table in tables for c in table.get("criteria", ()) if "think" in c.get("regex", "")
    ]
    started = time.thread_time()
    assert [rule(Criterion(**found), answer) for found in rules] == [float(once), float(tags)]
    assert time.thread_time() - started < 5


def rolled(
    folder: Path,
    verifier: Verifier,
    spec: str,
    problem: Problem,
    script: Script,
) -> tuple[Rollout, list[dict[str, Any]]]:
    """Makes one attempt at a problem in a domain; also returns the requests that were made."""
    domain = domains.find(spec)
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:
        context = Context(
            problem=problem,
            messages=(("system", "s"), ("user", problem.problem)),
            calls=calls,
            judge=calls,
            verifier=verifier,
            sampling=Sampling(0.7, 100, 0),
            sample=0,
            call_path=(0, problem.id),
        )
        return asyncio.run(attempt(domain, context)), server.requests


def system(request: dict[str, Any]) -> str:
    return str(request["messages"][0]["content"])


@pytest.fixture
def rubric(tmp_path: Path) -> Callable[[str], str]:
    def write(text: str) -> str:
        (tmp_path / "rubric.toml").write_text(text)
        return f"rubric:{tmp_path / 'rubric.toml'}"

    return write


# rules:


@pytest.mark.parametrize(
    ("values", "text", "kept"),
    [
        ({"regex": r"^Ref: \d+"}, "Ref: 12\nHello", True),
        ({"regex": r"^Ref: \d+"}, "Hello", False),
        ({"regex": "sorry", "absent": True}, "so sorry", False),
        ({"contains": "REFUND"}, "your refund is due", True),
        ({"starts_with": "Dear"}, "\n Dear you", True),
        ({"ends_with": "."}, "end. \n", True),
        ({"ends_with": "."}, "end", False),
        ({"max_words": 3}, "one two three", True),
        ({"max_words": 3}, "one two three four", False),
        ({"min_words": 2, "max_words": 3}, "one", False),
        ({"max_sentences": 2}, "One. Two! v1.5 is out?", False),
        ({"max_sentences": 2}, "One is 1.5 high. Two!", True),
        ({"format": "json"}, '{"a": 1}', True),
        ({"format": "json"}, "{a}", False),
        ({"format": "json"}, '{"a": NaN}', False),
        ({"max_sentences": 2}, "What?! Yes... No.", False),
        ({"max_sentences": 2}, "一つ。二つ。三つ。", False),
        ({"max_sentences": 3}, "一つ。二つ。三つ。", True),
        ({"max_sentences": 1}, "本当ですか？はい！", False),
        ({"max_sentences": 2}, "「本当ですか？」はい！", True),
        ({"max_sentences": 1}, "One. And another", False),
        ({"max_sentences": 2}, "One. And another", True),
        ({"max_sentences": 0}, "no end", False),
        ({"max_sentences": 0}, " \n", True),
        ({"max_sentences": 1}, "One.  \n", True),
        ({"max_sentences": 1}, "**One.**", True),
        ({"max_sentences": 1}, "यह पहला है। यह दूसरा है।", False),
        ({"max_sentences": 1}, "ما هذا؟ هذا كتاب.", False),
        ({"max_sentences": 1}, "ሰላም። እንደምን ነህ።", False),
        ({"max_sentences": 1}, "一つ．二つ．", False),
        ({"max_sentences": 1}, "３．５です。", True),
        ({"max_sentences": 1}, "(One.) (Two.)", False),
        ({"max_sentences": 2}, "(One.) (Two.)", True),
        ({"max_sentences": 1}, "**One.** **Two.**", False),
        ({"max_sentences": 2}, "**One.** **Two.**", True),
        ({"max_sentences": 1}, '"One." “Two.”\n', False),
        ({"max_sentences": 1}, '"Really?" he asked.', True),
        ({"max_sentences": 1}, "One… Two…", False),
        ({"max_sentences": 2}, "One… Two…", True),
        ({"max_sentences": 1}, "It is (see 1.5) done.)", True),
    ],
)
def test_rules(values: dict[str, Any], text: str, kept: bool) -> None:
    assert rule(Criterion(name="x", **values), text) == float(kept)


@pytest.mark.parametrize("more", ["", "." * 9, ")", " ", "\n\n"])
def test_sentences_are_counted_without_delay(more: str) -> None:
    started, ends = time.thread_time(), 200_000 if more.isspace() else 0
    assert rule(Criterion(name="x", max_sentences=1 + ends), f".{more}" * 200_000 + "x") == 1.0
    assert time.thread_time() - started < 5


def test_the_reward_is_the_weighted_mean_and_every_result_is_kept(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    rollout, _ = rolled(
        tmp_path,
        verifier,
        rubric(RUBRIC),
        Problem("p", "Where is it?"),
        lambda _: "Sorry, it is late. The Sund team",
    )
    assert rollout.reward == pytest.approx(3 / 4)
    assert rollout.details == {"signed": "kept", "short": "kept", "no apology": "missed"}
    assert rollout.reason == "missed no apology"


def test_a_problem_may_bring_criteria_of_its_own(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    problem = Problem("p", "?", meta={"criteria": [{"name": "says 7", "contains": "7"}]})
    rollout, _ = rolled(tmp_path, verifier, rubric(RUBRIC), problem, lambda _: "7 The Sund team")
    assert rollout.details["says 7"] == "kept"
    for wrong in (3, [3], [{"name": "x"}]):
        with pytest.raises((DatasetError, ExceptionGroup)):
            rolled(
                tmp_path,
                verifier,
                rubric(RUBRIC),
                Problem("p", "?", meta={"criteria": wrong}),
                lambda _: "x",
            )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"criteria": [{"name": "signed", "contains": "7"}]}, "the name 'signed' is used twice"),
        ({"criteria": [{"name": "7", "contains": "7"}] * 2}, "the name '7' is used twice"),
        ({"criteria": [{"name": "x", "python": "no_such_module_here:f"}]}, "does not list"),
        ({"criteria": [{"name": "x"}]}, "has one of"),
        ({"criteria": [{"name": "x", "contains": "7", "weight": float("inf")}]}, "a valid number"),
        ({"criteria": "signed"}, "a list of objects"),
        ({"criteria": 0}, "a list of objects"),
        ({"persona": ["x"]}, "a persona is a text"),
        ({"persona": "x", "turns": 0}, "turns are a number"),
        ({"persona": "x", "turns": "a few"}, "turns are a number"),
        ({"persona": "x", "turns": 1.5}, "turns are a number"),
        ({"persona": "x", "turns": True}, "turns are a number"),
    ],
)
def test_a_row_that_cannot_work_is_told_before_anything_is_asked(
    tmp_path: Path, rubric: Callable[[str], str], row: dict[str, Any], words: str
) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"problem": "fine", "criteria": None, "persona": None, "turns": None}]
    path.write_text("".join(json.dumps(r) + "\n" for r in (*rows, {"problem": "?"} | row)))
    with pytest.raises(DatasetError, match=words) as error:
        domains.find(rubric(RUBRIC)).problems(str(path))
    assert "line-2" in str(error.value)


def test_turns_are_read_from_a_table_too(tmp_path: Path, rubric: Callable[[str], str]) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("problem,persona,turns,criteria\na,x,2,\nb,,,\n")
    first, second = domains.find(rubric(RUBRIC)).problems(str(path))
    assert (turns_of(first), turns_of(second), persona_of(second)) == (2, 4, None)
    assert turns_of(Problem("p", "?", meta={"turns": 3.0})) == 3


def test_criteria_of_one_name_are_each_weighed(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    own = {"criteria": [{"name": "signed", "contains": "7", "weight": 4}]}
    rollout, _ = rolled(
        tmp_path, verifier, rubric(RUBRIC), Problem("p", "?", meta=own), lambda _: "7"
    )
    assert rollout.reward == pytest.approx(7 / 8)


def test_what_predicates_print_is_no_part_of_the_output(
    cli: Cli, rubric: Callable[[str], str], tmp_path: Path
) -> None:
    (tmp_path / "checks_loud.py").write_text(
        "print('imported')\ndef loud(problem, response):\n    print('called')\n    return 1\n"
    )
    spec = rubric('[[criteria]]\nname = "loud"\npython = "checks_loud:loud"\n')
    (tmp_path / "cases.jsonl").write_text('{"pred": "x"}\n')
    cli("init")
    told = cli("verify", str(tmp_path / "cases.jsonl"), "--domain", spec, "--json")
    assert json.loads(told.stdout)["verdicts"] == {"right": 1}
    assert "called" in told.stderr


def test_predicates_run_in_a_worker_and_what_they_break_is_told_apart_from_a_miss(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    (tmp_path / "checks_case.py").write_text(
        "def half(problem, response): return 0.5\n"
        "def breaks(problem, response): raise RuntimeError('no')\n"
        "def dies(problem, response):\n    import os; os._exit(1)\n"
        "def out_of_range(problem, response): return 7\n"
    )
    names = ("half", "breaks", "dies", "out_of_range")
    text = "".join(f'[[criteria]]\nname = "{n}"\npython = "checks_case:{n}"\n' for n in names)
    rollout, _ = rolled(tmp_path, verifier, rubric(text), Problem("p", "?"), lambda _: "x")
    assert rollout.reward == 0.5, "what could not be judged counts for nothing"
    assert rollout.details["half"] == "0.5 of 1"
    assert all(rollout.details[n].startswith("could not be judged") for n in names[1:])


def test_an_expression_that_never_ends_is_killed(
    tmp_path: Path, rubric: Callable[[str], str]
) -> None:
    text = '[[criteria]]\nname = "slow"\nregex = "(a+)+$"\n'
    started = time.monotonic()
    with Verifier(workers=1, seconds=1.0) as impatient:
        rollout, _ = rolled(
            tmp_path, impatient, rubric(text), Problem("p", "?"), lambda _: "a" * 60 + "!"
        )
    assert rollout.outcome == "unverifiable"
    assert rollout.reward is None
    assert time.monotonic() - started < 120


def test_a_predicate_that_waits_is_timed_by_the_clock(
    tmp_path: Path, rubric: Callable[[str], str]
) -> None:
    """It is the user's own code, and takes nothing of a processor."""
    (tmp_path / "checks_wait.py").write_text("import time\ndef waits(*_): time.sleep(600)\n")
    spec = rubric('[[criteria]]\nname = "slow"\npython = "checks_wait:waits"\n')
    started = time.monotonic()
    with Verifier(workers=1, seconds=4.0) as impatient:
        rollout, _ = rolled(tmp_path, impatient, spec, Problem("p", "?"), lambda _: "x")
    assert rollout.outcome == "unverifiable"
    assert "no verdict in 4 s" in rollout.details["slow"]
    assert time.monotonic() - started < 100


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "criteria: Field required"),
        ("criteria = []", "criteria"),
        ('[[criteria]]\nname = "x"', "has one of"),
        ('[[criteria]]\nname = "x"\nregex = "("', "x"),
        ('[[criteria]]\nname = "x"\nregex = "a"\ncontains = "b"', "has one of"),
        ('[[criteria]]\nname = "x"\npython = "nothing"', "module:function"),
        ('[[criteria]]\nname = "x"\npython = "no_such_module_here:f"', "ModuleNotFoundError"),
        ('[[criteria]]\nname = "x"\nmax_words = 1\n' * 2, "is used twice"),
        ('[[criteria]]\nname = "x"\nwieght = 1', "Extra inputs"),
        ('[[criteria]]\nname = "x"\nmax_words = 1\nweight = inf', "finite"),
        ('[[criteria]]\nname = "x"\nregex = "a{99999999999}"', "too large"),
        ('[[criteria]]\nname = "x"\nregex = "' + "(" * 5000 + ")" * 5000 + '"', "recursion"),
        ('[[criteria]]\nname = "x"\npython = "checks_broken:f"', "NameError: name 'nothing'"),
        ('[[criteria]]\nname = "x"\npython = "checks_leaving:f"', "SystemExit: 3"),
        ('[[criteria]]\nname = "x"\npython = "json:__version__"', "no function|no attribute"),
        ("not toml", "rubric.toml"),
    ],
)
def test_a_rubric_that_cannot_work_says_what_is_wrong_before_anything_is_asked(
    rubric: Callable[[str], str], text: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "checks_broken.py").write_text("nothing.at_all\n")
    (tmp_path / "checks_leaving.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(DomainError, match=words):
        domains.find(rubric(text))
    with pytest.raises(DomainError, match="No such file"):
        domains.find("rubric:nowhere.toml")


def test_a_byte_order_mark_and_other_line_ends_are_no_matter(
    rubric: Callable[[str], str], tmp_path: Path
) -> None:
    spec = rubric(RUBRIC)
    (tmp_path / "rubric.toml").write_bytes(b"\xef\xbb\xbf" + RUBRIC.replace("\n", "\r\n").encode())
    assert domains.find(spec).agent_objective == "Answer as the Sund team."


# judges:


QUESTIONS = """
[[criteria]]
name = "kind"
question = "Is it kind?"

[[criteria]]
name = "not rude"
question = "Is it rude?"
absent = true
"""


def test_a_judge_answers_questions_and_its_words_are_kept(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    def script(request: dict[str, Any]) -> str:
        if "You check whether" not in system(request):
            return "You poor thing."
        kind = "Is it kind?" in request["messages"][-1]["content"]
        return json.dumps({"why": "it pities", "verdict": "yes" if kind else "no"})

    rollout, requests = rolled(
        tmp_path, verifier, rubric(QUESTIONS), Problem("p", "I fell."), script
    )
    assert rollout.reward == 1.0
    assert rollout.details == {"kind": "kept (it pities)", "not rude": "kept (it pities)"}
    assert len(requests) == 3


def test_a_judge_that_answers_nonsense_leaves_its_criterion_open(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    rollout, _ = rolled(
        tmp_path, verifier, rubric(QUESTIONS), Problem("p", "?"), lambda _: "whatever"
    )
    assert (rollout.outcome, rollout.reward) == ("unverifiable", None)


@pytest.fixture
def scale(tmp_path: Path) -> Callable[[str], str]:
    def write(more: str) -> str:
        (tmp_path / "scale.toml").write_text(f'scale = "10: in full. 0: not at all."\n{more}')
        return f"judge:{tmp_path / 'scale.toml'}"

    return write


def test_grades_are_repeated_and_their_spread_is_kept(
    tmp_path: Path, verifier: Verifier, scale: Callable[[str], str]
) -> None:
    grades = iter([6, 8, 10])

    def script(request: dict[str, Any]) -> str:
        if "You grade an answer" in system(request):
            assert "10: in full." in system(request)
            return json.dumps({"why": "so", "grade": next(grades)})
        return "an answer"

    rollout, _ = rolled(tmp_path, verifier, scale("repeat = 3"), Problem("p", "?"), script)
    assert rollout.reward == pytest.approx(0.8)
    assert rollout.details["grades"] == [6, 8, 10]
    assert rollout.details["spread"] == pytest.approx(1.633)


def test_a_judge_that_favours_a_place_says_nothing_when_the_order_is_swapped(
    tmp_path: Path, verifier: Verifier, scale: Callable[[str], str]
) -> None:
    def script(request: dict[str, Any]) -> str:
        first_wins = json.dumps({"why": "it stands first", "grade": 9})
        return first_wins if "You compare two" in system(request) else "an answer"

    problem = Problem("p", "?", "the reference")
    rollout, requests = rolled(tmp_path, verifier, scale("compare = true"), problem, script)
    assert rollout.reward == pytest.approx(0.5)
    assert rollout.details["grades"] == [9, 1]
    assert rollout.details["spread"] == 4
    orders = [r["messages"][-1]["content"].index("the reference") for r in requests[1:]]
    assert orders[0] != orders[1]


def test_a_better_answer_is_better_in_both_orders(
    tmp_path: Path, verifier: Verifier, scale: Callable[[str], str]
) -> None:
    def script(request: dict[str, Any]) -> str:
        if "You compare two" not in system(request):
            return "good answer"
        user = request["messages"][-1]["content"]
        better_first = user.index("good") < user.index("reference")
        return json.dumps({"why": "", "grade": 8 if better_first else 2})

    problem = Problem("p", "?", "reference")
    rollout, _ = rolled(tmp_path, verifier, scale("compare = true"), problem, script)
    assert rollout.reward == pytest.approx(0.8)
    assert rollout.details["spread"] == 0


@pytest.mark.parametrize("said", ["Yes", "YES.", "**yes**", " yes\n"])
def test_a_judges_word_is_read_in_any_case(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str], said: str
) -> None:
    text = '[[criteria]]\nname = "kind"\nquestion = "Is it kind?"\n'
    rollout, requests = rolled(
        tmp_path,
        verifier,
        rubric(text),
        Problem("p", "?"),
        lambda _: json.dumps({"why": "", "verdict": said}),
    )
    assert (rollout.reward, len(requests)) == (1.0, 2)


@pytest.mark.parametrize("grade", [11, -1, "nine", None, True, float("nan"), float("inf")])
def test_grades_off_the_scale_are_asked_for_again_and_then_unverifiable(
    tmp_path: Path, verifier: Verifier, scale: Callable[[str], str], grade: Any
) -> None:
    def script(request: dict[str, Any]) -> str:
        graded = json.dumps({"why": "", "grade": grade})
        return graded if "You grade" in system(request) else "an answer"

    rollout, requests = rolled(tmp_path, verifier, scale(""), Problem("p", "?"), script)
    assert (rollout.outcome, rollout.reward) == ("unverifiable", None)
    assert len(requests) == 3


# conversations:


def test_a_persona_answers_back_until_it_is_done(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    replies = iter(["And when will it come?", "[done]"])

    def script(request: dict[str, Any]) -> str:
        if "You play a person" in system(request):
            assert "in a hurry" in system(request)
            return next(replies)
        return f"Answer {sum(m['role'] == 'assistant' for m in request['messages'])}. The Sund team"

    problem = Problem("p", "Where is it?", meta={"persona": "somebody in a hurry", "turns": 5})
    rollout, _ = rolled(tmp_path, verifier, rubric(RUBRIC), problem, script)
    assert [m["content"] for m in rollout.messages] == [
        "Answer 0. The Sund team",
        "And when will it come?",
        "Answer 1. The Sund team",
    ]
    assert rollout.response == "Answer 1. The Sund team"
    assert len(rollout.calls) == 2
    assert "And when will it come?" in rollout.transcript


def test_nobody_says_in_a_conversation_what_was_only_thought(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    def script(request: dict[str, Any]) -> str:
        assert "secretly" not in json.dumps(request["messages"])
        if "You play a person" in system(request):
            return "<think>secretly [done]</think>You: And when?"
        return "<think>secretly</think>Soon. The Sund team"

    problem = Problem("p", "Where is it?", meta={"persona": "in a hurry", "turns": 2})
    rollout, _ = rolled(tmp_path, verifier, rubric(RUBRIC), problem, script)
    told = [m["content"] for m in rollout.messages]
    assert told == ["Soon. The Sund team", "And when?", "Soon. The Sund team"]
    assert rollout.response == told[-1]


def test_a_conversation_ends_after_its_turns(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    problem = Problem("p", "?", meta={"persona": "never satisfied", "turns": 3})
    rollout, requests = rolled(tmp_path, verifier, rubric(RUBRIC), problem, lambda _: "More!")
    assert len(rollout.calls) == 3
    assert len(requests) == 5


def test_criteria_can_look_at_the_whole_conversation(
    tmp_path: Path, verifier: Verifier, rubric: Callable[[str], str]
) -> None:
    text = (
        '[[criteria]]\nname = "greets once"\ncontains = "hello"\nover = "conversation"\n'
        '[[criteria]]\nname = "ends well"\ncontains = "bye"\n'
    )

    def script(request: dict[str, Any]) -> str:
        if "You play a person" in system(request):
            return "Go on."
        first = not any(m["role"] == "assistant" for m in request["messages"])
        return "hello" if first else "bye"

    problem = Problem("p", "?", meta={"persona": "x", "turns": 2})
    rollout, _ = rolled(tmp_path, verifier, rubric(text), problem, script)
    assert rollout.details == {"greets once": "kept", "ends well": "kept"}


def test_two_problems_with_one_question_are_two_judgements(
    tmp_path: Path, verifier: Verifier
) -> None:
    count = iter(range(10))

    def script(_: dict[str, Any]) -> str:
        return json.dumps({"why": str(next(count)), "verdict": "yes"})

    async def whys(calls: Calls) -> list[str]:
        found = []
        for id in ("p", "q", "p"):
            context = Context(Problem(id, "?"), (), calls, calls, verifier, Sampling(), 0, (0, id))
            found.append((await ask_question(context, "same", "same?")).why)
        return found

    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:
        assert asyncio.run(whys(calls)) == ["0", "1", "0"]


def test_a_rubric_that_was_edited_makes_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_text('{"problem": "Where is it?"}\n{"problem": "When?"}\n')
    names = []
    with ScriptedEndpoint(lambda request: "Here, the Sund team") as server:
        for words in (12, 12, 3):
            rubric = RUBRIC.replace("max_words = 12", f"max_words = {words}")
            (tmp_path / "r.toml").write_text(rubric)
            options = {"model": "m", "base_url": server.base_url, "epochs": 1, "group_size": 2}
            result = tfgrpo.train_sync("p.jsonl", domain="rubric:r.toml", store=".", **options)
            names.append(result.run.name)
    assert names == ["p", "p", "p-2"]
