"""What the controller is told that a lesson is like, before it decides.

Likeness in words is told by n-grams of characters, in any language (`rendering/near_duplicates.py`)
and likeness in meaning, where an embedding model is configured, by the cosine of embeddings. The
controller decides, never the figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfgrpo.rendering.near_duplicates import repeats

if TYPE_CHECKING:
    from tfgrpo.model.embeddings import Embeddings

SAME_MEANING = 0.8
"""The cosine from which on two texts are pointed out as close in meaning."""
MOST = 3
"""How many experiences are pointed out for a lesson, the closest first."""


@dataclass(slots=True)
class Similar:
    """An experience that is like a text: in words (0 to 1), or in meaning (a cosine)."""

    experience: str
    words: float | None = None
    meaning: float | None = None

    @property
    def likeness(self) -> float:
        """How much it is alike, at most 1."""
        return max(self.words or 0.0, self.meaning or 0.0)


async def find_similar(
    text: str, texts: Mapping[str, str], embeddings: Embeddings | None = None
) -> list[Similar]:
    """Returns the experiences among `texts` (id → text) that are like a text, closest first.

    Raises what `Embeddings.similarity` does.
    """
    similar = {id: Similar(id, words=likeness) for id, likeness in repeats(text, texts)}
    if embeddings is not None and texts:
        cosines = await embeddings.similarity(text, list(texts.values()))
        for id, cosine in zip(texts, cosines, strict=True):
            if cosine >= SAME_MEANING:
                similar.setdefault(id, Similar(id)).meaning = cosine
    return sorted(similar.values(), key=lambda one: -one.likeness)[:MOST]


def describe(similar: list[Similar], label_of: Mapping[str, str]) -> str:
    """Returns what the controller is told; nothing where nothing is alike."""
    if not similar:
        return ""
    parts = []
    for one in similar:
        how = [f"{100 * one.words:.0f} % of the words"] if one.words is not None else []
        how += [f"{100 * one.meaning:.0f} % in meaning"] if one.meaning is not None else []
        parts.append(f"{label_of[one.experience]} ({' and '.join(how)})")
    return f"Alike in the library: {', '.join(parts)}. Only what these do not say yet is new."
