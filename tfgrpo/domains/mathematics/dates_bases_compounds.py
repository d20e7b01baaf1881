r"""Answers that a parser of formulas would read as something else: times of day and dates, digits
in another base (`101_2`, `0b101`), formulas of chemistry (`\ce{2H2 + O2 -> 2H2O}`)."""

from __future__ import annotations

import re
from datetime import datetime
from math import gcd
from typing import NamedTuple

from tfgrpo.domains.mathematics.notation import WRAPPING

CLOCK = re.compile(r"(\d{1,2})(?:\s?(?::|\{:\})\s?(\d{2}))?(?:\s*([ap])\.?\s*m\.?)?\Z", re.I)
WRITTEN = re.compile(r"(\d{1,2})\s?h\s?(\d{2})\Z|(\d{1,2})\.(\d{2})(?=\s*[ap]\.?\s*m\b)", re.I)
"""A time as it is written beside one with a colon: `15h30`, `3.30 pm`."""
YEAR_FIRST = re.compile(
    r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})\Z|(\d{4})年(\d{1,2})月(\d{1,2})[日号]\Z"
)
YEAR_LAST = re.compile(
    r"(\d{2}(?=-)|\d{1,2}(?=[./]))([-./])(\d{2}(?=-)|\d{1,2}(?=[./]))\2(\d{4})\Z"
)
"""With dashes of two digits each: `14-3-2024` is a sum."""
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

    @property
    def hour_of_day(self) -> int:
        """The hour of twenty-four, where the half is named or none is."""
        return self.hour % 12 + 12 * (self.half == "p") if self.half else self.hour

    @property
    def is_sure(self) -> bool:
        """Whether it can be one time of a day only."""
        return bool(self.half) or not 1 <= self.hour <= 12

    @property
    def is_ratio(self) -> bool:
        """Whether it may be a ratio: one is given in lowest terms."""
        return not self.half and self.minute[0] != "0" and gcd(self.hour, int(self.minute)) == 1


def clock(text: str, *, beside: bool = False) -> Time | None:
    """Returns a time of day. Beside another one it may be written without a colon."""
    bare = WRAPPING.sub(r"\1", text).strip().strip("$").strip()
    if beside:
        bare = WRITTEN.sub(lambda match: ":".join(filter(None, match.groups())), bare)
    match = CLOCK.match(bare)
    if match is None or not (match[2] or match[3]):
        return None
    return Time(int(match[1]), match[2] or "00", (match[3] or "").casefold())


def date(text: str) -> tuple[int, ...] | None:
    """Returns year, month and day; 0 for the year where none is named. Of `3/4/2025` nobody knows
    which is the month, so it is none; dots stand behind the day."""
    bare = _bare(text)
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


def unsure_date(text: str) -> tuple[int, ...] | None:
    """Returns the numbers of a date of which nobody knows which one is the month."""
    match = YEAR_LAST.match(_bare(text))
    if match is None or date(text) is not None:
        return None
    one, other, year = int(match[1]), int(match[3]), int(match[4])
    return (one, other, year) if 0 < one <= 12 and 0 < other <= 12 else None


def _bare(text: str) -> str:
    return WRAPPING.sub(r"\1", text).strip().strip("$ .")


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


# digits in another base:

NAMES = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUMBERS = {name: str(number) for number, name in enumerate(NAMES, 2)} | {"sixteen": "16"}
NUMBERS |= {"bin": "2", "oct": "8", "hex": "16"}
BASE = rf"(\d{{1,2}}|{'|'.join(NUMBERS)})"
DIGITS = r"(?:\d[\dA-F]*|(?-i:[A-F][\dA-F]+))"
"""Digits; where a letter is the first, small ones are symbols, and so is one alone: `F_{16}`."""
BASED = re.compile(
    rf"([+-]?)({DIGITS})(?:_(?:\{{\(?(?:base)?{BASE}\)?\}}|(\d))|(?:in|\()*base-?{BASE}\)?)\Z", re.I
)
PREFIXED = re.compile(r"([+-]?)0([box])([\dA-F]+)\Z", re.I)
PREFIXES = {"b": "2", "o": "8", "x": "16"}
SET = re.compile(r"\\(?:overline|text|mathrm|mathit|textrm)\s*\{([^{}]*)\}")
BRACKETED = re.compile(rf"\A([+-]?)\(([+-]?{DIGITS})\)(?=_)", re.I)


def based(text: str) -> tuple[str, str] | None:
    """Returns digits, in capitals with their sign, and the base; None where a text names none."""
    bare = "".join(SET.sub(r"\1", SET.sub(r"\1", text)).replace("\\", "").split())
    bare = BRACKETED.sub(r"\1\2", bare.strip("$."))
    match = PREFIXED.match(bare)
    if match is not None:
        return _digits(match[1], match[3]), PREFIXES[match[2].casefold()]
    match = BASED.match(bare)
    if match is None:
        return None
    name = (match[3] or match[4] or match[5]).casefold()
    base = NUMBERS.get(name, name)
    if match[2][0].isalpha() and int(max(match[2]), 16) >= int(base):
        return None  # a product of which one symbol has an index: `AB_2`
    return _digits(match[1], match[2]), base


def _digits(sign: str, digits: str) -> str:
    return f"{sign.strip('+')}{digits.upper().lstrip('0') or '0'}"


# formulas of chemistry:

ELEMENT = (
    "(?:A[cglmrstu]|B[aehikr]?|C[adeflmnorsu]?|D[bsy]|E[rsu]|F[elmr]?|G[ade]|H[efgos]?|I[nr]?|Kr?"
    "|L[airuv]|M[cdgnot]|N[abdehiop]?|O[gs]?|P[abdmortu]?|R[abefghnu]|S[bcegimnr]?|T[abcehilms]"
    "|U|V|W|Xe|Yb?|Z[nr])"
)
ATOMS = rf"(?:{ELEMENT}\d*)+"
GROUPS = rf"(?:{ATOMS}|[(\[](?:{ATOMS}|\({ATOMS}\)\d*)+[)\]]\d*)+"
SPECIES = re.compile(rf"\d*(?:{GROUPS}(?:\.\d*{GROUPS})?(?:\^(?:\d*[+-]|[+-]\d))?|e\^-)\Z")
CHEMISTRY = re.compile(r"\\(?:ce|mathrm)\s*\{")
LOOKS = re.compile(
    r"\\(?:ce|mathrm|text|textrm|mathsf)(?![a-zA-Z])|\\[,;:! ]|[{}\s~$_]|\((?:s|l|g|aq)\)"
)
"""How a formula is set, and the states of matter behind one."""
DOT = re.compile(r"\\cdot(?![a-zA-Z])|[·•*]")
ARROW = re.compile(r"\\(?:long)?rightarrow|\\to(?![a-zA-Z])|\\rightleftharpoons|<?[-=]>|[→⟶⇌]")
PLUS = re.compile(r"(?<!\^)(?<!\^\d)\+(?=\S)")
ELEMENTAL = re.compile(rf"\d*{ELEMENT}")
"""One element, which may be a unit as well: `5\\,\\mathrm{H}`."""


class Compound(NamedTuple):
    """The species of each side of a reaction, or of a formula alone, in order. `sure` says that it
    can be nothing but chemistry."""

    sides: tuple[tuple[str, ...], ...]
    sure: bool


def compound(text: str) -> Compound | None:
    """Returns a formula or a reaction without how it is set; None for any other text."""
    sides = [LOOKS.sub("", DOT.sub(".", side)) for side in ARROW.split(text)]
    species = [PLUS.split(side) for side in sides]
    if not all(SPECIES.match(one) for side in species for one in side) or len(sides[0]) < 2:
        return None
    looks = CHEMISTRY.search(text) and not ELEMENTAL.fullmatch(sides[0])
    sure = len(sides) > 1 or bool(looks or re.search(r"\^|[a-z]\d", sides[0]))
    return Compound(tuple(tuple(sorted(side)) for side in species), sure)


def same_compound(gold: str, answer: str) -> bool | None:
    """Whether two formulas are the same letter by letter, the sides of a reaction in any order;
    None where that is another rule's matter. Where only the case differs they are two, but `No`,
    which is a word as well."""
    want, have = compound(gold), compound(answer)
    if want is None or have is None:
        return False if want is not None and want.sure else None
    if want.sides == have.sides:
        return True
    cased = str(want.sides).casefold() == str(have.sides).casefold() != "(('no',),)"
    return False if want.sure or have.sure or cased else None
