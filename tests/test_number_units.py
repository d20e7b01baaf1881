"""What attempts write a number as, where that is a rate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_reflection import compared
from test_telling_numbers import LONG_TEXTS, group, meaning

from tfgrpo.data.problems import Problem
from tfgrpo.training.number_lessons import with_numbers
from tfgrpo.training.number_units import Rate, is_misread, plural, rates_in, unit_of
from tfgrpo.training.telling_numbers import telling_numbers

RATES = {
    "8 hours/day": ("8", "hours", "day"),
    "He works 8 hours per day.": ("8", "hours", "day"),
    "8 Hours a Day": ("8", "hours", "day"),
    "8 hours each day": ("8", "hours", "day"),
    "5 days in one week": ("5", "days", "week"),
    "approximately 4 weeks in a month": ("4", "weeks", "month"),
    "4 weeks per month typically": ("4", "weeks", "month"),
    "5 working days in a standard week": ("5", "working days", "week"),
    "2.50 euros for each parcel": ("2.5", "euros", "parcel"),
    "1,200 euros per month": ("1200", "euros", "month"),
    r"1{,}250 \text{ ml per day} \times 4": ("1250", "ml", "day"),
    r"\[ 4 \text{ months} \times 4 \text{ weeks/month} = 16 \]": ("4", "weeks", "month"),
    r"\(5 \, \text{days} / \text{week}\)": ("5", "days", "week"),
    r"\frac{8 \text{ hours}}{1 \text{ day}}": ("8", "hours", "day"),
    r"\dfrac{8\text{ hours}}{\text{day}}": ("8", "hours", "day"),
    "**8 hours** per **day**": ("8", "hours", "day"),
    "A day has 8 hours.": ("8", "hours", "day"),
    "one week is 5 days": ("5", "days", "week"),
    "Each month contains about 4 weeks": ("4", "weeks", "month"),
    "1 day = 8 hours": ("8", "hours", "day"),
    "In a month, there are 4 weeks": ("4", "weeks", "month"),
    "weeks_per_month = 4": ("4", "weeks", "month"),
    "Hours per day: 8": ("8", "hours", "day"),
    "an 8-hour workday": ("8", "hours", "day"),
    "a 5-day working week": ("5", "days", "working week"),
    "- 8 hours per day": ("8", "hours", "day"),
}


@pytest.mark.parametrize("text", RATES)
def test_a_rate_is_read_as_it_is_written(text: str) -> None:
    assert Rate(*RATES[text]) in rates_in(text)


@pytest.mark.parametrize(
    "text",
    [
        "8 hours",
        "4 weeks in 6 months",
        "8 and 9 per day",
        "1,800 hours of work",
        "version 1.8.3 per day",
        "8 times 5",
        "8\nhours per day",
        "8 * 5 / 7",
        "8 in a row",
        "",
        "Hours per week = 5 * 8 = 40. 40 * 6 = 240",
        "Hours per week: 40 / 5",
        "5 × hours per week = 40",
        "1/2 litre per day * 6",
        "1 1/2 hours per day * 6",
        "24/3 hours per day",
        "-2 metres per hour",
        "4-5 days per week",
        "8:30 hours per day",
        "2^{3} hours per day",
        "5 euros for the island",
        "a 4-euro base fee",
        "10-percent club discount",
        "The price per ticket is 7",
        "5 euros for the first hour",
        "2-year old",
        "a 3-step process",
        "4 apples each costs 2",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert rates_in(text) == set()


def test_a_unit_is_that_of_most_attempts_in_the_words_of_most() -> None:
    written = ["5 working days per week", "5 days/week", "a week has 5 working days", "5 weeks"]
    attempts = [rates_in(text) for text in written]
    assert unit_of("5", attempts) == "working days per week"
    assert unit_of("5", attempts[1:]) == "days per week"
    assert unit_of("5", attempts[2:]) is None
    assert unit_of("7", attempts) is None
    assert unit_of("5", []) is None
    weekdays = [rates_in("a week has 5 weekdays"), rates_in("5 days/week")]
    assert unit_of("5", weekdays) == "days per week"
    asked = "How many working days go on the bill?"
    assert unit_of("5", weekdays, asked) == "working days per week"
    assert unit_of("5", weekdays, "How many school weeks?") == "days per week"


MONTHS = Problem("m", "A cook comes once a week. How many visits are there in 5 months?", "20")


def test_a_comparison_is_told_the_unit_that_right_attempts_write() -> None:
    right = ["4 weeks in a month, 5 * 4 = 20", "5 months × 4 weeks/month = 20"]
    one = group(MONTHS, right, ["5 * 7 = 35"])
    telling = telling_numbers(one, one.winners, one.losers)
    assert telling.words().splitlines()[0] == (
        "Calculated with in right attempts alone: 4 weeks per month"
    )
    (known,) = telling.meanings([meaning("visits per week", "4")], MONTHS)
    text = "When a cook comes once a week, multiply the number of visits per week by the weeks."
    assert with_numbers(text, [known], MONTHS) == STEP


STEP = "When months are given and weeks asked for, multiply the months by 4."
ALONE = "When months are given and weeks asked for, take 4 weeks per month."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When a cook comes, the visits are 4.", "When a cook comes, take 4 weeks per month."),
        ("The visits are 4.", ALONE),
        (
            "When months are asked for, count them, multiply by 4, then by the price.",
            "When months are asked for, count them, multiply by 4, then by the price.",
        ),
        ("Unless it rains, use 4 as the factor.", "Unless it rains, use 4 as the factor."),
        (
            "If a cook comes for any months, the visits are 4 weeks.",
            "If a cook comes for any months, take 4 weeks per month.",
        ),
        ("Multiply by the 4 weeks.", "Multiply by the 4 weeks."),
        (
            "For 4 visits, count the weeks per month.",
            "For 4 visits, count the weeks per month (4).",
        ),
        ("The weeks of a month are 4.", "The weeks of a month are 4."),
        ("A month has 4 weeks.", "A month has 4 weeks."),
        ("Multiply the months by 4.", "Multiply the months by 4."),
        ("Multiply by the weeks of a month.", "Multiply by the weeks of a month (4)."),
        ("Multiply by the weeks per month.", "Multiply by the weeks per month (4)."),
    ],
)
def test_a_number_beside_the_wrong_thing_is_put_right(text: str, expected: str) -> None:
    known = meaning("weeks per month", "4").model_copy(update={"is_written": True})
    assert with_numbers(text, [known], MONTHS) == expected


@pytest.mark.parametrize(
    ("right", "is_factor"),
    [
        (["5 months × 4 weeks/month = 20"], True),
        ([r"\( 5 \times 4 \text{ weeks/month} = 20 \)"], True),
        (["5 times 4 = 20, as a month has 4 weeks", "4 weeks per month times 5 = 20"], True),
        (["A month has 4 weeks: 80 / 4 = 20"], False),
        ([r"A month has 4 weeks, so 4 * x = 80 and x = \frac{80}{4} = 20"], False),
        ([r"A month has 4 weeks: 80 \div 4 = 20"], False),
        (["4 weeks per month, 16 + 4 = 20"], False),
        (["5 × 4 weeks/month = 20", "A month has 4 weeks: 80 / 4 = 20"], False),
        (["5 × 4 weeks/month = 20"] * 2 + ["A month has 4 weeks: 80 / 4 = 20"], True),
    ],
)
def test_the_step_is_given_where_right_attempts_multiply(right: list[str], is_factor: bool) -> None:
    one = group(MONTHS, right, ["5 * 7 = 35"])
    telling = telling_numbers(one, one.winners, one.losers)
    assert telling.factors == (frozenset("4") if is_factor else frozenset())
    (known,) = telling.meanings([meaning("visits per week", "4")], MONTHS)
    assert with_numbers("Count the weeks.", [known], MONTHS) == (
        STEP if is_factor else "Count the weeks. Take 4 weeks per month."
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When a cook comes, count the visits.", f"When a cook comes, count the visits. {STEP}"),
        ("When visits are billed, count the weeks in the months.", STEP),
        (
            "When visits are billed, use 4 weeks per month.",
            "When visits are billed, use 4 weeks per month. Multiply the months by 4.",
        ),
        ("Multiply the months by 4 for the weeks.", "Multiply the months by 4 for the weeks."),
        ("When a cook comes, the visits are 4.", STEP),
        ("When a month has 4 weeks, multiply the weeks by the visits of one.", STEP),
        ("When visits are counted for 5 months, use 4 weeks per month.", STEP),
        ("Count 4 weeks per month, so 5 months have 20.", STEP),
        (
            "When a month is billed, add 2 weeks.",
            f"When a month is billed, add 2 weeks. {STEP}",
        ),
    ],
)
def test_a_vague_lesson_makes_way_for_the_step(text: str, expected: str) -> None:
    known = meaning("weeks per month", "4").model_copy(
        update={"is_written": True, "is_factor": True}
    )
    assert with_numbers(text, [known], MONTHS) == expected
    assert known.is_stated_in(STEP)
    assert not known.is_stated_in(STEP.replace("4", "40"))
    assert not known.is_stated_in(
        "When weeks are given and days asked for, multiply the weeks by 4."
    )


def test_a_step_without_room_is_given_where_the_lesson_holds_or_not_at_all() -> None:
    step = meaning("weeks per month", "4").model_copy(
        update={"is_written": True, "is_factor": True}
    )
    vague = "When visits are billed, count the weeks in the months."
    assert with_numbers(vague, [step], MONTHS, 13) == STEP
    assert with_numbers(vague, [step], MONTHS, 12) == f"{vague[:-1]} (4)."
    assert with_numbers(vague, [step], MONTHS, 10) == (
        "When visits are billed, multiply the months by 4."
    )
    assert with_numbers(vague, [step], MONTHS, 5) == vague


def test_a_long_text_is_searched_for_a_step_in_no_time() -> None:
    known = meaning("weeks per month", "4").model_copy(update={"is_written": True})
    for piece in ("multiply the month ", "multiply ", "month by ", "week month by 5 "):
        assert not known.is_stated_in(piece * 20_000)


def test_a_lesson_without_room_makes_way_for_a_number_whose_unit_is_written() -> None:
    text = "When a cook comes once a week, multiply the visits of a week by the weeks there are."
    known = meaning("weeks per month", "4").model_copy(update={"is_written": True})
    alone = "When a cook comes once a week, take 4 weeks per month."
    assert with_numbers(text, [known], MONTHS, 23) == f"{text} Take 4 weeks per month."
    assert with_numbers(text, [known], MONTHS, 22) == alone
    assert with_numbers(text, [known], MONTHS, 10) == text
    assert with_numbers(text, [meaning("weeks per month", "4")], MONTHS, 20) == text


def test_a_lesson_without_numbers_stays_as_it_is_however_long() -> None:
    text = "When two quantities stand beside a sign, " + "compare them " * 20 + "first."
    assert with_numbers(text, [], MONTHS, 32) == text
    assert with_numbers("Compare " * 40, [], MONTHS, 32) == "Compare " * 40


def test_a_lesson_that_repeats_a_known_one_makes_way_for_the_number(tmp_path: Path) -> None:
    one = group(MONTHS, ["5 months × 4 weeks/month = 20"] * 2, ["5 * 7 = 35"])
    numbers = [{"number": "4", "stands_for": "hours", "always": True}]
    for text, expected in [
        ("Carry the ten!", [STEP]),
        ("Carry a two.", ["Carry a two.", STEP]),
        ("A week has 6 working days.", ["A week has 6 working days.", STEP]),
        ("Count the weeks.", [STEP]),
    ]:
        (folder := tmp_path / text[:-1]).mkdir()
        given = {"right_did": "", "wrong_did": "", "numbers": numbers}
        answer = json.dumps({**given, "lessons": [{"reason": "r", "text": text}]})
        advantage, _ = compared(folder, one, lambda _, answer=answer: answer, summarise_over=100)
        assert [lesson.text for lesson in advantage.lessons] == expected
        assert [len(lesson.numbers) for lesson in advantage.lessons] == [0, 1][-len(expected) :]


def test_numbers_count_where_no_lesson_can_be_used(tmp_path: Path) -> None:
    one = group(MONTHS, ["5 months × 4 weeks/month = 20"] * 2, ["5 * 7 = 35"])
    numbers = [{"number": "4", "stands_for": "hours", "always": True}]
    repeated = {"reason": "r", "text": "When a parcel goes to an island, multiply the kilograms."}
    for lessons, always, expected in [
        ([repeated], True, [STEP]),
        ([], True, [STEP]),
        ([], False, []),
        ([repeated], False, []),
    ]:
        (folder := tmp_path / f"{len(lessons)}{always}").mkdir()
        given = {"right_did": "", "wrong_did": "", "numbers": [{**numbers[0], "always": always}]}
        answer = json.dumps({**given, "lessons": lessons})
        advantage, _ = compared(folder, one, lambda _, answer=answer: answer, summarise_over=100)
        assert [lesson.text for lesson in advantage.lessons] == expected
        assert len(advantage.failures) == len(lessons)
        assert all(len(lesson.calls) == 1 for lesson in advantage.lessons)


@pytest.mark.parametrize(
    ("noun", "several"),
    [("day", "days"), ("copy", "copies"), ("box", "boxes"), ("foot", "feet"), ("kg", "kg")],
)
def test_a_plural(noun: str, several: str) -> None:
    assert plural(noun) == several


def test_a_number_of_the_problem_may_be_another_one_with_its_own_unit() -> None:
    problem = Problem("m", "A cook comes once a week. How often is that in 4 months?", "16")
    right = ["4 months * 4 weeks/month = 16", "4 weeks in a month: 4 * 4 = 16"]
    one = group(problem, right, ["4 * 7 = 28"])
    telling = telling_numbers(one, one.winners, one.losers)
    assert (telling.right, dict(telling.units)) == (("4",), {"4": "weeks per month"})
    both = group(problem, right, ["4 weeks per month, 4 * 4 * 7 = 112"])
    assert telling_numbers(both, both.winners, both.losers).right == ()
    stated = Problem("m", "A month has 4 weeks. How many weeks are in 4 months?", "16")
    known = group(stated, right, ["4 * 7 = 28"])
    assert telling_numbers(known, known.winners, known.losers).right == ()


@pytest.mark.parametrize("text", LONG_TEXTS, ids=range(len(LONG_TEXTS)))
def test_the_longest_attempts_are_read(text: str) -> None:
    assert all(rate.number in text for rate in rates_in(text))


@pytest.mark.parametrize(
    "piece", ["8 hours per ", "a day has ", "hours per day ", r"\frac{8}{", "8-a "]
)
def test_what_never_becomes_a_rate_takes_no_time(piece: str) -> None:
    rates_in(piece * 8_000)


MISREAD = {
    "its days taken for weeks": ("The kitchen took 5 days.", "5 weeks × 8 hours/week = 40", True),
    "in LaTeX": ("It took 5 days.", "\\(5 \\text{ weeks} \\times 8 \\text{ hours/week}\\)", True),
    "its own unit": ("It took 5 weeks.", "5 weeks × 8 hours/week = 40", False),
    "a unit between": ("It took 2 weeks.", "2 weeks are 10 days; 10 days × 8 hours/day", False),
    "both units": ("It took 5 days a week for 5 weeks.", "5 weeks × 8 hours/week", False),
    "no quantity": ("How long is it?", "5 weeks × 8 hours/week = 40", False),
    "with a hyphen": ("A 5-day course.", "5 weeks × 8 hours/week = 40", True),
    "none of it": ("It took 7 months.", "A year has 8 months, 7 × 8 = 56", True),
    "none, but named": ("How long is a year in 7 months?", "A year has 8 months", False),
    "other numbers": ("It took 3 days.", "5 weeks × 8 hours/week = 40", False),
    "another word for it": ("It took 12 workdays.", "12 × 8 hours/day = 96", False),
    "another word for one": ("Four Workdays it took.", "4 × 8 hours/day = 32", False),
    "what it comes to": (
        "3 weeks in a team of 15 people.",
        "3 weeks × 5 days/week = 15 days; 15 days × 8 hours/day = 120",
        False,
    ),
    "what it comes to in LaTeX": (
        "3 weeks in a team of 15 people.",
        r"\(3 \times 5 = 15 \text{ days}\), \(15 \text{ days} \times 8 \text{ hours/day}\)",
        False,
    ),
    "what it only calls so": ("It took 5 days.", "Time = 5 weeks, 5 weeks × 8 hours/week", True),
    "a rate of its own": (
        "5 shelves a week for 3 weeks.",
        "3 weeks × 5 days/week = 15 days; 15 days × 8 hours/day = 120",
        False,
    ),
}


@pytest.mark.parametrize("name", MISREAD)
def test_a_quantity_that_is_taken_for_another(name: str) -> None:
    problem, attempt, expected = MISREAD[name]
    (rate,) = (rate for rate in rates_in(attempt) if rate.number == "8")
    assert is_misread(rate, attempt, problem) is expected
