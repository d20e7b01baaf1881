"""Units and currencies: what the end (or beginning) of an answer measures, and how large a unit is.

A unit is a product of powers of kinds (length, mass, dollars …) and a size, so that `36 km/h` is
`10 m/s` and `12 m^2` is not `12 m`. A letter is a unit only after a number and a blank, or where
it is set as text: `3 m` and `3\\text{m}` are metres, `3m` and `2\\pi r h` are products.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from typing import NamedTuple

from tfgrpo.domains.mathematics.notation import GREEK
from tfgrpo.domains.mathematics.number_words import LATEX, UNCLEAR
from tfgrpo.domains.mathematics.number_words import WORD as SCALE

TABLE = {
    "length": {
        "micron": "1e-6", "in inch inche": "0.0254", "ft foot feet": "0.3048", "yd yard": "0.9144",
        "mi mile": "1609.344", "AU": "149597870700", "ly light-year": "9460730472580800",
        "fathom": "1.8288", "мм": "1/1000", "см": "1/100", "км": "1000", "м": "1",
    },
    "mass": {
        "tonne": "1000", "lb pound-mass pound": "0.45359237", "oz ounce": "0.028349523125",
        "u dalton amu": "1.66053906660e-27", "stone": "6.35029318", "gm г": "1/1000", "mcg": "1e-9",
        "кг": "1",
    },
    "tons": {"ton": "1", "lb pound": "1/2000"},
    "time": {
        "minute min minuten minuto": "60", "h hour hr std stunde stunden heure hora": "3600",
        "day tag tage jour dia": "86400", "week wk woche wochen semaine semana": "604800",
        "fortnight": "1209600", "с сек": "1", "мин минут минуты": "60", "ч час часа часов": "3600",
    },
    "length^2": {"sqm": "1", "sqft": "0.09290304"},
    "length^3": {
        "l л": "1/1000", "ml мл cc ccm": "1/1000000", "gallon": "0.003785411784",
        "quart": "0.000946352946", "pint": "0.000473176473", "cup": "0.0002365882365",
        "tbsp tablespoon": "0.00001478676478125", "tsp teaspoon": "0.00000492892159375",
    },
    "length time^-1": {"mph": "0.44704", "kmh kph kmph": "5/18", "mps": "1", "knot": "463/900"},
    "years": {
        "month monat monate mois mes meses": "1/12", "year yr jahr jahre ans ano": "1",
        "decade": "10", "century centurie": "100",
    },
    "dollars": {"cent": "1/100", "dollar buck usd": "1"},
    "pounds": {"pence penny": "1/100", "gbp pound": "1"}, "euros": {"euro eur": "1"},
    "yen": {"yen jpy": "1"}, "yuan": {"yuan cny rmb": "1"}, "rupees": {"rupee inr": "1"},
    "won": {"won krw": "1"}, "roubles": {"rouble ruble rub рублей рубля руб": "1"},
    "francs": {"franc chf": "1"},
    "degrees": {"degree deg grad degre grado": "1"}, "radians": {"radian rad": "1"},
    "turns": {"rev revolution turn": "1"}, "parts": {"ppm": "1e-6", "ppb": "1e-9"},
    "level": {"dB decibel": "1"}, "celsius": {"celsius": "1"}, "fahrenheit": {"fahrenheit": "1"},
} | {f"!{word}": {word: "1"} for word in UNCLEAR}  # fmt: skip
"""What is measured, as kinds with their powers → words → the size of one. Pounds are money, mass,
and a share of a ton, which is no other mass: there are three tons. A word that may be a number is
of a kind of its own."""
SI = {
    "length": {"m meter metre metro метр метра метров μέτρα μέτρο": "1"},
    "mass": {"g gram gramm gramme gramo грамм граммов": "1/1000"},
    "time": {"s second sec sekunde sekunden seconde segundo": "1"},
    "current": {"A ampere amp": "1"}, "kelvin": {"K kelvin": "1"}, "amount": {"mol mole": "1"},
    "light": {"cd candela": "1", "lm lumen": "1"}, "length^3": {"L liter litre litro": "1/1000"},
    "length^2": {"ha hectare": "10000", "acre": "4046.8564224"},
    "mass length time^-2": {"N newton": "1"},
    "mass length^2 time^-2": {
        "J joule": "1", "cal calorie": "4.184", "Wh": "3600", "BTU": "1055.05585262",
        "eV electronvolt": "1.602176634e-19",
    },
    "mass length^2 time^-3": {"W watt": "1", "hp horsepower": "745.69987158227"},
    "mass length^-1 time^-2": {
        "Pa pascal": "1", "bar": "100000", "atm": "101325", "mmHg torr": "133.322387415",
        "psi": "6894.757293168",
    },
    "current time": {"Ah": "3600", "C coulomb": "1"}, "turns time^-1": {"rpm": "1/60"},
    "information": {"bit": "1", "B byte": "8"},
    "time^-1": {"Hz hertz": "1", "Bq becquerel": "1"},
    "mass length^2 time^-3 current^-1": {"V volt": "1"},
    "mass length^2 time^-3 current^-2": {"ohm": "1"},
    "mass^-1 length^-2 time^3 current^2": {"S siemens": "1"},
    "mass^-1 length^-2 time^4 current^2": {"F farad": "1"},
    "mass length^2 time^-2 current^-2": {"H henry": "1"},
    "mass time^-2 current^-1": {"T tesla": "1"},
    "mass length^2 time^-2 current^-1": {"Wb weber": "1"}, "light length^-2": {"lx lux": "1"},
    "length^2 time^-2": {"Gy gray": "1", "Sv sievert": "1"}, "amount time^-1": {"kat katal": "1"},
    "amount length^-3": {"M molar": "1000"},
}  # fmt: skip
"""Units with prefixes: a symbol, whose case counts, and its words."""
PREFIXES = {
    "p pico": "1e-12", "n nano": "1e-9", "u micro": "1e-6", "m milli mili": "1e-3",
    "c centi zenti санти": "1e-2", "d deci": "1e-1", "k kilo кило": "1e3", "K": "1e3",
    "M mega": "1e6", "G giga": "1e9", "T tera": "1e12",
}  # fmt: skip
FORMULA_WORD = re.compile(
    r"mod|a?sinh?|a?cosh?|a?tanh?|cot|sec|csc|log|exp|sqrt|gcd|lcm|max|min|det|pct|percent"
    r"|percentage|alpha|beta|gamma|delta|theta|lambda|sigma|omega|phi|inf|infinity",
    re.I,
)
"""Words that are part of a formula."""
CHANGES = re.compile(
    rf"\b(?:{SCALE}|(?:{'|'.join(word for word in LATEX if word.endswith(('ths', 'rds', 'al')))}"
    r"|minus|plus|times|over|or|and|not|is|to|und|oder|et|ou|y|и|или|below|above|under|negative"
    r"|doubled|tripled|halved|al (?:cuadrado|cubo)|au (?:carré|cube)|zum quadrat"
    r"|больше|меньше|более|менее|половиной|hơn)\b)",
    re.I,
)
"""Words after a number that are more than what is counted."""
SIGNS = {"$": "dollars", "£": "pounds", "€": "euros", "¥": "yen"}
SIGNS |= {"₹": "rupees", "₩": "won", "₽": "roubles"}
CODES = {"USD": "dollars", "EUR": "euros", "GBP": "pounds", "JPY": "yen", "CNY": "yuan"}
CODES |= {"INR": "rupees", "KRW": "won", "RUB": "roubles", "CHF": "francs"}
MONEY = f"[{''.join(SIGNS)}]"
LETTERS = frozenset("mgslhLмгсл")
POWERS = {"square": 2, "sq": 2, "cubic": 3, "squared": 2, "cubed": 3}

WORD = "[a-zA-Z\u00c0-\u024f\u0370-\u04ff\u1e00-\u1eff]+"
"""A word in Latin, Greek or Cyrillic letters."""
POWER = r"(?:\s*\^\s*\{?\s*-?[1-6]\s*\}?|(?<=[mst])[23](?!\w))?"
GLUED = re.compile(r"(?<=[mst])([23])(?!\w)")
"""A power behind its unit: `m2`, `ft3`, `m/s2`."""
ONE = rf"(?:(?:square|sq\.?|cubic)\s+)?{WORD}\.?{POWER}(?:\s+(?:squared|cubed)\b)?"
END = re.compile(
    rf"(?P<before>.*?[\d)}}\]!\w])(?P<blank>[\s~]*)(?P<unit>{ONE}(?:\s*(?:/|\bper\b|\\cdot)\s*{ONE})*)\Z",
    re.DOTALL,
)
FACE = r"\\(?:text|mathrm|mbox|textrm|textbf|textnormal|rm)\s*"
INNER = r"(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*"
OHM = "(?:\\\\Omega(?![a-zA-Z])|\u03a9|\u2126)"
PIECE = rf"(?:(?:\\mu\s*)?{FACE}\{{{INNER}\}}|[kMGmu]?{OHM}){POWER}"
GAP = r"(?:\\[,;:! ]|\\cdot(?![a-zA-Z])|[\s~/*.\u00b7\u22c5])*"
TEXT = re.compile(
    rf"(?P<before>.*?[\d)}}\]!\w.])(?P<unit>(?:{GAP}"
    rf"(?:{PIECE}|\\[dt]?frac\s*\{{(?:{GAP}{PIECE})+{GAP}\}}\s*\{{(?:{GAP}{PIECE})+{GAP}\}}))+)"
    r"\s*\.?\Z",
    re.DOTALL,
)
"""A unit that is set as text, in one piece or in several, also as a fraction."""
SYMBOL = re.compile(r"\\(?:mathrm|rm)(?![a-zA-Z])")
"""How signs of units are set, and words are not."""
BARE_OHM = re.compile(rf"[\d}}](?:\\[,;: ]|[\s~])+[kMGmu]?{OHM}{POWER}\s*\.?\Z")
"""An ohm that is not set as text, which is a symbol without a number and a blank before it."""
FLATTENED = (
    (re.compile(r"\\mu(?![a-zA-Z])\s*|[\u00b5\u03bc]"), "u"),
    (re.compile(rf"{FACE}\{{\s*([pnumkMGT])\s*\}}\s*(?={OHM})"), r"\1"),
    (re.compile(OHM), "ohm "),
    (re.compile(rf"(?<=u){FACE}\{{\s*({INNER})\}}"), r"\1 "),
    (re.compile(rf"{FACE}\{{({INNER})\}}"), r" \1 "),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}"),
     r" (\1)/(\2)"),
    (re.compile(r"\\cdot|\\times|\\[,;:! ]|[~*\u00b7\u22c5]"), " "),
    (re.compile(r"\\%"), "%"),
    (re.compile(r"[{}$]"), ""),
    (GLUED, r"^\1"),
)  # fmt: skip
"""How a unit that is set as text becomes plain, in order."""
FACTOR = re.compile(
    rf"\s*(?:(?P<sign>[/()]|(?:per|pro|par|por|an?|each|every)\b)|(?:(?P<square>square|sq|cubic)\b\.?\s*)?(?P<word>{WORD}(?:-{WORD})*)\.?"
    r"(?:\s*\^\s*(?P<power>-?\d))?(?:\s+(?P<squared>squared|cubed)\b)?)\s*"
)
QUOTIENT = re.compile(r"/|\s(?:per|pro|par|por|an?|each|every)\s")
DEGREE = re.compile(
    r"\s*(?:\\(?:text|mathrm)\s*\{\s*)?(?:\^\s*\{?\s*\\circ\s*\}?|°|\\degree)\s*"
    r"(?:\\(?:text|mathrm)\s*\{\s*)?(?P<scale>[CF])?\s*\}?\s*\Z"
)
PREFIX = re.compile(rf"\A([+-]?)\s*(?:\\?({MONEY})|({'|'.join(CODES)})\s)\s*(?=[\d.+-])")
FORMULA = re.compile(r"\A\$([^$]+)\$\s+([a-zA-Z%\\][^$]*)\Z")
"""A formula with a unit behind it: `$125$ miles`."""
SUFFIX = re.compile(
    rf"(?<=[\d}}])(?:\s|\\[,;: ]|~)*(?:\\?({MONEY})|\\text\s*\{{\s*\\?({MONEY})\s*\}})\Z"
)


SPOKEN = (
    (re.compile("(?<=[\\d\\s~])[\u00b5\u03bc](?=[a-zA-Z])"), "u"),
    (re.compile(r"\b(?:degrees?|grad)\s+(?=(?:celsius|fahrenheit|kelvin)\b)", re.I), ""),
    (re.compile(r"\bmetric\s+ton(?=s?\b)", re.I), "tonne"),
)
"""What a unit is named beside one word, and that word."""
MOMENT = re.compile(r"(?:[kM]?(?:N|J|Pa)|k[gW])\s*\\cdot")
"""How a product of units begins that no symbols of a formula are taken for."""
SUMMAND = rf"(\d+(?:\.\d+)?)\s*({WORD})\.?"
LONGEST = 200
"""Characters of a sum of units, at most."""
SUM = re.compile(rf"{SUMMAND}(?:\s+(?:and\s+)?{SUMMAND}){{1,3}}")


class Unit(NamedTuple):
    """What is measured, as kinds with their powers, and the size of one in the kinds' own units."""

    kinds: frozenset[tuple[str, int]]
    size: Fraction


def _one(kind: str) -> Unit:
    return Unit(frozenset({(kind, 1)}), Fraction(1))


COUNTED = _one("?")
"""Words behind a number that are no unit: `12\\text{ marbles}`."""
UNSURE = _one("!")
NEUTRAL = re.compile(r"\bunits?\b", re.IGNORECASE)
SYMBOLS_OF_GREEK = re.compile(r"[\u03b1-\u03c9]+")
IN_FORMULA = re.compile(rf"(?:(?<![a-zA-Z])(?:[a-z]|{GREEK})(?![a-zA-Z])|[\W\d_])+")
PRODUCT = re.compile(r"[a-z]{2}(?![a-zA-Z])")
"""Words behind a number that are part of the formula: `3+4\\,\\mathrm{i}`."""


class Measured(NamedTuple):
    """A text without its unit or the words that count in its place, and the unit, if it is one."""

    text: str
    units: tuple[Unit, ...] = ()


@cache
def _known() -> dict[str, tuple[Unit, ...]]:
    known: dict[str, tuple[Unit, ...]] = {}
    for kinds, sizes in (*TABLE.items(), *SI.items()):
        powers = (kind.partition("^") for kind in kinds.split())
        measured = frozenset((kind, int(power or 1)) for kind, _, power in powers)
        for words, size in sizes.items():
            for word in words.split():
                known[word] = (*known.get(word, ()), Unit(measured, Fraction(size)))
    for symbols, names, factor in _prefixed():
        larger = tuple(unit._replace(size=unit.size * factor) for unit in known[symbols[1]])
        for word in ("".join(symbols), *names):
            known.setdefault(word, larger)
    return known


def _prefixed() -> Iterator[tuple[tuple[str, str], list[str], Fraction]]:
    """Yields each prefix with each unit: their symbols, the names and the factor."""
    for prefix, factor in PREFIXES.items():
        short, *longs = prefix.split()
        for words in (words for sizes in SI.values() for words in sizes):
            symbol, *names = words.split()
            yield (short, symbol), list(map("".join, product(longs, names))), Fraction(factor)


@cache
def _symbols() -> frozenset[str]:
    return frozenset(
        symbol for (short, one), _, _ in _prefixed() for symbol in (one, short + one)
    ) - {"K" + one for (_, one), _, _ in _prefixed()}


def split(text: str) -> Measured:
    """Returns an answer without the unit or the currency that it begins or ends with. Words that
    count things and are no unit (`12\\text{ marbles}`) are left off too."""
    text = text.strip()
    if text.startswith("$") and text.endswith("$") and len(text) > 1:
        text = text.strip("$").strip()
    for pattern, plain in SPOKEN:
        text = pattern.sub(plain, text)
    text = FORMULA.sub(r"\1 \2", text)
    currency = PREFIX.match(text)
    if currency is not None:
        kind = SIGNS[currency[2]] if currency[2] else CODES[currency[3]]
        rest = _end(currency[1] + text[currency.end() :])
        own = _one(kind)
        return Measured(rest.text, tuple(_product(own, unit) for unit in rest.units) or (own,))
    return _end(text)


def _end(text: str) -> Measured:
    degree = DEGREE.search(text)
    if degree is not None and degree.start():
        name = {"C": "celsius", "F": "fahrenheit"}.get(degree["scale"] or "", "degree")
        return Measured(text[: degree.start()], _known()[name])
    sign = SUFFIX.search(text)
    if sign is not None:
        return Measured(text[: sign.start()], (_one(SIGNS[sign[1] or sign[2]]),))
    return _in_text(text) or _in_words(text) or Measured(text)


def _in_text(text: str) -> Measured | None:
    match = TEXT.match(text)
    if match is None:
        return None
    words = match["unit"]
    if "{" not in words and not BARE_OHM.search(text):
        return None
    for pattern, plain in FLATTENED:
        words = pattern.sub(plain, words)
    words = " ".join(words.split())
    if CHANGES.search(words) or re.search(r"\d", re.sub(r"\^\s*-?\d", "", words)):
        return None
    units = _leading(words, as_text=True)
    if re.match(r"\\text\s*\{[MB]\s*\}", match["unit"]):
        units = (*units, UNSURE)  # five million, where no blank stands before it
    if units:
        return Measured(match["before"], units)
    if not re.match(r"\(?[^\W\d_]", words):
        return None
    is_sign = SYMBOL.search(match["unit"])  # and no word that counts
    if IN_FORMULA.fullmatch(words) or (is_sign and PRODUCT.match(words)):
        return None
    if is_sign:
        return Measured(match["before"], (_one(f"?{words.casefold().removesuffix('s')}"),))
    return Measured(match["before"], () if NEUTRAL.search(words) else (COUNTED,))


def _in_words(text: str) -> Measured | None:
    match = END.match(text)
    if match is None:
        return None
    before, words = match["before"], match["unit"]
    letter = re.fullmatch(r"[^\W\d_](?:\^.*|[23])?(?:/.*)?", words) is not None
    number = re.search(r"[\d)}\]!]\Z", before)
    if letter and not (match["blank"] and re.search(r"\d\Z", before)):
        return None
    if number is None:
        return None
    moment = match["blank"] and MOMENT.match(words) is not None
    if "\\cdot" in words and not moment:
        return None
    units = named(re.sub(r"[{}]|\\cdot", "", words), as_text=bool(moment))
    if units:
        return Measured(before, units)
    after_number = re.search(r"(?:\d|10\^\{\d+\})\Z", before)
    plain = re.fullmatch(rf"{WORD}(?<=...)", words) and not SYMBOLS_OF_GREEK.fullmatch(words)
    if (
        match["blank"]
        and after_number
        and plain
        and not (CHANGES.search(words) or FORMULA_WORD.fullmatch(words))
    ):
        return Measured(before, () if NEUTRAL.search(words) else (COUNTED,))
    return None


def _leading(words: str, *, as_text: bool) -> tuple[Unit, ...]:
    """Returns the units that words begin with: `kg of rope` is a mass."""
    pieces = words.split()
    starts = (" ".join(pieces[:count]) for count in range(len(pieces), 0, -1))
    return next(filter(None, (named(start, as_text=as_text) for start in starts)), ())


def named(words: str, *, as_text: bool = False) -> tuple[Unit, ...]:
    r"""Returns the units that words may name: `m/s^2`, `kg m^-3`, `miles per hour`, `W/(m^2 K)`.
    None where they name none; "pounds" are two: money and mass. Beside a quotient a word that is no
    unit is a kind of its own. A single capital is a unit only where it was set `as_text`."""
    quotient = QUOTIENT.search(words) is not None
    units: list[tuple[Unit, ...]] = [(Unit(frozenset(), Fraction(1)),)]
    levels, over, at, known = [1], 1, 0, False
    words = GLUED.sub(r"^\1", words)
    while at < len(words):
        match = FACTOR.match(words, at)
        if match is None:
            return ()
        at = match.end()
        if match["sign"] == "(":
            levels.append(levels[-1] * over)
        elif match["sign"] == ")" and len(levels) > 1:
            levels.pop()
        elif match["sign"] == ")":
            return ()
        elif not match["sign"]:
            name = match["word"]
            power = POWERS.get(match["square"] or match["squared"] or "", int(match["power"] or 1))
            word = _word(name, as_text)
            if not word and not quotient:
                return ()
            known = known or bool(word)
            own = _one(f"?{name.removesuffix('s')}")
            units.append(tuple(_power(unit, levels[-1] * over * power) for unit in word or (own,)))
        over = 1 if match["sign"] in (None, "(", ")") else -1
    return tuple(reduce(_product, factors) for factors in product(*units)) if known else ()


def _word(word: str, as_text: bool) -> tuple[Unit, ...]:
    known = _known()
    if len(word) == 1 and not as_text and word not in LETTERS:
        return ()
    if word in known:
        return known[word]
    symbols = _symbols() if word.lower() != word else ()
    for at in range(1, len(word)):
        if word[:at] in symbols and word[at:] in symbols:
            return (_product(known[word[:at]][0], known[word[at:]][0]),)
    lower = word.lower()
    bare = "".join(c for c in unicodedata.normalize("NFD", lower) if not unicodedata.combining(c))
    for form in (lower, bare, lower.removesuffix("s"), bare.removesuffix("s")):
        if form in known and len(form) > 1:
            return known[form]
    return ()


def is_known(unit: Unit) -> bool:
    """Whether a unit has a size: what is counted has none."""
    return any(kind[0] not in "?!" for kind, _ in unit.kinds)


def is_unclear(unit: Unit) -> bool:
    """Whether a word may be a part of the number, so that it does not stand on one side alone."""
    return any(kind[0] == "!" for kind, _ in unit.kinds)


def total(text: str) -> tuple[Fraction, Unit] | None:
    """Returns the sum that a text is, in its last unit: `5 hours 30 minutes`, `5 ft 6 in`. Each
    part is less than one of the unit before it."""
    if len(text) > LONGEST:
        return None
    for pattern, plain in (*SPOKEN, *FLATTENED):
        text = pattern.sub(plain, text)
    if not SUM.fullmatch(text.strip()):
        return None
    parts = [(Fraction(n), named(word, as_text=True)) for n, word in re.findall(SUMMAND, text)]
    kinds = set.intersection(*({unit.kinds for unit in units} for _, units in parts))
    if len(kinds) != 1:
        return None
    sizes = [next(unit.size for unit in units if unit.kinds in kinds) for _, units in parts]
    counts = [count for count, _ in parts]
    if any(
        n * size >= before for n, size, before in zip(counts[1:], sizes[1:], sizes, strict=False)
    ):
        return None
    whole = sum((n * size for n, size in zip(counts, sizes, strict=True)), Fraction(0))
    return whole / sizes[-1], Unit(kinds.pop(), sizes[-1])


def _power(unit: Unit, power: int) -> Unit:
    return Unit(frozenset((kind, n * power) for kind, n in unit.kinds), unit.size**power)


def _product(one: Unit, other: Unit) -> Unit:
    powers: Counter[str] = Counter()
    for kind, n in (*one.kinds, *other.kinds):
        powers[kind] += n
    return Unit(frozenset((kind, n) for kind, n in powers.items() if n), one.size * other.size)
