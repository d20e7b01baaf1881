r"""Whether the calculation that a response writes down gives its answer: flawed positives.

A right answer may stand at the end of a wrong calculation, and a lesson drawn from it teaches that.
What is numbers alone (`48 / 2 = 24`, `<<3*4=12>>`, `\frac34 + \frac14 = 1`) is worked out exactly;
nothing is run. An equation that is false, and that no later one with the same left side corrects,
is a flaw. So is an answer that stands nowhere before its box, where every equation of a response is
numbers alone. Whatever is not surely a whole side, as what stands beside a letter, is left alone.
`1.000 : 2 = 500` is no flaw: it holds where points separate thousands and a colon divides. Where a
response names a base or a modulus, what holds in it is no flaw either; where it names one that is
no number (`mod p`), nothing of it is judged.
"""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import pairwise, product
from math import gcd
from typing import NamedTuple

from tfgrpo.domains.mathematics import arithmetic
from tfgrpo.domains.mathematics.dates_bases_compounds import NUMBERS
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
WHOLE = r"\d{1,20}(?!\d|[.,]\d|\s*\\?[\^*+{])"
BASE = rf"bas(?:e|is)[-\s({{]*(?P<base>{WHOLE}|(?:{'|'.join(NUMBERS)})\b)"
MODULUS = rf"(?:\\[pb]?|\b)mod(?:ul[oae]|ulus)?(?![^\W\d_])[\s({{$=]*(?P<modulus>{WHOLE})"
BASED = re.compile(
    r"\b(?:(?P<binary>binary|bin[äa]r\w*|binaire|binario)|(?P<octal>octal|oktal|octale)"
    rf"|(?P<hex>hexadecimal\w*)|(?:(?:in|to|en|zur)\s+)?{BASE})|{MODULUS}",
    re.IGNORECASE,
)
"""A base or a modulus that is a number."""
UNKNOWN = re.compile(
    r"\b(?:in|to|en|zur)\s+bas(?:e|is)\b|(?:\\[pb]?|\b)mod(?![a-z])|\bmodulo\W+[a-z]\b",
    re.IGNORECASE,
)
"""One that is none: by it digits may be those of any base, or sums those of any clock."""
CLOCK = re.compile(r"\bmodul[oar]+\b|\\equiv(?![a-z])|≡", re.IGNORECASE)
"""What says that sums are those of a clock, and not of which."""
MOST = 8
"""Bases and moduli that are heeded, at most."""
DIGITS = re.compile(r"(?<![\d.])\d+(?![\d.])")


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

    def in_base(self, base: int) -> Side | None:
        """Returns the same side with its whole numbers read in a base; None where they have other
        digits."""
        try:
            return _side(DIGITS.sub(lambda match: str(int(match[0], base)), self.text))
        except ValueError:
            return None


class Counting(NamedTuple):
    """The bases and the moduli that a response names besides the usual counting."""

    bases: frozenset[int]
    moduli: frozenset[int]

    def same(self, left: Side, right: Side) -> bool:
        """Whether two sides are the same, in any of the bases or by any of the moduli."""
        sides = ([side, *filter(None, map(side.in_base, self.bases))] for side in (left, right))
        return any(
            one.equals(other) or any(_congruent(one, other, modulus) for modulus in self.moduli)
            for one, other in product(*sides)
        )


USUAL = Counting(frozenset(), frozenset())


def _congruent(one: Side, other: Side, modulus: int) -> bool:
    apart = one.value - other.value
    return gcd(apart.denominator, modulus) == 1 and apart.numerator % modulus == 0


def _counting(text: str) -> Counting | None:
    """Returns how a response counts; None where it names a base or a modulus that is no number."""
    bases, moduli = set(), set()
    for match in BASED.finditer(text):
        if match["modulus"]:
            moduli.add(int(match["modulus"]))
        elif match["base"]:
            bases.add(int(NUMBERS.get(match["base"].casefold(), match["base"])))
        else:
            bases.add({"binary": 2, "octal": 8, "hex": 16}[match.lastgroup or ""])
    rest = BASED.sub(" ", text)
    if UNKNOWN.search(rest) or (CLOCK.search(rest) and not moduli):
        return None
    bases &= {*range(2, 37)} - {10}
    many = len(bases) + len(moduli) > MOST
    return None if many else Counting(frozenset(bases), frozenset(moduli - {0}))


def flaw(response: str) -> str | None:
    """Returns what is wrong with the calculation of a response that gives an answer; None where
    nothing is, or nothing of it can be worked out. Raises nothing."""
    text = LINES.sub("\n", MARKS.sub(" ", BEGUN.split(spoken(response))[0]))
    counting = _counting(text)
    if counting is None:
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
            held[key] = _holds(counting, left, right) or _holds(counting, *other)
            shown[key] = f"{left.text} = {right.text}"
    false = next((shown[key] for key, holds in held.items() if not holds), None)
    if false is not None:
        return f"{false} is not so"
    answer = plain(plainly(extract(response) or ""))
    if not whole or answer is None or counting != USUAL:
        return None
    runs = (run for each in readings for run in AT_START.findall(each))
    there = (_side(part) for run in runs for part in (run, *run.split()))
    if any(
        Side("", answer).equals(side) or side.equals(Side("", answer)) for side in there if side
    ):
        return None
    return f"no equation gives {extract(response)}"


def _holds(counting: Counting, left: Side | None, right: Side | None) -> bool:
    """Whether two sides are the same, also where the left one's sign begins a line of a list."""
    if left is None or right is None:
        return False
    listed = BULLET.match(left.text) and left._replace(value=-left.value).equals(right)
    return counting.same(left, right) or bool(listed)


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
