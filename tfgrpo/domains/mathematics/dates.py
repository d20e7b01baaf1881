"""Times of day and dates, which a parser of formulas would read as ratios and differences."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from tfgrpo.domains.mathematics.notation import WRAPPING

CLOCK = re.compile(r"(\d{1,2})(?:\s?(?::|\{:\})\s?(\d{2}))?(?:\s*([ap])\.?\s*m\.?)?\Z", re.I)
YEAR_FIRST = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})\Z|(\d{4})年(\d{1,2})月(\d{1,2})[日号]\Z"
)
YEAR_LAST = re.compile(r"(\d{1,2})([./])(\d{1,2})\2(\d{4})\Z")
MONTH = re.compile(r"(?=.*\d)(?=.*\b[A-Za-z]{3,9}\b)[\w ]+\Z")
ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b(?: of\b)?")
IN_WORDS = ("%B %d", "%d %B", "%b %d", "%d %b")
LEAP = 2000
"""A year that has every day, for a date without one."""


class Time(NamedTuple):
    """A time of day; `half` is a, p or nothing."""

    hour: int
    minute: str
    half: str


def clock(text: str) -> Time | None:
    """Returns a time of day."""
    match = CLOCK.match(WRAPPING.sub(r"\1", text).strip().strip("$").strip())
    if match is None or not (match[2] or match[3]):
        return None
    return Time(int(match[1]), match[2] or "00", (match[3] or "").casefold())


def date(text: str) -> tuple[int, ...] | None:
    """Returns year, month and day; 0 for the year where none is named.

    Of `3/4/2025` nobody knows which is the month, so it is none; dots stand behind the day.
    """
    bare = WRAPPING.sub(r"\1", text).strip().strip("$ .")
    match = YEAR_FIRST.match(bare)
    if match is not None:
        year, month, day = (match[1], match[3], match[4]) if match[1] else match.groups()[4:]
        return _day(int(year), int(month), int(day))
    match = YEAR_LAST.match(bare)
    if match is not None:
        one, other, year = int(match[1]), int(match[3]), int(match[4])
        if match[2] == "." or one > 12:
            return _day(year, other, one)
        return _day(year, one, other) if other > 12 else None
    return _in_words(bare)


def _day(year: int, month: int, day: int) -> tuple[int, ...] | None:
    try:
        datetime(year, month, day)
    except ValueError:
        return None
    return year, month, day


def _in_words(text: str) -> tuple[int, ...] | None:
    """Returns the date of `Friday, March 14th, 2025`; none where the day is no Friday."""
    bare = ORDINAL.sub("", re.sub(r"[,.\-]", " ", text).removeprefix("the "))
    bare = " ".join(bare.split())
    if not MONTH.match(bare):
        return None
    for form in IN_WORDS:
        for whole in (f"{form} %Y", f"%Y {form}", f"%A {form} %Y", f"%a {form} %Y", form):
            dated, year = "%Y" in whole, f"{LEAP} "
            try:
                day = datetime.strptime(*((bare, whole) if dated else (year + bare, f"%Y {whole}")))
            except ValueError:
                continue
            named = whole.startswith(("%A", "%a"))
            if named and not bare.casefold().startswith(day.strftime("%a").casefold()):
                return None
            return (day.year if dated else 0), day.month, day.day
    return None
