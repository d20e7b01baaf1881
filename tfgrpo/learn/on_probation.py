"""What a run's attempts so far say of its candidates on probation, for those who look on.

It is the estimate that decides about them (`advantage.py`), but for one thing: which problems an
experience in force belongs to is not known here, so its effect is one at all problems.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from tfgrpo.learn.advantage import Advantages
from tfgrpo.learn.assign import EXAMPLES
from tfgrpo.learn.decide import figures
from tfgrpo.learn.measure import recorded
from tfgrpo.learn.rivals import of_name
from tfgrpo.rendering.experience_texts import is_example
from tfgrpo.runs.candidate_outcomes import Candidate, candidates
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.history.evidence import Measured, evidence_of, read_evidence
from tfgrpo.store.store import Store


class OnProbation:
    """The candidates of one run with what they are measured to do: each step is read once, whoever
    many look on. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._advantages, self._read = Advantages(), set[int]()
        self._seen: tuple[object, ...] | None = None
        self._listed: list[Candidate] = []

    def candidates(self, store: Store, run: Run, steps: Collection[int]) -> list[Candidate]:
        """Returns the candidates of a run, the last decided first. `steps` are those that are done,
        from 0."""
        with self._lock:
            seen = (store.port.names.last_move(), len(steps))
            if seen != self._seen:
                self._listed, self._seen = self._measured(store, run, steps), seen
            return self._listed

    def _measured(self, store: Store, run: Run, steps: Collection[int]) -> list[Candidate]:
        listed = candidates(store, run)
        waiting = [one.experience for one in listed if one.state == "on probation"]
        proposed = [evidence_of(store.history(id)[0]).step for id in waiting]
        first = min((-1 if step is None else step for step in proposed), default=None)
        if first is None:
            return listed
        for step in sorted(set(steps) - self._read):
            if step > first:  # before that none of them was there
                self._advantages.add(recorded(store, run, step, lambda *_: True))
                self._read.add(step)
        known: dict[str, Measured | None] = {
            of_name(name): read_evidence(figures(effect)).measured
            for name, effect in self._advantages.effects().items()  # of two wordings the later one
        }
        return [
            one._replace(measured=known.get(EXAMPLES if is_example(one.text) else one.experience))
            if one.state == "on probation"
            else one
            for one in listed
        ]
