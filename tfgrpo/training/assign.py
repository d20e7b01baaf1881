"""What an attempt is shown: of the library what it would be shown in use, and some candidates.

Candidates belong to a problem where their texts fit it best (`rendering/retrieve.py`). Of those
each attempt is shown a random half: by coins that follow from the seed, the problem, the pair of
attempts and the candidate, where the second attempt of a pair has what the first lacks (fold-over;
Box, Hunter and Hunter, Statistics for Experimenters, 2005). Of the experiences in force each is
hidden from a small share of the attempts, so that its effect stays known. Everything follows from
the arguments, so a run that is resumed, and a worker elsewhere, shows the same.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from tfgrpo.rendering.examples import example_beginning
from tfgrpo.rendering.retrieve import Rank, index, relevant
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library

CANDIDATES = 4
"""Candidates that belong to one problem at most: a prompt that is crowded tells nothing apart."""
HIDDEN = 0.15
"""The share of attempts that an experience in force is hidden from."""


class Belonging(NamedTuple):
    """The ids of what belongs to one problem: experiences in force, and candidates."""

    in_force: tuple[str, ...]
    candidates: tuple[str, ...]


def belonging(
    pool: Library,
    in_force: Collection[str],
    problem: str,
    top_k: int | None,
    rank: Rank | None = None,
) -> Belonging:
    """Returns what belongs to a problem.

    `pool` holds the experiences whose ids are `in_force`, and the candidates; `top_k` is how many
    of the former a prompt gets, None for all. An example of this very problem does not
    belong here: it gives the answer away.
    """
    own = example_beginning(problem)
    out = {e.id for e in pool.readable if e.text.startswith(own)}
    candidates = {e.id for e in pool if e.id not in in_force}
    shown = relevant(pool.less(candidates | out), problem, top_k, rank=rank)
    tried = pool.less(frozenset(in_force) | out)
    ranked = index(tried).ranked(problem) if len(tried) else []
    return Belonging(tuple(e.id for e in shown.readable), tuple(ranked[:CANDIDATES]))


def hidden(there: Belonging, seed: int, path: tuple[str | int, ...], sample: int) -> frozenset[str]:
    """Returns what of it one attempt goes without. `path` names the group: step and problem."""
    share = int(HIDDEN * 2**32)
    hiding = (id for id in there.in_force if _coin("in force", seed, *path, sample, id) < share)
    pair, turned = divmod(sample, 2)
    out = (
        id for id in there.candidates if (_coin("candidate", seed, *path, pair, id) & 1) == turned
    )
    return frozenset((*hiding, *out))


def _coin(*path: str | int) -> int:
    return int.from_bytes(digest(["tfgrpo.assign", *path])[:4], "big")
