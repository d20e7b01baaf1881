"""Rare labels one edit (in long words two) from another with the same first letter, as
misspelled ones are (Yannakoudakis and Fawthrop 1983). Digits and short words tell labels apart."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

RARER = 5
"""How many times more frequent the right label is, at least."""
SHORT, LONG = 5, 9
"""Characters of a word from which on one edit, and two, are a misspelling."""


class LookAlike(NamedTuple):
    """A label and the more frequent one that it looks like, with how often each is an answer."""

    label: str
    other: str
    times: int
    other_times: int

    @property
    def is_rare(self) -> bool:
        """Whether it is so rare that it is likely misspelled."""
        return RARER * self.times <= self.other_times

    def __str__(self) -> str:
        return f"{self.label} ({self.times}) looks like {self.other} ({self.other_times})"


def look_alikes(counts: Mapping[str, int]) -> list[LookAlike]:
    """Labels like a more frequent one: rare ones, and those that differ by no letter or digit."""
    names = sorted(counts, key=lambda name: (-counts[name], name))
    pairs = []
    for place, label in enumerate(names):
        for other in names[:place]:
            pair = LookAlike(label, other, counts[label], counts[other])
            if _is_alike(label, other) or (pair.is_rare and _is_near(label, other)):
                pairs.append(pair)
                break
    return pairs


def _words(label: str) -> list[str]:
    """The words of a label, without case, what stands between, and a full stop."""
    folded = unicodedata.normalize("NFKC", label).casefold().rstrip(".!? ")
    return re.split(r"(?<=\w)[\s_\-‐-―]+(?=\w)", folded)


def _is_alike(label: str, other: str) -> bool:
    words, others = _words(label), _words(other)
    joined = "".join(words)
    return words == others or (joined == "".join(others) and joined.isalpha())


def _is_near(label: str, other: str) -> bool:
    words, others = _words(label), _words(other)
    return len(words) == len(others) and all(map(_is_near_word, words, others))


def _is_near_word(word: str, other: str) -> bool:
    from rapidfuzz.distance import OSA

    length = max(len(word), len(other))
    if word == other or length < SHORT or not (word + other).isalpha() or word[0] != other[0]:
        return word == other
    return OSA.distance(word, other) <= (2 if length >= LONG else 1)
