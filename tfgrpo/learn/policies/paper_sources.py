"""Which lessons an operation of a plan follows from, whatever numbers the plan gives for it.

A small model names all lessons for each operation, or the next five, and copies the text of one.
What a library was taught by has to be true, so a lesson that an operation copies is its source,
and with it only those named that are like it; a lesson that several operations name is a source
of the one that it is most like.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from tfgrpo.learn.library_draft import plain

ALIKE = 0.5
"""How much of a copied lesson's weight of words another one has to share to be a source too."""


def sources(
    texts: Sequence[str], named: Sequence[Sequence[int]], lessons: Sequence[str]
) -> list[list[int]]:
    """Returns the places of each operation's lessons in `lessons`, the one most like it first.

    `texts` are what the operations write, or what stands there of what they keep or delete, and
    `named` the places that the plan gives for each. None is left without a lesson that it had.
    """
    weights = _weights(lessons)
    words = [_words(lesson) for lesson in lessons]
    likeness = [[_likeness(_words(text), one, weights) for one in words] for text in texts]
    claims = []
    for text, places, like in zip(texts, named, likeness, strict=True):
        copied = [n for n, lesson in enumerate(lessons) if plain(lesson) == plain(text)]
        if copied:
            places = [*copied, *(n for n in places if n not in copied and like[n] >= ALIKE)]
        claims.append(sorted(dict.fromkeys(places), key=lambda n: -like[n]))
    most = [0.0] * len(lessons)
    for like, places in zip(likeness, claims, strict=True):
        for n in places:
            most[n] = max(most[n], like[n])
    return [
        [n for n in places if like[n] >= most[n]] or places[:1]
        for like, places in zip(likeness, claims, strict=True)
    ]


def _weights(lessons: Sequence[str]) -> dict[str, float]:
    """Returns what each word of lessons weighs: the more, the fewer of them have it."""
    has = Counter(word for lesson in lessons for word in _words(lesson))
    return {word: math.log(1 + len(lessons) / number) for word, number in has.items()}


def _likeness(text: set[str], lesson: set[str], weights: dict[str, float]) -> float:
    """Returns the share of a lesson's weight that a text has, 0 to 1. Exact sums, as the order of a
    set's words differs between processes, and a run that goes on has to decide the same."""
    whole = math.fsum(weights[word] for word in lesson)
    return math.fsum(weights[word] for word in lesson & text) / whole if whole else 0.0


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
