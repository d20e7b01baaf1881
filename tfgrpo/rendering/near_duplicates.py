"""Texts that say the same, or nearly: what a merge doubles, and what a run says again.

No language is known here. Two texts repeat one another where they are the same words in the same
cyclic order, except for case, punctuation and up to two letters at the end of a word (a plural),
where letters have a case. Another word (a negation is one), digit, operator, sign or unit makes
them different, which n-grams of characters alone cannot tell.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

from tfgrpo.rendering.similarity_ngrams import normalised, similarity
from tfgrpo.store.records import Library

ALIKE = 0.6
"""The similarity by n-grams from which on texts of the same words are nearly the same."""
ENDING = 2
"""How many letters more a word may have at its end, to be another form of a word."""
STEM = 3
"""How many letters a word has at least that has other forms."""
QUOTES = "\"'`"
"""Quotes that Unicode does not tell from other punctuation."""
MOST_BEGINNINGS = 64
"""At how many places a text is tried to begin, before it is taken for another one."""


class NearDuplicate(NamedTuple):
    """An experience that came or changed, one that says nearly the same, and how nearly (%)."""

    new: str
    there: str
    likeness: float


def near_duplicates(before: Library, after: Library) -> list[NearDuplicate]:
    """Of each experience that came or changed, the nearest that was there; each pair once."""
    old = {e.id: e.text for e in before}
    texts = {e.id: e.text for e in after.readable if e.id in old}
    pairs: dict[frozenset[str], NearDuplicate] = {}
    for experience in after.readable:
        if old.get(experience.id) == experience.text:
            continue
        others = {id: text for id, text in texts.items() if id != experience.id}
        for there, likeness in repeats(experience.text, others)[:1]:
            pair = NearDuplicate(experience.id, there, 100 * likeness)
            pairs.setdefault(frozenset(pair[:2]), pair)
    return list(pairs.values())


def repeats(text: str, texts: Mapping[str, str]) -> list[tuple[str, float]]:
    """The ids of the texts that a text repeats, and how much alike they are, in (0, 1], best
    first; of those that are equally alike, the first ones first."""
    own = _Read(text)
    likeness = {id: own.likeness(_Read(other)) for id, other in texts.items()}
    return sorted((pair for pair in likeness.items() if pair[1]), key=lambda pair: -pair[1])


class _Read:
    """A text as it is compared."""

    def __init__(self, text: str) -> None:
        self._text = normalised(text)
        self._words = _words(self._text)
        self._raw = text

    def likeness(self, other: _Read) -> float:
        """How much alike two texts are that repeat one another; 0 for any others."""
        if len(self._words) != len(other._words):  # the cheapest first
            return 0.0
        if self._text != other._text and not _turned(self._words, other._words):
            return 0.0
        if _exact(self._raw) != _exact(other._raw):
            return 0.0
        alike = similarity(self._text, other._text)
        return alike if alike >= ALIKE else 0.0


def _words(text: str) -> list[str]:
    """The runs of letters with the marks upon them, and those of digits."""
    return ["".join(run) for kind, run in groupby(text, _kind) if kind]


def _kind(sign: str) -> str:
    if sign.isdecimal():
        return "digit"
    return "letter" if sign.isalnum() or unicodedata.category(sign)[0] == "M" else ""


def _turned(words: list[str], others: list[str]) -> bool:
    """Whether words are others in the same order, wherever that begins."""
    counts = Counter(words)
    rarest = min(range(len(words)), key=lambda at: counts[words[at]], default=0)
    starts = [at - rarest for at, other in enumerate(others) if _is_form(words[rarest], other)]
    return any(
        all(map(_is_form, words, (*others[at:], *others[:at]))) for at in starts[:MOST_BEGINNINGS]
    )


def _is_form(word: str, other: str) -> bool:
    """Whether two words are the same, or one is the other with an ending."""
    if word == other:
        return True
    short, long = sorted((word, other), key=len)
    return (
        len(short) >= STEM
        and len(long) - len(short) <= ENDING
        and long.startswith(short)
        and all(unicodedata.category(sign) == "Ll" for sign in long[len(short) :])
    )


def _exact(text: str) -> Counter[str]:
    """What has to be the same whatever the words are: runs of digits, and signs that reckon,
    compare or name a unit. Digits are read as written too: 10² is not 102."""
    plain = unicodedata.normalize("NFKC", text)
    return Counter([*_digits(text), *_digits(plain), *_operators(plain)])


def _digits(text: str) -> list[str]:
    """The runs of decimal digits, of whatever script, as ASCII."""
    return [
        "".join(str(unicodedata.decimal(sign)) for sign in run)
        for is_digits, run in groupby(text, str.isdecimal)
        if is_digits
    ]


def _operators(text: str) -> list[str]:
    """The signs of a text that are more than punctuation: symbols, percent and degrees, and
    those of ASCII between two words (`a/b`), before one (`-7`) or alone."""
    return [
        sign
        for before, sign, after in zip(f" {text}", text, f"{text[1:]} ", strict=False)
        if not sign.isalnum() and not sign.isspace() and _is_operator(before, sign, after)
    ]


def _is_operator(before: str, sign: str, after: str) -> bool:
    kind = unicodedata.category(sign)
    if kind in ("Sm", "Sc", "So") or unicodedata.bidirectional(sign) == "ET":
        return True
    if kind not in ("Po", "Pd", "Sk") or not sign.isascii() or sign in QUOTES:
        return False
    if any(unicodedata.east_asian_width(beside) in "WF" for beside in (before, after)):
        return False
    if after.isalnum():
        return not before.isalnum() or kind != "Pd"
    return before.isspace() and after.isspace()
