"""Wrong answers that are nearly right, made of ground truths of every kind by one change each.

The changes are another sign, exponent, base, unit, order in a tuple, one root of two, a digit, a
symbol for another, and another relation of three or four unknowns. What a change makes is wrong by
construction: ground truths are drawn so that no change leaves the value as it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from answer_pairs import Pair

SYMBOLS = [
    "a", "b", "k", "m", "n", "p", "q", "r", "s", "t", "u", "v", "w", "y", "z",
    r"\alpha", r"\beta", r"\gamma", r"\theta", r"\lambda", r"\mu", r"\omega", r"\Gamma",
    "m_e", "x_1", "v_0", r"\hat{p}", "T_2", "k_B", "E_n", "I_0",
]  # fmt: skip
UNITS = ["m", "cm", "kg", "g", "s", "N", "J", "W", "V", "A", "km", "mm", "ms", "kJ", "m/s", "m^2"]
Made = tuple[str, str]


def _sign(pick: random.Random) -> Made:
    a, b, x = pick.randint(2, 99), pick.randint(2, 99), pick.choice(SYMBOLS)
    gold = pick.choice(
        [f"{a}{x} + {b}", rf"\frac{{{a}}}{{{x} + {b}}}", f"{a} + {b}i", f"{x}^2+{a}"]
    )
    return gold, gold.replace("+", "-")


def _exponent(pick: random.Random) -> Made:
    a, n, x = pick.randint(2, 9), pick.randint(2, 9), pick.choice(SYMBOLS)
    x = f"({x})" if "_" in x else x
    forms = ["%s^{%d}", r"\frac{1}{%s^{%d}}", "3%s^{%d}+1", r"\sqrt{2}\cdot %s^{%d}"]
    form, base = pick.choice(forms), pick.choice([str(a), x])
    return form % (base, n), form % (base, n + pick.choice([1, -1, 2]))


def _base(pick: random.Random) -> Made:
    digits, base = (
        "1" + "".join(pick.choice("01") for _ in range(pick.randint(2, 6))),
        pick.choice("2345"),
    )
    return f"{digits}_{base}", f"{digits}_{int(base) + 1}"


def _unit(pick: random.Random) -> Made:
    number, unit = pick.randint(2, 500), pick.choice(UNITS)
    other = pick.choice([each for each in UNITS if each != unit])
    return rf"{number}\text{{ {unit}}}", rf"{number}\ \mathrm{{{other}}}"


def _order(pick: random.Random) -> Made:
    items = pick.sample(range(-30, 30), pick.randint(2, 4))
    turned = items[1:] + items[:1]
    left, right = pick.choice([("(", ")"), (r"\langle ", r"\rangle")])
    return tuple(f"{left}{', '.join(map(str, each))}{right}" for each in (items, turned))  # type: ignore[return-value]


def _root(pick: random.Random) -> Made:
    a, b = pick.sample(range(1, 60), 2)
    gold = pick.choice(
        [f"{a}, {b}", rf"\{{{a}, -{b}\}}", f"x = {a} or x = -{b}", rf"{a} \pm \sqrt{{{b}}}"]
    )
    return gold, pick.choice([str(a), f"x = {a}", rf"\{{{a}\}}"])


def _digit(pick: random.Random) -> Made:
    digits = str(pick.randint(100, 10**9))
    at = pick.randrange(1, len(digits))
    other = digits[:at] + str((int(digits[at]) + pick.randint(1, 9)) % 10) + digits[at + 1 :]
    form = pick.choice(
        ["%s", "0.%s1", "-%s", r"\frac{%s}{7}", r"\sqrt{%s1}", "%sx", r"%s\pi", "%s\\%%"]
    )
    return form.replace("%s", digits).replace("%%", "%"), form.replace("%s", other).replace(
        "%%", "%"
    )


def _symbol(pick: random.Random) -> Made:
    one, other = pick.sample(SYMBOLS, 2)
    a, n = pick.randint(2, 50), pick.randint(2, 5)
    form = pick.choice(
        [
            "{a} SYM + 1",
            "({a} - SYM)^{n}",
            r"\frac{SYM}{SYM + {a}}",
            "x = SYM - {a}",
            r"e^{SYM}+{a}",
            "(SYM, {a})",
        ]
    )
    form = form.replace("{a}", str(a)).replace("{n}", str(n))
    return form.replace("SYM", one), form.replace("SYM", other)


def _unknowns(pick: random.Random) -> Made:
    """Two formulas that agree where the unknowns are evenly spaced, and nowhere else."""
    a, b, c, d = pick.sample(SYMBOLS, 4)
    one, other = pick.choice(
        [
            (f"{a} - {b}", f"{b} - {c}"),
            (f"{a} + {c}", f"2 {b}"),
            (f"{a} + {d}", f"{b} + {c}"),
            (f"{a} + {b} + {c}", f"3 {b}"),
            (f"2 {a} - {b}", f"3 {b} - 2 {c}"),
        ]
    )
    forms = [
        "%s",
        "(%s)^2",
        r"\frac{1}{%s}",
        "5(%s)+1",
        "%s = 0",
        "%s > 0",
        "(%s, 1)",
        r"\{%s, 2\}",
    ]
    form = pick.choice(forms)
    return form % one, form % other


CHANGES: dict[str, Callable[[random.Random], Made]] = {
    "sign": _sign,
    "exponent": _exponent,
    "base": _base,
    "unit": _unit,
    "order": _order,
    "one root of two": _root,
    "digit": _digit,
    "symbol": _symbol,
    "unknowns": _unknowns,
}


def near_misses(count: int = 20_000, seed: int = 1) -> Iterator[Pair]:
    """Yields that many wrong answers, of each kind as many."""
    pick = random.Random(seed)
    kinds = list(CHANGES)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        gold, answer = CHANGES[kind](pick)
        yield Pair(kind, gold, answer, False)
