"""Comparing two parsed expressions: nothing is equal that numbers do not show to be.

Two constants are compared to forty digits, two formulas at points, equations as multiples of each
other, and what holds several of them piece by piece. What cannot be worked out is equal only where
it is the same expression, and what is undefined equals nothing. math-verify is asked besides where
a few points say little: of functions with steps.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from math_verify import verify
from sympy import (
    Abs,
    AccumBounds,
    Basic,
    Derivative,
    Eq,
    Expr,
    FiniteSet,
    Float,
    Function,
    I,
    Intersection,
    Interval,
    MatrixBase,
    MatrixExpr,
    Max,
    Min,
    Mod,
    Ne,
    Piecewise,
    Pow,
    Product,
    Rational,
    S,
    Set,
    Symbol,
    Tuple,
    Union,
    ceiling,
    floor,
    log,
    nan,
    oo,
    sign,
    solve,
    zoo,
)
from sympy.concrete.expr_with_limits import ExprWithLimits
from sympy.core.function import AppliedUndef
from sympy.core.relational import Relational
from sympy.logic.boolalg import And, Boolean, BooleanAtom

from tfgrpo.domains.mathematics.lists import (
    JOINTS,
    RELATION,
    WITHOUT_COMMAS,
    brackets_with_commas,
    matched,
    parts,
)
from tfgrpo.domains.mathematics.parsing import encoded, indices_of, parse
from tfgrpo.domains.mathematics.quantities import USUAL, Rules, rounds_to, significant

FAR, NEAR_ONE = 10**9, 0.001
"""A place of an infinite product, and how near its factors are to 1 there where it has a value."""
PRECISION = 60
"""Digits to which constants are worked out."""
SAME = 40
"""Digits in which two equal constants agree."""
LARGE = 10_000
"""An exponent above which a power is not worked out exactly."""
POINTS = (
    ((23, 499), (101, 211)),
    ((23, 499), (101, 211)),
    ((307, 997), (101, 211)),
    ((-499, -23), (101, 211)),
    ((-499, 499), (101, 211)),
    ((2, 9), (1, 1)),
    ((-9, -2), (1, 1)),
)
"""Where formulas are tried: the bounds of the numerators and denominators of the unknowns' values.

Each unknown is drawn apart: where they are evenly spaced, a - b is b - c.
"""
AXES = [
    [letter, *(encoded(f"{mark} {form}") for mark in ("hat", "vec") for form in {letter, dotless})]
    for letter, dotless in (("i", "imath"), ("j", "jmath"), ("k", "k"))
]
"""The names of the unit vectors, by axis."""
AXES[0].append("imaginary unit")
INEQUALITY = re.compile(r"[<>≤≥≠]|!=|\\(?:leq?|geq?|leqslant|geqslant|lt|gt|neq?|not)(?![a-zA-Z])")
STEPS = (floor, ceiling, Max, Min, Mod, Piecewise, sign)
UNIT = Symbol("imaginary unit")
"""What stands for the imaginary unit until a value is worked out: sympy would see at once that a
real z is not 3 + 4i, and leave no equation."""
LETTER_I = Symbol("i", real=True)


def same(gold: Any, answer: Any, texts: tuple[str, str] = ("", ""), rules: Rules = USUAL) -> bool:
    """Whether an answer's expression is the ground truth's. `texts` are what they were read from.
    May raise whatever sympy does."""
    gold, answer = (_with_symbols(_each_root(_exact(side))) for side in (gold, answer))
    gold, answer = _with_imaginary_unit(gold, answer)
    if undefined(gold) or undefined(answer):
        return False
    if _is_constant(gold) and _is_constant(answer):
        return _same_constants(gold, answer, texts, rules)
    return confirmed(gold, answer) and (
        not (gold.has(*STEPS) or answer.has(*STEPS)) or _verified(gold, answer)
    )


def scaled(expression: Any, factor: Fraction) -> Any:
    """Returns an expression with every value in it multiplied, as for another unit."""
    if isinstance(expression, Expr | MatrixBase):
        return expression * Rational(factor.numerator, factor.denominator)
    if isinstance(expression, Eq):
        left = scaled(expression.lhs, factor) if _is_constant(expression.lhs) else expression.lhs
        return Eq(left, scaled(expression.rhs, factor), evaluate=False)
    if isinstance(expression, Set | Tuple):
        return expression.func(*(scaled(part, factor) for part in expression.args))
    return expression


def _with_imaginary_unit(gold: Any, answer: Any) -> tuple[Any, Any]:
    """Returns two expressions with the imaginary unit for i, where the ground truth is a number, or
    has an i of which no power is taken: current squared is no -1."""
    i = LETTER_I
    used = [each for each in (gold, answer) if hasattr(each, "atoms") and i in each.atoms(Symbol)]
    if not used or any(i in part.bound_symbols for e in used for part in e.atoms(ExprWithLimits)):
        return gold, answer
    powers = any(part.base == i and part.exp.is_number for part in gold.atoms(Pow))
    if powers or (gold.free_symbols and i not in gold.free_symbols):
        return gold, answer
    return gold.xreplace({i: UNIT}), answer.xreplace({i: UNIT})


def _each_root(expression: Any) -> Any:
    """Returns `x = 1 ± 2i`, which is read as a name of a set, as an equation for each root."""
    if isinstance(expression, Eq) and isinstance(expression.rhs, FiniteSet):
        return FiniteSet(*(Eq(expression.lhs, root, evaluate=False) for root in expression.rhs))
    return expression


def _verified(gold: Any, answer: Any) -> bool:
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time-out
    return bool(verify(gold, answer, allow_set_relation_comp=True, timeout_seconds=None))


def undefined(expression: Any) -> bool:
    """Whether an expression holds a value that is none: 1/0, or an infinity that is reckoned with.
    Infinity is the end of an interval, a bound of a sum, and an answer by itself."""
    if isinstance(expression, MatrixBase):
        return any(map(undefined, expression.flat()))
    if not isinstance(expression, Basic) or expression.has(nan, zoo, AccumBounds):
        return True
    if isinstance(expression, Interval | ExprWithLimits) or expression in (oo, -oo):
        return False
    if isinstance(expression, Expr) and expression.args and expression.has(oo, -oo):
        bounded = expression.atoms(ExprWithLimits)
        rest = expression.subs(dict.fromkeys(bounded, 1)) if bounded else expression
        return bool(rest.has(oo, -oo, nan, zoo))
    return any(map(undefined, expression.args)) if not isinstance(expression, Expr) else False


def confirmed(gold: Any, answer: Any) -> bool:
    """Whether two expressions are of one kind and shown to be the same; False for any other two."""
    if isinstance(gold, BooleanAtom) or isinstance(answer, BooleanAtom):
        return False
    if isinstance(gold, MatrixBase) and isinstance(answer, MatrixBase):
        return gold.shape == answer.shape and _all(gold.flat(), answer.flat())
    for one, other in ((gold, answer), (answer, gold)):
        point = _coordinates(one) if isinstance(one, MatrixBase) else _in_order(one)
        column = _coordinates(other)
        if point is not None and column is not None:
            if not isinstance(other, MatrixBase):  # 2i + 3j is (2, 3) and (2, 3, 0)
                size = len(point)
                point, column = (*point, *[S.Zero] * (3 - size)), (*column, *[S.Zero] * (size - 3))
            return len(point) == len(column) and _all(point, column)
    if isinstance(gold, Relational) and isinstance(answer, Relational):
        return _same_relations(gold, answer)
    if isinstance(gold, And) and isinstance(answer, And):
        return matched(gold.args, answer.args, confirmed)
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, And) and isinstance(other, FiniteSet):  # a < b < c, and a < b, b < c
            return matched(one.args, tuple(other), confirmed)
        if isinstance(one, Relational | And) and isinstance(other, Set) and not isinstance(one, Eq):
            single = len(one.free_symbols) == 1
            return single and bool(one.as_set() == other.func(*other.args))
    if isinstance(gold, Eq) and isinstance(answer, Expr | Set | Tuple | MatrixBase):
        return _is_name(gold.lhs) and confirmed(gold.rhs, answer)
    if isinstance(answer, Eq) and isinstance(gold, Expr | Set | Tuple | MatrixBase):
        # m + n = 5 says what m + n is, and 2 + 3 = 5 is 5, but x + 1 = 5 says what x is
        named = _is_name(answer.lhs) or len(answer.lhs.free_symbols) != 1
        return named and _may_hold(answer) and confirmed(gold, answer.rhs)
    if isinstance(gold, Expr) and isinstance(answer, Expr):
        return _same_formulas(gold, answer)
    if isinstance(gold, Set | Tuple) and isinstance(answer, Set | Tuple):
        return _same_collections(gold, answer)
    return False


def _all(gold: Iterable[Any], answer: Iterable[Any]) -> bool:
    return all(confirmed(one, other) for one, other in zip(gold, answer, strict=True))


def _may_hold(equation: Any) -> bool:
    """Whether an equation is true, if both of its sides are numbers that are written out: exactly,
    or but for what is rounded or cut off in a decimal on the right."""
    left, right = equation.lhs, equation.rhs
    if not (_is_constant(left) and _is_constant(right)) or left.has(ExprWithLimits, AppliedUndef):
        return True
    if confirmed(left, right):
        return True
    one, other = _number(left), _number(right)
    if one is None or other is None or not right.is_Rational or right.is_Integer:
        return False
    digits = next((n for n in range(1, SAME) if (right * 10**n).is_Integer), SAME)
    return bool(abs(one - other) < Rational(1, 10**digits))


def _is_name(left: Any) -> bool:
    """Whether the left side of an equation is a name of what the right one is: `x = 5`."""
    return isinstance(left, Tuple | AppliedUndef) or bool(left.is_Symbol)


def _same_relations(gold: Any, answer: Any) -> bool:
    """Whether two equations or inequalities say the same, on whichever side their terms stand."""
    if gold.rel_op != answer.rel_op:
        answer = answer.reversed
    if gold.rel_op != answer.rel_op:
        return False
    sides = (gold.lhs, gold.rhs, answer.lhs, answer.rhs)
    if not all(isinstance(side, Expr) for side in sides) or not gold.free_symbols:
        return confirmed(gold.lhs, answer.lhs) and confirmed(gold.rhs, answer.rhs)
    if confirmed(gold.lhs, answer.lhs) and confirmed(gold.rhs, answer.rhs):
        return True
    if gold.has(ExprWithLimits) or answer.has(ExprWithLimits):
        return False
    ratios = _values((gold.lhs - gold.rhs) / (answer.lhs - answer.rhs))
    if ratios and all(_near(ratio, ratios[0]) for ratio in ratios) and ratios[0] != 0:
        return isinstance(gold, Eq | Ne) or bool(ratios[0] > 0)
    return isinstance(gold, Eq | Ne) and _same_solutions(gold, answer)


def _same_solutions(gold: Any, answer: Any) -> bool:
    """Whether two equations have the same solutions, of which there have to be some."""
    unknowns = sorted(gold.free_symbols & answer.free_symbols, key=str)
    if gold.free_symbols != answer.free_symbols or not unknowns:
        return False
    want, have = (solve(Eq(each.lhs, each.rhs), unknowns[0]) for each in (gold, answer))
    if not isinstance(want, list) or not isinstance(have, list):
        return False
    return bool(want) and matched(want, have, confirmed)


def _same_collections(gold: Any, answer: Any) -> bool:
    """Whether two tuples, sets or intervals are the same; the order of a tuple counts."""
    if isinstance(gold, Interval) and isinstance(answer, Interval):
        ends = (gold.left_open, gold.right_open) == (answer.left_open, answer.right_open)
        return ends and _all((gold.start, gold.end), (answer.start, answer.end))
    want, have = _in_order(gold), _in_order(answer)
    if want is not None and have is not None and not want == have == ():
        return len(want) == len(have) and _all(want, have)
    if isinstance(gold, FiniteSet) and isinstance(answer, FiniteSet):
        return matched(gold.args, answer.args, confirmed)
    return bool(type(gold) is type(answer) and gold == answer)


def _in_order(collection: Any) -> tuple[Any, ...] | None:
    """Returns what stands in a point in order: in `(1, 2)`, also where it was read as an interval,
    and in `x=1, y=2`; None for any other collection."""
    if isinstance(collection, Tuple):
        return tuple(collection)
    if isinstance(collection, Interval) and collection.is_open:
        return collection.start, collection.end
    if isinstance(collection, FiniteSet) and all(
        isinstance(each, Eq) and each.lhs.is_Symbol for each in collection
    ):
        return tuple(each.rhs for each in sorted(collection, key=lambda each: str(each.lhs)))
    return None


def _coordinates(vector: Any) -> tuple[Any, ...] | None:
    """Returns the coordinates of a column, a row or a sum of unit vectors, `2i + 3j`; None for
    anything else. Beside j or k, i is a vector."""
    if isinstance(vector, MatrixBase):
        return tuple(vector.flat()) if 1 in vector.shape else None
    if not isinstance(vector, Expr):
        return None
    names = {each.name: each for each in vector.free_symbols if isinstance(each, Symbol)}
    axes = [[names[name] for name in axis if name in names] for axis in AXES]
    vectors = [each for axis in axes for each in axis]
    if not vectors or set(vectors) <= {LETTER_I, UNIT}:
        return None
    terms = vector.expand()
    coordinates = tuple(sum(map(terms.coeff, axis), S.Zero) for axis in axes)
    rest = terms.subs(dict.fromkeys(vectors, 0))
    whole = not rest and not any(each.has(*vectors) for each in coordinates if each)
    return coordinates if whole else None


def _same_formulas(gold: Any, answer: Any) -> bool:
    """Whether two formulas have the same values, at every point where both of them have one. Where
    there is no such point they are the same only as they stand."""
    if _is_infinite(gold) or _is_infinite(answer):
        return bool(gold == answer)
    gold, answer = _worked_out(gold), _worked_out(answer)
    if undefined(gold) or undefined(answer) or _is_infinite(gold) or _is_infinite(answer):
        return False
    pairs = _values(gold, answer)
    if not pairs:
        return bool(gold == answer)
    return all(_near(one, other) for one, other in pairs)


def _values(*sides: Any) -> list[Any]:
    """Returns the values of formulas at points: of several as tuples; none where one has none."""
    symbols = sorted(set().union(*(side.free_symbols for side in sides)) - {UNIT}, key=str)
    reached = []
    for number in range(len(POINTS) if symbols else 1):
        values = _point(number, symbols)
        try:
            numbers = [_at(side, values) for side in sides]
            if all(_within(side, values) for side in sides) and None not in numbers:
                reached.append(tuple(numbers) if len(numbers) > 1 else numbers[0])
        except (TypeError, ValueError, ArithmeticError, AttributeError):
            continue
    return reached


def _point(number: int, symbols: Sequence[Any]) -> dict[Any, Any]:
    """Returns a value for each unknown, the same ones every time, and no two of them alike."""
    above, below = POINTS[number]
    dice = random.Random(number)
    values: dict[Any, Any] = {}
    for symbol in symbols:
        value = Rational(dice.randint(*above), dice.randint(*below))
        while value == 0 or (value in values.values() and len(values) < abs(above[1] - above[0])):
            value = Rational(dice.randint(*above), dice.randint(*below))
        values[symbol] = value
    return values


def _within(formula: Any, values: dict[Any, Any]) -> bool:
    """Whether every root and every logarithm of unknowns in a formula is a real one at a point."""
    for part in formula.atoms(Pow, log):
        whole = isinstance(part, Pow) and part.exp.is_Integer
        if not whole and part.args[0].free_symbols - {UNIT}:
            below = _at(part.args[0], values)
            if below is None or not below.is_real or below < 0:
                return False
    return True


def _is_infinite(expression: Any) -> bool:
    return expression in (oo, -oo)


def _worked_out(formula: Any) -> Any:
    """Returns a formula without sums, integrals and derivatives that have a value, and with a
    symbol for each function of which nothing is known: f(x)."""
    if formula.has(ExprWithLimits, Derivative):
        formula = formula.doit()
    unknown = {part: _symbol_of(part) for part in formula.atoms(AppliedUndef)}
    return formula.xreplace(unknown) if unknown else formula


def _with_symbols(expression: Any) -> Any:
    """Returns an expression with a symbol for each derivative and sum of what is only named: dy/dx
    is not 0, though no x stands in y, and a sum over a_i has an i in each."""
    if not hasattr(expression, "atoms"):
        return expression
    unknown = {
        part: _symbol_of(part)
        for part in expression.atoms(Derivative)
        if part.expr.has(AppliedUndef) or not part.expr.has(*part.variables)
    }
    for part in expression.atoms(ExprWithLimits):
        written = " ".join(indices_of(symbol.name) for symbol in part.free_symbols)
        if {str(bound) for bound in part.bound_symbols} & set(re.findall("[a-zA-Z]", written)):
            unknown[part] = _symbol_of(part)
    return expression.xreplace(unknown) if unknown else expression


def _symbol_of(part: Any) -> Any:
    return Symbol(f"value of {part}", real=True)


def _near(one: Any, other: Any) -> bool:
    """Whether two numbers are the same but for what is lost in reckoning."""
    return bool(abs(one - other) <= max(abs(one), abs(other)) * 10**-SAME)


def _number(expression: Any) -> Any | None:
    done = expression.xreplace({UNIT: I}).doit()
    if any(map(_diverges, done.atoms(Product))):
        return None
    value = done.evalf(PRECISION)
    finite = value.is_number and not value.has(nan, zoo) and value.is_finite
    return value if finite else None


def _at(formula: Any, values: dict[Any, Any]) -> Any | None:
    """Returns the value of a formula at a point, exactly up to powers that have too many digits.
    Raises ArithmeticError for a tower of powers, which has no value that can be worked out."""
    powers = formula.atoms(Pow)
    above = {
        power: [part for part in power.exp.atoms(Pow) if part.free_symbols] for power in powers
    }
    if any(part.exp.free_symbols for parts in above.values() for part in parts):
        raise ArithmeticError
    exponents = (power.exp.evalf(subs=values) for power in powers)
    if any(above.values()) or any(not one.is_real or abs(one) > LARGE for one in exponents):
        return formula.xreplace({UNIT: I}).evalf(PRECISION, subs=values)
    return _number(formula.xreplace(values))


def _diverges(product: Any) -> bool:
    """Whether the factors of an infinite product stay away from 1: evaluating one takes long."""
    ((symbol, _, last), *others) = product.limits
    if others or last != oo:
        return False
    there = (product.function.subs(symbol, Float(place)).evalf() for place in (FAR, FAR + 1))
    return any(factor.is_number and abs(factor - 1) > NEAR_ONE for factor in there)


def _same_constants(gold: Any, answer: Any, texts: tuple[str, str], rules: Rules) -> bool:
    one, other = _number(gold), _number(answer)
    if one is None or other is None:
        return bool(gold == answer and _is_infinite(gold))
    if _near(one, other):
        return True
    for exact, decimal, text in ((one, answer, texts[1]), (other, gold, texts[0])):
        if decimal.is_Rational and exact.is_real:
            digits = significant(text.strip("$ "))
            ratio = Rational(exact)
            value = Fraction(int(ratio.p), int(ratio.q))
            if rounds_to(value, Fraction(str(decimal)), digits, rules):
                return True
    return False


def _is_constant(expression: Any) -> bool:
    return isinstance(expression, Expr) and bool(expression.xreplace({UNIT: I}).is_number)


def _exact(expression: Any) -> Any:
    """Returns an expression with its decimals as fractions, as they are written, and matrices
    multiplied."""
    if isinstance(expression, MatrixExpr):
        expression = expression.doit()
    if isinstance(expression, MatrixBase):
        return expression.applyfunc(_exact)
    if isinstance(expression, Eq):  # 1/2 = 0.5 stays an equation
        return Eq(_exact(expression.lhs), _exact(expression.rhs), evaluate=False)
    if not hasattr(expression, "xreplace"):
        return expression
    floats = {number: Rational(str(number)) for number in expression.atoms(Float)}
    return expression.xreplace(floats) if floats else expression


def lost(expression: Any, count: int) -> bool:
    """Whether a list of so many parts became a set of fewer."""
    return isinstance(expression, FiniteSet) and len(expression.args) < count


def where(condition: str, others: Iterable[str]) -> Any:
    """Returns the numbers for which a condition holds, without one those for which none of the
    others does; None where that cannot be told."""
    sets = [region(each) for each in ([condition] if condition else others) if each]
    if None in sets:
        return None
    known = [each[0] for each in sets if each is not None]
    return known[0] if condition else S.Reals - Union(*known)


def one_is_relation(texts: tuple[str, str], want: Any, have: Any) -> bool:
    """Whether one side is an inequality and the other a plain value: `x > 5` is not 5."""
    relation = [bool(INEQUALITY.search(text)) for text in texts]
    return relation[0] != relation[1] and not isinstance(have if relation[0] else want, Set)


def same_region(gold: str, answer: str) -> bool | None:
    """Whether two texts describe one set of numbers, as inequalities or as intervals. None where
    one of them describes none."""
    if not (RELATION.search(gold) or RELATION.search(answer)):
        return None
    want = region(gold)
    have = region(answer) if want is not None else None
    if want is None or have is None:
        return None
    if len(want[1] | have[1]) > 1:
        return False
    within = want[0].is_subset(have[0]), have[0].is_subset(want[0])  # None where it cannot be told
    return False if False in within else None if None in within else True


def region(text: str) -> tuple[Any, frozenset[Any]] | None:
    """Returns the set of numbers that inequalities or intervals describe, and its symbols.

    "or" unites and "and" intersects, unless nothing would be left; a comma unites, unless that
    would be every number. None for anything that is no such set, or hard to find, or two of
    which one holds the other. May raise whatever sympy does.
    """
    text = brackets_with_commas(text)
    union: list[Any] = []
    symbols: frozenset[Any] = frozenset()
    joints = parts(text, JOINTS if RELATION.search(text) else WITHOUT_COMMAS)
    for joint, part in joints:
        expression = parse(part)
        there = _set(expression) if expression is not None else None
        if expression is None or there is None:
            return None
        symbols |= expression.free_symbols
        both = union[-1].intersect(there) if joint == "and" else S.EmptySet
        if both == S.EmptySet:
            if any(one.is_subset(there) or there.is_subset(one) for one in union):
                return None
            union.append(there)
        else:
            union[-1] = both
    numbers = Union(*union)
    if numbers == S.Reals and all(joint != "or" for joint, _ in joints):
        numbers = Intersection(*union)
    return (numbers, symbols) if len(symbols) < 2 else None


def _set(expression: Any) -> Any:
    """Returns what an inequality in one unknown, or an interval, is as a set; else None."""
    if isinstance(expression, Set) and not isinstance(expression, FiniteSet):
        return expression
    if isinstance(expression, Eq) and isinstance(expression.rhs, Set):  # x in (2, 3)
        return _set(expression.rhs)
    if not isinstance(expression, Relational | Boolean) or len(expression.free_symbols) != 1:
        return None
    simple = all(isinstance(function, Abs) for function in expression.atoms(Function))
    return expression.as_set() if simple else None
