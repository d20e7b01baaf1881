"""Points in time as people write them: `2026-11-20`, `2026-11-20T18:30`, `3d`, `2 days ago`.

    moment := date | date and time in ISO 8601 | <n><unit> | <n> <unit>s ago
    unit   := s | m | h | d | w | y    (second, minute, hour, day, week, year of 365 days)

A date or time without an offset is local. A date alone is its first instant, or, as the end of a
period, its last.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta

from tfgrpo.store.errors import TfgrpoError

AGO = re.compile(
    r"(\d+)\s*(s|sec|second|m|min|minute|h|hour|d|day|w|week|y|year)s?(?:\s+ago)?\Z", re.I
)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
LONGEST = 1 << 60
"""Microseconds that an age may have: some 36,000 years."""
DAY = re.compile(r"\d{4}-\d\d-\d\d\Z")


class UnknownTime(TfgrpoError):
    """A text that names no point in time."""


def parse_time(text: str, *, now: int, end: bool = False) -> int:
    """Returns the point in time that `text` names, in microseconds since 1970.

    `now` is in microseconds too. With `end`, a date alone is the last instant of its day. Raises
    UnknownTime.
    """
    text = text.strip()
    try:
        if match := AGO.match(text):
            ago = int(match[1]) * SECONDS[match[2][0].lower()] * 1_000_000
            if ago > LONGEST:
                raise OverflowError
            return now - ago
        if DAY.match(text):
            day = date.fromisoformat(text) + timedelta(days=end)
            start = datetime(day.year, day.month, day.day)
            return int(start.timestamp()) * 1_000_000 - end
        return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except (ValueError, OverflowError, OSError):
        raise UnknownTime(
            f"{text!r} is not a time",
            hint="use 2026-11-20, 2026-11-20T18:30, 3d, 2h or '2 weeks ago'",
        ) from None
