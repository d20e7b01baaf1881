"""Kinds of problems where no field names them: clusters of what their texts mean.

The embeddings of the problems that a run learns from are put into groups by k-means (Lloyd, 1982)
on vectors of length 1, begun from the problem nearest to the mean and then always the one farthest
from all centres, so that the same problems give the same clusters on every machine and when a run
is resumed. Other problems belong to the nearest centre.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tfgrpo.data.problems import KIND, Problem
from tfgrpo.model.embeddings import SCOPE, Embeddings
from tfgrpo.session import Session
from tfgrpo.store.runs import Run

if TYPE_CHECKING:
    from tfgrpo.model.embeddings import Vectors

MOST = 12
ROUNDS = 50


def needs_clusters(session: Session, problems: Iterable[Problem]) -> bool:
    """Says whether kinds are to be found: no row names one, and there is an embedding model."""
    has_field = any(KIND in problem.meta for problem in problems)
    return session.endpoints.embedding is not None and not has_field


async def cluster(
    session: Session, learned: Sequence[Problem], others: Sequence[Problem], run: Run | None = None
) -> dict[str, str]:
    """Returns text → `cluster-N` for problems, by those that are learned from.

    Each text is embedded once in a store. Raises CallFailed where an embedding cannot be had,
    EndpointError and BudgetReached.
    """
    calls = session.calls("embedding", SCOPE, run)
    try:
        texts = list(dict.fromkeys(problem.problem for problem in learned))
        rest = [p.problem for p in others if p.problem not in set(texts)]
        vectors = await Embeddings(calls).vectors([*texts, *dict.fromkeys(rest)])
    finally:
        await calls.finish_in_flight()
    places = group_vectors(vectors[: len(texts)], count_for(len(texts)), vectors)
    named = dict.fromkeys([*texts, *rest])
    return {text: f"cluster-{place + 1}" for text, place in zip(named, places, strict=True)}


def count_for(problems: int) -> int:
    """Returns how many clusters so many problems make: √(n/2), and 12 at most."""
    return max(1, min(MOST, round(math.sqrt(problems / 2))))


def group_vectors(learned: Vectors, count: int, wanted: Vectors) -> list[int]:
    """Returns the cluster of each wanted vector, from 0, of `count` that `learned` make."""
    import numpy as np

    first = int(np.argmax(learned @ learned.mean(axis=0)))
    centres = learned[[first]]
    while len(centres) < min(count, len(learned)):
        nearest = (learned @ centres.T).max(axis=1)
        centres = np.vstack([centres, learned[[int(np.argmin(nearest))]]])
    for _ in range(ROUNDS):
        places = np.argmax(learned @ centres.T, axis=1)
        means = [
            learned[places == n].sum(axis=0) if (places == n).any() else centres[n]
            for n in range(len(centres))
        ]
        lengths = [max(float(np.linalg.norm(mean)), 1e-12) for mean in means]
        moved = np.stack([mean / length for mean, length in zip(means, lengths, strict=True)])
        if np.allclose(moved, centres):
            break
        centres = moved.astype(learned.dtype)
    return [int(place) for place in np.argmax(wanted @ centres.T, axis=1)]


def with_kinds(problems: Iterable[Problem], clusters: dict[str, str]) -> tuple[Problem, ...]:
    """Returns problems that carry their cluster as their kind, where they have one."""
    return tuple(
        replace(one, meta={**one.meta, KIND: clusters[one.problem]})
        if one.problem in clusters
        else one
        for one in problems
    )
