"""Comparing two parsed expressions: by math-verify, and against it where numbers say otherwise.

math-verify rounds to six places, so that below 1e-6 much is equal. What it calls equal is
therefore tried with numbers: two constants that differ, or two formulas that differ at a point,
are different, whatever it says. Two constants need no math-verify at all.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tfgrpo.domains.mathematics.quantities import USUAL, Rules, rounds_to, significant

PRECISION = 60
"""Digits to which constants are worked out."""
SAME = 40
"""Digits in which two equal constants agree."""
POINTS = (("7/5", "13/11"), ("19/7", "23/13"), ("29/17", "31/19"))
"""Where formulas are tried: the value of the first unknown, and what the next ones add to it."""


def same(gold: Any, answer: Any, texts: tuple[str, str] = ("", ""), rules: Rules = USUAL) -> bool:
    """Whether an answer's expression is the ground truth's. `texts` are what they were read from.

    May raise whatever sympy does.
    """
    import logging

    from math_verify import verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time-out

    gold, answer = _exact(gold), _exact(answer)
    if _is_constant(gold) and _is_constant(answer):
        return _same_constants(gold, answer, texts, rules)
    if not verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None):
        return False
    return not differs(gold, answer)


def differs(gold: Any, answer: Any) -> bool:
    """Whether numbers show that two expressions are not the same; False where they cannot."""
    from sympy import Eq, Expr, FiniteSet, Interval, MatrixBase, Tuple

    if isinstance(gold, Eq) and isinstance(answer, Eq) and gold.lhs == answer.lhs:
        return differs(gold.rhs, answer.rhs)
    if isinstance(gold, Eq) and isinstance(answer, Eq):
        return _equations_differ(gold, answer)
    if isinstance(gold, Eq) and isinstance(answer, Expr) and gold.lhs.is_Symbol:
        return differs(gold.rhs, answer)
    if isinstance(answer, Eq) and isinstance(gold, Expr) and answer.lhs.is_Symbol:
        return differs(gold, answer.rhs)
    if isinstance(gold, MatrixBase) and isinstance(answer, MatrixBase):
        return gold.shape == answer.shape and _any_differs(gold.flat(), answer.flat())
    if isinstance(gold, Tuple) and isinstance(answer, Tuple):
        return len(gold) == len(answer) and _any_differs(gold, answer)
    if isinstance(gold, Interval) and isinstance(answer, Interval):
        return _any_differs((gold.start, gold.end), (answer.start, answer.end))
    if isinstance(gold, FiniteSet) and isinstance(answer, FiniteSet):
        return any(all(differs(one, other) for other in answer) for one in gold)
    if isinstance(gold, Expr) and isinstance(answer, Expr):
        return _expressions_differ(gold, answer)
    return False


def _equations_differ(gold: Any, answer: Any) -> bool:
    """Whether two equations are not the same; two without a solution are not for that reason."""
    from sympy import Expr, solve

    sides = (gold.lhs, gold.rhs, answer.lhs, answer.rhs)
    if not all(isinstance(side, Expr) for side in sides) or solve(gold) or solve(answer):
        return False
    zero, other = gold.lhs - gold.rhs, answer.lhs - answer.rhs
    return _expressions_differ(zero, other) and _expressions_differ(zero, -other)


def _any_differs(gold: Any, answer: Any) -> bool:
    return any(differs(one, other) for one, other in zip(gold, answer, strict=True))


def _expressions_differ(gold: Any, answer: Any) -> bool:
    from sympy import Rational, nan, zoo

    gold, answer = _exact(gold), _exact(answer)
    compared = False
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    for start, step in POINTS:
        values = {
            symbol: Rational(start) + number * Rational(step)
            for number, symbol in enumerate(symbols)
        }
        try:
            one, other = (_number(side.subs(values)) for side in (gold, answer))
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            continue
        if one is None or other is None:
            continue
        compared = True
        if abs(one - other) > max(abs(one), abs(other)) * 10**-15 and abs(one - other) > 0:
            return not _rounded(one, other)
    undefined = gold.has(nan, zoo) or answer.has(nan, zoo)
    return not compared and (undefined or gold.doit() != answer.doit())


def _rounded(one: Any, other: Any) -> bool:
    """Whether two constants differ no more than a decimal that stands for a number may."""
    return bool(abs(one - other) <= max(abs(one), abs(other)) * 10**-6)


def _number(expression: Any) -> Any | None:
    from sympy import nan, zoo

    value = expression.doit().evalf(PRECISION)
    finite = value.is_number and not value.has(nan, zoo) and value.is_finite
    return value if finite else None


def _same_constants(gold: Any, answer: Any, texts: tuple[str, str], rules: Rules) -> bool:
    from sympy import oo

    one, other = _number(gold), _number(answer)
    if one is None or other is None:
        return gold == answer and gold in (oo, -oo)
    if abs(one - other) <= max(abs(one), abs(other)) * 10**-SAME:
        return True
    for exact, decimal, text in ((one, answer, texts[1]), (other, gold, texts[0])):
        if decimal.is_Rational and exact.is_real:
            digits = significant(text.strip("$ "))
            if rounds_to(_fraction(exact), Fraction(str(decimal)), digits, rules):
                return True
    return False


def _fraction(number: Any) -> Fraction:
    from sympy import Rational

    exact = Rational(number)
    return Fraction(int(exact.p), int(exact.q))


def _is_constant(expression: Any) -> bool:
    from sympy import Expr

    return isinstance(expression, Expr) and bool(expression.is_number)


def _exact(expression: Any) -> Any:
    """Returns an expression with its decimals as fractions, as they are written."""
    from sympy import Float, MatrixBase, Rational

    if isinstance(expression, MatrixBase):
        return expression.applyfunc(_exact)
    if not hasattr(expression, "xreplace"):
        return expression
    floats = {number: Rational(str(number)) for number in expression.atoms(Float)}
    return expression.xreplace(floats) if floats else expression
