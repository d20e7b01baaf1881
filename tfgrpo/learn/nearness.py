"""Which problems of a run an experience belongs to: those most like the ones that taught it.

What a lesson says is often written in other words than the problems that it is for, so its own
words are a poor guide. Problems are compared with problems, by n-grams of characters, which holds
in every language. What nobody knows the teacher of (a person's experience, an imported one) belongs
to every problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from tfgrpo.data.problems import Problem
from tfgrpo.rendering.similarity_ngrams import NgramIndex
from tfgrpo.store.store import Store

SHARE = 0.25
"""The share of a run's problems that are near one."""
FEWEST = 4
"""How many are near one at least, itself among them."""


class Nearness:
    """Nearness among the problems of one run; `store` says what taught each experience."""

    def __init__(self, store: Store, problems: Sequence[Problem]) -> None:
        self._store = store
        self._texts = {problem.id: problem.problem for problem in problems}
        self._near: dict[str, frozenset[str]] = {}
        self._taught: dict[str, frozenset[str]] = {}

    def is_near(self, experience: str, problem: str) -> bool:
        """Returns whether an experience belongs to a problem. Both are ids."""
        taught = self._taught_by(experience)
        return not taught or not taught.isdisjoint(self._nearest(problem))

    def share(self, experience: str) -> float:
        """Returns the share of the run's problems that an experience belongs to."""
        return sum(self.is_near(experience, one) for one in self._texts) / max(1, len(self._texts))

    @cached_property
    def _index(self) -> NgramIndex:
        return NgramIndex(self._texts)

    def _nearest(self, problem: str) -> frozenset[str]:
        if problem not in self._near:
            count = max(FEWEST, round(SHARE * len(self._texts)))
            ranked = self._index.ranked(self._texts[problem])
            self._near[problem] = frozenset(ranked[:count])
        return self._near[problem]

    def _taught_by(self, experience: str) -> frozenset[str]:
        """Returns the run's problems that taught an experience, as its first event says."""
        if experience not in self._taught:
            events = self._store.history(experience)
            evidence = (events[0].evidence if events else None) or {}
            named = evidence.get("problems") or [evidence.get("problem")]
            self._taught[experience] = frozenset(named).intersection(self._texts)
        return self._taught[experience]
