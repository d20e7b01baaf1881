"""What an attempt is shown: of the library what it would be shown in use, and some candidates.

Each attempt is shown a random third of the candidates that are tried at its problem: of three
attempts in a row each candidate is in one, or of two where it is tried alone (a fold-over; Box,
Hunter and Hunter, Statistics for Experimenters, 2005). The draws follow from the seed, the problem,
and the places of the attempt and the candidate. Each experience in force is hidden from a small
share of the attempts, so that its effect stays known. Everything follows from the arguments, so a
resumed run, and a worker elsewhere, shows the same. No draw follows from an id, which is new in
each run, so a second run of one seed shows the same too as long as the model answers the same.

A factor is what is shown or hidden as one: an experience by its id, or all examples together, as a
single example has too small an effect to be measured. Examples are measured at problems that are as
unlike theirs as new ones are (`new_problems.py`), or as unlike as possible where that is not known:
where the answer can be copied, the effect says nothing of other problems (block cross-validation;
Roberts et al., Ecography 2017). A challenger (`rivals.py`) takes the place of an experience in
force: where one is shown, the other is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from statistics import NormalDist
from typing import NamedTuple

from tfgrpo.learn.advantage import SPREADS, Effect
from tfgrpo.learn.rivals import is_like, of_name, replaced
from tfgrpo.rendering.experience_texts import (
    EXAMPLES,
    example_beginning,
    example_parts,
    instruction_ids,
    is_example,
)
from tfgrpo.rendering.near_duplicates import similarity
from tfgrpo.rendering.retrieve import Rank, index, relevant
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library

CANDIDATES = 4
"""Candidates that are tried at one problem at most: a prompt that is crowded tells nothing
apart."""
UNKNOWN = NormalDist(0.0, max(SPREADS) / 2)
"""What is thought of a candidate's effect before it was tried."""
TURNS = 3
"""Of so many attempts in a row each candidate is in one. One of two would tell candidates that do
different things apart the soonest. But a model often says one rule in several wordings, and what
one of them does beside another is little (`benchmarks/planted.py`)."""
PAIR = 2
"""The same where one candidate is tried alone, which half of the attempts tell the most of, and in
a trial, where what two things do together is asked: half have each, and a quarter has both."""
HIDDEN = 0.15
"""The share of attempts that an experience in force is hidden from."""
UNLIKE = 0.5
"""The share of examples that are measured at a problem at least. Problems come in kinds, and a kind
may be a third of all: with three quarters shown, a fifth of prompts still had one of the same
kind."""


class Belonging(NamedTuple):
    """The factors that belong to one problem: those in force, and candidates. `members` holds the
    ids of each factor's experiences, and `names` the names of challengers' effects."""

    in_force: tuple[str, ...]
    candidates: tuple[str, ...]
    members: Mapping[str, tuple[str, ...]]
    names: Mapping[str, str] = {}

    @property
    def factors(self) -> tuple[str, ...]:
        """All factors, by the names of their effects."""
        return (*self.in_force, *(self.names.get(one, one) for one in self.candidates))

    def shown(self, absent: Collection[str]) -> frozenset[str]:
        """The ids of the experiences that an attempt is shown without the factors `absent`."""
        there = (f for f in (*self.in_force, *self.candidates) if f not in absent)
        return frozenset(id for factor in there for id in self.members[factor])


def factors(library: Library) -> dict[str, tuple[str, ...]]:
    """The factors of a library, with the ids of the experiences of each."""
    examples = tuple(e.id for e in library.readable if is_example(e.text))
    lessons = {e.id: (e.id,) for e in library.readable if e.id not in examples}
    return {**lessons, EXAMPLES: examples} if examples else dict(lessons)


def beside(
    in_force: Mapping[str, tuple[str, ...]], candidates: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The factors in force beside those of candidates. Where examples are on probation, a person's
    examples in force stay, each as a factor of its own."""
    there = dict(in_force)
    if EXAMPLES in candidates and EXAMPLES in there:
        there |= {id: (id,) for id in there.pop(EXAMPLES)}
    return there


def belonging(
    pool: Library,
    in_force: Collection[str],
    problem: str,
    shown: tuple[int | None, Rank | None],
    tried: Sequence[str],
    usual: float | None = None,
) -> Belonging:
    """The factors that belong to a problem. `pool` holds the experiences whose ids are `in_force`,
    and the candidates; `shown` is how many of the former a prompt gets (None: all), and what ranks
    them. `tried` names the candidates that are tried (`rivals.py`); a challenger takes the place of
    an experience only where that is shown. An example of this very problem, or of one that is more
    like it than is `usual` of new problems, does not belong to it."""
    top_k, rank = shown
    near = examples_too_near(pool, problem, usual)
    new, old = pool.less(frozenset(in_force)), pool.less(pool.by_id.keys() - in_force)
    candidates = factors(relevant(new, problem, None, without=near))
    of_problem = relevant(old, problem, top_k, rank=rank, without=near)
    there = beside(factors(of_problem), candidates)
    names = {id: name for name in tried if (id := of_name(name)) in candidates}
    challengers = {id: name for id, name in names.items() if replaced(name) in there}
    members = {**there, **{id: candidates[id] for id in names}}
    return Belonging(tuple(there), tuple(names), members, challengers)


def examples_too_near(library: Library, problem: str, usual: float | None) -> frozenset[str]:
    """The ids of a library's examples that are hidden from a problem: its own, and the half of the
    others whose problems are most like it. Where a likeness is `usual`, only those of that half
    that are more alike."""
    own = example_beginning(problem)
    examples = {e.id: e.text for e in library.readable if is_example(e.text)}
    same = {id for id, text in examples.items() if text.startswith(own)}
    if len(same) == len(examples):
        return frozenset(same)
    ranked = (id for id in index(library).ranked(problem) if id in examples and id not in same)
    near = list(islice(ranked, round((1 - UNLIKE) * (len(examples) - len(same)))))
    if usual is not None:
        near = [id for id in near if _likeness(examples[id], problem) > usual]
    return frozenset((*same, *near))


def _likeness(example: str, problem: str) -> float:
    parts = example_parts(example)
    return similarity(parts.problem if parts else example, problem)


def texts_of(library: Library) -> dict[str, str]:
    """What a library holds beside examples, in order, by id."""
    return {e.id: e.text for e in library.readable if not is_example(e.text)}


def everywhere(candidates: Library) -> tuple[str, ...]:
    """All examples, as the factor that they are, where there are any."""
    return tuple(name for name in factors(candidates) if name == EXAMPLES)


def fitting(candidates: Library, problem: str) -> tuple[str, ...]:
    """The candidates that are tried at a problem where only their texts are known: the lessons that
    fit it best, and what belongs to all problems."""
    words = instruction_ids(candidates)
    lessons = {id for id in texts_of(candidates) if id not in words}
    ranked = index(candidates).ranked(problem) if lessons else []
    best = [id for id in ranked if id in lessons][:CANDIDATES]
    return (*best, *(e.id for e in candidates.readable if e.id in words), *everywhere(candidates))


def tried(
    lessons: Mapping[str, str],
    effects: Mapping[str, Effect],
    seed: int,
    path: tuple[str | int, ...],
) -> tuple[str, ...]:
    """Which of the lessons (id → text) that belong to a problem are tried there. A value is drawn
    from the distribution of each effect, and the highest are tried (Thompson, Biometrika 1933):
    promising lessons are measured most, and unknown ones get their turn. Of two that are nearly
    alike one is tried. `path` names the group: step and problem."""

    def draw(id: str) -> float:
        one = effects.get(id)
        believed = UNKNOWN if one is None else NormalDist(one.mean, max(one.deviation, 1e-6))
        return believed.inv_cdf((_coin("draw", seed, *path, lessons[id]) + 0.5) / 2**32)

    chosen: list[str] = []
    for id in sorted(lessons, key=draw, reverse=True):
        if len(chosen) < CANDIDATES and not is_like(lessons[id], (lessons[c] for c in chosen)):
            chosen.append(id)
    return tuple(chosen)


def hidden(
    there: Belonging,
    seed: int,
    path: tuple[str | int, ...],
    sample: int,
    turns: int = TURNS,
) -> frozenset[str]:
    """The factors that one attempt goes without. `path` names the group: step and problem."""
    share = int(HIDDEN * 2**32)
    coins = (_coin("in force", seed, *path, sample, n) for n in range(len(there.in_force)))
    hiding = {one for one, coin in zip(there.in_force, coins, strict=True) if coin < share}
    out = out_of_turn(there.candidates, seed, path, sample, turns)
    shown = (replaced(name) for id, name in there.names.items() if id not in out)
    return out.union(hiding, (place for place in shown if place is not None))


def out_of_turn(
    names: Sequence[str], seed: int, path: tuple[str | int, ...], sample: int, turns: int
) -> frozenset[str]:
    """The names that an attempt goes without, where one of so many attempts has each name."""
    block, turn = sample // turns, (sample + 1) % turns
    coins = (_coin("half", seed, *path, block, n) % turns for n in range(len(names)))
    return frozenset(one for one, coin in zip(names, coins, strict=True) if coin != turn)


def _coin(*path: str | int) -> int:
    return int.from_bytes(digest(["tfgrpo.assign", *path])[:4], "big")
