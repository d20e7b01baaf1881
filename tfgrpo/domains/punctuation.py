"""Punctuation that says nothing, and signs that look like it and make another answer: those of
numbers (-5, .5, 1/2, 5%), of currencies, of C++ and C#, of A* and A-."""

from __future__ import annotations

import re
import unicodedata

EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*]*)(?<=\S)\1(?!\*)")
"""Markdown's marks around words, which are no signs."""
SHORT_WORD = re.compile(r"(?<![^\W_])[^\W_]{1,2}\Z")


def without_punctuation(text: str) -> str:
    """Returns a text with a space for each mark that says nothing."""
    text = EMPHASIS.sub(r"\2", text).replace("−", "-")
    return "".join(c if _says_something(text, at) else " " for at, c in enumerate(text))


def _says_something(text: str, at: int) -> bool:
    c, before, after = text[at], text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    category = unicodedata.category(c)
    if category[0] not in "PS":
        return True
    if category in ("Sc", "Sm"):
        return c not in "|~"
    if c in "-–":
        return _is_minus(before, after) or (c == "-" and _ends_a_short_word(text, at))
    if c == ".":
        begins = not before.strip() or before in "+-(" or unicodedata.category(before) == "Sc"
        return after.isdigit() and (before.isdigit() or begins)
    if c == "/":
        return before.isdigit() and after.isdigit()
    return c in "%‰" or (c == "#" and before.isalpha()) or (c in "*^" and before.isalnum())


def _is_minus(before: str, after: str) -> bool:
    is_number = bool(after) and (after in ".∞" or after.isdigit())
    is_sum = bool(after) and unicodedata.category(after) == "Sc"
    return (is_number or is_sum) and not (before.isalnum() or before in (")", "]", "-", "–"))


def _ends_a_short_word(text: str, at: int) -> bool:
    """Whether a hyphen ends a word as it does in A-, O- and Cl-."""
    return not text[at + 1 : at + 2].strip() and bool(SHORT_WORD.search(text[max(0, at - 3) : at]))
