"""Numbers as people write them: with separators, currencies, units, scales; times and dates.

Numbers are compared exactly. A unit that stands on one side alone says nothing; two that measure
the same are converted (`1 m`, `100 cm`), and 12 cm are not 12 mm.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

PLAIN = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?\Z|[+-]?\.\d+\Z")
WRAPPING = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
UNITS = (
    "euros? dollars? cents? pounds? yen percent degrees? units? km cm mm m kg g mg lb lbs oz"
    " litres? liters? ml miles? feet foot ft inch inches yards? meters? metres? hours? minutes?"
    " seconds? days? weeks? months? years? people persons? students? items? pieces? times ways"
    " points? mins? hrs? secs? mph"
)
POWER = r"(?:\^?\{?[23]\}?)"
UNIT = re.compile(
    rf"(?<=[\d\s])(?:(?:square|cubic)\s+)?(?:{UNITS.replace(' ', '|')}){POWER}?"
    rf"(?:\s*/\s*\w+{POWER}?)?$",
    re.I,
)
CURRENCY = re.compile(r"\A([+-]?)\s*(?:\\?[$€£¥]|(?:USD|EUR|GBP)\s)\s*(?=[\d.+-])")
GROUPS = re.compile(r"(?<=\d)(?:\\,|\\ |\\!|~|\s)(?=\d{3}(?!\d))")
LONGEST = 1000
"""A number of more digits than this is left to sympy, which is killed when it takes too long."""
UNIT_TEXT = re.compile(
    r"(?<=[\d\s~,])\\(?:text|mathrm|mbox|textrm)\s*\{\s*([^\W\d_][^{}\d]*)\}\s*\.?\$?\Z"
)
NO_UNIT = re.compile(
    r"\b(?:hundred|[tmb]\w*illion|thousand|dozen|minus|plus|times|over|or|and|not|is|to)\b", re.I
)
"""Words after a number in `\\text{}` that are more than what is counted."""
HEDGE = re.compile(
    r"(?<![a-zA-Z\\])(?:not|neither|nor|never|more|less|fewer|least|most|than|except|unless|wrong)"
    r"(?![a-zA-Z])",
    re.I,
)
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALE = re.compile(rf"\s+({'|'.join(SCALES)})\Z", re.I)
PERCENT = re.compile(r"(?:%|\bpercent)[\s.$}]*\Z", re.I)
COMMA = re.compile(r"(?<=\d),(?=(?:\d{1,2}|\d{4,})(?!\d))")
CLOCK = re.compile(r"(\d{1,2})(?:\s?(?::|\{:\})\s?(\d{2}))?(?:\s*([ap])\.?\s*m\.?)?\Z", re.I)
DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})\Z")
BASED = re.compile(r"(\d[\dA-F]*)_(?:\{(?:\\text\s*\{)?(\d+|two|eight|ten)\}?\}|(\d))\Z", re.I)
MEASURES: dict[str, tuple[str, Fraction]] = {
    word: (kind, Fraction(size))
    for kind, table in {
        "length": {
            "mm millimeter millimetre": "1/1000",
            "cm centimeter centimetre": "1/100",
            "m meter metre": "1",
            "km kilometer kilometre": "1000",
            "inch inche": "0.0254",
            "ft foot feet": "0.3048",
            "yard": "0.9144",
            "mile": "1609.344",
        },
        "mass": {"mg milligram": "1/1000", "g gram": "1", "kg kilogram": "1000"},
        "time": {
            "second sec": "1",
            "minute min": "60",
            "hour hr": "3600",
            "day": "86400",
            "week": "604800",
        },
        "volume": {"ml milliliter millilitre": "1/1000", "liter litre": "1"},
        "dollars": {"cent": "1/100", "dollar": "1"},
    }.items()
    for words, size in table.items()
    for word in words.split()
}
MEASURE = re.compile(r"([a-zA-Z]{1,11}?)s?(?:\^?\{?([23])\}?)?[\s.$]*\Z")


class Time(NamedTuple):
    """A time of day; `half` is a, p or nothing."""

    hour: int
    minute: str
    half: str


class MeasuredUnit(NamedTuple):
    """A unit: what it measures, to which power, and its size."""

    kind: str
    power: int
    size: Fraction


def plain(text: str) -> Fraction | None:
    """Returns the number that a text plainly is: `1,250`, `$40`, `12.50`, `40 euros`."""
    text = _bare(text)
    text = UNIT.sub("", text).rstrip("%€$£¥ \\")
    scale = SCALE.search(text)
    if scale is not None:
        text = text[: scale.start()]
    if len(text) > LONGEST or not PLAIN.match(text):
        return None
    number = Fraction(text.replace(",", ""))
    return number * SCALES[scale[1].casefold()] if scale is not None else number


def equal(gold: str, found: str) -> bool | None:
    """Says whether two texts are the same number; None where one of them is none.

    An answer `1,5` is 1.5 where that is asked for, and 50 % are 0.5.
    """
    want, have = plain(gold), plain(found)
    if want is not None and have is None and "." in gold and found.count(",") == 1:
        have = plain(COMMA.sub(".", found))
    if want is None or have is None:
        return None
    measured, other = _measure(gold), _measure(found)
    if measured is not None and other is not None and measured.power == other.power:
        return measured.kind == other.kind and want * measured.size == have * other.size
    hundredths = PERCENT.search(_bare(gold)) is not None, PERCENT.search(_bare(found)) is not None
    return (
        want == have
        or (hundredths == (True, False) and want == have * 100)
        or (hundredths == (False, True) and want * 100 == have)
    )


def clock(text: str) -> Time | None:
    """Returns a time of day, which sympy would read as a ratio."""
    match = CLOCK.match(WRAPPING.sub(r"\1", text).strip().strip("$").strip())
    if match is None or not (match[2] or match[3]):
        return None
    return Time(int(match[1]), match[2] or "00", (match[3] or "").casefold())


def date(text: str) -> tuple[int, ...] | None:
    """Returns year, month and day, which sympy would subtract."""
    match = DATE.match(WRAPPING.sub(r"\1", text).strip().strip("$ ."))
    return tuple(map(int, match.groups())) if match else None


def based(text: str) -> tuple[str, str] | None:
    """Returns the digits and the base of `101_2`, whose base math-verify reads over."""
    match = BASED.match("".join(text.split()).strip("$."))
    if match is None:
        return None
    base = (match[2] or match[3]).casefold()
    return match[1].upper(), {"two": "2", "eight": "8", "ten": "10"}.get(base, base)


def hedged(gold: str, found: str) -> bool:
    """Whether words beside a number say something else, which math-verify would read over.

    `5 or more` and "not 5" are not 5, and `5\\text{ thousand}` is another number.
    """
    for text in (gold, found):
        match = UNIT_TEXT.search(text)
        if match is not None and NO_UNIT.search(match[1]):
            return True
    return bool(HEDGE.search(gold)) != bool(HEDGE.search(found))


def _bare(text: str) -> str:
    """Returns a text without what stands around a number, but for its unit."""
    text = UNIT_TEXT.sub(_without_unit, text)
    text = WRAPPING.sub(r"\1", text).replace("{,}", ",")
    text = GROUPS.sub("", text)
    for space in ("\\,", "\\!", "\\;", "\\ ", "~"):
        text = text.replace(space, " ")
    text = CURRENCY.sub(r"\1", text.strip())
    return CURRENCY.sub(r"\1", text.strip("$€£¥ ")).rstrip(".")


def _measure(text: str) -> MeasuredUnit | None:
    """Returns what the unit at the end of a text measures, and how large it is."""
    match = MEASURE.search(WRAPPING.sub(r"\1", text))
    if match is None:
        return None
    known = MEASURES.get(match[1]) or MEASURES.get(match[1].casefold())
    if known is None:
        return None
    power = int(match[2] or 1)
    return MeasuredUnit(known[0], power, known[1] ** power)


def _without_unit(match: re.Match[str]) -> str:
    """Returns nothing for a unit, and the words where they change the number."""
    return f" {match[1]}" if NO_UNIT.search(match[1]) else ""
