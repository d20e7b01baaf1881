"""Which problems of a run an experience belongs to: those most like the ones that taught it.

What a lesson says is often written in other words than the problems that it is for, so its own
words are a poor guide. Problems are compared with problems, by n-grams of characters, which holds
in every language. What this run did not teach (a person's experience, an imported one, one of
another run, whose problems may have the same ids) belongs to every problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import chain

from tfgrpo.data.problems import Problem
from tfgrpo.rendering.near_duplicates import NgramIndex
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.history.evidence import read_evidence
from tfgrpo.store.store import Store

SHARE = 0.25
"""The share of a run's problems that are like one of them."""
FEWEST = 4
"""How many are like one at least, itself among them."""


class Nearness:
    """Nearness among the problems of a run; `store` says what taught each experience."""

    def __init__(self, store: Store, run: Run, problems: Sequence[Problem]) -> None:
        self._store, self._run = store, run.name
        self._texts = {problem.id: problem.problem for problem in problems}
        self._places: dict[str, frozenset[str] | None] = {}

    def is_near(self, experience: str, problem: str) -> bool:
        """Returns whether an experience belongs to a problem. Both are ids."""
        places = self._belongs_to(experience)
        return places is None or problem in places

    def share(self, experience: str) -> float:
        """Returns the share of the run's problems that an experience belongs to."""
        places = self._belongs_to(experience)
        return 1.0 if places is None else len(places) / len(self._texts)

    def common(self, one: str, other: str) -> float:
        """Returns which share of its problems the experience with fewer has in common."""
        places, others = self._belongs_to(one), self._belongs_to(other)
        if places is None or others is None:
            return 1.0
        return len(places & others) / (min(len(places), len(others)) or 1)

    def taught_by(self, experience: str) -> list[str]:
        """Returns the run's problems that taught an experience, as its first event says."""
        events = self._store.history(experience)
        evidence = read_evidence(events[0].evidence if events else None)
        is_own = evidence.run == self._run
        return [one for one in evidence.problems if is_own and one in self._texts]

    @cached_property
    def _index(self) -> NgramIndex:
        return NgramIndex(self._texts)

    def _belongs_to(self, experience: str) -> frozenset[str] | None:
        """Returns the problems that an experience belongs to, or None for all."""
        if experience not in self._places:
            taught = self.taught_by(experience)
            count = max(FEWEST, round(SHARE * len(self._texts)))
            ranked = (self._index.ranked(self._texts[one])[:count] for one in taught)
            self._places[experience] = frozenset(chain.from_iterable(ranked)) if taught else None
        return self._places[experience]
