"""Times and counts as people say them, for the terminal and for pages alike."""

from __future__ import annotations

import time
from collections.abc import Iterable
from math import floor, isinf, log10


def age(microseconds: int) -> str:
    """How long ago a time was, as people say it."""
    seconds = max(0, time.time() - microseconds / 1e6)
    for size, unit in (
        (86400 * 365, "year"),
        (86400 * 30, "month"),
        (86400, "day"),
        (3600, "hour"),
        (60, "minute"),
    ):
        if seconds >= size:
            n = int(seconds // size)
            return f"{n} {unit}{'s' if n > 1 else ''} ago"
    return "just now"


def when(microseconds: int) -> str:
    """A time as local date and minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(microseconds / 1e6))


def iso(microseconds: int) -> str:
    """A time in UTC as ISO 8601, for JSON."""
    from datetime import UTC, datetime, timedelta

    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)).isoformat()


def did_you_mean(name: str, known: Iterable[str], before: str = "", after: str = "") -> str:
    """`did you mean epochs?` for what is nearly a known name; nothing where it is near none."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    return f"{before}did you mean {near[0]}?{after}" if near else ""


def percent(share: float) -> str:
    """A share as it was set, with as many digits as that had: `0.5 %`."""
    return f"{100 * share:g} %"


def typed(value: float | None, times: float = 1) -> str:
    """The shortest number that stands in a form for a value, and is that value again when it is
    read; `times` 100 for percent. Nothing for what is unknown."""
    if value is None:
        return ""
    short = f"{times * value:.15g}"
    return short if float(short) / times == value else repr(float(times * value))


def plural(count: int, noun: str) -> str:
    """`1 group`, `2 groups`."""
    if count != 1:
        noun = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count} {noun}"


def sampled(problems: int, samples: int, kind: str = "") -> str:
    """`1 problem × 8 samples`, `1,200 held-out problems × 1 sample`."""
    noun = f"{kind} problem" if kind else "problem"
    return f"{problems:,} {noun}{'s' * (problems != 1)} × {plural(samples, 'sample')}"


def with_bounds(mean: float, low: float | None, high: float | None) -> str:
    """A difference with its interval: `+0.354 [+0.079, +0.629]`; alone where there is none."""
    if low is None or high is None or isinf(low):
        return f"{mean:+.3f}"
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"


def money(amount: float | None) -> str:
    """US dollars as people read them: cents, or as many places as it takes."""
    if amount is None:
        return "unknown"
    if amount < 0:
        return f"-{money(-amount)}"
    if amount == 0 or amount >= 0.1:
        return f"${amount:,.2f}"
    places = max(4, 1 - floor(log10(amount)))  # two digits of it at least
    text = f"${amount:.{places}f}".rstrip("0")
    return text if len(text) >= len("$0.00") else text.ljust(len("$0.00"), "0")


def span(seconds: float) -> str:
    """`45 s`, `3 min 05 s`, `2 h 10 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def without_middle(text: str, most: int) -> str:
    """A text of which no more than `most` characters are left, half from either end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[…]\n{text[-most // 2 :]}"


COMPUTED = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet computes."""


def inert_cell(text: str) -> str:
    """A text as a cell that no spreadsheet computes: with a quote before it, as spreadsheets
    mark a text themselves. `read_cell` takes it away again."""
    return f"'{text}" if text.lstrip("'").startswith(COMPUTED) else text


def read_cell(cell: str) -> str:
    """The text of which `inert_cell` made a cell."""
    marked = cell.startswith("'") and cell.lstrip("'").startswith(COMPUTED)
    return cell[1:] if marked else cell
