"""The numbers in a text, as all of training reads them: 1,200.50 and 1200.5 are one, and so are
`24h` and 24; in digits, unless a name for a small number is asked about."""

from __future__ import annotations

import re

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\.?\d)")
CODED = re.compile(r"(?:(?<=[^\W\d])|(?<=[\w]-))\d+(?:\.\d+)*|\d+(?:\.\d+){2,}")
"""A number that is a part of a word, a code or a version, as it is written."""
GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?!,?\d)")
"""1,000 and 1,234,567."""
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NAME_OF = {str(number): name for number, name in enumerate(NAMES)}


def numbers_in(text: str) -> set[str]:
    """Returns the numbers of a text, in digits."""
    return set(map(plain_number, NUMBER.findall(ungrouped(text))))


def numbers_anywhere(text: str) -> set[str]:
    """Returns the numbers of a text and those within its words and codes (`X117`, `QQ-0`, 1.2.3):
    advice about another one is other advice."""
    return numbers_in(text) | set(CODED.findall(ungrouped(text)))


def names_number(text: str, number: str) -> bool:
    """Returns whether a text has a number in it, in digits or as a word."""
    if number in numbers_in(text):
        return True
    name = _NAME_OF.get(number)
    return name is not None and re.search(rf"(?i)\b{name}\b", text) is not None


def ungrouped(text: str) -> str:
    """Returns a text with 1,200 as 1200."""
    return GROUPED.sub(lambda match: match[0].replace(",", ""), text)


def plain_number(number: str) -> str:
    """Returns a number without zeros that say nothing."""
    whole = number.lstrip("0") or "0"
    whole = f"0{whole}" if whole.startswith(".") else whole
    return whole.rstrip("0").rstrip(".") if "." in whole else whole
