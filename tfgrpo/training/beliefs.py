"""What a run's earlier steps tell of its problems, at the price of what is new.

The store adds up rewards by step and problem, from where it was asked last, so a step reads what
the one before it has left behind, however long the run is. A run that is resumed reads all of its
steps, one after the other, and holds no more than one that was never interrupted. Counts are kept
for each problem apart by how often the library had changed before the step: whole numbers, which
come out alike whether the run was resumed or not, and in whatever order late attempts were
recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from heapq import merge
from itertools import groupby
from operator import attrgetter

from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store.records import Library
from tfgrpo.store.runs import AttemptKey, RewardSum, Run
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

    def before(
        self, step: int, problems: Iterable[str], out: Collection[AttemptKey] = ()
    ) -> dict[str, Belief]:
        """Returns what earlier steps tell of those problems that they have rewards of, fading as
        libraries change. Steps are asked about in ascending order. Attempts that were `out` when
        the last step went on count for nothing, whether they are on record by now or not."""
        with self._store.port.reading():
            if not self._read(step):
                self._seen = _Seen()  # an earlier step has its first rewards only now
                self._read(step)
            early = self._early(step, out)
        believed = ((problem, self._believed(problem, early)) for problem in problems)
        return {problem: belief for problem, belief in believed if belief is not None}

    def _read(self, step: int) -> bool:
        """Counts what is new of steps before one; False where it is of a step that was passed."""
        seen, step_of = self._seen, attrgetter("step")
        ahead, seen.ahead = seen.ahead, []
        new = self._store.runs.reward_sums(self._run, seen.place, CONFIRMING)
        for number, sums_of_step in groupby(merge(ahead, new, key=step_of), key=step_of):
            listed = list(sums_of_step)
            seen.place = max(seen.place, *(one.last for one in listed))
            sums = [one for one in listed if one.rewards]
            if number >= step:
                seen.ahead += sums
            elif sums:
                if number not in seen.changes and number < seen.newest:
                    return False
                self._add(number, sums)
        return True

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
            if len(counts) > 2 * FADED:
                self._forget(counts)

    def _forget(self, counts: dict[int, tuple[int, int]]) -> None:
        seen = self._seen
        for change in [c for c in counts if c < seen.changes[seen.newest] - FADED]:
            del counts[change]

    def _early(self, step: int, out: Collection[AttemptKey]) -> Counter[tuple[str, int, bool]]:
        """Returns how many attempts were counted that were out: by problem, change and success."""
        early: Counter[tuple[str, int, bool]] = Counter()
        for number, problem in sorted({one[:2] for one in out}):
            change = self._seen.changes.get(number)
            if number >= step or change is None:
                continue
            for row in self._store.runs.rollouts(self._run, number, problem):
                plain = row.sample < CONFIRMING and "hint" not in row.verdict
                if plain and row.reward is not None and (number, problem, row.sample) in out:
                    early[problem, change, row.reward > 0.5] += 1
        return early

    def _believed(self, problem: str, early: Counter[tuple[str, int, bool]]) -> Belief | None:
        """Returns what is believed of a problem, None where it has no rewards."""
        counts = self._seen.counts.get(problem)
        if counts is None:
            return None
        self._forget(counts)
        now = self._seen.changes[self._seen.newest]
        belief, at = Belief(), now
        for change in sorted(counts):
            for _ in range(at, change):
                belief = belief.faded()
            wins, losses = counts[change]
            wins -= early[problem, change, True]
            losses -= early[problem, change, False]
            belief, at = Belief(belief.wins + wins, belief.losses + losses), change
        for _ in range(at, now):
            belief = belief.faded()
        return belief
