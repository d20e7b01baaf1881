"""Near-duplicates that a merge brings together: two experiences that say nearly the same.

Two people, or two runs, learn the same lesson in other words; a three-way merge by id keeps
both. Likeness is rapidfuzz's token sort ratio, in percent, with case ignored. Advice with
another number is other advice, however alike the words are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tfgrpo.store.records import Library

ALIKE = 85.0
"""How many percent two texts must have in common to be pointed out."""


class Alike(NamedTuple):
    """An experience that came or changed, one that says nearly the same, and how nearly (%)."""

    new: str
    there: str
    likeness: float


def alike(before: Library, after: Library, *, threshold: float = ALIKE) -> list[Alike]:
    """Returns, for each experience that came or changed between two libraries, its nearest
    neighbour among those that were there, in library order; each pair once.

    `threshold` is in percent. Two that came together were not brought together by this.
    """
    old = {e.id: e.text for e in before}
    fresh = [e for e in after.readable if old.get(e.id) != e.text]
    held = [e for e in after.readable if e.id in old]
    if not fresh or not held:
        return []
    from rapidfuzz import fuzz, process

    ids = [e.id for e in held]
    texts = [e.text.casefold() for e in held]
    counted = [numbers(text) for text in texts]
    found: list[Alike] = []
    seen: set[frozenset[str]] = set()
    for experience in fresh:
        text = experience.text.casefold()
        for _, likeness, place in process.extract(
            text, texts, scorer=fuzz.token_sort_ratio, score_cutoff=threshold, limit=None
        ):
            there = ids[place]
            pair = frozenset((experience.id, there))
            if there == experience.id or counted[place] != numbers(text):
                continue
            if pair not in seen:
                seen.add(pair)
                found.append(Alike(experience.id, there, likeness))
            break
    return found


def numbers(text: str) -> list[str]:
    """Returns the numbers in a text, sorted."""
    return sorted(re.findall(r"\d+(?:\.\d+)?", text))
