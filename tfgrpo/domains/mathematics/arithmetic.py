"""Exact values of expressions of numbers: `2^{-100}`, `\\frac{355}{113}`, `3.1 \\times 10^{5}`.

Values are fractions, so that two tiny numbers that differ are different, and nothing is rounded.
Numbers of thousands of digits are never worked out: of `10^{10^{10}}` it is known that it is large,
which tells it from 42 at once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Literal, TypeAlias

BITS = 40_000
"""Numerators and denominators have at most about this many bits; beyond, a number is extreme."""
LONGEST = 2_000
"""A text of more characters is no expression of numbers that anybody wrote."""
DEEPEST = 40
TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?|\.\d+)|(?P<times>\\times|\\cdot|\\ast|\*(?!\*))"
    r"|(?P<over>/|\\div)|(?P<power>\^|\*\*)|(?P<frac>\\[dtc]?frac)|(?P<sign>[+-])"
    r"|(?P<open>\\left\s*\(|[({])|(?P<close>\\right\s*\)|[)}])|(?P<factorial>!))"
)

Extreme: TypeAlias = Literal["large", "small"]
"""A positive number of too many digits to write down, or one over such a number."""
Value: TypeAlias = Fraction | Extreme


class NotArithmetic(Exception):
    """A text that is no expression of numbers, or one whose value cannot be told."""


def value(text: str) -> Value | None:
    """Returns the value of an expression of numbers; None for any other text."""
    if len(text) > LONGEST or not any(map(str.isdigit, text)):
        return None
    try:
        reader = _Reader(_tokens(text))
        result = reader.sum()
        return None if reader.tokens else result
    except (NotArithmetic, ZeroDivisionError, RecursionError):
        return None


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise NotArithmetic
        tokens.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return tokens


class _Reader:
    """Reads tokens by recursive descent: sums of products of powers."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens = tokens[::-1]
        self._depth = 0

    def _next(self) -> str:
        return self.tokens[-1][0] if self.tokens else ""

    def _take(self, kind: str) -> str:
        if self._next() != kind:
            raise NotArithmetic
        return self.tokens.pop()[1]

    def sum(self) -> Value:
        self._depth += 1
        if self._depth > DEEPEST:
            raise NotArithmetic
        total = self._signed(self._product)
        while self._next() == "sign":
            sign = self._take("sign")
            other = self._signed(self._product)
            total = _add(total, other if sign == "+" else _negative(other))
        self._depth -= 1
        return total

    def _signed(self, read: Callable[[], Value]) -> Value:
        negative = False
        while self._next() == "sign":
            negative ^= self._take("sign") == "-"
        value = read()
        return _negative(value) if negative else value

    def _product(self) -> Value:
        result = self._mixed()
        while True:
            kind = self._next()
            if kind in ("times", "over"):
                self.tokens.pop()
                factor = self._signed(self._mixed)
                result = _multiply(result, factor if kind == "times" else _inverse(factor))
            elif kind in ("open", "frac"):
                result = _multiply(result, self._power())
            else:
                return result

    def _mixed(self) -> Value:
        """Returns a power, or a mixed number, whose whole part is no power: `2\\frac{1}{2}`."""
        if [kind for kind, _ in self.tokens[-2:]] != ["frac", "number"]:
            return self._power()
        whole, part = self._atom(), self._power()
        if not isinstance(part, Fraction) or not isinstance(whole, Fraction):
            raise NotArithmetic
        if not 0 <= part < 1 or whole.denominator != 1:
            raise NotArithmetic
        return whole + part

    def _power(self) -> Value:
        base = self._atom()
        while self._next() == "factorial":
            self.tokens.pop()
            base = _factorial(base)
        if self._next() == "power":
            self.tokens.pop()
            base = _raise(base, self._exponent())
        return base

    def _exponent(self) -> Value:
        negative = self._next() == "sign" and self._take("sign") == "-"
        exponent = self._power()
        return _negative(exponent) if negative else exponent

    def _atom(self) -> Value:
        kind = self._next()
        if kind == "number":
            return Fraction(self._take("number"))
        if kind == "frac":
            self.tokens.pop()
            return _multiply(self._argument(), _inverse(self._argument()))
        return self._bracket()

    def _argument(self) -> Value:
        """Returns an argument of a fraction: in braces, or the next digit alone."""
        if self._next() == "number":
            digits = self.tokens.pop()[1]
            if not digits.isdigit():
                raise NotArithmetic
            if digits[1:]:
                self.tokens.append(("number", digits[1:]))
            return Fraction(digits[0])
        return self._bracket()

    def _bracket(self) -> Value:
        opened = self._take("open")
        inner = self.sum()
        if ("{" in opened) != ("}" in self._take("close")):
            raise NotArithmetic
        return inner


def _inverse(number: Value) -> Value:
    return _raise(number, Fraction(-1))


def _negative(number: Value) -> Value:
    if not isinstance(number, Fraction):
        raise NotArithmetic
    return -number


def _add(one: Value, other: Value) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one + other
    if "small" in (one, other) or (isinstance(one, Fraction) and one < 0):
        raise NotArithmetic
    if isinstance(other, Fraction) and other < 0:
        raise NotArithmetic
    return "large"


def _multiply(one: Value, other: Value) -> Value:
    if isinstance(one, Fraction) and isinstance(other, Fraction):
        return one * other
    for exact, extreme in ((one, other), (other, one)):
        if isinstance(exact, Fraction):
            if exact <= 0:
                raise NotArithmetic
            return extreme
    if one != other:
        raise NotArithmetic
    return one


def _raise(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        return _exact_power(base, exponent)
    if isinstance(base, Fraction):
        if base <= 0 or base == 1 or exponent == "small":
            raise NotArithmetic
        return "large" if base > 1 else "small"
    if not isinstance(exponent, Fraction) or abs(exponent) < 1:
        raise NotArithmetic
    return base if exponent > 0 else "small" if base == "large" else "large"


def _exact_power(base: Fraction, exponent: Fraction) -> Value:
    if exponent.denominator != 1:
        raise NotArithmetic
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(base) in (0, 1) or bits * abs(exponent.numerator) <= BITS:
        if abs(exponent.numerator) > BITS:
            exponent = Fraction(exponent.numerator % 2)
        return base**exponent.numerator
    if base < 0:
        raise NotArithmetic
    return "large" if (base > 1) == (exponent > 0) else "small"


def _factorial(number: Value) -> Value:
    if number == "large":
        return "large"
    if not isinstance(number, Fraction) or number.denominator != 1 or number < 0:
        raise NotArithmetic
    return Fraction(math.factorial(number.numerator)) if number < 3_000 else "large"
