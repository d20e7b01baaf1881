"""Finds and removes a text in a store beside the events: in requests, in answers that quote it, and
in JSON that escapes it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple

from tfgrpo.store.canonical import canonical
from tfgrpo.store.records import REDACTED

REDACTION = "redaction"
"""The kind of a decision that lets a redaction change another, whose id is its subject."""

SHORTEST = 4
"""A text shorter than this, in characters, would match everywhere."""
BACKSLASHES = r"\\\\*+"
"""One or more, written so that a search is quick to pass what has none."""
SHORT = {'"': '"', "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""What stands behind the backslash of a short escape, by character."""


REPLACED: dict[tuple[str, str], Literal["json", "plain"]] = {
    ("texts", "text"): "json",
    ("journal", "answer"): "json",
    ("rollouts", "verdict"): "json",
    ("evaluations", "config"): "json",
    ("evaluations", "summary"): "json",
    ("scores", "answer"): "plain",
    ("decisions", "subject"): "plain",
    ("decisions", "content"): "json",
    ("decisions", "why"): "plain",
}
"""The columns in which a text may be replaced, and what they hold."""


class Occurrence(NamedTuple):
    """A place that holds the text: a column of a row. `kept` says why it stays, if it does."""

    table: str
    column: str
    row: int
    kept: str | None = None


def forms(texts: Iterable[str]) -> tuple[str, ...]:
    """The ways in which texts are written, longest first: as they are, and on one line, as in
    prompts. `matcher` and `matches_bytes` handle the escapes of JSON and of our files."""
    written = {form for text in texts for form in (text, " ".join(text.split()))}
    return tuple(sorted(written, key=lambda form: (-len(form), form)))


def matcher(written: Iterable[str]) -> re.Pattern[str]:
    r"""Returns what finds any of these forms: as it is, escaped as JSON, and JSON within JSON,
    however often, or as Markdown, YAML and CSV have it: with other indentation, `&#10;`, `''`.
    Clients escape differently: `\u00FC`, `\/`, `\u0027`."""
    return re.compile("|".join(map(_in_any_spelling, written)))


def matches_bytes(written: Iterable[str]) -> re.Pattern[bytes]:
    """What finds the same in the bytes of a file, in UTF-8."""
    return re.compile(matcher(written).pattern.encode(errors="surrogatepass"))


def _in_any_spelling(form: str) -> str:
    """A pattern of a text. The backslashes of a run and of what is escaped behind it are one run:
    it is taken whole, so that a long one takes no time. So are quotation marks, doubled or not."""
    pattern, after = "", ""
    parts = r"(\\+)|(\r?\n[ \t]*)|((['\"])\4*)|(.)"
    for run, end, quotes, quote, char in re.findall(parts, form, re.DOTALL):
        as_run = rf"(?:\\{{{len(run)},}}+|(?:{BACKSLASHES}u005[cC]){{{len(run)}}})"
        escape = after or BACKSLASHES
        if quotes:
            as_run = _spellings(quote, escape) + _spellings(quote, BACKSLASHES)
            as_run += f"{{{len(quotes) - 1},{2 * len(quotes) - 1}}}"
        pattern += (
            as_run if run or quotes else _line_end(escape) if end else _spellings(char, escape)
        )
        after = r"\\*" if run else ""
    return pattern


@cache
def _line_end(backslashes: str) -> str:
    """A pattern of a line's end with the next line's indentation, whatever that is."""
    blank = f"{_spellings(' ', BACKSLASHES)}|{_spellings(chr(9), BACKSLASHES)}"
    before, end = (_spellings(char, backslashes) for char in "\r\n")
    return f"{before}{{0,2}}{end}(?:{blank})*"


@cache
def _spellings(char: str, backslashes: str) -> str:
    units = char.encode("utf-16-be", errors="surrogatepass").hex()
    hexes = [
        re.sub("[a-f]", lambda digit: f"[{digit[0]}{digit[0].upper()}]", units[n : n + 4])
        for n in range(0, len(units), 4)
    ]
    escape = backslashes + "u" + f"{BACKSLASHES}u".join(hexes)
    ways = [re.escape(char), escape]
    if char in SHORT:
        ways.append(backslashes + SHORT[char])
    if char == "&":
        ways.append("&amp;")
    if char == "<" or char.isspace() or not char.isprintable():
        ways.append(f"&#{ord(char)};")
        if ord(char) < 0x100:
            ways.append(f"{backslashes}x{units[2:].upper()}")
    return f"(?:{'|'.join(ways)})"


def reason_to_stay(table: str, column: str) -> str | None:
    """Why a text stays in a column, or None where it may be replaced."""
    if (table, column) in REPLACED:
        return None
    if table in ("versions", "events"):
        return "the digest of its version covers it"
    return "the table is append-only" if table != "rollouts" else "other rows refer to it"


def is_structure(table: str, column: str, kind: str) -> bool:
    """Whether what a column of a decision of some kind holds is of no user's making: digests of
    redacted texts and names of decisions. It is neither searched nor changed."""
    return kind == REDACTION and table == "decisions" and column in ("subject", "content")


def users_own(table: str, column: str) -> str:
    """The condition in SQL, behind others, that rows of a table hold no such structure there."""
    return f" and kind <> '{REDACTION}'" if is_structure(table, column, REDACTION) else ""


def cleaned(table: str, column: str, value: str, pattern: re.Pattern[str]) -> str:
    """What a column of `REPLACED` holds instead of a value."""
    is_json = REPLACED[table, column] == "json"
    value = clean_json(value, pattern) if is_json else pattern.sub(REDACTED, value)
    if (table, column) != ("journal", "answer"):
        return value
    answer = json.loads(value)
    if isinstance(answer, dict):  # it is no longer what the model said, so that none replays it
        answer["finish_reason"] = "redacted"
    return canonical(answer).decode()


def clean_json(value: str, pattern: re.Pattern[str]) -> str:
    """JSON without the pattern, in whichever text of it that was."""
    try:
        content = json.loads(value)
    except ValueError:  # damaged: what it is worth as JSON is lost already
        return pattern.sub(REDACTED, value)
    return canonical(_clean(content, pattern)).decode()


def _clean(value: object, pattern: re.Pattern[str]) -> object:
    if isinstance(value, str):
        return pattern.sub(REDACTED, value)
    if isinstance(value, list):
        return [_clean(item, pattern) for item in value]
    if isinstance(value, dict):
        return {pattern.sub(REDACTED, k): _clean(v, pattern) for k, v in value.items()}
    return value
