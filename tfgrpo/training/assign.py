"""What an attempt is shown: of the library what it would be shown in use, and some candidates.

Candidates belong to a problem where their texts fit it best (`rendering/retrieve.py`). Of those
each attempt is shown a random half: by coins that follow from the seed, the problem, the pair of
attempts and the candidate, where the second attempt of a pair has what the first lacks (fold-over;
Box, Hunter and Hunter, Statistics for Experimenters, 2005). Of the experiences in force each is
hidden from a small share of the attempts, so that its effect stays known. Everything follows from
the arguments, so a run that is resumed, and a worker elsewhere, shows the same.

What is shown or hidden as one is a factor: an experience by its id, or all examples together. One
example does too little to be measured by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tfgrpo.rendering.examples import is_example, of_other_problems
from tfgrpo.rendering.instructions import instruction_ids
from tfgrpo.rendering.retrieve import Rank, index, relevant
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library

CANDIDATES = 4
"""Candidates that belong to one problem at most: a prompt that is crowded tells nothing apart."""
HIDDEN = 0.15
"""The share of attempts that an experience in force is hidden from."""
EXAMPLES = "examples"
"""The factor that all examples are."""


class Belonging(NamedTuple):
    """What belongs to one problem, as factors: of what is in force, and of candidates. `members`
    holds the ids of each factor's experiences."""

    in_force: tuple[str, ...]
    candidates: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]]

    @property
    def factors(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.in_force, *self.candidates)

    def shown(self, absent: Collection[str]) -> frozenset[str]:
        """The ids of the experiences that an attempt is shown without the factors `absent`."""
        return frozenset(id for f in self.factors if f not in absent for id in self.members[f])


def factors(library: Library) -> dict[str, tuple[str, ...]]:
    """Returns the factors of a library, with the ids of the experiences of each."""
    examples = tuple(e.id for e in library.readable if is_example(e.text))
    lessons = {e.id: (e.id,) for e in library.readable if e.id not in examples}
    return {**lessons, EXAMPLES: examples} if examples else dict(lessons)


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
    pool = of_other_problems(pool, problem)
    there = factors(
        relevant(pool.less({e.id for e in pool if e.id not in in_force}), problem, top_k, rank=rank)
    )
    tried = pool.less(frozenset(in_force))
    candidates = factors(tried)
    if EXAMPLES in candidates and EXAMPLES in there:  # a person's: they stay
        there |= {id: (id,) for id in there.pop(EXAMPLES)}
    words = [id for id in candidates if id in instruction_ids(tried)]  # which all problems have
    lessons = tried.less(frozenset((*candidates.get(EXAMPLES, ()), *words)))
    ranked = index(lessons).ranked(problem)[:CANDIDATES] if len(lessons) else []
    names = (*ranked, *words, *(EXAMPLES for _ in range(EXAMPLES in candidates)))
    return Belonging(tuple(there), names, {**there, **{f: candidates[f] for f in names}})


def hidden(there: Belonging, seed: int, path: tuple[str | int, ...], sample: int) -> frozenset[str]:
    """Returns the factors that one attempt goes without. `path` names the group: step and
    problem."""
    share = int(HIDDEN * 2**32)
    hiding = (f for f in there.in_force if _coin("in force", seed, *path, sample, f) < share)
    return halves(there.candidates, seed, path, sample).union(hiding)


def halves(
    names: Collection[str], seed: int, path: tuple[str | int, ...], sample: int
) -> frozenset[str]:
    """Returns the names that an attempt goes without, of which a pair of attempts has each once."""
    pair, turned = divmod(sample, 2)
    return frozenset(n for n in names if (_coin("half", seed, *path, pair, n) & 1) == turned)


def _coin(*path: str | int) -> int:
    return int.from_bytes(digest(["tfgrpo.assign", *path])[:4], "big")
