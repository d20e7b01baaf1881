"""A lesson and the step that right attempts multiply by: one for the other, or both."""

from __future__ import annotations

import pytest
from test_telling_numbers import group

from tfgrpo.data.problems import Problem
from tfgrpo.training.lesson_check import LessonCheck
from tfgrpo.training.number_lessons import NumberMeaning
from tfgrpo.training.reflection import Lesson, with_meanings

BILL = Problem("bill-17", "A tailor works for 12 days at 9 euros per hour. How many hours?", "96")
STEP = "When days are given and hours asked for, multiply the days by 8."
HOURS = NumberMeaning(
    number="8", stands_for="hours per day", always=True, is_written=True, is_factor=True
)
RULES = """\
Round up to the next full hour.
Part of an hour counts as a whole hour.
Charge each started hour in full.
Round the hours of each day up to full hours.
Leave out Sundays when days are counted.
Bill at least 3 hours.
Saturdays are working days.
When hours are billed, add 3 for the way.
When days are given, multiply the days by the hours per day that the problem gives.
When a problem says how many hours a day has, multiply the days by those hours.
When night shifts are given, multiply the days by the hours of a night shift.
When days are given for several people, multiply the hours of the days by the people.
When hours per day are given, use them and multiply by the days.
When hours of days are asked for, multiply days by hours, then multiply by the price.
When days are given and hours asked for, multiply the days by those hours that each day has \
in the problem, be they few or not.
When the hours of a bill are told in quarters, turn the quarters into hours first, and then round \
what is left of them up.
For 24-hour guards, a day has 24 hours.
When a guard is on duty around the clock, multiply the days by 24 for the hours.
Saturday counts as half a day: 4 hours.
An hour has 60 minutes.
When days are given as weeks and days, turn all into days first, then into hours.
Value added tax of 19 percent goes on top.
A month has 4 weeks on every bill.
"""
VAGUE = """\
Multiply the days by the hours.
When a tailor works for days, multiply the days by the hourly rate.
When hours are asked for, multiply the days by the hours, not add the days to the hours.
When days are given, the number of hours is equal to the number of days.
Count the days.
The problem asks for hours.
Tailors work for days.
Calculate the total number of hours worked.
When a tailor comes once a day, the hours are looked after by the day.
The hours of 12 days are the days and the hours.
When a day has 8 hours, multiply the hours by the price.
"""
WRONG = """\
There are 8 tailors per day.
The number of days is 8.
There are 8 days in an hour.
Take 8 euros per hour.
The tailor works 96 hours.
A day has 12 hours.
"""
WITH_STEP = """\
A working day has 8 hours.
Each day is 8 hours.
In this house a day has eight working hours.
When days are given, hours = days x 8.
Never use 24 hours for a day; a working day is 8 hours.
"""


def with_hours(*texts: str) -> list[tuple[str, int]]:
    """Returns the lessons that become of some, with how many numbers each is about."""
    attempts = group(BILL, ["12 days × 8 hours/day = 96"], ["12 × 24 = 288"])
    lessons = tuple(Lesson(text, "It is right.", attempts, ("call",)) for text in texts)
    found = with_meanings(lessons, (HOURS,), LessonCheck((BILL,), max_words=32))
    return [(one.text, len(one.numbers)) for one in found]


@pytest.mark.parametrize("text", RULES.splitlines())
def test_a_rule_of_its_own_stays_as_it_is_beside_the_step(text: str) -> None:
    assert with_hours(text) == [(text, 0), (STEP, 1)]


@pytest.mark.parametrize("text", [*VAGUE.splitlines(), *WRONG.splitlines()])
def test_a_vague_or_wrong_lesson_makes_way_for_the_step(text: str) -> None:
    assert with_hours(text) == [(STEP, 1)]


@pytest.mark.parametrize("text", WITH_STEP.splitlines())
def test_a_right_rate_has_the_step_behind_it(text: str) -> None:
    assert with_hours(text) == [(f"{text} Multiply the days by 8.", 1)]


def test_a_step_without_room_for_a_lesson_of_its_own_goes_to_a_vague_one() -> None:
    rule = "Round up to the next full hour."
    assert with_hours(rule, "Multiply the days by the hours.") == [(rule, 0), (STEP, 1)]
    assert with_hours(rule, "Charge in euros.") == [(f"{rule} {STEP}", 1), ("Charge in euros.", 0)]
