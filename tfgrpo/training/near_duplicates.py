"""Texts that say nearly the same: what a lesson is like in the library, and what a merge doubles.

Likeness in words is rapidfuzz's token sort ratio, in percent, with case ignored; likeness in
meaning, where an embedding model is configured, the cosine of embeddings. Advice with another
number is other advice, however alike the words are. Two that begin with the same condition ("When
days are turned into hours, …") are about the same thing, however they go on.

Before a lesson enters, the controller is told what it is like; the controller decides, never the
figure. After a merge a person is told which pairs it brought together: two people, or two runs,
learn the same lesson in other words, and a three-way merge by id keeps both.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store.records import Library
from tfgrpo.training.numbers_in_text import numbers_anywhere

if TYPE_CHECKING:
    from tfgrpo.model.embeddings import Embeddings

SAME_WORDS = 85.0
"""The percentage of their words from which on two texts are pointed out as nearly the same."""
SAME_MEANING = 0.8
"""The cosine from which on two texts are pointed out as close in meaning."""
LONG = 1_000_000_000
"""From this product of lengths on, in characters, the words that two texts have in common are
counted: the ratio takes a second for a hundred times as much, and days for two of 5 MB."""
CONDITION = re.compile(r"\s*(?:when|whenever|where|if|for)\b(?:\s+[^\s,:;]+){2,30}(?=[,:])", re.I)
"""What stands before the comma of `When days are turned into hours, multiply the days by 8`."""
MOST = 3
"""How many experiences are pointed out for a lesson, the closest first."""


@dataclass(slots=True)
class Similar:
    """An experience that is like a text: in words (percent), in meaning (a cosine), or because it
    has the same condition."""

    experience: str
    words: float | None = None
    meaning: float | None = None
    same_condition: bool = False

    @property
    def likeness(self) -> float:
        """Returns how much it is alike, at most 1: by the condition alone, less than all else."""
        return max((self.words or 0) / 100, self.meaning or 0, 0.5 * self.same_condition)


class NearDuplicate(NamedTuple):
    """An experience that came or changed, one that says nearly the same, and how nearly (%)."""

    new: str
    there: str
    likeness: float


async def find_similar(
    text: str, texts: Mapping[str, str], embeddings: Embeddings | None = None
) -> list[Similar]:
    """Returns the experiences among `texts` (id → text) that are like a text, closest first.

    Raises what `Embeddings.similarity` does.
    """
    similar = {id: Similar(id, words=likeness) for id, likeness in similar_in_words(text, texts)}
    if embeddings is not None and texts:
        cosines = await embeddings.similarity(text, list(texts.values()))
        for id, cosine in zip(texts, cosines, strict=True):
            if cosine >= SAME_MEANING:
                similar.setdefault(id, Similar(id)).meaning = cosine
    wanted = condition(text)
    for id, other in texts.items():
        if wanted is not None and condition(other) == wanted:
            similar.setdefault(id, Similar(id)).same_condition = True
    return sorted(similar.values(), key=lambda one: -one.likeness)[:MOST]


def condition(text: str) -> str | None:
    """Returns what a text says of when its advice holds, where it begins with that."""
    match = CONDITION.match(text)
    return " ".join(match[0].casefold().split()) if match else None


def similar_in_words(
    text: str, texts: Mapping[str, str], *, threshold: float = SAME_WORDS
) -> list[tuple[str, float]]:
    """Returns the ids of texts that are nearly the same in words, and how nearly (%), best first.

    Order and case of the words do not matter; `threshold` is in percent.
    """
    from rapidfuzz import fuzz, process

    text = text.casefold()
    folded = {id: other.casefold() for id, other in texts.items()}
    long = {id: other for id, other in folded.items() if len(text) * len(other) > LONG}
    short = {id: other for id, other in folded.items() if id not in long}
    matches = process.extract(
        text, short, scorer=fuzz.token_sort_ratio, score_cutoff=threshold, limit=None
    )
    alike = [(id, likeness) for _, likeness, id in matches]
    if long:
        words = Counter(text.split())
        alike += [
            (id, likeness)
            for id, other in long.items()
            if (likeness := _words_alike(words, len(text), other, threshold)) >= threshold
        ]
    return sorted(alike, key=lambda pair: -pair[1])


def _words_alike(words: Counter[str], length: int, other: str, threshold: float) -> float:
    """Returns how much of two texts (of one its words and its length) are words of both, in
    percent: what the ratio comes to when no word is like another one; 0 where that is below
    `threshold` by their lengths alone."""
    if 200 * min(length, len(other)) < threshold * (length + len(other)):
        return 0.0
    there = Counter(other.split())
    sizes = [_letters(counted) for counted in (words, there, words & there)]
    return 200 * sizes[2] / (sizes[0] + sizes[1]) if sizes[0] + sizes[1] else 100.0


def _letters(words: Counter[str]) -> int:
    return sum((len(word) + 1) * count for word, count in words.items())


def describe(similar: list[Similar], label_of: Mapping[str, str]) -> str:
    """Returns what the controller is told; nothing where nothing is alike."""
    if not similar:
        return ""
    parts = []
    for one in similar:
        how = [f"{one.words:.0f} % of the words"] if one.words is not None else []
        how += [f"{100 * one.meaning:.0f} % in meaning"] if one.meaning is not None else []
        how += ["the same condition"] if one.same_condition else []
        parts.append(f"{label_of[one.experience]} ({' and '.join(how)})")
    return f"Alike in the library: {', '.join(parts)}. Only what these do not say yet is new."


def near_duplicates(
    before: Library, after: Library, *, threshold: float = SAME_WORDS
) -> list[NearDuplicate]:
    """Returns, for each experience that came or changed between two libraries, its nearest
    neighbour among those that were there, in library order; each pair once.

    `threshold` is in percent. Two that came together were not brought together by this.
    """
    old = {e.id: e.text for e in before}
    fresh = [e for e in after.readable if old.get(e.id) != e.text]
    texts = {e.id: e.text for e in after.readable if e.id in old}
    pairs: dict[frozenset[str], NearDuplicate] = {}
    for experience in fresh:
        for there, likeness in similar_in_words(experience.text, texts, threshold=threshold):
            if there != experience.id and numbers_anywhere(texts[there]) == numbers_anywhere(
                experience.text
            ):
                pair = NearDuplicate(experience.id, there, likeness)
                pairs.setdefault(frozenset(pair[:2]), pair)
                break
    return list(pairs.values())
