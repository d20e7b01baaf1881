"""What attempts write a number as, where that is a rate: `8 hours per day`.

A small model that is asked what a number stands for takes the words at hand ("visits per week" for
the weeks of a month). Attempts that calculate with it write its unit beside it more often than not,
and most right ones the same. Read are `8 hours/day`, `8 hours in a working day`, `an 8-hour day`,
`a day has 8 hours` and `hours per day: 8`, in LaTeX and Markdown too; anything else is no unit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

MARKUP = (
    (re.compile(r"\\[dt]?frac ?\{"), " "),
    (re.compile(r"\} ?\{"), "/"),
    (re.compile(r"\\(?:text|mathrm|mathbf|textbf|textit|mbox)\b|\\[,;:! ()\[\]]|[{}$~`*]"), " "),
    (re.compile(r"\\?_"), " "),
    (re.compile(r"[^\S\n]+"), " "),
    (re.compile(r" ?/ ?"), "/"),
)
"""What calculations are written in, and what is read in its place."""
SMALL_WORD = (
    r"(?:an?|and|approximately|are|as|at|by|day's|each|equals?|every|for|from|has|have|if|in|is|of"
    r"|on|one|or|per|so|than|that|the|then|there|times|to|total|we|with)"
)
NOUN = rf"(?!{SMALL_WORD}\b)[a-z]{{2,20}}"
UNIT = rf"((?:{NOUN} )?{NOUN})"
NUMBER = r"(?<![\w.,])(\d+(?:\.\d+)?)(?!,?\d)"
EACH = r"(?:/1? ?| (?:per|each|every|an?) (?:one |1 )?| (?:in|for) (?:an?|one|1|each|every|the) )"
IS = r"(?:has|have|is|are|=|equals?|contains?|consists? of|there are|we have)"
ABOUT = r"(?:about |approximately |around |only |exactly |usually |typically |roughly )?"
BESIDE = re.compile(rf"{NUMBER} {UNIT}{EACH}{UNIT}\b")
HYPHENED = re.compile(rf"{NUMBER}-([a-z]{{2,20}}) {UNIT}\b")
BEHIND = re.compile(rf"\b(?:an?|one|1|each|every|per) {UNIT},? {IS} {ABOUT}{NUMBER} {UNIT}\b")
BEFORE = re.compile(rf"\b{UNIT}{EACH}{UNIT} ?(?:=|:|is|are|equals) {ABOUT}{NUMBER}")


class Rate(NamedTuple):
    """A number of something per something else, as it was written."""

    number: str
    unit: str
    whole: str

    @property
    def key(self) -> tuple[str, str, str]:
        """The same for a rate in other words: `8 working hours per days`."""
        return self.number, _noun(self.unit), _noun(self.whole)


def rates_in(text: str) -> set[Rate]:
    """Returns the rates in a text."""
    for pattern, plain in MARKUP:
        text = pattern.sub(plain, text)
    text = text.casefold()
    return {
        *(Rate(*rate) for rate in BESIDE.findall(text)),
        *(Rate(number, f"{unit}s", whole) for number, unit, whole in HYPHENED.findall(text)),
        *(Rate(number, unit, whole) for whole, number, unit in BEHIND.findall(text)),
        *(Rate(number, unit, whole) for unit, whole, number in BEFORE.findall(text)),
    }


def unit_of(number: str, attempts: Sequence[set[Rate]]) -> str | None:
    """Returns what more than half of these attempts, each as its rates, write a number as: in the
    form `hours per day`, with the words that most of them use. None where they do not."""
    own = [{rate for rate in rates if rate.number == number} for rates in attempts]
    votes = Counter(key for rates in own for key in {rate.key for rate in rates})
    best = max(votes, key=lambda key: (votes[key], key), default=None)
    if best is None or votes[best] <= len(attempts) / 2:
        return None
    words = Counter(
        f"{rate.unit} per {rate.whole}" for rates in own for rate in rates if rate.key == best
    )
    return max(words, key=lambda unit: (words[unit], -len(unit), unit))


def plural(noun: str) -> str:
    """Returns the plural of an English noun, or of words that end with one."""
    if noun.endswith("s"):
        return noun
    if noun.endswith(("x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def _noun(words: str) -> str:
    return words.rpartition(" ")[2].removesuffix("s")
