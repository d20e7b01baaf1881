"""What an attempt is shown: of the library what it would be shown in use, and some candidates.

A few candidates are tried at a problem. Which ones a policy says: those that belong there, and of
them those that may be worth most (`tried`). Of these each attempt is shown a random half: by coins
that follow from the seed, the problem, the pair of attempts and the candidate, where the second
attempt of a pair has what the first lacks (fold-over; Box, Hunter and Hunter, Statistics for
Experimenters, 2005). Of the experiences in force each is hidden from a small share of the attempts,
so that its effect stays known. Everything follows from the arguments, so a run that is resumed, and
a worker elsewhere, shows the same.

What is shown or hidden as one is a factor: an experience by its id, or all examples together. One
example does too little to be measured by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

from tfgrpo.learn.advantage import SPREADS, Effect
from tfgrpo.rendering.example_texts import is_example, of_other_problems
from tfgrpo.rendering.instruction_texts import instruction_ids
from tfgrpo.rendering.retrieve import Rank, index, relevant
from tfgrpo.rendering.similarity_ngrams import similarity
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library

CANDIDATES = 4
"""Candidates that are tried at one problem at most: a prompt that is crowded tells nothing
apart."""
ALIKE = 0.6
"""The similarity from which on two candidates are not tried at one problem together: they may say
the same, and then neither does much beside the other."""
UNKNOWN = NormalDist(0.0, max(SPREADS) / 2)
"""What is thought of a candidate's effect before it was tried."""
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
    shown: tuple[int | None, Rank | None],
    lessons: Sequence[str],
) -> Belonging:
    """Returns what belongs to a problem.

    `pool` holds the experiences whose ids are `in_force`, and the candidates; `shown` is how many
    of the former a prompt gets, None for all, and what ranks them. `lessons` are the candidates
    that are tried; examples and words for the base prompt are so everywhere. An example of this
    very problem does not belong here: it gives the answer away.
    """
    top_k, rank = shown
    pool = of_other_problems(pool, problem)
    there = factors(
        relevant(pool.less({e.id for e in pool if e.id not in in_force}), problem, top_k, rank=rank)
    )
    others = pool.less(frozenset(in_force))
    candidates = factors(others)
    if EXAMPLES in candidates and EXAMPLES in there:  # a person's: they stay
        there |= {id: (id,) for id in there.pop(EXAMPLES)}
    words = [id for id in candidates if id in instruction_ids(others)]  # which all problems have
    names = (*lessons, *words, *(EXAMPLES for _ in range(EXAMPLES in candidates)))
    return Belonging(tuple(there), names, {**there, **{f: candidates[f] for f in names}})


def lessons_of(candidates: Library) -> dict[str, str]:
    """Returns the candidates that are lessons, in order: those that are tried at some problems."""
    words = instruction_ids(candidates)
    lessons = (e for e in candidates.readable if not is_example(e.text) and e.id not in words)
    return {e.id: e.text for e in lessons}


def fitting(candidates: Library, problem: str) -> tuple[str, ...]:
    """Returns the lessons that are tried at a problem where nothing but their words is known: those
    that fit it best."""
    lessons = lessons_of(candidates)
    ranked = index(candidates).ranked(problem) if lessons else []
    return tuple(id for id in ranked if id in lessons)[:CANDIDATES]


def tried(
    lessons: Mapping[str, str],
    effects: Mapping[str, Effect],
    seed: int,
    path: tuple[str | int, ...],
) -> tuple[str, ...]:
    """Returns which of the lessons that belong to a problem are tried there, by their texts.

    From what is believed of each effect a value is drawn, and the highest are tried (Thompson,
    Biometrika 1933): so what may be worth most is measured most, and what is unknown has its turn.
    Of two that are nearly alike one is tried. `path` names the group: step and problem.
    """

    def draw(id: str) -> float:
        one = effects.get(id)
        believed = UNKNOWN if one is None else NormalDist(one.mean, max(one.deviation, 1e-6))
        return believed.inv_cdf((_coin("draw", seed, *path, id) + 0.5) / 2**32)

    chosen: list[str] = []
    for id in sorted(lessons, key=draw, reverse=True):
        if len(chosen) < CANDIDATES and not is_like(lessons[id], (lessons[c] for c in chosen)):
            chosen.append(id)
    return tuple(chosen)


def is_like(text: str, others: Iterable[str]) -> bool:
    """Returns whether a text is nearly like another one, and may say the same."""
    return any(similarity(text, other) >= ALIKE for other in others)


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
