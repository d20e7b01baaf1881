"""What the cells of a whole column are, where an answer is JSON: numbers, true and false, dates,
texts. What stays unclear, as 1,250 and 03/04/2024 alone are, stays a text and is said. And which
labels look misspelled."""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

Read: TypeAlias = Callable[[str], object]
"""From a cell's text to its value; the text itself where it is no such value."""
ENOUGH = 0.8
"""The share of the filled cells from which on a column is numbers, or dates."""
GAPS = re.compile(r"(?<=\d)[ \u00a0\u202f'’](?=\d{3}(?!\d))")
CODE = re.compile(r"[-+]?0\d")
"""A number for nobody: leading zeros are kept."""
PLAIN = re.compile(r"[-+]?(?:0|[1-9]\d*)(?:\.\d+)?")
BY_COMMA = re.compile(r"[-+]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?")
BY_POINT = re.compile(r"[-+]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?")
"""Numbers by what stands before their decimals; the other mark may part thousands."""
ISO = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?:[T ]00:00(?::00(?:\.0+)?)?(?:Z|[+-]00:00)?)?"
)
DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
SLASHED = re.compile(r"(\d{1,2})([/-])(\d{1,2})\2(\d{4})")


class Column(NamedTuple):
    """How the texts of a column are read, and what to say of it, a line each."""

    read: Read
    notes: tuple[str, ...] = ()


def is_empty(cell: object) -> bool:
    """Whether a cell holds nothing: tables of numbers may say that as a text, NaN."""
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in ("", "nan"))


def read_column(name: str, cells: Sequence[object]) -> Column:
    """How the texts among the cells of a column are read."""
    filled = [cell for cell in cells if not is_empty(cell)]
    texts = [cell.strip() for cell in filled if isinstance(cell, str)]
    values = sum(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in filled)
    if texts and all(text.lower() in ("true", "false") for text in texts):
        column = Column(lambda text: text.lower() == "true")
    else:
        column = _dates(name, texts) or _numbers(name, texts, values)
    if not (empty := len(cells) - len(filled)):
        return column
    note = f"{name!r}: {empty} of {len(cells)} are empty, where null is the right answer"
    return Column(column.read, (*column.notes, note))


def as_date(text: object) -> str | None:
    """A date as YYYY-MM-DD where its order is clear: the year first, or dots between; else None."""
    if not isinstance(text, str):
        return None
    if match := ISO.fullmatch(text.strip()):
        return _day(match[1], match[3], match[4])
    match = DOTTED.fullmatch(text.strip())
    return _day(match[3], match[2], match[1]) if match else None


def _numbers(name: str, texts: Sequence[str], values: int) -> Column:
    """A column of numbers, of which so many are values already; else one of texts."""
    plain = [GAPS.sub("", text) for text in texts]
    if any(map(CODE.match, plain)):
        return Column(str)
    commas = any(BY_COMMA.fullmatch(text) and not BY_POINT.fullmatch(text) for text in plain)
    points = any(BY_POINT.fullmatch(text) and not BY_COMMA.fullmatch(text) for text in plain)

    def read(text: str) -> object:
        bare = GAPS.sub("", text)
        by_comma, by_point = BY_COMMA.fullmatch(bare), BY_POINT.fullmatch(bare)
        if commas and points and by_comma and by_point and "," in bare:
            return text  # 1,250 beside 12,50 and 12.50
        if commas and by_comma and not (points and PLAIN.fullmatch(bare)):
            bare = bare.replace(".", "").replace(",", ".")
        elif by_point:
            bare = bare.replace(",", "")
        else:
            return text
        return json.loads(bare.removeprefix("+"))

    column = _column(name, texts, read, "numbers", values)
    unclear = [text for text, bare in zip(texts, plain, strict=True) if BY_POINT.fullmatch(bare)]
    unclear = [text for text in unclear if "," in text and read(text) == text]
    if column.read is not str or not unclear:
        return column
    note = f"careful: {name!r} is kept as text: the comma of {unclear[0]!r} may be a decimal point"
    return Column(str, (note,))


def _dates(name: str, texts: Sequence[str]) -> Column | None:
    if not any(as_date(text) or SLASHED.fullmatch(text) for text in texts):
        return None
    slashed = [match for text in texts if (match := SLASHED.fullmatch(text))]
    readings = [
        {place for place in (1, 3) if _day(match[4], match[4 - place], match[place])}
        for match in slashed
    ]
    orders = {1, 3}.intersection(*filter(None, readings))
    if slashed and len(orders) != 1:
        unclear = f"careful: {name!r} may be dates, but day and month of {slashed[0][0]!r} may be "
        return Column(str, (unclear + "either: write them as YYYY-MM-DD",))
    day = min(orders)

    def read(text: str) -> object:
        match = SLASHED.fullmatch(text)
        known = _day(match[4], match[4 - day], match[day]) if match else as_date(text)
        return known or text

    column = _column(name, texts, read, "dates")
    return None if column.read is str else column


def _column(name: str, texts: Sequence[str], read: Read, kind: str, values: int = 0) -> Column:
    """A column of a kind, and what it reads otherwise than written; of texts if too few fit."""
    pairs = [(text, read(text)) for text in texts]
    others = [text for text, value in pairs if value == text and as_date(text) is None]
    if not pairs or len(others) > (1 - ENOUGH) * (len(pairs) + values):
        return Column(str)
    notes = []
    if changed := [pair for pair in pairs if _differs(*pair)]:
        text, value = changed[0]
        of = f"{len(changed)} of {len(pairs) + values}"
        notes.append(f"{name!r}: {of} are {kind} written otherwise: {text!r} is {value}")
    if others:
        of = f"{len(others)} of {len(pairs) + values}"
        notes.append(f"careful: {name!r}: {of} are no {kind} and stay texts, as {others[0]!r}")
    return Column(read, tuple(notes))


def _differs(text: str, value: object) -> bool:
    return not PLAIN.fullmatch(text) if isinstance(value, int | float) else value != text


def _day(year: str, month: str, day: str) -> str | None:
    try:
        return datetime.date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None


def plain(cell: object) -> object:
    """A cell of a table with its date as text: days alone at midnight, as people see it."""
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return cell.isoformat() if isinstance(cell, datetime.date | datetime.time) else cell


RARER = 5
"""How many times more frequent the right label is, at least."""
SHORT, LONG = 5, 9
"""Characters of a word from which on one edit, and two, are a misspelling."""


class LookAlike(NamedTuple):
    """A label and the more frequent one that it looks like, with how often each is an answer."""

    label: str
    other: str
    times: int
    other_times: int

    @property
    def is_rare(self) -> bool:
        """Whether it is so rare that it is likely misspelled."""
        return RARER * self.times <= self.other_times

    def __str__(self) -> str:
        return f"{self.label} ({self.times}) looks like {self.other} ({self.other_times})"


def look_alikes(counts: Mapping[str, int]) -> list[LookAlike]:
    """Labels like a more frequent one: rare ones, and those that differ by no letter or digit."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    pairs = []
    for place, label in enumerate(names):
        for other in names[:place]:
            pair = LookAlike(label, other, counts[label], counts[other])
            words, others = _words(label), _words(other)
            joined = "".join(words)
            alike = words == others or (joined == "".join(others) and joined.isalpha())
            same_count = len(words) == len(others)
            if alike or (pair.is_rare and same_count and all(map(_is_near, words, others))):
                pairs.append(pair)
                break
    return pairs


def _words(label: str) -> list[str]:
    """The words of a label, without case, what stands between, and a full stop."""
    folded = unicodedata.normalize("NFKC", label).casefold().rstrip(".!? ")
    return re.split(r"(?<=\w)[\s_\-‐-―]+(?=\w)", folded)


def _is_near(word: str, other: str) -> bool:
    from rapidfuzz.distance import OSA

    length = max(len(word), len(other))
    if word == other or length < SHORT or not (word + other).isalpha() or word[0] != other[0]:
        return word == other
    return OSA.distance(word, other) <= (2 if length >= LONG else 1)
