"""Punctuation that says nothing, and signs that look like it and make another answer: those of
numbers (-5, .5, 3,5, 1/2, 1:2, 10-12, 5!, 5%), of currencies, of C++ and C#, of A* and A-, of
intervals ([0,1]), derivatives (f'), indices (a_1) and names (@home)."""

from __future__ import annotations

import re
import unicodedata

EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\S)([^*]*)(?<=\S)\1(?!\*)")
"""Markdown's marks around words, which are no signs."""
PAIR = re.compile(r"[(\[](?!(?:[^()\[\]]*?)[^\W\d_]{2})[^()\[\],;]+[,;][^()\[\],;]+[)\]]")
"""An interval or a point: two numbers or symbols in brackets."""
SYMBOL = re.compile(r"(?<![^\W_])[^\W\d_]\Z")
"""A letter that stands alone."""
THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?![\d,])")
LOOSE_MINUS = re.compile(r"(\A|[(\[=+*/])\s*[-–]\s+(?=\(*[\d.∞√])")
"""A sign with a blank between it and its number."""
MINUS = re.compile(r"[-–]\(*(?:\.?\d|[∞√]|[^\W\d_](?![^\W_]))")
"""A sign before a number, a root or a symbol of one letter."""
ONE_COMMA = re.compile(r"(?<![\d,])\d+,\d+(?![\d,])")
"""A decimal comma; digits with more commas among them are a list."""


def without_punctuation(text: str) -> str:
    """Returns a text with a space for each mark that says nothing."""
    text = EMPHASIS.sub(r"\2", text).replace("−", "-").strip()
    text = LOOSE_MINUS.sub(r"\1-", THOUSANDS.sub(lambda match: match[0].replace(",", ""), text))
    commas = {text.index(",", match.start()) for match in ONE_COMMA.finditer(text)}
    paired = {at for match in PAIR.finditer(text) for at in (match.start(), match.end() - 1)}
    saying_so = commas | paired
    saying = (at in saying_so or _says_something(text, at) for at in range(len(text)))
    return "".join(c if says else " " for c, says in zip(text, saying, strict=True))


def _says_something(text: str, at: int) -> bool:
    c, before, after = text[at], text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    category = unicodedata.category(c)
    if category[0] not in "PS":
        return True
    if category in ("Sc", "Sm"):
        return c not in "|~" or bool((before + after).strip())
    if c in "-–":
        if before.isdigit() and after.isdigit():
            return True
        return _is_minus(text, at, before) or (c == "-" and _ends_a_word(text, at))
    if c == ".":
        begins = not before.strip() or before in "+-(" or unicodedata.category(before) == "Sc"
        return after.isdigit() and (before.isdigit() or begins)
    if c == ":":
        return before.isdigit() and after.isdigit()
    if c == "/":
        symbols = _is_symbol(text, at) and not text[at + 2 : at + 3].isalnum()
        numbers = before.isdigit() or after.isdigit()
        return before.isalnum() and after.isalnum() and (numbers or symbols)
    if c in "@_":
        return after.isalnum() and (c == "@" or after.isdigit())
    if c in "'’′":
        marks = text[:at].rstrip("'’′")
        quoted = marks[-2:-1] in tuple("'‘’") and marks[-2:-1] != ""
        return _is_symbol(marks, len(marks)) and not quoted and not after.isalpha()
    if c == "!":
        return before.isdigit()
    is_marked = before.isalnum() or before in (")", "]")
    return c in "%‰" or (c == "#" and before.isalpha()) or (c in "*^" and is_marked)


def _is_minus(text: str, at: int, before: str) -> bool:
    if before.isalnum() or before in (")", "]", "-", "–"):
        return False
    is_sum = unicodedata.category(text[at + 1 : at + 2] or " ") == "Sc"
    return is_sum or MINUS.match(text, at) is not None


def _ends_a_word(text: str, at: int) -> bool:
    """Whether a hyphen ends a word as it does in A-, BBB- and NO3-."""
    return text[at - 1 : at].isalnum() and not text[at + 1 : at + 2].strip()


def _is_symbol(text: str, at: int) -> bool:
    """Whether a letter that stands alone ends there."""
    return SYMBOL.search(text[max(0, at - 2) : at]) is not None
