r"""Amounts, units, dates, compounds, labels and words drawn at random, as in `drawn_values.py`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from fractions import Fraction
from typing import Any

from drawn_values import Dice, Drawn, bar, decimal, grouped, made

# Amounts, units, days:

MONEY = {
    "USD": (r"\$", "dollars", "dollar"),
    "EUR": ("€", "euros", "Euro"),
    "GBP": ("£", "pounds", "pound"),
    "INR": ("₹", "rupees", "rupee"),
}


def money(pick: Dice) -> Drawn:
    """Amounts of money."""
    cents = pick.choice([pick.randint(1, 999), pick.randint(100_000, 9_999_999)])
    currency = pick.choice(list(MONEY))
    value = cents, currency

    def other() -> tuple[int, str]:
        another_currency = pick.choice(list(MONEY))
        return pick.choice(
            [(cents + 1, currency), (cents * 100, currency), (cents * 10, currency)]
            + [(cents, another_currency)] * 2
        )

    def english(v: tuple[int, str]) -> str:
        return f"{v[0] // 100:,}.{v[0] % 100:02d}"

    def german(v: tuple[int, str], group: str = ".") -> str:
        return f"{grouped(v[0] // 100, group)},{v[0] % 100:02d}"

    def sign(v: tuple[int, str]) -> str:
        return MONEY[v[1]][0]

    return made(
        pick,
        value,
        other,
        lambda v: sign(v) + english(v),
        lambda v: sign(v) + english(v),
        lambda v: sign(v) + english(v).replace(",", "{,}"),
        lambda v: sign(v) + english(v).replace(",", ""),
        lambda v: rf"{english(v)}\text{{ {MONEY[v[1]][1]}}}",
        lambda v: f"{english(v)} {MONEY[v[1]][1]}",
        lambda v: f"{v[1]} {english(v)}",
        lambda v: f"{english(v)} {v[1]}",
        lambda v: rf"\text{{{sign(v)}{english(v)}}}",
        lambda v: rf"{german(v)}\,{sign(v)}",
        lambda v: f"{german(v)} {sign(v)}",
        lambda v: rf"{german(v).replace(',', '{,}')}\text{{ {MONEY[v[1]][2]}}}",
        lambda v: rf"{german(v, '').replace(',', '{,}')}\,{sign(v)}",
        lambda v: rf"{german(v, ' ')} {sign(v)}",
        lambda v: rf"{sign(v)}\,{english(v)}",
        lambda v: rf"{v[0]}\text{{ cents}}" if v[1] == "USD" else f"{english(v)} {v[1]}",
    )


UNITS: dict[str, list[tuple[str, Fraction, list[str]]]] = {
    "length": [
        ("m", Fraction(1), ["meters", "Meter", "mètres", "metros", "米"]),
        (
            "cm",
            Fraction(1, 100),
            ["centimeters", "Zentimeter", "centimètres", "centímetros", "厘米"],
        ),
        ("km", Fraction(1000), ["kilometers", "Kilometer", "kilomètres", "kilómetros", "千米"]),
        (
            "mm",
            Fraction(1, 1000),
            ["millimeters", "Millimeter", "millimètres", "milímetros", "毫米"],
        ),
    ],
    "mass": [
        ("kg", Fraction(1), ["kilograms", "Kilogramm", "kilogrammes", "kilogramos", "千克"]),
        ("g", Fraction(1, 1000), ["grams", "Gramm", "grammes", "gramos", "克"]),
    ],
    "time": [
        ("s", Fraction(1), ["seconds", "Sekunden", "secondes", "segundos", "秒"]),
        ("min", Fraction(60), ["minutes", "Minuten", "minutes", "minutos", "分钟"]),
        ("h", Fraction(3600), ["hours", "Stunden", "heures", "horas", "小时"]),
    ],
    "area": [
        (r"m^2", Fraction(1), ["square meters", "Quadratmeter", "mètres carrés", "平方米"]),
        (r"cm^2", Fraction(1, 10_000), ["square centimeters", "Quadratzentimeter", "平方厘米"]),
    ],
    "speed": [
        ("m/s", Fraction(1), ["meters per second", "Meter pro Sekunde", "米每秒"]),
        (
            "km/h",
            Fraction(5, 18),
            ["kilometers per hour", "Kilometer pro Stunde", "kilómetros por hora"],
        ),
    ],
}


def measure(pick: Dice) -> Drawn:
    """Numbers with their unit."""
    kind = pick.choice(list(UNITS))
    unit = pick.choice(UNITS[kind])
    number = Fraction(pick.randint(2, 999), pick.choice([1, 1, 2, 10]))

    def shown(v: Fraction) -> str:
        return decimal(v) if "overline" not in decimal(v) else bar(v)

    def text(symbol: str) -> str:
        base, _, power = symbol.partition("^")
        return rf"\text{{ {base}}}" + (f"^{power}" if power else "")

    def roman(symbol: str) -> str:
        base, _, power = symbol.partition("^")
        return rf"\mathrm{{{base}}}" + (f"^{{{power}}}" if power else "")

    def wrong_of() -> tuple[Fraction, Any]:
        another_kind = pick.choice([k for k in UNITS if k != kind])
        return pick.choice(
            [
                (number + 1, unit),
                (number * 10, unit),
                (number, pick.choice([u for u in UNITS[kind] if u != unit])),
                (number, pick.choice(UNITS[another_kind])),
            ]
        )

    forms: list[Callable[[Fraction, Any], str]] = [
        lambda n, u: shown(n) + text(u[0]),
        lambda n, u: shown(n) + rf"\ {roman(u[0])}",
        lambda n, u: shown(n) + rf"\,{roman(u[0])}",
        lambda n, u: f"{shown(n)} {u[0]}",
        lambda n, u: f"{shown(n)} {u[0].replace('^2', '²')}",
        lambda n, u: shown(n) + rf"~\text{{{u[0].replace('^2', '$^2$')}}}",
        lambda n, u: f"{shown(n)} {u[2][0]}",
        lambda n, u: rf"{shown(n)}\text{{ {u[2][0]}}}",
        lambda n, u: rf"{shown(n)}\text{{ {u[2][1]}}}",
        lambda n, u: rf"{shown(n)} \text{{ {pick.choice(u[2])}}}",
        lambda n, u: f"{shown(n)}{u[2][-1]}" if not u[2][-1].isascii() else f"{shown(n)} {u[0]}",
        lambda n, u: rf"v = {shown(n)}{text(u[0])}",
        lambda n, u: rf"\text{{{shown(n)} {u[0]}}}" if "^" not in u[0] else f"{shown(n)} {u[0]}",
        lambda n, u: rf"\approx {shown(n)}{text(u[0])}",
        lambda n, u: shown(n).replace(".", "{,}") + text(u[0]),
    ]
    right = number, unit
    if pick.random() < 0.3:  # in another unit
        to = pick.choice(UNITS[kind])
        right = number * unit[1] / to[1], to
    wrong = wrong_of()
    assert wrong[0] * wrong[1][1] != number * unit[1] or wrong[1] not in UNITS[kind]
    form = pick.choice(forms)
    return Drawn(shown(number) + text(unit[0]), form(*right), pick.choice(forms)(*wrong))


MONTHS = {
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
    "diciembre",
}


def day(pick: Dice) -> Drawn:
    """Dates."""
    value = date(1900, 1, 1) + timedelta(days=pick.randrange(50_000))

    def other() -> date:
        apart = pick.choice([1, -1, 7, 30, 365, -365, 3653])
        return value + timedelta(days=apart)

    def month(language: str, v: date) -> str:
        return MONTHS[language].split()[v.month - 1]

    return made(
        pick,
        value,
        other,
        pick.choice([date.isoformat, lambda v: f"{v:%B} {v.day}, {v.year}"]),
        date.isoformat,
        lambda v: f"{v:%B} {v.day}, {v.year}",
        lambda v: rf"\text{{{v:%B} {v.day}, {v.year}}}",
        lambda v: f"{v.day} {v:%B} {v.year}",
        lambda v: f"{v:%A}, {v:%B} {v.day}, {v.year}",
        lambda v: f"{v:%Y/%m/%d}",
        lambda v: f"{v:%d.%m.%Y}",
        lambda v: f"{v.year}年{v.month}月{v.day}日",
        lambda v: f"{v.day}. {month('de', v)} {v.year}",
        lambda v: f"{v.day} {month('fr', v)} {v.year}",
        lambda v: f"{v.day} de {month('es', v)} de {v.year}",
        lambda v: rf"\text{{{v.day} {v:%b} {v.year}}}",
    )


# Chemistry, labels and words:

COMPOUNDS = [
    [("H", 2), ("O", 1)], [("C", 1), ("O", 2)], [("C", 1), ("O", 1)], [("Na", 1), ("Cl", 1)],
    [("H", 2), ("S", 1), ("O", 4)], [("N", 1), ("H", 3)], [("C", 6), ("H", 12), ("O", 6)],
    [("Fe", 2), ("O", 3)], [("K", 1), ("Mn", 1), ("O", 4)], [("H", 1), ("N", 1), ("O", 3)],
    [("Co", 1), ("Cl", 2)], [("N", 2), ("O", 1)], [("S", 1), ("O", 2)], [("C", 2), ("H", 6)],
    [("Na", 1), ("O", 1), ("H", 1)], [("Ca", 1), ("C", 1), ("O", 3)], [("P", 4)], [("Co", 1)],
    [("H", 1), ("F", 1)], [("Hf", 1)], [("No", 1)], [("N", 1), ("O", 1)], [("Si", 1)],
    [("Cs", 1)], [("C", 1), ("S", 1)], [("Sn", 1)], [("S", 1), ("N", 1)], [("O", 3)],
]  # fmt: skip


def compound(pick: Dice) -> Drawn:
    """Formulas of compounds and ions."""
    atoms = tuple(pick.choice(COMPOUNDS))
    charge = pick.choice([0, 0, 0, 1, -1, -2]) if len(atoms) > 1 else 0
    value = atoms, charge

    def other() -> Any:
        at = pick.randrange(len(atoms))
        more = tuple((e, n + (i == at)) for i, (e, n) in enumerate(atoms))
        return pick.choice(
            [
                (more, charge),
                (tuple(pick.choice(COMPOUNDS)), charge),
                (atoms, charge or 1),
                (atoms, -charge),
            ]
        )

    def flat(v: Any, low: str = "{}", high: str = "^{{{}}}") -> str:
        body = "".join(e + (low.format(n) if n > 1 else "") for e, n in v[0])
        size = "" if abs(v[1]) == 1 else str(abs(v[1]))
        return body + (high.format(f"{size}{'+' if v[1] > 0 else '-'}") if v[1] else "")

    def latin(v: Any) -> str:
        return flat(v, "_{}")

    return made(
        pick,
        value,
        other,
        pick.choice([lambda v: rf"\mathrm{{{latin(v)}}}", latin]),
        latin,
        lambda v: flat(v, "_{{{}}}"),
        lambda v: rf"\mathrm{{{latin(v)}}}",
        lambda v: rf"\text{{{flat(v, '_{}', '^{{{}}}')}}}" if not v[1] else latin(v),
        lambda v: rf"\ce{{{flat(v, '{}', '^{}')}}}",
        lambda v: flat(v, "{}", "^{}"),
        lambda v: (
            "".join(e + (str(n).translate(SUBSCRIPT) if n > 1 else "") for e, n in v[0])
            + (flat(((), v[1])))
        ),
        lambda v: (
            "".join(rf"\text{{{e}}}" + (f"_{n}" if n > 1 else "") for e, n in v[0])
            + flat(((), v[1]))
        ),
    )


SUBSCRIPT = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def letter(pick: Dice) -> Drawn:
    """Letters of options."""
    value, other = pick.sample("ABCDE", 2)
    options = {name: str(pick.randint(10, 99)) for name in "ABCDE"}

    return made(
        pick,
        value,
        lambda: other,
        pick.choice([lambda v: v, lambda v: f"({v})"]),
        lambda v: v,
        lambda v: f"({v})",
        lambda v: rf"\text{{{v}}}",
        lambda v: rf"\textbf{{({v})}}",
        lambda v: rf"\textbf{{({v}) }} {options[v]}",
        lambda v: f"{v}. {options[v]}",
        lambda v: f"{v}) {options[v]}",
        lambda v: rf"\text{{({v}) {options[v]}}}",
        lambda v: f"Option {v}",
        lambda v: rf"\text{{Option {v}}}",
        lambda v: rf"\mathbf{{{v}}}",
        lambda v: f"**{v}**",
    )


WORDS = [
    ("yes", "Yes", r"\text{yes}", r"\text{Yes}", r"\textbf{yes}"),
    ("no", "No", r"\text{no}", r"\text{No}"),
    ("true", "True", r"\text{true}", r"\textbf{True}"),
    ("false", "False", r"\text{False}", r"\mathrm{false}"),
    ("no solution", "No solution", r"\text{no solution}", r"\text{No solution.}"),
    ("undefined", "Undefined", r"\text{undefined}"),
    ("does not exist", r"\text{does not exist}", r"\text{Does not exist}"),
    ("parabola", "Parabola", r"\text{parabola}", r"\text{Parabola}"),
    ("infinitely many", r"\text{infinitely many}", "Infinitely many"),
    ("Tuesday", r"\text{Tuesday}", "tuesday", r"\textbf{Tuesday}"),
    ("odd", "Odd", r"\text{odd}"),
    ("even", r"\text{even}", "Even"),
    ("Paris", r"\text{Paris}", "paris", r"\text{Paris.}"),
]


def word(pick: Dice) -> Drawn:
    """Words."""
    value, other = pick.sample(WORDS, 2)
    return Drawn(pick.choice(value), pick.choice(value), pick.choice(other))


NUMBER_WORDS = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve",
    "de": "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze",
    "es": "cero uno dos tres cuatro cinco seis siete ocho nueve diez once doce",
    "zh": "零 一 二 三 四 五 六 七 八 九 十 十一 十二",
}


def counted(pick: Dice) -> Drawn:
    """Small numbers with what they count, and as words."""
    value = pick.randint(2, 12)

    def spelt(language: str, v: int) -> str:
        return NUMBER_WORDS[language].split()[v] if v <= 12 else str(v)

    return made(
        pick,
        value,
        lambda: pick.choice([value + 1, value - 1, value + 10]),
        str,
        lambda v: rf"{v}\text{{ apples}}",
        lambda v: f"{v} students",
        lambda v: rf"{v} \text{{ Äpfel}}",
        lambda v: rf"{v}\text{{ pommes}}",
        lambda v: rf"{v}\text{{ manzanas}}",
        lambda v: f"{v}个苹果",
        lambda v: rf"{v}\text{{个}}",
        lambda v: rf"\text{{{v} ways}}",
        lambda v: rf"{v} \text{{ (students)}}",
        lambda v: spelt("en", v),
        lambda v: rf"\text{{{spelt('en', v)}}}",
    )
