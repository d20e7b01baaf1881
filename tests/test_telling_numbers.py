"""Numbers that right attempts alone calculate with: counted, explained, and put into lessons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint, stage
from test_controller import decision
from test_reflection import compared, said

from tfgrpo.data.problems import Problem
from tfgrpo.rendering import templates
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store import Store
from tfgrpo.training.number_lessons import NumberMeaning, for_any_quantity, with_numbers
from tfgrpo.training.numbers_in_text import names_number
from tfgrpo.training.telling_numbers import LONGEST, TellingNumbers, telling_numbers

WEEKS = Problem(
    "weeks-1", "A clerk is busy for 8 weeks. How many working days go on the bill?", "40"
)
WORDY = (
    "To find the working days we need those of one week. Typically a week has 5 working days "
    "(Monday to Friday).\n\n\\[ 8 \\text{ weeks} \\times 5 \\text{ working days/week} = 40 "
    "\\text{ days} \\]\n\nSo it is \\(\\boxed{40}\\)."
)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def group(problem: Problem, right: list[str], wrong: list[str]) -> Group:
    """Returns attempts at a problem, each with its last word as its answer."""
    rewards = [1.0] * len(right) + [0.0] * len(wrong)
    texts = zip([*right, *wrong], rewards, strict=True)
    return Group(
        problem,
        tuple(
            Rollout(
                problem, n, text, "answered", reward, re.findall(r"\w+", text)[-1], "", (f"{n}",)
            )
            for n, (text, reward) in enumerate(texts)
        ),
    )


CASES: dict[str, tuple[list[str], list[str], tuple[str, ...], tuple[str, ...]]] = {
    "one number each": (["8 * 5 = 40"], ["8 * 7 = 56"], ("5",), ("7",)),
    "in prose and formulas": ([WORDY, "5 x 8 = 40"], ["8 weeks times 7 days: 56"], ("5",), ("7",)),
    "two numbers": (["8 * 5 - 2 = 38"], ["8 * 9 = 72"], ("2", "5"), ("9",)),
    "too many to tell": (["8 * 5 + 2 + 3 = 45"], ["8 * 7 = 56"], (), ()),
    "most of the right ones": (["8*5=40", "5*8=40", "40"], ["7*8=56"], ("5",), ("7",)),
    "half of the right ones": (["8*5=40", "40"], ["7*8=56"], (), ("7",)),
    "as often on both sides": (["8*5=40", "5*8=40"], ["5*8=41"], (), ()),
    "in some wrong ones": (["8*5=40"], ["8*5=45", "8*7=56"], ("5",), ()),
    "results are not": (["8 + 9 = 17, and 17 + 8 = 25, so 25"], ["9 * 9 = 81"], (), ()),
    "what something is": (["A week = 5 days, 8 * 5 = 5 + 5 + 30 = 40"], ["56"], ("5", "30"), ()),
    "results that are used again": (["8*6=48, 48 - 8 = 40"], ["8*7=56"], ("6",), ("7",)),
    "a result in a sentence": (["8 times 8 is 64. 64 - 24 = 40"], ["56"], ("24",), ()),
    "in bold": (["8 * 8 = **64**, 64 - 24 = 40"], ["56"], ("24",), ()),
    "with money": (["8 * 8 = $64. Then 64 - 24 = 40"], ["56"], ("24",), ()),
    "steps are not": (["1. Read.\n2. Take 8 * 5.\nStep 3: 40"], ["4. 56"], ("5",), ()),
    "thousands": (["8 * 1,200 = 9,600"], ["8 * 7 = 56"], ("1200",), ("7",)),
    "decimals": (["8 * 7.50 = 60"], ["8 * 7 = 56"], ("7.5",), ("7",)),
    "units": (["8 * 24h = 192h"], ["8 * 7 = 56"], ("24",), ("7",)),
    "leading zeros": (["8 * 05 = 40"], ["8 * 07 = 56"], ("5",), ("7",)),
    "none at all": (["forty"], ["fifty"], (), ()),
    "nothing and one": (["8 * 1 + 0 = 8"], ["9"], (), ()),
    "parts of words": (["G5 * x86 * v2.5.1 40"], ["56"], (), ()),
    "dates and pages": (["On 2024-05-01, pages 3-5: 40"], ["56"], (), ()),
    "nothing is done with it": (["Confidence 95 %. Line 14 says 40"], ["56"], (), ()),
    "other code": (["{'status': 200} 40"], ["{'status': 404} 56"], (), ()),
    "too long to be one": (["8 * " + "3" * (LONGEST + 1) + " = 40"], ["56"], (), ()),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_that_set_attempts_apart(name: str) -> None:
    right, wrong, making, breaking = CASES[name]
    one = group(WEEKS, right, wrong)
    numbers = telling_numbers(one, one.winners, one.losers)
    assert (set(numbers.right), set(numbers.wrong)) == (set(making), set(breaking))
    assert bool(numbers.words()) is bool(making), "nothing is said without a number that is right"


LONG_TEXTS = [
    "7 * 24 = 168 hours in the week and then multiply that by the number of workers " * 1200,
    "\n" * 100_000,
    "-\n" * 50_000,
    "* " * 50_000,
    "1+" * 50_000,
    "*=1 " * 25_000,
    "1,000" * 20_000,
    "times " * 16_000,
    "1" * 100_000,
]


@pytest.mark.parametrize("text", LONG_TEXTS, ids=range(len(LONG_TEXTS)))
def test_the_longest_attempts_are_searched(text: str) -> None:
    one = group(WEEKS, [f"{text} 40"], ["56"])
    assert telling_numbers(one, one.winners, one.losers).wrong == ()
    assert with_numbers(text, [meaning("days of work")], WEEKS, 5) == text


def test_a_problem_with_a_table_of_numbers_tells_none() -> None:
    problem = Problem("p", " ".join(map(str, range(100, 2100))), "40")
    one = group(problem, ["8 * 5 = 40"], ["8 * 7 = 56"])
    assert telling_numbers(one, one.winners, one.losers)[:2] == ((), ())


def test_other_right_answers_do_not_count() -> None:
    problem = Problem("p", "How many?", "40", meta={"answers": ["40", "5 days"]})
    one = group(problem, ["8 * 5 = 40"], ["8 * 7 = 56"])
    assert telling_numbers(one, one.winners, one.losers).right == ()


def meaning(stands_for: str, number: str = "5", always: bool = True) -> NumberMeaning:
    return NumberMeaning(number=number, stands_for=stands_for, always=always)


PROBLEM = Problem("p", "A clerk is busy for 8 weeks.", "40")
RULE = "When a clerk is busy, multiply the number of working days per week by the weeks."


@pytest.mark.parametrize(
    ("text", "stands_for", "expected"),
    [
        (RULE, "the number of working days per week", RULE.replace("week by", "week (5) by")),
        (RULE, "working days in one week", RULE.replace("week by", "week (5) by")),
        (RULE, "working weeks per day", f"{RULE} Take 5 working weeks per day."),
        (RULE, "of the", f"{RULE} Take 5 for of the."),
        (RULE, "Working days per week", RULE.replace("week by", "week (5) by")),
        (RULE, "weeks", f"{RULE} Take 5 for weeks."),
        (RULE, "days from Monday to Friday", f"{RULE} Take 5 for days from Monday to Friday."),
        (RULE[:-1], "the days of work", f"{RULE} Take 5 for the days of work."),
        ("Multiply weeks by 5.", "the working days", "Multiply weeks by 5."),
        ("Count extra hours.", "extra hours", "Count extra hours (5)."),
        ("Count the days per week.", "Days In One Week", "Count the days per week (5)."),
        (
            "Weeks by 7 working days per week.",
            "working days a week",
            "Take 5 for working days a week.",
        ),
        ("Weeks by five days per week.", "days a week", "Weeks by five days per week."),
        ("Ignore days per week.", "days a week", "Ignore days per week. Take 5 for days a week."),
        (
            "Never bill more than 40 hours.",
            "days",
            "Never bill more than 40 hours. Take 5 for days.",
        ),
        ("If the total is 40 days, rest.", "days", "Take 5 for days."),
        ("In 1,800 hours, he is at 40.", "days", "In 1,800 hours, take 5 for days."),
        ("A week has five days.", "the working days", "A week has five days."),
        ("Take 15 days.", "days", "Take 15 days. Take 5 for days."),
        ("In 8 weeks, the bill is 40 days.", "days", "In any number of weeks, take 5 for days."),
        ("The 8 weeks come to 40 of 5 days.", "days", "Take 5 for days."),
        ("In 8 weeks, take 5 days.", "days", "In 8 weeks, take 5 days."),
        ("For 9 weeks take 5.", "days", "For 9 weeks take 5."),
    ],
)
def test_a_lesson_names_the_number(text: str, stands_for: str, expected: str) -> None:
    assert with_numbers(text, [meaning(stands_for)], PROBLEM) == expected


LONG = "When a cook works, multiply " + "very " * 7 + "many hours by the days."


def test_a_lesson_without_room_for_a_number_has_one_of_its_own_beside_it(tmp_path: Path) -> None:
    advantage, _ = compared(
        tmp_path, ATTEMPTS, lambda _: answer(DAYS, text=LONG), summarise_over=100, max_words=16
    )
    own = "When a cook works, take 5 working days per week."
    assert [(one.text, len(one.numbers)) for one in advantage.lessons] == [(LONG, 0), (own, 1)]
    assert {one.calls for one in advantage.lessons} == {advantage.lessons[0].calls}


def test_a_number_goes_to_the_lesson_that_speaks_of_it(tmp_path: Path) -> None:
    other = {"reason": "r", "text": "Round money to cents."}
    script = json.loads(answer(DAYS))
    script["lessons"].insert(0, other)
    advantage, _ = compared(tmp_path, ATTEMPTS, lambda _: json.dumps(script), summarise_over=100)
    assert [one.text for one in advantage.lessons] == [
        "Round money to cents.",
        RULE.replace("week by", "week (5) by"),
    ]
    assert [len(one.numbers) for one in advantage.lessons] == [0, 1]


@pytest.mark.parametrize(
    "numbers",
    [None, "5", ["5"], [{"number": 5}], [{"number": 5, "stands_for": None}], {"5": "days"}],
)
def test_a_lesson_counts_beside_numbers_that_are_out_of_shape(tmp_path: Path, numbers: Any) -> None:
    script = json.dumps({**json.loads(answer()), "numbers": numbers})
    advantage, server = compared(tmp_path, ATTEMPTS, lambda _: script, summarise_over=100)
    assert [one.text for one in advantage.lessons] == [RULE]
    assert server.stages == {"comparison": 1}


def test_a_number_is_read_in_any_form(tmp_path: Path) -> None:
    days = {**DAYS, "number": 5, "stands_for": "working days per week" + " " * 900}
    advantage, _ = compared(tmp_path, ATTEMPTS, lambda _: answer(days), summarise_over=100)
    assert advantage.lessons[0].text == RULE.replace("week by", "week (5) by")


def test_a_lesson_without_telling_numbers_stays_as_it_is() -> None:
    assert with_numbers("In 8 weeks, rest.", [], PROBLEM) == "In 8 weeks, rest."


@pytest.mark.parametrize(
    ("text", "number", "named"),
    [
        ("Multiply by 12.5.", "12", False),
        ("It is 1,200 days.", "200", False),
        ("It is 1,200 days.", "1200", True),
        ("Take 9x5.", "9.5", False),
        ("Take Seven.", "7", True),
        ("Take sevenths.", "7", False),
        ("Take 0.5.", "0.5", True),
        ("Take .5.", "0.5", False),
        (f"Take {'7' * 5000}.", "7" * 5000, True),
        ("Take 7.", "7" * 5000, False),
    ],
)
def test_whether_a_text_names_a_number(text: str, number: str, named: bool) -> None:
    assert names_number(text, number) is named


def test_meanings_that_are_of_this_problem_alone_or_of_no_number_are_left_out() -> None:
    numbers = TellingNumbers(("5", "2"), ())
    given = [
        meaning(" the days. "),
        meaning("again"),
        meaning("x", "7"),
        meaning("pairs", "2", False),
        meaning("the working days in 8 weeks", "2"),
    ]
    assert numbers.meanings([*given, meaning(" . ", "2")], WEEKS) == (meaning("the days"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("In 8 weeks, there are many days.", "In any number of weeks, there are many days."),
        ("In a new 8-week period, rest.", "In a new period, rest."),
        ("In a 7-week period, rest.", "In a 7-week period, rest."),
        ("In 8 weeks there are many days.", "In 8 weeks there are many days."),
        ("Rest in 8 weeks, then work.", "Rest in 8 weeks, then work."),
        ("When 8 times comes up, rest.", "When 8 times comes up, rest."),
        ("When 8 weeks per year go by, rest.", "When 8 weeks per year go by, rest."),
        ("In 18 weeks, rest.", "In 18 weeks, rest."),
        ("In 1.8 weeks, rest.", "In 1.8 weeks, rest."),
        ("When 1,800 hours in 8 weeks, rest.", "When 1,800 hours in any number of weeks, rest."),
    ],
)
def test_quantities_of_a_problem_are_any(text: str, expected: str) -> None:
    assert for_any_quantity(text, PROBLEM.problem) == expected


def answer(*meanings: dict[str, Any], text: str = RULE) -> str:
    lesson = {"reason": "It is right.", "text": text}
    return json.dumps({"right_did": "", "wrong_did": "", "numbers": meanings, "lessons": [lesson]})


DAYS = {"number": "5", "stands_for": "working days per week", "always": True}
ATTEMPTS = group(WEEKS, ["8 * 5 = 40"], ["8 * 7 = 56"])


def test_a_comparison_explains_the_numbers_it_is_told_of(tmp_path: Path) -> None:
    advantage, server = compared(
        tmp_path, ATTEMPTS, lambda _: answer(DAYS, {**DAYS, "number": "9"}), summarise_over=100
    )
    (lesson,) = advantage.lessons
    assert lesson.text == RULE.replace("week by", "week (5) by")
    assert lesson.numbers == (meaning("working days per week"),)
    assert server.stages == {"comparison": 1}
    (text,) = said(server, "comparison")
    assert text.endswith(
        "Right answer: 40\n\nCalculated with in right attempts alone: 5\n"
        "Calculated with in wrong attempts alone: 7"
    )
    schema = server.requests[0]["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["right_did", "wrong_did", "numbers", "lessons"]
    assert schema["required"] == list(schema["properties"])
    assert schema["properties"]["numbers"]["items"]["properties"]["number"]["enum"] == ["5"]


@pytest.mark.parametrize("stands_for", ["days, so the answer is 40", "half of what"])
def test_a_meaning_that_no_lesson_may_have_is_left_out(tmp_path: Path, stands_for: str) -> None:
    advantage, _ = compared(
        tmp_path,
        ATTEMPTS,
        lambda _: answer({**DAYS, "stands_for": stands_for}, text="Count the days."),
        summarise_over=100,
    )
    (lesson,) = advantage.lessons
    expected = (
        "Count the days." if "answer" in stands_for else "Count the days. Take 5 for half of what."
    )
    assert lesson.text == expected


def test_attempts_that_are_summarised_have_no_numbers(tmp_path: Path) -> None:
    script = lambda request: "It did." if stage(request) == "summary" else answer(DAYS)  # noqa: E731
    advantage, server = compared(tmp_path, ATTEMPTS, script, summarise_over=9)
    assert [lesson.text for lesson in advantage.lessons] == [RULE]
    assert not any("Right answer: 40\n\nCalculated" in text for text in said(server, "comparison"))
    schema = server.requests[-1]["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["right_did", "wrong_did", "lessons"]


def test_a_prompt_that_does_not_tell_the_numbers_is_not_asked_about_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = templates.parse("comparison", "<!-- user -->\n{{winners}}\n{{losers}}\n")
    load = templates.load
    monkeypatch.setattr(templates, "load", lambda name: own if name == "comparison" else load(name))
    _, server = compared(tmp_path, ATTEMPTS, lambda _: answer(), summarise_over=100)
    assert "numbers" not in json.dumps(server.requests[0]["response_format"])


def firm(request: dict[str, Any]) -> str:
    """A model that knows two readings of a week, names no number in a lesson, and overwrites."""
    user = request["messages"][-1]["content"]
    match stage(request):
        case "rollout":
            weeks = int(user.split(" for ")[1].split()[0])
            told = "(5)" in request["messages"][0]["content"]
            days = 5 if told or request["seed"] % 2 else 7
            return f"{weeks} weeks * {days} days = {weeks * days}. \\boxed{{{weeks * days}}}"
        case "comparison":
            return answer(DAYS) if "alone: 5" in user.rpartition("Right answer")[2] else answer()
        case _:
            return decision("G0", "refines", "Take the days.")


def test_a_run_with_the_defaults_learns_the_number_and_says_where_from(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [
        {"id": f"w{n}", "problem": f"Busy for {n} weeks. How many days?", "answer": str(5 * n)}
        for n in (2, 3, 4, 6, 8, 9)
    ]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with ScriptedEndpoint(firm) as server:
        asked = ("train", "problems.jsonl", "--model", "m", "--base-url", server.base_url)
        flags = ("--group-size", "6", "--batch-size", "6", "--epochs", "1", "--run", "r")
        assert cli(*asked, *flags).returncode == 0
    assert "summary" not in server.stages
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        (experience,) = store.library()
        assert "working days per week (5)" in experience.text
        operations = store.history(experience.id)
        assert operations[0].evidence["numbers"] == ["5"]


def test_a_number_for_what_the_problem_has_none_of_is_not_told() -> None:
    problem = Problem("days-1", "The kitchen took the florist 5 days. How many hours?", "40")
    taken_for = "5 \\text{ weeks} \\times 8 \\text{ hours/week} = 40"
    right = "5 \\text{ days} \\times 8 \\text{ hours/day} = 40"
    wrong = ["5 \\text{ days} \\times 24 \\text{ hours/day} = 120"]
    attempts = group(problem, [taken_for, taken_for, right], wrong)
    assert telling_numbers(attempts, attempts.winners, attempts.losers).right == ()
    attempts = group(problem, [taken_for, right, right], wrong)
    told = telling_numbers(attempts, attempts.winners, attempts.losers)
    assert (told.right, told.units) == (("8",), {"8": "hours per day"})
