"""Lessons that say no more than a step that is known, and right ones that say more."""

from __future__ import annotations

import pytest

from tfgrpo.training.number_lessons import NumberMeaning
from tfgrpo.training.number_votes import is_vote

STEP = "When days are given and hours asked for, multiply the days by 8."
HOURS = NumberMeaning(
    number="8", stands_for="hours per day", always=True, is_written=True, is_factor=True
)
MORE = """\
When days are given, leave out Sundays, then multiply the days by 8 for the hours.
When the first day is free, take one day off, then multiply the days by 8 for the hours.
When days are given, multiply the working days by 8 hours and keep weekends out.
When hours of a boat are asked for, multiply the days by 8, then double it for two boats.
When days are given, multiply the days by 8 for the hours, then halve the hours on Saturdays.
When days are given, multiply the days by 8 for hours and those by the price per hour.
When days are given and hours asked for, multiply the days by 8 and count a half day as a whole one.
When days and people are given, multiply the days by 8 for the hours, and those by the people.
When the shop is open on days, multiply the days by 8 for the hours, skip holidays.
When days are given, multiply the days by the hours per day that the problem gives.
When a problem says how many hours a day has, multiply the days by those hours.
When a problem says how many hours a day has, multiply the days by the hours.
When night shifts are given, multiply the days by the hours of a night shift.
When days are given for several people, multiply the hours of the days by the people.
When hours per day are given, use them and multiply by the days.
When hours per day are given, multiply the days by the hours per day.
When hours of days are asked for, multiply days by hours, then multiply by the price.
When the hours are asked for, multiply the days by 8 for each person.
When hours are asked for, multiply the days by 8 per machine.
When days are given, multiply the days by 8 for the hours; a lunch hour is not paid.
When days are given, multiply the days by 8 for hours if they are working days only.
When overtime is worked, multiply the days by 8 for the hours.
When only part of the days is billed, multiply the days by 8 for the hours.
When a week is given, multiply the days by 8 for the hours.
Convert days to hours at 8 hours a day, then multiply by the rate.
When days are asked for, multiply the hours by 8.
When hours are given, multiply the hours by 8 for the days.
When days are asked for, multiply the days by 8 hours.
When hours are turned into days, multiply the hours of the days by 8.
When hours are asked for, multiply the weeks by 8.
When hours are asked for, multiply the days by the price.
When hours are asked for, divide the days by 8.
When hours are asked for, add 8 to the days.
When hours are asked for, hours = days + 8.
There are 8 days in an hour.
There are 8 tailors per day.
Take 8 euros per hour.
The number of days is 8.
Never multiply the days by 8 for the hours.
"""
NO_MORE = """\
When days are given and the hours asked for, multiply the days by 8.
When a printer is used for days, multiply the number of days by 8 for the hours.
When a florist works for days, multiply the days by 8 to get the total number of hours.
For the hours of a joiner, multiply the days by 8.
Multiply the days by 8 to find the hours.
To get hours from days, multiply the days by 8.
When days are given, multiply the working days by 8 hours.
When converting days into hours, multiply the number of days by 8.
Multiply the days by 8 when hours are asked for.
Multiply the days by the hours per day.
When hours are asked for, multiply the number of hours in one day by the days.
"""
NUMBER_ALONE = """\
A working day has 8 hours.
The florist works 8 hours per day.
When the hall is cleaned, count 8 hours per day.
A working day has 8 hours. Multiply the days by 8.
To get hours from days, multiply by 8.
To get hours from days, multiply by eight.
"""


@pytest.mark.parametrize("text", MORE.splitlines())
@pytest.mark.parametrize("numbers", [(), (HOURS,)])
def test_what_says_more_than_a_step_is_no_vote_for_it(
    text: str, numbers: tuple[NumberMeaning, ...]
) -> None:
    assert not is_vote(text, numbers, STEP)


@pytest.mark.parametrize("text", NO_MORE.splitlines())
def test_what_says_no_more_than_a_step_is_a_vote_for_it(text: str) -> None:
    assert is_vote(text, (), STEP)
    assert not is_vote(text, (), f"{STEP} Round up.")


@pytest.mark.parametrize("text", NUMBER_ALONE.splitlines())
def test_a_number_alone_is_a_vote_where_right_attempts_write_it(text: str) -> None:
    assert is_vote(text, (HOURS,), STEP)
    assert not is_vote(text, (HOURS,), STEP.replace("8", "7"))


@pytest.mark.parametrize("piece", ["multiply ", "day by ", "when days ", "8 ", "the days by 8 "])
def test_a_long_text_is_no_vote_in_no_time(piece: str) -> None:
    assert not is_vote(piece * 20_000 + "elsewhere", (HOURS,), STEP)
