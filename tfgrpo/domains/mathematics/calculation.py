r"""Whether the calculation that a response writes down gives its answer: flawed positives.

A right answer may stand at the end of a wrong calculation, and a lesson drawn from it teaches that.
What is numbers alone (`48 / 2 = 24`, `<<3*4=12>>`, `\frac34 + \frac14 = 1`) is worked out exactly;
nothing is run. An equation that is false, and that no later one with the same left side corrects,
is a flaw. So is an answer that stands nowhere before its box, where every equation of a response is
numbers alone. Whatever is not surely a whole side, as what stands beside a letter, is left alone.
`1.000 : 2 = 500` is no flaw: it holds where points separate thousands and a colon divides.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from tfgrpo.domains.mathematics import arithmetic
from tfgrpo.domains.mathematics.extract import BEGUN, extract, spoken
from tfgrpo.domains.mathematics.notation import plainly
from tfgrpo.domains.mathematics.numerals import ungrouped, with_points
from tfgrpo.domains.mathematics.parsing import READ
from tfgrpo.domains.mathematics.quantities import plain

EQUALS = re.compile(r"(?<![<>!=:≠\\])=(?![=>])")
MARKS = re.compile(r"\\\$|\$|\*\*(?=[^\W\d])|(?<=[^\W\d])\*\*")
LINES = re.compile(r"\\[\[\]()]|<<|>>|\\\\|&")
END = re.compile(r"[.,;:!?](?=\s)|[.,;:]\Z|\n|\\q?quad|\\text\{|\\boxed")
"""Where a side of an equation ends, whatever follows."""
COMMAND = r"\\(?:times|cdot|div|[dt]?frac|left|right)(?![a-zA-Z])|\\[,;! ]"
SIDE = rf"(?:{COMMAND}|[\d.,+\-−–*/×÷^(){{}}\s])+"
AT_START, AT_END = re.compile(SIDE), re.compile(rf"{SIDE}\Z")
WORD = re.compile(r"(\d\s*%?\s*)?([^\W\d_]{2,})\Z")
OPERATOR = re.compile(r"[\d)}]\s*(?:\\(?:times|cdot|div)|[+\-−*/×÷^])|\\[dt]?frac")
OPENING = re.compile(r"\s*[+\-*/^×÷,.)]")
"""What no side begins with that has something before it."""
SIGNS = str.maketrans({"−": "-", "–": "-", "×": "*", "÷": "/"})
LONGEST = 400
"""Characters of the longest side that is worked out."""
NEAR = Fraction(1, 200)
"""How far from each other two sides may be of which one is a decimal, which was rounded."""
BULLET = re.compile(r"-\s")
"""What may begin a line of a list, or a negative number."""


OVER = re.compile(r"(?<=[\d)}])\s*:\s*(?=[\d(\\.])")
OTHERWISE = re.compile(
    r"\b(?:binary|octal|hexadecimal|bin[äa]r\w*|binaire|binario|oktal|octale?|modul[oar]+|mod)\b"
    r"|\b(?:in|to|en|zur)\s+bas(?:e|is)\b|\\p?mod(?![a-z])|\\equiv(?![a-z])|≡",
    re.IGNORECASE,
)
"""By which digits are those of another base, or sums those of a clock."""


class Side(NamedTuple):
    """A side of an equation, and its value."""

    text: str
    value: Fraction

    @property
    def is_calculation(self) -> bool:
        """Whether there is something to work out."""
        return OPERATOR.search(self.text) is not None

    def equals(self, other: Side) -> bool:
        """Whether two sides are the same, but for what is rounded or cut off in the other one, as
        in a division with a remainder."""
        apart = abs(self.value - other.value)
        places = len(other.text.partition(".")[2])
        cut = not other.is_calculation and (self.value * 10**places).denominator > 1
        rounded = "." in self.text + other.text
        return (
            not apart
            or (cut and apart < Fraction(1, 10**places))
            or (rounded and apart <= NEAR * max(abs(self.value), abs(other.value)))
        )


def flaw(response: str) -> str | None:
    """Returns what is wrong with the calculation of a response that gives an answer; None where
    nothing is, or nothing of it can be worked out. Raises nothing."""
    text = LINES.sub("\n", MARKS.sub(" ", BEGUN.split(spoken(response))[0]))
    if OTHERWISE.search(text):
        return None
    readings = (text, OVER.sub(" / ", with_points(text, ".")))
    held: dict[str, bool] = {}
    shown: dict[str, str] = {}
    whole = EQUALS.search(text) is not None
    for equation in zip(*(pairwise(EQUALS.split(each)) for each in readings), strict=True):
        (left, right), other = ((_last(before), _first(after)) for before, after in equation)
        if left is None or right is None:
            whole = False
            continue
        if left.is_calculation or right.is_calculation:
            key = "".join(left.text.split())
            held[key] = _holds(left, right) or _holds(*other)
            shown[key] = f"{left.text} = {right.text}"
    false = next((shown[key] for key, holds in held.items() if not holds), None)
    if false is not None:
        return f"{false} is not so"
    answer = plain(plainly(extract(response) or ""))
    if not whole or answer is None:
        return None
    runs = (run for each in readings for run in AT_START.findall(each))
    there = (_side(part) for run in runs for part in (run, *run.split()))
    if any(
        Side("", answer).equals(side) or side.equals(Side("", answer)) for side in there if side
    ):
        return None
    return f"no equation gives {extract(response)}"


def _holds(left: Side | None, right: Side | None) -> bool:
    """Whether two sides are the same, also where the left one's sign begins a line of a list."""
    if left is None or right is None:
        return False
    listed = BULLET.match(left.text) and left._replace(value=-left.value).equals(right)
    return left.equals(right) or bool(listed)


def _last(text: str) -> Side | None:
    """Returns the side that ends a text; None where more than numbers belongs to it."""
    text = END.split(text[-LONGEST:])[-1]
    match = AT_END.search(text)
    if len(text) == LONGEST or match is None or (match.start() and OPENING.match(match[0])):
        return None
    if match.start():
        word = WORD.search(text[: match.start()])
        blank = match[0][:1].isspace() or (word is not None and not word[2].isascii())
        if word is None or word[1] or not blank or _is_mathematics(word[2]):
            return None
    return _side(match[0])


def _first(text: str) -> Side | None:
    """Returns the side that begins a text; None where more than numbers belongs to it."""
    text = END.split(text[:LONGEST].lstrip("\n"))[0]
    match = AT_START.match(text)
    if match is None:
        return None
    rest = text[match.end() :]
    word = re.match(r"[^\W\d_]{2,}", rest)
    if rest and (word is None or _is_mathematics(word[0]) or not match[0][-1:].isspace()):
        return None
    return _side(match[0])


def _is_mathematics(word: str) -> bool:
    return READ.fullmatch(word) is not None and word.lower() not in ("and", "or")


def _side(text: str) -> Side | None:
    bare = re.sub(r"\\[,;! ]", " ", text.translate(SIGNS)).strip(" \n,").rstrip(" \n.,")
    value = arithmetic.value(ungrouped(bare))
    return Side(bare, value) if isinstance(value, Fraction) else None
