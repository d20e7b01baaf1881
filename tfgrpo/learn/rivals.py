"""Which problems experiences belong to, and which texts are nearly alike and so may say the same:
of those only one is tried, and only one enters.

A candidate that is nearly like an experience in force is its challenger: it is shown in the
experience's place, so the effect of its wording is measured. It is tried where either of them
belongs, since its promotion changes the experience at both. Rules that are worded alike and belong
to different problems are no rivals.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain

from tfgrpo.data.problems import Problem
from tfgrpo.learn.advantage import Effect
from tfgrpo.rendering.experience_texts import instruction
from tfgrpo.rendering.near_duplicates import NgramIndex, similarity
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import read_evidence
from tfgrpo.store.store import Store

SHARE = 0.25
"""The share of a run's problems that are like one of them."""
FEWEST = 4
"""How many are like one at least, itself among them."""


class Nearness:
    """Which problems of a run an experience belongs to: those most like the ones that taught it, by
    n-grams of characters, as a lesson often says it in other words than its problems. An experience
    that this run did not teach (a person's, or another run's, whose problems may have the same ids)
    belongs to every problem."""

    def __init__(self, store: Store, run: Run, problems: Sequence[Problem]) -> None:
        self._store, self._run = store, run.name
        self._texts = {problem.id: problem.problem for problem in problems}
        self._places: dict[str, frozenset[str] | None] = {}

    def is_near(self, experience: str, problem: str) -> bool:
        """Whether an experience belongs to a problem. Both are ids."""
        places = self._belongs_to(experience)
        return places is None or problem in places

    def share(self, experience: str, problems: Collection[str]) -> float:
        """The share of some of the run's problems that an experience belongs to."""
        places = self._belongs_to(experience)
        return 1.0 if places is None else len(places.intersection(problems)) / len(problems)

    def common(self, one: str, other: str) -> float:
        """Which share of its problems the experience with fewer has in common."""
        places, others = self._belongs_to(one), self._belongs_to(other)
        if places is None or others is None:
            return 1.0
        return len(places & others) / (min(len(places), len(others)) or 1)

    def taught_by(self, experience: str) -> list[str]:
        """The run's problems that taught an experience, as its first event says."""
        events = self._store.history(experience)
        evidence = read_evidence(events[0].evidence if events else None)
        is_own = evidence.run == self._run
        return [one for one in evidence.problems if is_own and one in self._texts]

    @cached_property
    def _index(self) -> NgramIndex:
        return NgramIndex(self._texts)

    def _belongs_to(self, experience: str) -> frozenset[str] | None:
        if experience not in self._places:
            taught = self.taught_by(experience)
            count = max(FEWEST, round(SHARE * len(self._texts)))
            ranked = (self._index.ranked(self._texts[one])[:count] for one in taught)
            self._places[experience] = frozenset(chain.from_iterable(ranked)) if taught else None
        return self._places[experience]


ALIKE = 0.6
"""The similarity from which on two texts are nearly alike."""
COMMON = 0.5
"""The share that rivals have in common of the problems of the one with fewer. Words alone do not
tell: ways to say one rule are .65 to .9 alike, and rules for other things, said in one pattern, .55
to .7."""
LOOKED_AT = 8
"""Of a library, the experiences that fit a text best, which it is compared with."""
FOR = " for "
"""Between a challenger and the experience that it stands in for, in the name of its effect."""


def is_like(text: str, others: Iterable[str]) -> bool:
    """Whether a text is nearly like another one, and may say the same."""
    return any(are_alike(text, other) for other in others)


def are_alike(one: str, other: str) -> bool:
    """Whether two texts are nearly alike. Two that replace the same words of a prompt always are;
    one that does so and one that does not never are."""
    words, others = instruction(one), instruction(other)
    if words is None and others is None:
        return similarity(one, other) >= ALIKE
    return words is not None and others is not None and words[0] == others[0]


class Rivals:
    """Which of some candidates are rivals, and what each stands in for; both as id → text."""

    def __init__(
        self, candidates: Mapping[str, str], in_force: Mapping[str, str], places: Nearness
    ) -> None:
        self._texts, self._in_force, self._places = candidates, in_force, places
        self._names: dict[str, str] = {}
        self._pairs: dict[tuple[str, str], bool] = {}

    def stands_for(self, candidate: str) -> str | None:
        """The experience in force that a candidate would change; None for most."""
        return replaced(self.name(candidate))

    def name(self, candidate: str) -> str:
        """The name of a candidate's effect. A challenger's has a name of its own, with the wording
        that it is measured against."""
        if candidate not in self._names:
            there = self._incumbent(candidate)
            name = challenger(candidate, there, self._in_force[there]) if there else candidate
            self._names[candidate] = name
        return self._names[candidate]

    def is_near(self, candidate: str, problem: str) -> bool:
        """Whether a candidate is to be tried at a problem."""
        return tried_at(self._places, self.name(candidate), problem)

    def known(self, ids: Iterable[str], effects: Mapping[str, Effect]) -> dict[str, Effect]:
        """The effect that counts for each of some candidates. `effects` has all, by name."""
        names = ((id, self.name(id)) for id in ids)
        return {id: effects[name] for id, name in names if name in effects}

    def one_of_each(self, ranked: Sequence[str]) -> list[str]:
        """The candidates, without those that are rivals of an earlier one."""
        chosen: list[str] = []
        for one in ranked:
            if not any(self._are_rivals(one, other) for other in chosen):
                chosen.append(one)
        return chosen

    def compatible(self, names: Sequence[str]) -> set[str]:
        """Which of some effects, the surest first, may be in force together: one of several rivals,
        and one challenger for each experience that is there."""
        alone = self.one_of_each([name for name in names if not replaced(name)])
        there = {*alone, *self._in_force}
        changes = {place: name for name in names[::-1] if (place := replaced(name)) in there}
        return {*alone, *changes.values()}

    def _are_rivals(self, one: str, other: str) -> bool:
        pair = (min(one, other), max(one, other))
        if pair not in self._pairs:
            place = self.stands_for(one)
            texts = [self._texts[id] for id in pair if id in self._texts]
            self._pairs[pair] = (place is not None and place == self.stands_for(other)) or (
                len(texts) == 2 and self._places.common(one, other) >= COMMON and are_alike(*texts)
            )
        return self._pairs[pair]

    def like(self, text: str) -> list[str]:
        """The experiences in force that a text is nearly like, the nearest first."""
        if instruction(text) is not None:  # of those that are there the last one counts
            return [id for id, there in self._in_force.items() if are_alike(text, there)][::-1]
        nearest = self._index.ranked(text)[:LOOKED_AT]
        alike = [id for id in nearest if are_alike(text, self._in_force[id])]
        return sorted(alike, key=lambda id: -similarity(text, self._in_force[id]))

    def _incumbent(self, candidate: str) -> str | None:
        """What a candidate is most like of what belongs to the same problems; None for all
        examples, which are one."""
        alike = self.like(self._texts[candidate]) if candidate in self._texts else []
        return next((id for id in alike if self._places.common(candidate, id) >= COMMON), None)

    @cached_property
    def _index(self) -> NgramIndex:
        return NgramIndex(self._in_force)


def challenger(candidate: str, place: str, words: str) -> str:
    """What the effect of a candidate is called that stands in for an experience in force, which
    says `words`."""
    return f"{candidate}{FOR}{place}@{digest([words])[:4].hex()}"


def replaced(name: str) -> str | None:
    """The experience whose place a factor takes, by the factor's name; None where it takes none."""
    _, there, rest = name.partition(FOR)
    return rest.partition("@")[0] if there else None


def of_name(name: str) -> str:
    """The id of the candidate whose effect is called so."""
    return name.partition(FOR)[0]


def tried_at(places: Nearness, name: str, problem: str) -> bool:
    """Whether a factor is tried at a problem, by its name: a challenger where either belongs."""
    ids = (one for one in (of_name(name), replaced(name)) if one is not None)
    return any(places.is_near(id, problem) for id in ids)
