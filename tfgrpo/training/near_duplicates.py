"""What in a library is like a lesson, pointed out to the controller before the lesson enters.

Likeness in words is rapidfuzz's token sort ratio, in percent; likeness in meaning, where an
embedding model is configured, the cosine of embeddings. The controller decides, never the
figure: a lesson that differs in one number alone is very much alike, and not the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfgrpo.model.embeddings import Embeddings
from tfgrpo.training.alike import ALIKE

CLOSE = 0.8
"""The cosine from which on two texts are pointed out as close in meaning."""
MOST = 3
"""How many experiences are pointed out, the closest first."""


@dataclass(slots=True)
class Similar:
    """An experience that is like a text: in words (percent) or in meaning (a cosine)."""

    experience: str
    words: float | None = None
    meaning: float | None = None


async def similar(
    text: str, texts: Mapping[str, str], embeddings: Embeddings | None = None
) -> list[Similar]:
    """Returns the experiences among `texts` (id → text) that are like a text, closest first.

    Raises what `Embeddings.similarity` does.
    """
    found = {id: Similar(id, words=likeness) for id, likeness in by_words(text, texts)}
    if embeddings is not None and texts:
        cosines = await embeddings.similarity(text, list(texts.values()))
        for id, cosine in zip(texts, cosines, strict=True):
            if cosine >= CLOSE:
                found.setdefault(id, Similar(id)).meaning = cosine
    order = sorted(found.values(), key=lambda s: -max((s.words or 0) / 100, s.meaning or 0))
    return order[:MOST]


def by_words(
    text: str, texts: Mapping[str, str], *, threshold: float = ALIKE
) -> list[tuple[str, float]]:
    """Returns the ids of texts that are nearly the same in words, and how nearly (%), best first.

    Order and case of the words do not matter; `threshold` is in percent.
    """
    from rapidfuzz import fuzz, process

    folded = {id: there.casefold() for id, there in texts.items()}
    found = process.extract(
        text.casefold(),
        folded,
        scorer=fuzz.token_sort_ratio,
        score_cutoff=threshold,
        limit=None,
    )
    return [(id, likeness) for _, likeness, id in found]


def told(found: list[Similar], label_of: Mapping[str, str]) -> str:
    """Returns what the controller is told; nothing where nothing is alike."""
    if not found:
        return ""
    parts = []
    for one in found:
        how = [f"{one.words:.0f} % of the words"] if one.words is not None else []
        how += [f"{100 * one.meaning:.0f} % in meaning"] if one.meaning is not None else []
        parts.append(f"{label_of[one.experience]} ({' and '.join(how)})")
    return f"Alike in the library: {', '.join(parts)}. Only what these do not say yet is new."
