"""The part of the port behind which training and evaluation keep their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from tfgrpo.store.activity.decisions import Decision, DecisionFilter
    from tfgrpo.store.activity.runs import (
        AttemptTail,
        Call,
        DaySpent,
        EndpointSpent,
        Evaluation,
        RewardRow,
        RewardSum,
        RolloutRow,
        Run,
        RunState,
        SaidRow,
        Score,
        Spent,
        SpentTail,
        Usage,
    )
    from tfgrpo.store.records import Json

CallValues: TypeAlias = tuple[
    bytes, int | None, str, int | None, str, str, str, int, int, int, int, int, float, int
]
"""What a `Call` has, in its order, its answer as canonical JSON."""

RolloutValues: TypeAlias = tuple[int, int, str, int, int, str, str, float | None, str, int]
"""What a `RolloutRow` has, in its order, its calls as a JSON list and its verdict as canonical
JSON. Whoever hands rows in makes the JSON: what is none is an error before it is in a batch."""


class Records(Protocol):
    """What training and evaluation leave behind. Appended, and never changed but by redaction."""

    def runs(self, *, name: str | None = None, digest: str | None = None) -> list[Run]:
        """The runs (of that name, of settings with that digest), oldest first."""

    def append_run(self, run: Run) -> None:
        """Records a run, whose own `id` is ignored. Only inside a transaction."""

    def writer(self) -> JournalWriter:
        """A writer to the journal, for another thread; opens nothing yet."""

    def states(self, run: int) -> list[RunState]:
        """A run's states, oldest first."""

    def append_state(self, run: int, state: RunState) -> None:
        """Appends a state to a run. Only inside a transaction."""

    def rollouts(self, run: int, step: int | None, problem: str | None = None) -> list[RolloutRow]:
        """The rollouts of a run (of one step, at one problem), by step, problem and sample."""

    def said(self, before: int) -> Iterator[SaidRow]:
        """The attempts recorded before a place, newest first."""

    def attempts_since(self, run: int, after: int) -> AttemptTail:
        """A run's attempts recorded after a place; reads nothing of what is before."""

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        """The journalled calls of those of these keys that are there, in any order."""

    def reward_sums(self, run: int, after: int, samples: int) -> Iterator[RewardSum]:
        """The rewards of a run's attempts recorded after a place, by step and problem, steps
        ascending. Counted are those with a sample below `samples` and no `hint` in the verdict."""

    def reward_steps(self, run: int, samples: int, upto: int | None) -> list[tuple[int, int]]:
        """Step (up to one) and version of attempts with a reward and a sample below `samples`."""

    def rewards(self, run: int, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        """A run's attempts that `reward_sums` counts, by step (up to one), problem and
        sample. `kind` is the text that a verdict has under `name`, a word; "" for none."""

    def calls(self, run: int, stage: str, step: int | None) -> list[Call]:
        """A run's calls of that stage (in that step), oldest first."""

    def usage(self, run: int, step: int | None) -> dict[str, Usage]:
        """A run's (one step's) calls and tokens by kind, in the order of first calls."""

    def spent(self, run: int | None) -> list[Spent]:
        """Calls and tokens by run, step, kind and model, in the order of first calls. The kind is
        the stage; for a call of no step it is `evaluation`."""

    def spent_by_day(self, run: int | None) -> list[DaySpent]:
        """What `spent` does by day as well, in UTC, in the order of first calls."""

    def spent_since(self, run: int, after: int) -> SpentTail:
        """What `spent` gives, of a run's calls after a place in the journal."""

    def spent_by_endpoint(self, run: int | None) -> list[EndpointSpent]:
        """What `spent` gives by the `endpoint` of answers that have one."""

    def estimated(self, run: int | None) -> int:
        """How many calls have an answer whose `estimated` is true."""

    def sent(self, run: int) -> list[tuple[str, Json]]:
        """The model and `sent` of a run's answers, each pair once, in the order of first calls."""

    def evaluations(
        self, version: int | None = None, digest: str | None = None
    ) -> list[Evaluation]:
        """The evaluations (of a version, under these conditions), oldest first."""

    def append_evaluation(self, evaluation: Evaluation, scores: Iterable[Score]) -> None:
        """Records an evaluation, whose own `id` is ignored. Only inside a transaction."""

    def scores(self, evaluation: int) -> list[Score]:
        """An evaluation's scores, by problem and sample."""

    def decisions(self, which: DecisionFilter) -> list[Decision]:
        """Decisions, oldest first."""

    def append_decision(self, decision: Decision) -> int:
        """Records a decision; returns its row. Only inside a transaction."""


class JournalWriter(Protocol):
    """Appends to the journal. Belongs to the thread that appends and closes."""

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        """Appends rows, all or none, durably; those that are there stay as they are. Raises
        RowRefused where a row breaks a rule, StoreError where nothing can be written."""

    def close(self) -> None:
        """Releases what was opened."""
