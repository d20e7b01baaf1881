r"""Numbers in another base: `101_2`, `(101)_{\text{two}}`, `101 base 2`, `0b101`.

Their base would be read over, or as an index.
"""

from __future__ import annotations

import re

NAMES = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUMBERS = {name: str(number) for number, name in enumerate(NAMES, 2)} | {"sixteen": "16"}
NUMBERS |= {"bin": "2", "oct": "8", "hex": "16"}
BASE = rf"(\d{{1,2}}|{'|'.join(NUMBERS)})"
DIGITS = r"(?:\d[\dA-F]*|(?-i:[A-F][\dA-F]+))"
"""Digits; where a letter is the first, small ones are symbols, and so is one alone: `F_{16}`."""
BASED = re.compile(
    rf"([+-]?)({DIGITS})(?:_(?:\{{\(?(?:base)?{BASE}\)?\}}|(\d))|(?:in|\()*base-?{BASE}\)?)\Z",
    re.I,
)
PREFIXED = re.compile(r"([+-]?)0([box])([\dA-F]+)\Z", re.I)
PREFIXES = {"b": "2", "o": "8", "x": "16"}
SET = re.compile(r"\\(?:overline|text|mathrm|mathit|textrm)\s*\{([^{}]*)\}")
BRACKETED = re.compile(rf"\A([+-]?)\(([+-]?{DIGITS})\)(?=_)", re.I)


def based(text: str) -> tuple[str, str] | None:
    """Returns digits, in capitals with their sign, and the base; None where a text names none."""
    bare = "".join(SET.sub(r"\1", SET.sub(r"\1", text)).replace("\\", "").split())
    bare = BRACKETED.sub(r"\1\2", bare.strip("$."))
    match = PREFIXED.match(bare)
    if match is not None:
        return _digits(match[1], match[3]), PREFIXES[match[2].casefold()]
    match = BASED.match(bare)
    if match is None:
        return None
    name = (match[3] or match[4] or match[5]).casefold()
    base = NUMBERS.get(name, name)
    if match[2][0].isalpha() and int(max(match[2]), 16) >= int(base):
        return None  # a product of which one symbol has an index: `AB_2`
    return _digits(match[1], match[2]), base


def _digits(sign: str, digits: str) -> str:
    return f"{sign.strip('+')}{digits.upper().lstrip('0') or '0'}"
