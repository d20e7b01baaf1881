"""What a budget still pays for, in attempts of a run.

An attempt is taken to cost as much as those so far, with all calls that followed from them:
lessons, races, trials at a gate. Before the first attempt the cost is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tfgrpo.data.problems import Problem
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.own_gain import measured_at
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.runs.run_problems import RunProblems

MARGIN = 1.1
"""What an attempt to come costs over one so far: a library grows, and so do its prompts."""
AT_A_GATE, COMPARED = 3, 2
"""The libraries that are scored at a run's end, at least: at a gate the last one, that of the start
and the empty one; elsewhere the best one and the empty one, or that of the start."""


class Payable:
    """Says what the budget of one run pays for."""

    def __init__(self, parts: RunParts, data: RunProblems) -> None:
        self._budget, self._store, self._run = parts.session.budget, parts.session.store, parts.run
        self._counts: list[int] = []
        self._settings, self._problems = parts.settings, data.train
        settings = parts.settings
        most, samples = settings.heldout_problems, settings.heldout_samples
        compared = COMPARED * (len(data.heldout[:most]) + len(data.sealed))
        self._at_end = samples * (AT_A_GATE * len(data.gate[:most]) + compared)

    def after(self, step: int, batch: Sequence[Problem], size: int) -> float:
        """How many attempts the budget pays for after a step with groups of `size`, beside those at
        the run's end; infinite without a budget, and where nothing has been paid for yet."""
        budget = self._budget
        if budget is None:
            return inf
        while len(self._counts) < step:
            self._counts.append(self._of(len(self._counts)))
        own = self._of(step)  # of one that was interrupted
        attempts, spent = sum(self._counts) + own, budget.of_run
        if not (attempts and spent):
            return inf
        each = spent / attempts * MARGIN
        missing = len(batch) * size - own
        measuring = len(measured_at(self._settings, self._problems, attempts + missing))
        at_end = self._at_end + COMPARED * self._settings.heldout_samples * measuring
        return (budget.limit - spent) / each - missing - at_end

    def _of(self, step: int) -> int:
        rows = self._store.runs.rollouts(self._run, step)
        return sum(row.sample < CONFIRMING for row in rows)
