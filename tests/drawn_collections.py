"""Points, solutions, intervals, matrices and lines drawn at random, as in `drawn_values.py`."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

from drawn_values import Dice, Drawn, bar, made

THIN, ROW, APART = r",\,", r" \\ ", r"\\[4pt]"


def point(pick: Dice) -> Drawn:
    """Points, whose order counts."""
    size = pick.choice([2, 2, 3])
    value = tuple(
        Fraction(pick.randint(-20, 20), pick.choice([1, 1, 1, 2, 3])) for _ in range(size)
    )

    def other() -> tuple[Fraction, ...]:
        at = pick.randrange(size)
        changed = tuple(v + (i == at) for i, v in enumerate(value))
        turned = tuple(-v if i == at else v for i, v in enumerate(value))
        return pick.choice([changed, turned, value[::-1], value[:-1], (*value, Fraction(0))])

    def joined(separator: str, v: tuple[Fraction, ...]) -> str:
        return separator.join(map(bar, v))

    names = ["x", "y", "z", "w"]
    return made(
        pick,
        value,
        other,
        lambda v: f"({joined(', ', v)})",
        lambda v: f"({joined(',', v)})",
        lambda v: rf"\left({joined(', ', v)}\right)",
        lambda v: rf"\left({joined(THIN, v)}\right)",
        lambda v: f"({joined('; ', v)})",
        lambda v: (
            rf"(x, y, z) = ({joined(', ', v)})" if len(v) == 3 else f"P = ({joined(', ', v)})"
        ),
        lambda v: ", ".join(f"{n} = {bar(c)}" for n, c in zip(names, v, strict=False)),
        lambda v: r",\quad ".join(f"{n} = {bar(c)}" for n, c in zip(names, v, strict=False)),
        lambda v: rf"\langle {joined(', ', v)} \rangle",
        lambda v: rf"\begin{{pmatrix}} {joined(ROW, v)} \end{{pmatrix}}",
        lambda v: f"({', '.join(map(str, v))})",
    )


def roots(pick: Dice) -> Drawn:
    """Several solutions, in any order."""
    numbers = pick.sample(range(-30, 30), pick.choice([2, 2, 2, 3, 4]))
    value = tuple(sorted(numbers))

    def other() -> tuple[int, ...]:
        at = pick.randrange(len(value))
        return pick.choice(
            [
                tuple(sorted({v + (i == at) for i, v in enumerate(value)})),
                value[:-1],
                value[1:],
                tuple(sorted({*value, pick.randint(31, 40)})),
                tuple(sorted(-v for v in value)),
            ]
        )

    def some(v: tuple[int, ...]) -> list[str]:
        return list(map(str, pick.sample(v, len(v))))

    def named(v: tuple[int, ...], joint: str, name: str = "x = ") -> str:
        return joint.join(f"{name}{n}" for n in some(v))

    def last(v: tuple[int, ...], word: str) -> str:
        *rest, end = some(v)
        return f"{', '.join(rest)} {word} {end}" if rest else end

    return made(
        pick,
        value,
        other,
        lambda v: ", ".join(map(str, v)),
        lambda v: ", ".join(some(v)),
        lambda v: r"\{" + ", ".join(some(v)) + r"\}",
        lambda v: r"\left\{" + ", ".join(some(v)) + r"\right\}",
        lambda v: "; ".join(some(v)),
        lambda v: last(v, r"\text{ and }"),
        lambda v: last(v, "and"),
        lambda v: named(v, ", "),
        lambda v: named(v, r" \text{ or } "),
        lambda v: named(v, " or "),
        lambda v: named(v, r"\text{ oder }"),
        lambda v: named(v, r"\text{ ou }"),
        lambda v: named(v, " o "),
        lambda v: named(v, "或"),
        lambda v: named(v, " أو "),
        lambda v: ", ".join(f"x_{i} = {n}" for i, n in enumerate(some(v), 1)),
        lambda v: r"x \in \{" + ", ".join(some(v)) + r"\}",
        lambda v: r",\ ".join(some(v)),
        lambda v: "、".join(some(v)),
        lambda v: r"} and \boxed{".join(some(v)),
        lambda v: r"}, \boxed{".join(some(v)),
    )


Piece = tuple[int | None, bool, int | None, bool]
"""A lower end, whether it belongs, an upper end, whether that does."""


def interval(pick: Dice) -> Drawn:
    """Intervals and unions of two, as brackets, as inequalities, as sets."""
    a = pick.randint(-20, 20)
    b, c = a + pick.randint(1, 9), a + pick.randint(10, 19)
    shut = [pick.random() < 0.5 for _ in range(2)]
    value: tuple[Piece, ...] = pick.choice(
        [
            ((a, shut[0], b, shut[1]),),
            ((a, shut[0], b, shut[1]),),
            ((a, shut[0], None, False),),
            ((None, False, b, shut[1]),),
            ((None, False, a, shut[0]), (b, shut[1], None, False)),
            ((a, shut[0], b, shut[1]), (c, False, None, False)),
        ]
    )

    def other() -> tuple[Piece, ...]:
        at = pick.randrange(len(value))
        lo, lo_in, hi, hi_in = value[at]
        piece: Piece = pick.choice(
            [
                (lo, not lo_in and lo is not None, hi, hi_in),
                (lo, lo_in, hi, not hi_in and hi is not None),
                (lo if lo is None else lo - 1, lo_in, hi, hi_in),
                (lo, lo_in, hi if hi is None else hi + 1, hi_in),
            ]
        )
        return (*value[:at], piece, *value[at + 1 :])

    return made(
        pick,
        value,
        other,
        lambda v: _brackets(v, r"\infty", ", "),
        lambda v: _brackets(v, r"\infty", ","),
        lambda v: _brackets(v, r"+\infty", ", ").replace(r"-+\infty", r"-\infty"),
        lambda v: r"x \in " + _brackets(v, r"\infty", ", "),
        lambda v: _brackets(v, "∞", ", ").replace(r"\cup", "∪"),
        lambda v: _brackets(v, "oo", ", ").replace(r"\cup", "U"),
        _french,
        lambda v: _inequalities(v, r"\le", " or "),
        lambda v: _inequalities(v, r"\leq", r" \text{ or } "),
        lambda v: _inequalities(v, "≤", ", "),
        lambda v: _inequalities(v, r"\leqslant", r"\text{ oder }"),
        lambda v: _inequalities(v, "<=", " or "),
        lambda v: r"\{x \mid " + _inequalities(v, r"\le", r"\text{ or }") + r"\}",
        lambda v: r"\{x \in \mathbb{R} : " + _inequalities(v, r"\le", r" \text{ or } ") + r"\}",
    )


def _brackets(value: tuple[Piece, ...], infinity: str, comma: str) -> str:
    texts = []
    for lo, lo_in, hi, hi_in in value:
        ends = f"-{infinity}" if lo is None else str(lo), infinity if hi is None else str(hi)
        texts.append(f"{'[' if lo_in else '('}{comma.join(ends)}{']' if hi_in else ')'}")
    return r" \cup ".join(texts)


def _french(value: tuple[Piece, ...]) -> str:
    texts = []
    for lo, lo_in, hi, hi_in in value:
        ends = r"-\infty" if lo is None else str(lo), r"+\infty" if hi is None else str(hi)
        texts.append(f"{'[' if lo_in else ']'}{'; '.join(ends)}{']' if hi_in else '['}")
    return r" \cup ".join(texts)


TURNED = {r"\le": r"\ge", r"\leq": r"\geq", "≤": "≥", r"\leqslant": r"\geqslant", "<=": ">="}


def _inequalities(value: tuple[Piece, ...], at_most: str, joint: str) -> str:
    texts = []
    at_least = TURNED[at_most]
    for lo, lo_in, hi, hi_in in value:
        if lo is None:
            texts.append(f"x {at_most if hi_in else '<'} {hi}")
        elif hi is None:
            texts.append(f"x {at_least if lo_in else '>'} {lo}")
        else:
            texts.append(f"{lo} {at_most if lo_in else '<'} x {at_most if hi_in else '<'} {hi}")
    return joint.join(texts)


def matrix(pick: Dice) -> Drawn:
    """Matrices and columns."""
    rows, columns = pick.choice([(2, 2), (2, 2), (2, 3), (3, 3), (2, 1), (3, 1)])
    value = tuple(tuple(pick.randint(-9, 9) for _ in range(columns)) for _ in range(rows))

    def other() -> Any:
        i, j = pick.randrange(rows), pick.randrange(columns)
        changed = tuple(
            tuple(v + ((r, c) == (i, j)) for c, v in enumerate(row)) for r, row in enumerate(value)
        )
        negative = tuple(tuple(-v for v in row) for row in value)
        moved = pick.choice([changed, value[::-1], tuple(row[::-1] for row in value), negative])
        transposed = tuple(zip(*value, strict=True))
        return transposed if rows == columns and pick.random() < 0.3 else moved

    def body(v: Any, end: str = r" \\ ") -> str:
        return end.join(" & ".join(map(str, row)) for row in v)

    def within(name: str, v: Any) -> str:
        return rf"\begin{{{name}}} {body(v)} \end{{{name}}}"

    return made(
        pick,
        value,
        other,
        partial(within, pick.choice(["pmatrix", "bmatrix"])),
        partial(within, "pmatrix"),
        partial(within, "bmatrix"),
        lambda v: rf"\begin{{pmatrix}}{body(v, APART)}\end{{pmatrix}}",
        lambda v: rf"\left[\begin{{array}}{{{'c' * len(v[0])}}} {body(v)} \end{{array}}\right]",
        lambda v: rf"\left(\begin{{matrix}} {body(v)} \end{{matrix}}\right)",
        lambda v: rf"A = {within('pmatrix', v)}",
        lambda v: rf"\left[ \begin{{matrix}} {body(v)} \\ \end{{matrix}} \right]",
        lambda v: rf"2\begin{{pmatrix}} {body(_halved(v))} \end{{pmatrix}}",
        lambda v: within("smallmatrix", v).join([r"\left(", r"\right)"]),
    )


def _halved(value: Any) -> Any:
    return tuple(tuple(bar(Fraction(v, 2)) for v in row) for row in value)


def line(pick: Dice) -> Drawn:
    """Equations of lines and circles: multiples of one another say the same."""
    a, b, c = (pick.choice([-5, -4, -3, -2, 2, 3, 4, 5, 7]) for _ in range(3))
    value = (Fraction(a, c), Fraction(b, c))  # y = (a/c) x + b/c

    def slope(v: tuple[Fraction, Fraction]) -> str:
        return f"y = {bar(v[0])}x {'-' if v[1] < 0 else '+'} {bar(abs(v[1]))}"

    def general(v: tuple[Fraction, Fraction]) -> tuple[int, int, int]:
        below = v[0].denominator * v[1].denominator
        return int(v[0] * below), -below, int(v[1] * below)

    def zero(v: tuple[Fraction, Fraction]) -> str:
        p, q, r = general(v)
        return f"{p}x {q:+d}y {r:+d} = 0"

    def standard(v: tuple[Fraction, Fraction]) -> str:
        p, q, r = general(v)
        return f"{-p}x {-q:+d}y = {r}"

    return made(
        pick,
        value,
        lambda: pick.choice(
            [
                (value[0], -value[1]),
                (-value[0], value[1]),
                (1 / value[0], value[1]),
                (value[0], value[1] + 1),
                value[::-1],
            ]
        ),
        pick.choice([slope, standard]),
        slope,
        zero,
        standard,
        lambda v: f"{bar(v[0])}x - y = {bar(-v[1])}",
        lambda v: f"{bar(abs(v[1])) if v[1] > 0 else '-' + bar(-v[1])} + {bar(v[0])}x = y",
        lambda v: f"y - ({bar(v[0] + v[1])}) = {bar(v[0])}(x - 1)",
    )
