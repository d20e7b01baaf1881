"""What attempts write a number as, where that is a rate of two units: `8 hours per day`.

A small model that is asked what a number stands for takes the words at hand ("visits per week" for
the weeks of a month). Attempts that calculate with it write its unit beside it more often than not,
and most right ones the same. Read are `8 hours/day`, `8 hours in a working day`, `an 8-hour day`,
`a day has 8 hours` and `hours per day: 8`, in LaTeX and Markdown too, of the units of UNITS alone:
what else stands beside a number may be a fee, a percentage or a place. Fractions, ranges and
negative numbers are no rate.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tfgrpo.training.numbers_in_text import plain_number, ungrouped

TIMES = "second minute hour day weekday week fortnight month quarter term semester year shift night"
SIZES = (
    "millimetre centimetre metre kilometre millimeter centimeter meter kilometer mile foot inch "
    "yard gram kilogram kilo pound ounce ton tonne millilitre litre milliliter liter gallon pint "
    "cup mm cm km mg kg lb ml"
)
COUNTS = (
    "person item unit piece box pack packet bottle page row shelf dozen pair parcel ticket order "
    "copy sheet pallet crate visit trip"
)
MONEY = "cent euro dollar crown franc yen rupee"
IRREGULAR = {"foot": "feet", "inch": "inches", "person": "people", "shelf": "shelves"}
UNCHANGED = {"dozen", "mm", "cm", "km", "mg", "kg", "lb", "ml", "yen"}
NAMED_ADJECTIVE = "working|business|calendar|billable|school|trading"
"""Adjectives that make another unit of one."""
PLAIN_ADJECTIVE = "standard|typical|normal|regular|full|average|usual|single|whole|work"
MARKUP = (
    (re.compile(r"(?<=\d)(?:\{,\}|\\,)(?=\d{3})"), ""),
    (re.compile(r"\\[dt]?frac ?\{"), " "),
    (re.compile(r"\} ?\{"), "/"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mbox)\b"), " "),
    (re.compile(r"\\[,;:! ()\[\]]|[{}$~`]|\*\*"), " "),
    (re.compile(r"\\?_"), " "),
    (re.compile(r"[^\S\n]+"), " "),
    (re.compile(r" ?/ ?"), "/"),
)
"""What calculations are written in, and what is read in its place."""


def plural(noun: str) -> str:
    """Returns the plural of a unit."""
    if noun in UNCHANGED:
        return noun
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if noun.endswith(("x", "ch", "sh", "s")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


PLACES = f"{TIMES} {SIZES} {COUNTS}".split()
"""Units that something may be in."""
UNITS = [*PLACES, *MONEY.split()]
SINGULAR = {form: unit for unit in UNITS for form in (unit, plural(unit))} | {
    "persons": "person",
    "weekday": "day",
    "weekdays": "day",
    "workday": "day",
    "workdays": "day",
    "workweek": "week",
    "workweeks": "week",
}


def _pattern(units: Sequence[str]) -> str:
    forms = sorted((form for form in SINGULAR if SINGULAR[form] in units), key=len, reverse=True)
    return rf"((?:(?:{NAMED_ADJECTIVE}|{PLAIN_ADJECTIVE}) )?(?:{'|'.join(forms)}))\b"


UNIT, WHOLE, TIME = _pattern(UNITS), _pattern(PLACES), _pattern(TIMES.split())
LONGEST_UNIT = " per ".join(("calendar " + max(map(plural, UNITS), key=len),) * 2)
"""The longest words for a rate."""
NUMBER = r"(?<![\w.,:^/-])(?<!\d )(?<!\^ )(\d+(?:\.\d+)?)(?![,.]?\d)"
EACH = r"(?:/1? ?| (?:per|each|every|an?) (?:one |1 )?| (?:in|for) (?:an?|one|1|each|every) )"
IS = r"(?:has|have|is|are|=|equals?|contains?|consists? of|there are|we have)"
ABOUT = r"(?:about |approximately |around |only |exactly |usually |typically |roughly )?"
OPERATED = r"(?! ?(?:[-+*×÷·/x^]|\\times|\\cdot|\\div))"
BESIDE = re.compile(rf"{NUMBER} {UNIT}{EACH}{WHOLE}")
QUANTITY = re.compile(rf"{NUMBER}[ -]{UNIT}")
TAKEN = re.compile(rf"{QUANTITY.pattern}(?!{EACH}{WHOLE})")
"""A quantity that is no rate."""
CALCULATED = re.compile(
    rf"\d[^=\n]{{0,80}}?(?:[*×÷·/+-]|\\times|\\cdot|\\div)[^=\n]{{0,80}}= ?{QUANTITY.pattern}"
)
"""A quantity that a calculation comes to."""
HYPHENED = re.compile(rf"{NUMBER}-{UNIT} {TIME}")
BEHIND = re.compile(rf"\b(?:an?|one|1|each|every|per) {WHOLE},? {IS} {ABOUT}{NUMBER} {UNIT}")
BEFORE = re.compile(
    rf"(?<![\d*×÷·+/=-] )\b{UNIT}{EACH}{WHOLE} ?(?:=|:|is|are|equals) {ABOUT}{NUMBER}{OPERATED}"
)


class Rate(NamedTuple):
    """A number of something per something else, in the words that it was written in."""

    number: str
    unit: str
    whole: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for a rate in other words: `8 working hours per days`."""
        return self.number, noun_of(self.unit), noun_of(self.whole)


def rates_in(text: str) -> set[Rate]:
    """Returns the rates in a text: their units in the plural, what they are in in the singular."""
    return {
        Rate(plain_number(number), _words(unit, plural), _words(whole, str))
        for number, unit, whole in _written(_without_markup(text))
    }


def quantities_in(text: str) -> set[tuple[str, str]]:
    """Returns each number of a text with the unit behind it, in the singular: 5 and day."""
    return _quantities(QUANTITY, text)


def _quantities(pattern: re.Pattern[str], text: str) -> set[tuple[str, str]]:
    quantities = pattern.finditer(_without_markup(text))
    return {(plain_number(one[1]), noun_of(one[2])) for one in quantities}


def is_misread(rate: Rate, attempt: str, problem: str) -> bool:
    """Returns whether an attempt takes a quantity of its problem for one of what the rate is in
    (`5 weeks × 8 hours/week` where the problem gives 5 days), or neither it nor its problem has any
    of that (`there are 4 months in a year` where the problem gives 7 months). What it calculates
    (`3 × 5 = 15 days`) or gives as a rate (`5 days/week`) it does not take from there."""
    given, whole = quantities_in(problem), noun_of(rate.whole)
    there = quantities_in(attempt)
    if not any(noun == whole for _, noun in there) and not names_unit(problem, whole):
        return True
    numbers = {number for number, _ in given}
    taken = _quantities(TAKEN, attempt) - _quantities(CALCULATED, attempt)
    return any(noun == whole and (n, noun) not in given and n in numbers for n, noun in taken)


def _without_markup(text: str) -> str:
    for pattern, plain in MARKUP:
        text = pattern.sub(plain, text)
    return ungrouped(text.casefold())


def _written(text: str) -> Iterator[tuple[str, str, str]]:
    yield from BESIDE.findall(text)
    yield from HYPHENED.findall(text)
    yield from ((number, unit, whole) for whole, number, unit in BEHIND.findall(text))
    yield from ((number, unit, whole) for unit, whole, number in BEFORE.findall(text))


def _words(written: str, form: Callable[[str], str]) -> str:
    """Returns a unit with the adjective that makes it another one, its noun in a form."""
    adjective, _, _ = written.rpartition(" ")
    noun = form(noun_of(written))
    return f"{adjective} {noun}" if re.fullmatch(NAMED_ADJECTIVE, adjective) else noun


def noun_of(words: str) -> str:
    """Returns the unit that words end with, in the singular."""
    last = words.rpartition(" ")[2].casefold()
    return SINGULAR.get(last, last)


def names_unit(text: str, unit: str) -> bool:
    """Returns whether a text has a unit in it, in the singular or the plural, or by another name of
    it (`workdays`)."""
    return re.search(rf"(?i)\b(?:{'|'.join(forms_of(unit))})\b", text) is not None


def forms_of(unit: str) -> list[str]:
    """Returns what a unit, in the singular, is called: `day`, `days`, `workday` and so on."""
    return list(dict.fromkeys((unit, plural(unit), *(f for f, u in SINGULAR.items() if u == unit))))


def unit_of(number: str, attempts: Sequence[set[Rate]], problem: str = "") -> str | None:
    """Returns what more than half of these attempts, each as its rates, write a number as: in the
    form `hours per day`, with the words that most of them use, and the unit as their problem names
    it (`working days`). None where they do not."""
    own = [{rate for rate in rates if rate.number == number} for rates in attempts]
    votes = Counter(key for rates in own for key in {rate.key for rate in rates})
    best = max(votes, key=lambda key: (votes[key], key), default=None)
    if best is None or votes[best] <= len(attempts) / 2:
        return None
    words = Counter(
        f"{rate.unit} per {rate.whole}" for rates in own for rate in rates if rate.key == best
    )
    chosen = max(words, key=lambda unit: (words[unit], -len(unit), unit))
    unit, _, whole = chosen.partition(" per ")
    named = re.search(rf"\b(?:{NAMED_ADJECTIVE}) {plural(noun_of(unit))}\b", problem.casefold())
    return f"{named[0]} per {whole}" if named else chosen
