"""Digits with separators, as people write them: `1,250.5` and `1.250,5`.

Three digits behind one separator are thousands to some and a decimal to others: `1,250` alone
proves neither. In brackets without semicolons a comma separates: `(1,250)` is a point.
"""

from __future__ import annotations

import re

GROUPED = r"[1-9]\d{0,2}(?:,\d{3})+"
"""Thousands as English separates them."""
DOTTED = r"[1-9]\d{0,2}(?:\.\d{3})+"
"""Thousands as others separate them."""
DECIMAL = rf"(?:{DOTTED}|\d+),\d+"
THOUSANDS = re.compile(
    rf"[(\[]\s*{GROUPED}(?:\.\d+)?\s*(?:\\right\s*)?[)\]]|(?<![\d.,]){GROUPED}(?!\d|,\d)"
)
INNER = r"(?:[^()\[\],;\\]|\\[^{}()\[\]])*"
COMMAS = re.compile(
    rf"(?:[(\[]|\\\{{){INNER}(?:,{INNER})+(?:[)\]]|\\\}})"
    rf"|(?<![\d.,])(?<!_\{{)(?P<number>{DECIMAL}|{DOTTED})(?!\d|[.,]\d)"
)
UNSURE = re.compile(rf"{GROUPED}\Z|{DOTTED}\Z")
"""What may be a decimal or thousands."""


def ungrouped(text: str) -> str:
    """Returns a text without the commas of thousands: `1,250` becomes 1250."""
    return THOUSANDS.sub(lambda m: m[0] if m[0][0] in "([" else m[0].replace(",", ""), text)


def with_points(text: str, unsure: str = "") -> str:
    """Returns a text with a point for each decimal comma, and without the points of thousands:
    `1.250,5` becomes 1250.5. What may be either is read so if its separator is in `unsure`."""

    def read(match: re.Match[str]) -> str:
        number = match["number"]
        if number is None or (UNSURE.match(number) and not set(number) & set(unsure)):
            return match[0]
        return number.replace(".", "").replace(",", ".")

    return COMMAS.sub(read, text)


def without_full_stop(text: str) -> str:
    """Returns a text without the full stop that ends it; three dots are none."""
    return re.sub(r"(?<=[^\s.])\s*\.\s*\Z", "", text)
