"""Numbers as people write them: with separators, currencies, units, scales.

Two exact numbers are compared exactly. A decimal may stand for a number that has no end
(`0.333333` for a third): `Rules.digits` says from how many digits on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

from tfgrpo.domains.mathematics import arithmetic, units
from tfgrpo.domains.mathematics.arithmetic import Value
from tfgrpo.domains.mathematics.dates_bases_compounds import YEAR_FIRST
from tfgrpo.domains.mathematics.numerals import GROUPED, ungrouped, without_full_stop

PLAIN = re.compile(rf"[+-]?(?:{GROUPED}|\d+)(?:\.\d*)?\Z|[+-]?\.\d+\Z")
GROUPS = re.compile(r"(?<=\d)(?:\\,|\\ |\\!|~|\s|['’](?=\d{3}(?:['’.]|\Z)))(?=\d{3}(?!\d))")
LONGEST = 1000
"""A number of more digits than this is left to sympy, which is killed when it takes too long."""
PERCENT = re.compile(r"\s*\\?%[\s.$}]*\Z")
DECIMAL = re.compile(r"[+-]?(\d*)\.(\d+)(?:\s*(?:\\times|\\cdot)\s*10\s*\^\s*\{?[+-]?\d+\}?)?\Z")
MOST_DIGITS = 12
"""Digits of a decimal that are compared: what a program prints after them is noise."""
MEASURE = re.compile(r"(-?\d{1,15}(?:\.\d{1,15})?)\s*[^\W\d_]")
POWERS_OF_TEN = frozenset(Fraction(10) ** power for power in range(-12, 13))
PLACES = 20
"""Decimal places of a number that is not written as a fraction, at most."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How close is equal, and when units matter.

    A decimal of at least `digits` significant digits stands for the number that it is when it is
    rounded or cut off there. With `units` lenient a unit that stands on one side alone says
    nothing; strict asks for one where the ground truth has one. With `calculation` checked a right
    answer earns nothing whose calculation does not give it. The others are as in `math.py`.
    """

    digits: int = 6
    units: Literal["lenient", "strict"] = "lenient"
    written: Literal["latex", "python"] = "latex"
    decimal: Literal["point", "comma"] = "point"
    letters: Literal["word", "product"] = "word"
    calculation: Literal["free", "checked"] = "free"


USUAL = Rules()


class Quantity(NamedTuple):
    """A number with its unit: the value, the decimal that it is written as, and its units.
    `percent` says that it is written with a sign of per cent, `decimal` its significant digits and
    how many of them stand after the point, or None where it is written exactly."""

    value: Value
    decimal: int | None
    units: tuple[units.Unit, ...]
    percent: bool


def quantity(text: str) -> Quantity | None:
    """Returns the number that a text is: `1,250`, `$40`, `12.50`, `40 euros`, `2^{-100}`."""
    total = units.total(text)
    if total is not None:
        return Quantity(total[0], None, (total[1], units.UNSURE), percent=False)
    measured = units.split(_unwrapped(text))
    bare = without_full_stop(measured.text.strip("$ "))
    percent = PERCENT.search(bare)
    if percent is not None:
        bare = bare[: percent.start()].strip()
    value = _value(bare)
    if value is None:
        return None
    return Quantity(value, significant(bare), measured.units, percent is not None)


def plain(text: str) -> Fraction | None:
    """Returns the exact value of a number of ordinary size; None for any other text."""
    measure = quantity(text)
    return measure.value if measure is not None and isinstance(measure.value, Fraction) else None


def equal(gold: str, answer: str, rules: Rules = USUAL) -> bool | None:
    """Says whether two texts are the same number; None where one of them is none. 50 % are 0.5."""
    want, have = quantity(gold), quantity(answer)
    if want is None or have is None:
        return None
    factor = unit_factor(want.units, have.units, rules)
    if factor is None:
        return False
    if not isinstance(want.value, Fraction) or not isinstance(have.value, Fraction):
        return None if want.value == have.value else False  # two extremes cannot be told apart
    scaled = have._replace(value=have.value * factor)
    written_alike = want.percent == have.percent
    as_number = written_alike or want.percent or abs(want.value) > 1  # 0.5 is no 0.5 %
    if as_number and _same(want, scaled, rules):
        return True
    if written_alike:
        return False
    hundredth = Fraction(1, 100)
    if want.percent:
        want = want._replace(value=want.value * hundredth)
    else:
        scaled = scaled._replace(value=scaled.value * hundredth)  # type: ignore[operator]
    return _same(want, scaled, rules)


def unit_factor(
    want: tuple[units.Unit, ...], have: tuple[units.Unit, ...], rules: Rules
) -> Fraction | None:
    """Returns what an answer's number is multiplied with to be in the ground truth's unit. None
    where the two do not measure the same: words that are no unit are no metres, on either side."""
    counted = want == (units.COUNTED,)
    if not want or not have or (counted and not any(map(units.is_known, have))):
        strict = rules.units == "strict" and want and not counted
        return None if strict or any(map(units.is_unclear, want + have)) else Fraction(1)
    for one in want:
        for other in have:
            if one.kinds == other.kinds:
                return other.size / one.size
    return None


def rounds_to(value: Fraction, decimal: Fraction, digits: int | None, rules: Rules) -> bool:
    """Whether a decimal of so many significant digits is a value rounded or cut off there."""
    if digits is None or digits < rules.digits or not value or not decimal:
        return False
    if (value < 0) != (decimal < 0):
        return False
    value, decimal = abs(value), abs(decimal)
    if not Fraction(1, 2) < value / decimal < 2:
        return False
    exponent = _exponent(decimal)
    unit = Fraction(10) ** (exponent - min(digits, MOST_DIGITS) + 1)
    cut = value // unit
    half_up = (value / unit + Fraction(1, 2)).__floor__()
    shown = decimal / unit
    if digits > MOST_DIGITS:
        return abs(shown - value / unit) <= 1
    return shown in (cut, half_up)


def significant(text: str) -> int | None:
    """Returns how many significant digits a decimal is written with; None for what is none."""
    match = DECIMAL.match("".join(text.split()).replace(",", ""))
    return len((match[1] + match[2]).lstrip("0")) if match else None


def _same(want: Quantity, have: Quantity, rules: Rules) -> bool:
    if want.value == have.value:
        return True
    return any(
        decimal.decimal is not None
        and not ends(exact.value)
        and rounds_to(exact.value, decimal.value, decimal.decimal, rules)
        for exact, decimal in ((want, have), (have, want))
        if isinstance(exact.value, Fraction) and isinstance(decimal.value, Fraction)
    )


def ends(value: Fraction) -> bool:
    """Whether a number can be written as a decimal with an end."""
    below = value.denominator
    return pow(10, below.bit_length(), below) == 0


def _exponent(value: Fraction) -> int:
    """Returns the decimal exponent of a positive number's first digit."""
    guess = len(str(value.numerator)) - len(str(value.denominator))
    return guess if value >= Fraction(10) ** guess else guess - 1


def _value(text: str) -> Value | None:
    if len(text) > LONGEST or YEAR_FIRST.match(text):
        return None
    if PLAIN.match(text):
        return Fraction(text.replace(",", "").rstrip("."))
    return arithmetic.value(ungrouped(text))


def _unwrapped(text: str) -> str:
    """Returns a text without separators of digits and without what marks a number as text."""
    text = re.sub(r"\A\s*\\(?:text|mathrm|textbf|mathbf|mbox)\s*\{([^{}]*)\}\s*\Z", r"\1", text)
    text = text.strip()
    if text.startswith("$") and text.endswith("$"):
        text = text.strip("$")
    text = without_full_stop(text.replace("{,}", ",").replace(",\\!", ","))
    text = GROUPS.sub("", text)
    for space in ("\\,", "\\!", "\\;", "\\ ", "~"):
        text = text.replace(space, " ")
    return text.strip()


def is_measure(value: str, way: str) -> bool:
    """Whether an answer is a number with a unit which another number is without the unit, but for
    a power of ten."""
    number, measure = plain(value), MEASURE.match(way)
    if number is None or measure is None or quantity(way) is None:
        return False
    factor = abs(number / Fraction(measure[1])) if Fraction(measure[1]) else Fraction(0)
    return factor != 1 and factor in POWERS_OF_TEN


def in_digits(number: Fraction) -> str:
    """Returns a number as a decimal, if it has one of few places, else as a fraction."""
    places = next((n for n in range(PLACES + 1) if 10**n % number.denominator == 0), 0)
    if not places:
        return str(number)
    whole, part = divmod(abs(number.numerator) * 10**places // number.denominator, 10**places)
    return f"{'-' if number < 0 else ''}{whole}.{part:0{places}}"
