"""Sealed problems: scored once, at the end of a run. Its settings have their digest and its
states their opening, so the store tells what was scored on them before; not on a part of them."""

from __future__ import annotations

from dataclasses import dataclass

from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Evaluation, Run
from tfgrpo.store.store import Store

UNSEALED = "unsealed"


@dataclass(frozen=True, slots=True)
class Seal:
    """A run's sealed problems: when `opened` (microseconds since 1970), and how many libraries
    but the empty one were scored on them `before` it began and `during` it."""

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
    """The evaluations of libraries, the empty one apart, on problems of that digest."""
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
    """What is known of a run's sealed problems; None where it has none."""
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
