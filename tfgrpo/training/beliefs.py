"""What a run's earlier steps tell of its problems, at the price of what is new.

The store adds up rewards by step and problem, from where it was asked last, so a step reads what
the one before it has left behind, however long the run is. Counts are kept for each problem apart
by how often the library had changed before the step: whole numbers, which come out alike whether
the run was resumed or not, and in whatever order late attempts were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store.records import Library
from tfgrpo.store.runs import RewardSum, Run
from tfgrpo.store.store import Store
from tfgrpo.training.adaptive import Belief

FADED = 128
"""After so many changes of the library what was seen weighs 1e-16, and is left out."""


@dataclass(slots=True)
class _Seen:
    """What was read of a run: the place up to which, the sums of steps that are not over, how
    often the library had changed before each step, and each problem's wins and losses by that."""

    place: int = 0
    ahead: list[RewardSum] = field(default_factory=list)
    changes: dict[int, int] = field(default_factory=dict)
    newest: int = -1
    library: Library | None = None
    counts: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)


class Beliefs:
    """What is believed of the problems of one run, from the steps before the one at work."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store, self._run = store, run
        self._seen = _Seen()

    def before(self, step: int, problems: Iterable[str]) -> dict[str, Belief]:
        """Returns what earlier steps tell of those problems that they have rewards of, fading as
        libraries change. Steps are asked about in ascending order."""
        self._read()
        if any(one.step < self._seen.newest for one in self._unknown(step)):
            self._seen = _Seen()  # an earlier step has its first rewards only now
            self._read()
        for number, sums in groupby(sorted(self._take(step)), key=lambda one: one.step):
            self._add(number, list(sums))
        believed = ((problem, self._believed(problem)) for problem in problems)
        return {problem: belief for problem, belief in believed if belief is not None}

    def _read(self) -> None:
        seen = self._seen
        seen.place, sums = self._store.runs.reward_sums(self._run, seen.place, CONFIRMING)
        seen.ahead += sums

    def _unknown(self, step: int) -> list[RewardSum]:
        seen = self._seen
        return [one for one in seen.ahead if one.step < step and one.step not in seen.changes]

    def _take(self, step: int) -> list[RewardSum]:
        """Returns what is read of steps that are over, and has it no more."""
        seen = self._seen
        over = [one for one in seen.ahead if one.step < step]
        seen.ahead = [one for one in seen.ahead if one.step >= step]
        return over

    def _add(self, step: int, sums: list[RewardSum]) -> None:
        seen = self._seen
        if step not in seen.changes:
            version = max(one.version for one in sums)
            library = self._store.library(self._store.version(version))
            changes = seen.changes.get(seen.newest, 0)
            changed = seen.library is not None and seen.library != library
            seen.changes[step] = changes + changed
            seen.newest, seen.library = step, library
        change = seen.changes[step]
        for one in sums:
            counts = seen.counts.setdefault(one.problem, {})
            wins, losses = counts.get(change, (0, 0))
            counts[change] = wins + one.above, losses + one.rewards - one.above

    def _believed(self, problem: str) -> Belief | None:
        """Returns what is believed of a problem, None where it has no rewards."""
        counts = self._seen.counts.get(problem)
        if counts is None:
            return None
        now = self._seen.changes[self._seen.newest]
        belief, at = Belief(), now
        for change in sorted(counts):
            if change < now - FADED:
                del counts[change]
                continue
            for _ in range(at, change):
                belief = belief.faded()
            wins, losses = counts[change]
            belief, at = Belief(belief.wins + wins, belief.losses + losses), change
        for _ in range(at, now):
            belief = belief.faded()
        return belief
