r"""Values drawn at random, each written in two ways, beside another value that is truly another.

A kind draws a value (a fraction, a matrix, an amount of money), writes it once as data sets do and
once as models do, and draws a second value of the same kind. That the two differ is worked out on
the values (`differ`), with SymPy where they are formulas; no text is read for it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import sympy
from sympy import I, Rational, cos, exp, factor, latex, log, sin, sqrt, tan

Dice = random.Random


class Drawn(NamedTuple):
    """A ground truth, the same value written otherwise, and another value."""

    gold: str
    right: str
    wrong: str


def differ(one: Any, other: Any) -> bool:
    """Whether two values are shown to differ, by far more than rounding."""
    if isinstance(one, tuple):
        return len(one) != len(other) or any(map(differ, one, other))
    if not isinstance(one, sympy.Basic):
        return bool(one != other)
    symbols = sorted(one.free_symbols | other.free_symbols, key=str)
    points = [dict(zip(symbols, (Rational(p, 7) for p in at), strict=False)) for at in POINTS]
    apart = [abs(sympy.N((one - other).subs(point), 30)) for point in points]
    scale = [1 + abs(sympy.N(one.subs(point), 30)) for point in points]
    return all(a > size * 1e-4 for a, size in zip(apart, scale, strict=True))


POINTS = ((3, 5, 11), (8, 2, 9))


def another(pick: Dice, value: Any, draw: Callable[[], Any]) -> Any:
    """Returns a value that is another one. Raises where nothing is drawn that is."""
    for _ in range(200):
        other = draw()
        if differ(value, other):
            return other
    raise AssertionError(f"nothing differs from {value}")


def made(
    pick: Dice,
    value: Any,
    other: Callable[[], Any],
    gold: Callable[[Any], str],
    *forms: Callable[[Any], str],
) -> Drawn:
    wrong = another(pick, value, other)
    return Drawn(gold(value), pick.choice(forms)(value), pick.choice(forms)(wrong))


ln = partial(latex, ln_notation=True)
"""How a formula is printed: `\\log` alone has another base for everybody."""

# Numbers:

EASTERN = {
    "arabic": "٠١٢٣٤٥٦٧٨٩",
    "persian": "۰۱۲۳۴۵۶۷۸۹",
    "devanagari": "०१२३४५६७८९",
    "wide": "０１２３４５６７８９",
}


def in_script(text: str, script: str) -> str:
    """Returns a text with its digits in another script."""
    return text.translate(str.maketrans("0123456789", EASTERN[script]))


def grouped(number: int, separator: str) -> str:
    """Returns a number with something between its thousands."""
    return f"{number:,}".replace(",", separator)


def _factored(number: int) -> str:
    factors = [f"{p}^{{{n}}}" if n > 1 else f"{p}" for p, n in sympy.factorint(abs(number)).items()]
    return ("-" if number < 0 else "") + r" \cdot ".join(factors or ["1"])


def whole(pick: Dice) -> Drawn:
    """Whole numbers, in the digits and with the separators of several languages."""
    value = pick.choice([1, 1, -1]) * pick.randint(2, 10 ** pick.randint(1, 8))

    def other() -> int:
        digits = list(str(abs(value)))
        place = pick.randrange(len(digits))
        digits[place] = pick.choice("123456789")
        return pick.choice([value + 1, value - 1, -value, value * 10, int("".join(digits))])

    def spaced(separator: str, number: int) -> str:
        return grouped(number, separator) if abs(number) >= 10_000 else str(number)

    return made(
        pick,
        value,
        other,
        pick.choice([str, str, partial(spaced, ",")]),
        str,
        lambda n: f"{n}.0",
        lambda n: f"{n}.",
        lambda n: rf"\text{{{n}}}",
        lambda n: rf"\mathbf{{{n}}}",
        lambda n: f"n = {n}",
        lambda n: rf"f({pick.randint(1, 9)}) = {n}",
        lambda n: rf"{n + 3} - 3 = {n}",
        lambda n: str(n).replace("-", "−"),
        lambda n: in_script(str(n), pick.choice(list(EASTERN))),
        lambda n: rf"\frac{{{n * 4}}}{{4}}",
        lambda n: rf"\boxed{{{n}}}",
        lambda n: rf"x = \boxed{{{n}}}",
        _factored,
        *(partial(spaced, s) for s in (",", r"\,", "{,}", " ", r"\ ", "\u202f", "'", r",\!", "~")),
    )


def fraction(pick: Dice) -> Drawn:
    """Fractions: bars, mixed numbers, decimals, periods, per cent."""
    below = pick.choice([2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 16, 20, 25, 40, 99])
    value = Fraction(pick.choice([1, 1, -1]) * pick.randint(1, 9 * below), below)

    def other() -> Fraction:
        a, b = value.numerator, value.denominator
        return pick.choice(
            [1 / value, -value, Fraction(a + 1, b), Fraction(a, b + 1), value / 10, value + 1]
        )

    return made(
        pick,
        value,
        other,
        pick.choice([bar, bar, str]),
        bar,
        str,
        lambda v: bar(v).replace("frac", "dfrac"),
        lambda v: bar(v).replace("frac", "tfrac"),
        lambda v: rf"\frac{{{v.numerator}}}{{{v.denominator}}}",
        lambda v: rf"\frac{{{3 * v.numerator}}}{{{3 * v.denominator}}}",
        lambda v: rf"{{{v.numerator} \over {v.denominator}}}",
        lambda v: rf"{v.numerator} \div {v.denominator}",
        lambda v: rf"{v.numerator}÷{v.denominator}",
        lambda v: f"({v.numerator})/({v.denominator})",
        lambda v: rf"{bar(v)} \approx {float(v):.3f}",
        _mixed,
        decimal,
        lambda v: (
            decimal(v).replace(".", "{,}") if len(decimal(v).partition(".")[2]) != 3 else bar(v)
        ),
        lambda v: decimal(v * 100) + r"\%",
        lambda v: rf"\left(\frac{{{v.denominator}}}{{{v.numerator}}}\right)^{{-1}}",
        lambda v: rf"x={bar(v)}",
    )


def bar(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    if value.denominator == 1:
        return str(value)
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _mixed(value: Fraction) -> str:
    ones, rest = divmod(abs(value), 1)
    if not ones or not rest:
        return bar(value)
    sign = "-" if value < 0 else ""
    return rf"{sign}{ones}\frac{{{rest.numerator}}}{{{rest.denominator}}}"


def decimal(value: Fraction) -> str:
    """Returns a decimal, with a bar over its period where it has one."""
    sign, value = ("-" if value < 0 else ""), abs(value)
    ones, rest = divmod(value.numerator, value.denominator)
    digits, seen = "", {}
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(rest * 10, value.denominator)
        digits += str(digit)
    if rest:
        at = seen[rest]
        return rf"{sign}{ones}.{digits[:at]}\overline{{{digits[at:]}}}"
    return f"{sign}{ones}.{digits}" if digits else f"{sign}{ones}"


def scientific(pick: Dice) -> Drawn:
    """Powers of ten."""
    mantissa = Fraction(pick.randint(101, 999), 100)
    power = pick.choice([-19, -9, -6, -3, 4, 6, 8, 23])
    value = mantissa, power

    def other() -> tuple[Fraction, int]:
        return pick.choice(
            [(mantissa, -power), (mantissa, power + 1), (mantissa + Fraction(1, 100), power)]
        )

    def m(v: Any) -> str:
        return f"{float(v[0]):.2f}"

    return made(
        pick,
        value,
        other,
        lambda v: rf"{m(v)} \times 10^{{{v[1]}}}",
        lambda v: rf"{m(v)} \times 10^{{{v[1]}}}",
        lambda v: rf"{m(v)} \cdot 10^{{{v[1]}}}",
        lambda v: rf"{m(v)}\cdot{{10}}^{{{v[1]}}}",
        lambda v: f"{m(v)}e{v[1]}",
        lambda v: f"{m(v)}E{v[1]:+03d}",
        lambda v: f"{m(v)} × 10^{v[1]}",
        lambda v: f"{m(v)}*10^({v[1]})",
        lambda v: f"{m(v)}*10**{v[1]}",
        lambda v: rf"{m(v).replace('.', '{,}')} \times 10^{{{v[1]}}}",
        lambda v: rf"{float(v[0]) * 10:.1f} \times 10^{{{v[1] - 1}}}",
        lambda v: rf"\frac{{{m(v)}}}{{10^{{{-v[1]}}}}}" if v[1] < 0 else f"{m(v)}x10^{v[1]}",
        lambda v: (
            rf"{m(v)} \times 10^{str(v[1]).translate(SUPERSCRIPT)}".replace("^", "")
            if v[1] not in range(10)
            else rf"{m(v)}\times 10^{v[1]}"
        ),
    )


SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def per_cent(pick: Dice) -> Drawn:
    """Percentages, as several languages write them."""
    value = Fraction(pick.randint(1, 1999), 10)

    def shown(v: Fraction) -> str:
        return f"{float(v):.10f}".rstrip("0").rstrip(".")

    def comma(v: Fraction) -> str:
        return shown(v).replace(".", "{,}")

    return made(
        pick,
        value,
        lambda: pick.choice([value * 10, value / 10, value + 1, 200 - value, value / 100]),
        lambda v: shown(v) + r"\%",
        lambda v: shown(v) + r"\%",
        lambda v: shown(v) + "%",
        lambda v: shown(v) + r"\,\%",
        lambda v: shown(v) + r" \text{ percent}",
        lambda v: comma(v) + r"\,\%",
        lambda v: comma(v) + " %",
        lambda v: shown(v) + " Prozent",
        lambda v: comma(v) + r"\text{ pour cent}",
        lambda v: shown(v) + r" \text{ por ciento}",
        lambda v: "百分之" + shown(v),
        lambda v: in_script(shown(v), "arabic") + "٪",
        lambda v: in_script(shown(v), "wide") + "％",
        lambda v: shown(v / 100),
        lambda v: shown(v) + r"\text{\%}",
    )


# Formulas:


def radical(pick: Dice) -> Drawn:
    """Numbers with a root."""
    a, b, d = pick.randint(-9, 9), pick.choice([-3, -2, -1, 1, 2, 3, 5]), pick.choice([1, 2, 3, 5])
    c = pick.choice([2, 3, 5, 6, 7, 10, 13, 15])
    value = (a, b, c, d)

    def number(v: tuple[int, ...]) -> Any:
        return (v[0] + v[1] * sqrt(v[2])) / v[3]

    def other() -> Any:
        return pick.choice(
            [(a, -b, c, d), (-a, b, c, d), (a, b, c + 1, d), (a, b, c, d + 1), (a + 1, b, c, d)]
        )

    def sound() -> Any:
        drawn = other()
        return drawn if differ(number(value), number(drawn)) else value

    def over(v: tuple[int, ...]) -> str:
        root = f"{'' if abs(v[1]) == 1 else abs(v[1])}\\sqrt{{{v[2]}}}"
        above = f"{v[0] or ''}{'-' if v[1] < 0 else '+' if v[0] else ''}{root}"
        return above if v[3] == 1 else rf"\frac{{{above}}}{{{v[3]}}}"

    def plain(v: tuple[int, ...]) -> str:
        return f"({v[0]} + ({v[1]})*sqrt({v[2]}))/{v[3]}"

    return made(
        pick,
        value,
        sound,
        over,
        lambda v: latex(number(v)),
        lambda v: latex(sympy.expand(number(v))),
        lambda v: latex(factor(number(v))),
        plain,
        lambda v: (
            over(v).replace(r"\sqrt{", "√{").replace("√{", "√(").replace("}", ")", 1)
            if v[3] == 1
            else over(v).replace("frac", "dfrac")
        ),
        lambda v: rf"\frac{{{v[0]}}}{{{v[3]}}} + \frac{{{v[1]}\sqrt{{{v[2]}}}}}{{{v[3]}}}",
        lambda v: rf"\frac{{1}}{{{v[3]}}}\left({v[0]} + {v[1]} \cdot {v[2]}^{{1/2}}\right)",
        lambda v: (
            rf"\frac{{{2 * v[0]} + \sqrt{{{4 * v[1] ** 2 * v[2]}}}}}{{{2 * v[3]}}}"
            if v[1] > 0
            else rf"\frac{{{2 * v[0]} - \sqrt{{{4 * v[1] ** 2 * v[2]}}}}}{{{2 * v[3]}}}"
        ),
        lambda v: rf"x = {over(v)}",
        lambda v: latex(sympy.radsimp(1 / number(v)) ** -1) if number(v) != 0 else over(v),
    )


def plain(value: Any) -> str:
    """Returns a value as a program prints it, with the names that people write."""
    return re.sub(r"\bE\b", "e", str(value)).replace("log", "ln")


def constant(pick: Dice) -> Drawn:
    """Multiples of π, powers of e, logarithms."""
    p, q = pick.randint(1, 9), pick.choice([1, 2, 3, 4, 6])
    r = Rational(p, q)
    shape = pick.choice(["pi", "exp", "log"])
    value: Any = {"pi": r * sympy.pi, "exp": exp(r), "log": r * log(p + 1)}[shape]

    def other() -> Any:
        s = pick.choice([r + 1, 1 / r, r / 2])
        return {"pi": s * sympy.pi, "exp": exp(s), "log": s * log(p + 1)}[shape]

    return made(
        pick,
        value,
        other,
        ln,
        ln,
        lambda v: ln(v, fold_short_frac=True),
        lambda v: ln(v, mul_symbol="dot"),
        lambda v: ln(v, ln_notation=True),
        plain,
        lambda v: plain(v).replace("**", "^").replace("pi", "π"),
        lambda v: ln(v).replace("frac", "dfrac"),
        lambda v: rf"{ln(2 * v)} \cdot \frac12" if shape != "exp" else ln(v),
        lambda v: rf"\frac{{{ln(3 * v)}}}{{3}}",
        lambda v: rf"{ln(v)} \approx {float(v):.4f}",
    )


X, Y, Z = sympy.symbols("x y z")


def polynomial(pick: Dice) -> Drawn:
    """Polynomials and what they multiply out to."""
    symbols = pick.choice([[X], [X, Y], [X, Y, Z]])
    linear = [
        sum((pick.randint(1, 5) * s for s in symbols), start=sympy.Integer(pick.randint(-6, 6)))
        for _ in range(pick.choice([1, 2, 2, 3]))
    ]
    value = pick.choice([1, 1, 2, -1]) * sympy.prod(linear)

    def other() -> Any:
        one, another_one = pick.choice(symbols), pick.choice(symbols)
        expanded = sympy.expand(value)
        return pick.choice(
            [
                expanded + one,
                -expanded,
                expanded.subs(one, -one),
                expanded.subs({one: another_one, another_one: one}, simultaneous=True),
                expanded + 1,
                expanded.subs(one, one + 1),
            ]
        )

    return made(
        pick,
        value,
        other,
        pick.choice([lambda v: latex(sympy.expand(v)), lambda v: latex(factor(v))]),
        lambda v: latex(sympy.expand(v)),
        lambda v: latex(factor(v)),
        lambda v: latex(sympy.collect(sympy.expand(v), X)),
        lambda v: latex(sympy.horner(sympy.expand(v))),
        lambda v: latex(sympy.expand(v), order="grevlex"),
        lambda v: latex(sympy.expand(v), mul_symbol="times"),
        lambda v: str(sympy.expand(v)),
        lambda v: str(factor(v)).replace("**", "^"),
        lambda v: str(sympy.expand(v)).replace("**", "^").replace("*", ""),
        lambda v: str(sympy.expand(v)).replace("**2", "²").replace("**3", "³").replace("*", ""),
        lambda v: _shuffled(pick, sympy.expand(v)),
        lambda v: f"p(x) = {latex(sympy.expand(v))}",
        lambda v: rf"-\left({latex(sympy.expand(-v))}\right)",
    )


def _shuffled(pick: Dice, value: Any) -> str:
    terms = list(sympy.Add.make_args(value))
    pick.shuffle(terms)
    text = " + ".join(latex(term) for term in terms)
    return text.replace("+ -", "- ")


def quotient(pick: Dice) -> Drawn:
    """Rational functions."""
    above = pick.randint(1, 9) * X + pick.randint(-9, 9)
    below = pick.choice([X, X + pick.randint(1, 9), X**2 + 1, (X - 1) * (X + pick.randint(2, 6))])
    value = above / below

    def other() -> Any:
        return pick.choice(
            [
                -value,
                1 / value,
                value + 1,
                (above + 1) / below,
                above / (below + 1),
                value.subs(X, -X),
            ]
        )

    def over(v: Any) -> str:
        a, b = sympy.fraction(sympy.together(v))
        return rf"\frac{{{latex(a)}}}{{{latex(b)}}}"

    def slash(v: Any) -> str:
        a, b = sympy.fraction(sympy.together(v))
        return f"({a})/({b})".replace("**", "^").replace("*", "")

    def negated(v: Any) -> str:
        a, b = sympy.fraction(sympy.together(v))
        return rf"\frac{{{latex(sympy.expand(-a))}}}{{{latex(sympy.expand(-b))}}}"

    return made(
        pick,
        value,
        other,
        over,
        over,
        slash,
        negated,
        lambda v: latex(sympy.apart(v)),
        lambda v: str(sympy.apart(v)),
        lambda v: latex(sympy.together(v)),
        lambda v: over(v).replace("frac", "dfrac"),
        lambda v: f"f(x) = {over(v)}",
        lambda v: rf"1 + {over(v - 1)}",
    )


IDENTITIES: list[list[tuple[str, Callable[[Any], Any]]]] = [
    [
        (r"\sin 2<v>", lambda v: sin(2 * v)),
        (r"2\sin <v> \cos <v>", lambda v: 2 * sin(v) * cos(v)),
        (r"2 \sin(<v>)\cos(<v>)", lambda v: 2 * sin(v) * cos(v)),
        (r"\sin\left(2<v>\right)", lambda v: sin(2 * v)),
        (r"(\sin <v>+\cos <v>)^2-1", lambda v: (sin(v) + cos(v)) ** 2 - 1),
    ],
    [
        (r"\cos 2<v>", lambda v: cos(2 * v)),
        (r"1-2\sin^2 <v>", lambda v: 1 - 2 * sin(v) ** 2),
        (r"2\cos^{2}<v> - 1", lambda v: 2 * cos(v) ** 2 - 1),
        (r"\cos^2<v>-\sin^2<v>", lambda v: cos(v) ** 2 - sin(v) ** 2),
        (r"\cos\left(2 <v>\right)", lambda v: cos(2 * v)),
    ],
    [
        (r"\tan <v>", lambda v: tan(v)),
        (r"\frac{\sin <v>}{\cos <v>}", lambda v: sin(v) / cos(v)),
        (r"\frac{1}{\cot <v>}", lambda v: tan(v)),
        (r"\sin(<v>)/\cos(<v>)", lambda v: tan(v)),
        (r"\sin <v> \sec <v>", lambda v: tan(v)),
    ],
    [
        (r"\cos <v>", lambda v: cos(v)),
        (r"\sin\left(\frac{\pi}{2}-<v>\right)", lambda v: cos(v)),
        (r"\cos(-<v>)", lambda v: cos(v)),
        (r"\frac{1}{\sec <v>}", lambda v: cos(v)),
    ],
    [
        (r"\sin^2 <v>", lambda v: sin(v) ** 2),
        (r"(\sin <v>)^2", lambda v: sin(v) ** 2),
        (r"1-\cos^2(<v>)", lambda v: 1 - cos(v) ** 2),
        (r"\frac{1-\cos 2<v>}{2}", lambda v: (1 - cos(2 * v)) / 2),
        (r"\sin^{2}\left(<v>\right)", lambda v: sin(v) ** 2),
    ],
    [
        (r"e^{2<v>}", lambda v: exp(2 * v)),
        (r"\exp(2<v>)", lambda v: exp(2 * v)),
        (r"(e^{<v>})^2", lambda v: exp(2 * v)),
        (r"e^{<v>} \cdot e^{<v>}", lambda v: exp(2 * v)),
    ],
    [
        (r"\ln(<v>^2)", lambda v: 2 * log(v)),
        (r"2\ln <v>", lambda v: 2 * log(v)),
        (r"\ln <v> + \ln <v>", lambda v: 2 * log(v)),
        (r"\ln{<v>^{2}}", lambda v: 2 * log(v)),
    ],
]


def identity(pick: Dice) -> Drawn:
    """Functions that an identity rewrites."""
    symbol = pick.choice(["x", "t", r"\theta", r"\alpha"])
    group = pick.choice(IDENTITIES)
    k, c = pick.randint(1, 9), pick.randint(-5, 5)
    gold, right = pick.sample(group, 2)
    assert not differ(gold[1](X), right[1](X)) or group[0][0].startswith(r"\ln")

    def other() -> Any:
        form, function = pick.choice(pick.choice(IDENTITIES))
        times = pick.choice([k, k, k + 1])
        return form, function, times, pick.choice([c, c, -c, c + 1])

    def value(function: Callable[[Any], Any], times: int, plus: int) -> Any:
        return times * function(X) + plus

    for _ in range(100):
        form, function, times, plus = other()
        if differ(value(gold[1], k, c), value(function, times, plus)):
            break

    def write(form: str, times: int, plus: int) -> str:
        body = form.replace("<v>", symbol)
        whole_form = rf"{times}\left({body}\right)" if times > 1 else body
        return f"{whole_form}{plus:+d}" if plus else whole_form

    return Drawn(write(gold[0], k, c), write(right[0], k, c), write(form, times, plus))


def complex_number(pick: Dice) -> Drawn:
    """Complex numbers."""
    a, b = pick.randint(-9, 9) or 1, pick.randint(-9, 9) or 2
    value = a + b * I

    def parts(v: Any) -> tuple[Any, Any]:
        return sympy.re(v), sympy.im(v)

    def other() -> Any:
        return pick.choice(
            [a - b * I, -a + b * I, b + a * I, a + (b + 1) * I, sympy.Integer(a + b), -value]
        )

    def plain(v: Any) -> str:
        real, imaginary = parts(v)
        return f"{real}{int(imaginary):+}i".replace("+1i", "+i").replace("-1i", "-i")

    return made(
        pick,
        value,
        other,
        plain,
        plain,
        lambda v: plain(v).replace("+", " + "),
        lambda v: plain(v).replace("i", r"\,i"),
        lambda v: plain(v).replace("i", r"\mathrm{i}"),
        lambda v: f"{parts(v)[1]}i + {parts(v)[0]}",
        lambda v: f"{parts(v)[0]} + {parts(v)[1]} \\cdot i",
        lambda v: f"{parts(v)[0]} + {parts(v)[1]}*I".replace("+ -", "- ").replace("*I", "i"),
        lambda v: f"z = {plain(v)}",
        lambda v: rf"\frac{{{plain(sympy.expand(2 * v))}}}{{2}}",
        lambda v: f"{plain(sympy.expand(v - 1))} + 1",
        lambda v: (
            rf"i\left({plain(sympy.expand(-I * v))}\right)"
            if 0 not in parts(sympy.expand(-I * v))
            else plain(v)
        ),
        lambda v: ln(v),
    )
