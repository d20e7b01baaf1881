"""Words behind a number that make another number of it: scales, fractions and powers.

`5 million`, `5 Mio.` and `5\\text{ lakh}` become products, `5 tenths` a fraction, `5 squared` a
power. A word that is one number in one language and another in the next, or as often the name of a
thing, says neither: it equals what has the same word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import prod

SCALES = {
    10: "tens", 12: "dozen dozens Dutzend docena docenas douzaine douzaines дюжина дюжины дюжин",
    100: "hundred hundreds Hundert cientos centenares centaines сотня сотни сотен trăm 百 백",
    10**3: "thousand thousands Tausend Tsd mille millier milliers millares тысяча тысячи тысяч тыс"
    " nghìn ngàn χιλιάδες 千 천",
    10**4: "万 萬 만", 10**5: "lakh lakhs lac lacs",
    10**6: "million millions Millionen Mio mln millón millones milhão milhões milione"
    " milioni миллион миллиона миллионов млн triệu εκατομμύριο εκατομμύρια",
    10**7: "crore crores", 10**8: "亿 億 억",
    10**9: "billion bn Milliarde Milliarden Mrd milliard milliards miliardo"
    " miliardi миллиард миллиарда миллиардов млрд tỷ tỉ δισεκατομμύρια",
    10**12: "trillion Billionen billón billones триллион триллиона триллионов",
    10**18: "Trillionen trillón trillones",
}  # fmt: skip
"""How large a scale is → its words."""
PARTS = {
    2: "halves medios", 3: "third thirds Drittel tercio tercios", 4: "fourth fourths Viertel",
    5: "fifth fifths Fünftel quinto quintos cinquième cinquièmes",
    6: "sixth sixths Sechstel sexto sextos sixième sixièmes",
    7: "seventh sevenths Siebtel séptimo séptimos septième septièmes",
    8: "eighth eighths Achtel octavo octavos huitième huitièmes",
    9: "ninth ninths Neuntel noveno novenos neuvième neuvièmes",
    10: "tenth tenths Zehntel décimo décimos dixième dixièmes",
    11: "eleventh elevenths", 12: "twelfth twelfths Zwölftel", 16: "sixteenth sixteenths",
    20: "twentieth twentieths Zwanzigstel",
    100: "hundredth hundredths Hundertstel centésimo centésimos centième centièmes",
    1000: "thousandth thousandths Tausendstel milésimo milésimos millième millièmes",
    10**6: "millionth millionths Millionstel",
}  # fmt: skip
"""What stands below the bar → the words of such a part."""
LAST = {"^{2}": "squared", "^{3}": "cubed", "!": "factorial", r"\times 1000": "grand"}
LAST |= {rf"\times\frac{{1}}{{{below}}}": words for below, words in PARTS.items()}
"""What a word means that ends an answer, and may begin another thing elsewhere: five grand prizes,
five third graders."""
UNCLEAR = [
    "gross",
    "mil",
    "quarter",
    "quarters",
    "cuarto",
    "cuartos",
    "tiers",
    "half",
    "halb",
    "halbe",
    "einhalb",
    "medio",
    "media",
    "demi",
    "demie",
    "billions",
    "trillions",
]
"""Words that are two numbers in two languages or two uses, or a thing: a quarter is a coin too."""
SHORT = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9, "t": 10**12}
"""What is behind a sum of money."""


def _by_word(table: dict[int, str] | dict[str, str]) -> dict[str, int | str]:
    return {word.casefold(): value for value, words in table.items() for word in words.split()}


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


SIZES, LATEX = _by_word(SCALES), _by_word(LAST)
SIGNS = "".join(word for word in SIZES if len(word) == 1)
GAP = r"(?:[\s~]|\\[,;:! ])*"
SET = r"(?P<set>\\(?:text|mathrm|mbox|textrm)\s*\{)?\s*"
WORD = rf"(?:{_any(word for word in SIZES if len(word) > 1)})(?![^\W\d_]|-)"
"""The word of a scale."""
SCALED = re.compile(
    rf"(?<=[\d}}]){GAP}{SET}(?P<words>(?:[{SIGNS}]|(?<!\d){WORD}\.?{GAP}){{1,3}})"
    r"(?:d['’]|d[ei]\s)?(?P<close>\})?",
    re.I,
)
ENDED = re.compile(
    rf"(?:(?P<digits>(?<![\w.,)}}\-])\d+)|(?<=[\d}}]))(?!\d){GAP}{SET}(?<!\d)"
    rf"(?P<word>{_any(LATEX)})\s*\}}?\Z",
    re.I,
)
SUM = re.compile(
    rf"(\A[-+]?\s*\\?[$£€₹¥]\s*\d[\d.,]*){GAP}{SET}(?P<word>{_any(SHORT)})\s*\}}?\Z", re.I
)
FORMULA = re.compile(rf"\A\$([^$]+)\$(?=\s*(?:\\text\s*\{{\s*)?{WORD})", re.I)
"""A formula with a scale behind it: `$5$ million`."""
INDIAN = re.compile(r"(?<![\d.,])\d{1,2}(?:,\d{2})+,\d{3}(?![\d,])")
RUPEES = re.compile(r",0|₹|\b(?:Rs|INR|rupees?)\b", re.I)


def as_numbers(text: str) -> str:
    """Returns an answer with words that make another number of the one before them as LaTeX."""
    if RUPEES.search(text):
        text = INDIAN.sub(lambda match: match[0].replace(",", ""), text)
    text = SUM.sub(lambda match: f"{match[1]} {_times(SHORT[match['word'].casefold()])}", text)
    return ENDED.sub(_ended, SCALED.sub(_scaled, FORMULA.sub(r"\1 ", text)))


def _scaled(match: re.Match[str]) -> str:
    rest = match.string[match.end() :]
    words = re.findall(rf"[{SIGNS}]|[^\W\d_]+", match["words"])
    one = re.search(r"(?<![\d.,])1\Z", match.string[: match.start()])
    if re.match(r"\s*\d", rest) or (one and words[0] in ("Billion", "Trillion")):
        return match[0]  # one billion in German, where several are `Billionen`
    times = _times(prod(int(SIZES[word.casefold()]) for word in words))
    if match["set"]:
        return f" {times}" if match["close"] else f" {times}{match['set']} "
    return f" {times}{match['close'] or ' ' * bool(rest)}"


def _times(size: int) -> str:
    power = str(size).rstrip("0") == "1"
    return rf"\times 10^{{{len(str(size)) - 1}}}" if power else rf"\times {size}"


def _ended(match: re.Match[str]) -> str:
    latex = str(LATEX[match["word"].casefold()])
    if latex[0] == "\\":
        return f"{match['digits'] or ''}{latex}"
    return f"{match['digits']}{latex}" if match["digits"] else match[0]
