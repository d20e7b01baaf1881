"""Units and currencies: what the end (or beginning) of an answer measures, and how large a unit is.

A unit is a product of powers of kinds (length, mass, dollars …) and a size, so that `36 km/h` is
`10 m/s` and `12 m^2` is not `12 m`. A letter is a unit only after a number and a blank, or where
it is set as text: `3 m` and `3\\text{m}` are metres, `3m` and `2\\pi r h` are products.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import NamedTuple

TABLE: dict[str, dict[str, str]] = {
    "length": {
        "nm nanometer nanometre": "1/1000000000",
        "um micrometer micrometre micron": "1/1000000",
        "mm millimeter millimetre": "1/1000",
        "cm centimeter centimetre": "1/100",
        "m meter metre": "1",
        "km kilometer kilometre": "1000",
        "in inch inche": "0.0254",
        "ft foot feet": "0.3048",
        "yd yard": "0.9144",
        "mi mile": "1609.344",
    },
    "mass": {
        "mg milligram": "1/1000000",
        "g gram": "1/1000",
        "kg kilogram": "1",
        "tonne": "1000",
        "lb pound-mass": "0.45359237",
        "oz ounce": "0.028349523125",
    },
    "time": {
        "ms millisecond": "1/1000",
        "s second sec": "1",
        "minute min": "60",
        "h hour hr": "3600",
        "day": "86400",
        "week": "604800",
    },
    "years": {"month": "1/12", "year yr": "1"},
    "dollars": {"cent": "1/100", "dollar buck usd": "1"},
    "pounds": {"pence penny": "1/100", "gbp": "1"},
    "euros": {"euro eur": "1"},
    "yen": {"yen jpy": "1"},
    "yuan": {"yuan cny rmb": "1"},
    "rupees": {"rupee inr": "1"},
    "won": {"won krw": "1"},
    "roubles": {"rouble ruble rub": "1"},
    "francs": {"franc chf": "1"},
    "degrees": {"degree deg": "1"},
    "radians": {"radian rad": "1"},
    "celsius": {"celsius": "1"},
    "fahrenheit": {"fahrenheit": "1"},
    "kelvin": {"kelvin": "1"},
}
VOLUMES = {
    "ml milliliter millilitre": "1/1000000",
    "l liter litre": "1/1000",
    "gallon": "0.003785411784",
}
SI: dict[str, tuple[dict[str, int], str]] = {
    "N newton": ({"mass": 1, "length": 1, "time": -2}, "1"),
    "J joule": ({"mass": 1, "length": 2, "time": -2}, "1"),
    "W watt": ({"mass": 1, "length": 2, "time": -3}, "1"),
    "Pa pascal": ({"mass": 1, "length": -1, "time": -2}, "1"),
    "Hz hertz": ({"time": -1}, "1"),
    "A ampere amp": ({"current": 1}, "1"),
    "C coulomb": ({"current": 1, "time": 1}, "1"),
    "V volt": ({"mass": 1, "length": 2, "time": -3, "current": -1}, "1"),
    "ohm": ({"mass": 1, "length": 2, "time": -3, "current": -2}, "1"),
    "F farad": ({"mass": -1, "length": -2, "time": 4, "current": 2}, "1"),
    "T tesla": ({"mass": 1, "time": -2, "current": -1}, "1"),
    "eV electronvolt": ({"mass": 1, "length": 2, "time": -2}, "1.602176634e-19"),
    "mol mole": ({"amount": 1}, "1"),
    "K": ({"kelvin": 1}, "1"),
}
"""Units of physics: a symbol, whose case counts, and its word."""
SPELT = {"N": "newton", "J": "joule", "W": "watt", "A": "ampere", "V": "volt"}
SPELT |= {"T": "tesla", "K": "kelvin"}
SYMBOL = re.compile(rf"(?<![a-zA-Z])[{''.join(SPELT)}](?![a-zA-Z])")
"""A letter that is a unit where it is set as text, and a symbol elsewhere."""
PREFIXES = {"n": "1e-9", "u": "1e-6", "m": "1e-3", "k": "1e3", "M": "1e6", "G": "1e9"}
SPEEDS = {"mph": "0.44704", "kmh kph kmph": "5/18"}
FORMULA_WORD = re.compile(
    r"mod|a?sinh?|a?cosh?|a?tanh?|cot|sec|csc|log|exp|sqrt|gcd|lcm|max|min|det|pct|percent"
    r"|percentage|alpha|beta|gamma|delta|theta|lambda|sigma|omega|phi|inf|infinity"
    r"|more|less|fewer|least|most|than|wrong|except|unless|nor|never|ago|maybe",
    re.I,
)
"""Words that are part of a formula, or change what stands before them."""
CHANGES = re.compile(
    r"\b(?:hundred|[tmb]\w*illion|thousand|dozen|minus|plus|times|over|or|and|not|is|to)\b", re.I
)
"""Words after a number that are more than what is counted."""
SIGNS = {"$": "dollars", "£": "pounds", "€": "euros", "¥": "yen"}
SIGNS |= {"₹": "rupees", "₩": "won", "₽": "roubles"}
CODES = {"USD": "dollars", "EUR": "euros", "GBP": "pounds", "JPY": "yen", "CNY": "yuan"}
CODES |= {"INR": "rupees", "KRW": "won", "RUB": "roubles", "CHF": "francs"}
MONEY = f"[{''.join(SIGNS)}]"
LETTERS = frozenset("mgslhL")
POWERS = {"square": 2, "sq": 2, "cubic": 3, "squared": 2, "cubed": 3}

WORD = r"[a-zA-Z]+"
POWER = r"(?:\^\{?-?[1-6]\}?)?"
ONE = rf"(?:(?:square|sq\.?|cubic)\s+)?{WORD}\.?{POWER}(?:\s+(?:squared|cubed)\b)?"
END = re.compile(
    rf"(?P<before>.*?[\d)}}\]!\w])(?P<blank>[\s~]*)(?P<unit>{ONE}(?:\s*(?:/|\bper\b)\s*{ONE})?)\Z",
    re.DOTALL,
)
TEXT = re.compile(
    r"(?P<before>.*?[\d)}\]!\w.])(?:\\[,;: ]|[\s~])*"
    r"\\(?:text|mathrm|mbox|textrm|textbf|textnormal|rm)\s*"
    r"\{[\s~]*(?P<unit>[^{}\d]*?)[\s.~]*\}(?P<power>\^\{?-?[1-6]\}?)?"
    r"(?:\s*/\s*\\(?:text|mathrm)\s*\{\s*(?P<per>[^{}\d]*?)\s*\}(?P<below>\^\{?-?[1-6]\}?)?)?\s*\.?\Z",
    re.DOTALL,
)
DEGREE = re.compile(
    r"\s*(?:\^\s*\{?\s*\\circ\s*\}?|°|\\degree)\s*"
    r"(?:\\(?:text|mathrm)\s*\{\s*)?(?P<scale>[CF])?\s*\}?\s*\Z"
)
PREFIX = re.compile(rf"\A([+-]?)\s*(?:\\?({MONEY})|({'|'.join(CODES)})\s)\s*(?=[\d.+-])")
FORMULA = re.compile(r"\A\$([^$]+)\$\s+([a-zA-Z%\\][^$]*)\Z")
"""A formula with a unit behind it: `$125$ miles`."""
SUFFIX = re.compile(
    rf"(?<=\d)(?:\s|\\[,;: ]|~)*(?:\\?({MONEY})|\\text\s*\{{\s*\\?({MONEY})\s*\}})\Z"
)


SET = r"\\(?:text|mathrm|mbox|textrm)\s*\{[^{}]*\}(?:\^\{?-?\d\}?)?"
OVER = re.compile(rf"\\[dt]?frac\s*\{{\s*({SET})\s*\}}\s*\{{\s*({SET})\s*\}}\s*\Z")
MICRO = re.compile(
    r"(?:\\mu|µ|μ)\s*\\(?:text|mathrm)\s*\{\s*([a-zA-Z]+)\s*\}"
    r"|\\(?:text|mathrm)\s*\{\s*(?:\\mu|µ|μ)\s*([a-zA-Z]+)\s*\}"
)
OHM = re.compile(
    r"(?<=[\d}])(?:\\[,;: ]|[\s~])+(?:\\(?:text|mathrm)\s*\{\s*([kMGmu])\s*\}|([kMG]))?"
    r"\s*(?:\\Omega|Ω|Ω)\s*\Z|\\(?:text|mathrm)\s*\{\s*(?:[kMG])?\\Omega\s*\}\s*\Z"
)
WITHIN = re.compile(
    r"\\(?:text|mathrm|mbox|textrm)\s*\{([^{}^$]*[a-zA-Z])\s*\$?\^\{?(-?\d)\}?\$?\s*\}\s*\Z"
)


class Unit(NamedTuple):
    """What is measured, as kinds with their powers, and the size of one in the kinds' own units."""

    kinds: frozenset[tuple[str, int]]
    size: Fraction

    def convertible(self, other: Unit) -> bool:
        """Whether the two measure the same."""
        return self.kinds == other.kinds


class Measured(NamedTuple):
    """A text without its unit, the unit, and whether words were left off that are none."""

    text: str
    units: tuple[Unit, ...] = ()
    counted: bool = False


@cache
def _known() -> dict[str, Unit]:
    known: dict[str, Unit] = {}
    rows = [
        ({kind: 1}, words, size) for kind, table in TABLE.items() for words, size in table.items()
    ]
    rows += [({"length": 3}, words, size) for words, size in VOLUMES.items()]
    rows += [({"length": 1, "time": -1}, words, size) for words, size in SPEEDS.items()]
    for kinds, words, size in rows:
        for word in words.split():
            known[word] = Unit(frozenset(kinds.items()), Fraction(size))
    for words, (kinds, size) in SI.items():
        for word in words.split():
            known[word] = Unit(frozenset(kinds.items()), Fraction(size))
        symbol = words.split()[0]
        for prefix, factor in PREFIXES.items():
            larger = Unit(frozenset(kinds.items()), Fraction(size) * Fraction(factor))
            known.setdefault(prefix + symbol, larger)
    return known


def split(text: str) -> Measured:
    """Returns an answer without the unit or the currency that it begins or ends with.

    Words that count things and are no unit (`12\\text{ marbles}`) are left off too.
    """
    text = text.strip()
    if text.startswith("$") and text.endswith("$") and len(text) > 1:
        text = text.strip("$").strip()
    text = FORMULA.sub(r"\1 \2", typeset(text))
    currency = PREFIX.match(text)
    if currency is not None:
        kind = SIGNS[currency[2]] if currency[2] else CODES[currency[3]]
        rest = _end(currency[1] + text[currency.end() :])
        own = Unit(frozenset({(kind, 1)}), Fraction(1))
        return Measured(rest.text, tuple(_product(own, unit) for unit in rest.units) or (own,))
    return _end(text)


def typeset(text: str) -> str:
    r"""Returns a text with its unit as `\text{m}/\text{s}^2`, however it was set: `\mathrm{m/s^2}`,
    `\frac{\text{m}}{\text{s}^2}`, `\text{cm$^2$}`, `\Omega`, `\mu\mathrm{m}`."""
    text = OVER.sub(lambda match: f"{match[1]}/{match[2]}", text)
    text = MICRO.sub(r"\\text{u\1}", text)
    text = OHM.sub(lambda match: f" \\text{{{match[1] or match[2] or ''}ohm}}", text)
    return WITHIN.sub(lambda match: f"\\text{{{match[1]}}}^{match[2]}", text)


def _end(text: str) -> Measured:
    degree = DEGREE.search(text)
    if degree is not None and degree.start():
        name = {"C": "celsius", "F": "fahrenheit"}.get(degree["scale"] or "", "degrees")
        return Measured(text[: degree.start()], (_unit(name),))
    sign = SUFFIX.search(text)
    if sign is not None:
        return Measured(
            text[: sign.start()], (Unit(frozenset({(SIGNS[sign[1] or sign[2]], 1)}), Fraction(1)),)
        )
    return _in_text(text) or _in_words(text) or Measured(text)


def _in_text(text: str) -> Measured | None:
    match = TEXT.match(text)
    if match is None:
        return None
    words = match["unit"] + (match["power"] or "")
    if CHANGES.search(words):
        return None
    if match["per"]:
        words += "/" + match["per"] + (match["below"] or "")
    units = named(SYMBOL.sub(lambda symbol: SPELT[symbol[0]], words))
    if units:
        return Measured(match["before"], units)
    return Measured(match["before"], (), True) if re.match(r"[^\W\d_]", words) else None


def _in_words(text: str) -> Measured | None:
    match = END.match(text)
    if match is None:
        return None
    before, words = match["before"], match["unit"]
    letter = re.fullmatch(r"[a-zA-Z](?:\^.*)?(?:/.*)?", words) is not None
    number = re.search(r"[\d)}\]!]\Z", before)
    if letter and not (match["blank"] and re.search(r"\d\Z", before)):
        return None
    if number is None:
        return None
    units = named(words)
    if units:
        return Measured(before, units)
    plain = re.search(r"\d\Z", before) and re.fullmatch(r"[a-zA-Z]{3,}", words)
    if match["blank"] and plain and not (CHANGES.search(words) or FORMULA_WORD.fullmatch(words)):
        return Measured(before, (), True)
    return None


def named(words: str) -> tuple[Unit, ...]:
    """Returns the units that words may name; none where they name none.

    "pounds" are two: money and mass.
    """
    above, per, below = (part.strip() for part in _per(words))
    over = _single(above)
    if not per:
        return over
    under = _single(below)
    if not over and not under:
        return ()
    unknown = (Unit(frozenset({(f"?{words}", 1)}), Fraction(1)),)
    return tuple(_product(a, _inverse(b)) for a in over or unknown for b in under or unknown)


def _per(words: str) -> tuple[str, str, str]:
    for sign in ("/", " per "):
        if sign in words:
            above, _, below = words.partition(sign)
            return above, sign, below
    return words, "", ""


def _single(words: str) -> tuple[Unit, ...]:
    match = re.fullmatch(
        rf"(?:(square|sq|cubic)\.?\s+)?({WORD})\.?(?:\^\{{?(-?\d)\}}?)?(?:\s+(squared|cubed))?",
        words,
    )
    if match is None:
        return ()
    power = POWERS.get(match[1] or match[4] or "", 0) or int(match[3] or 1)
    return tuple(_power(unit, power) for unit in _word(match[2]))


def _word(word: str) -> tuple[Unit, ...]:
    known = _known()
    if len(word) == 1:
        return (known[word.lower()],) if word in LETTERS else ()
    if word in known:
        return (known[word],)
    lower = word.lower()
    if lower in ("pound", "pounds"):
        return _unit("gbp"), _unit("lb")
    for form in (lower, lower.removesuffix("s")):
        if form in known and len(form) > 1:
            return (known[form],)
    return ()


def _unit(name: str) -> Unit:
    known = _known()
    return known.get(name) or known[name.removesuffix("s")]


def _power(unit: Unit, power: int) -> Unit:
    return Unit(frozenset((kind, n * power) for kind, n in unit.kinds), unit.size**power)


def _inverse(unit: Unit) -> Unit:
    return _power(unit, -1)


def _product(one: Unit, other: Unit) -> Unit:
    powers: Counter[str] = Counter()
    for kind, n in (*one.kinds, *other.kinds):
        powers[kind] += n
    return Unit(frozenset((kind, n) for kind, n in powers.items() if n), one.size * other.size)
