"""Sealed problems: scored once, at the end of a run, with a record that proves it.

A run's settings hold the digest of its sealed problems from the moment it begins. That they are
opened is a state of the run, noted before the first of them is attempted, and every evaluation
is on record with its time. So it can be read off the store whether anything was scored on them
before; what was scored on a part of them, or elsewhere, cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Evaluation, Run
from tfgrpo.store.store import Store

UNSEALED = "unsealed"


@dataclass(frozen=True, slots=True)
class Seal:
    """What the store knows of a run's sealed problems. Times are microseconds since 1970.

    `opened` is when the run turned to them, None if it did not yet; `before` are the libraries
    that were scored on them before it began, `during` those between its beginning and opening.
    The empty library counts for nothing: no choice can follow from its score.
    """

    dataset: str
    digest: str
    opened: int | None
    before: int
    during: int

    @property
    def intact(self) -> bool:
        """Whether nothing was scored on them from the run's beginning until it opened them."""
        return self.during == 0


def looks(store: Store, digest: str) -> list[Evaluation]:
    """Returns the evaluations of libraries, the empty one apart, on problems of that digest."""
    return [
        evaluation
        for evaluation in store.runs.all_evaluations()
        if evaluation.version != 0 and evaluation.config.get("dataset") == digest
    ]


def unseal(store: Store, run: Run) -> None:
    """Notes that a run turns to its sealed problems, unless it has before."""
    if _opened(store, run) is None:
        store.runs.note(run, UNSEALED)


def seal(store: Store, run: Run) -> Seal | None:
    """Returns what is known of a run's sealed problems; None where it has none."""
    settings = TrainSettings(**run.config)
    if settings.sealed is None:
        return None
    opened = _opened(store, run)
    times = [look.time for look in looks(store, settings.sealed_digest)]
    return Seal(
        dataset=settings.sealed,
        digest=settings.sealed_digest,
        opened=opened,
        before=sum(time < run.time for time in times),
        during=sum(run.time <= time and (opened is None or time < opened) for time in times),
    )


def _opened(store: Store, run: Run) -> int | None:
    times = (state.time for state in store.runs.states(run) if state.state == UNSEALED)
    return next(times, None)
