"""What a run at work tells other processes, in a `.live` file beside its lock, once a second:
what the store cannot have, such as calls in flight. A `.stop` file asks it to stop. Neither has
a text of a model or a problem, and a run that cannot write them goes on."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgrpo.evaluation.scoring import EvalProgress
from tfgrpo.runs.run_issues import resumption
from tfgrpo.store import atomic_write
from tfgrpo.store.activity.runs import Run, Runs
from tfgrpo.store.errors import InvalidOperation, TfgrpoError
from tfgrpo.store.exit_codes import STOPPED
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.learn.loop import Training

TROUBLE = 200
"""The characters that are told of an endpoint's trouble."""


class RunStopped(TfgrpoError):
    """A run that somebody asked to stop. What was in flight is recorded, and it can be resumed."""

    exit_code = STOPPED

    def __init__(self, run: Run, words: str) -> None:
        super().__init__(f"run {run.name}: {words}", hint=f"go on: {resumption(run)}")


@dataclass(frozen=True, slots=True)
class EndpointHealth:
    """An endpoint: requests in flight, their `limit` now and at `most`; of several that serve a
    model also its address, calls and prompt tokens."""

    model: str
    in_flight: int
    limit: int
    most: int
    state: str
    address: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigures:
    """Where a run is: `step` from 0, `time` in microseconds since 1970, counts of the step, what is
    left (None: unknown), `evaluating` as (done, of), the last request's `trouble`."""

    time: int
    step: int
    steps: int
    epoch: int
    epochs: int
    phase: str
    stopping: bool
    groups: int
    groups_done: int
    teaching: int
    attempts: int
    attempts_done: int
    reflected: int
    lessons: int
    decided: int
    mean_reward: float | None
    library: int
    fraction: float
    seconds_left: float | None
    dollars_left: float | None
    in_flight: int
    retries: int
    trouble: str | None
    endpoints: tuple[EndpointHealth, ...] = ()
    evaluating: tuple[int, int] | None = None


def live_path(runs: Runs, run: Run) -> Path:
    """The file in which a run at work tells where it is."""
    return runs.lock_path(run).with_suffix(".live")


def stop_path(runs: Runs, run: Run) -> Path:
    """The file whose presence asks a run to stop."""
    return runs.lock_path(run).with_suffix(".stop")


def read_live(store: Store, run: Run) -> LiveFigures | None:
    """Where a run is; None where it tells nothing. Whether it is at work at all is for
    `store.runs.state` to say: what a run told before it was killed may still be there."""
    try:
        values = json.loads(live_path(store.runs, run).read_bytes())
        values["endpoints"] = tuple(EndpointHealth(**one) for one in values["endpoints"])
        values["evaluating"] = values["evaluating"] and tuple(values["evaluating"])
        return LiveFigures(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def ask_to_stop(store: Store, run: Run, author: str) -> None:
    """Asks a run in whatever process to stop as Ctrl-C does, in the name of `author`. Raises
    InvalidOperation where it is not at work, and OSError."""
    state = store.runs.state(run)
    if state != "running":
        raise InvalidOperation(f"run {run.name} is {state}: there is nothing to stop")
    words = f"stopped by {' '.join(author.split()) or 'unknown'}"
    atomic_write.write(stop_path(store.runs, run), words[:TROUBLE])


class LiveReport:
    """What a run tells while it works. A context manager: with its end both files go."""

    def __init__(self, runs: Runs, run: Run) -> None:
        self._live, self._stop = live_path(runs, run), stop_path(runs, run)
        self._training: Training | None = None
        self._evaluation: EvalProgress | None = None

    def __enter__(self) -> LiveReport:
        self._clear()  # what a run that was killed left behind
        return self

    def __exit__(self, *failure: object) -> None:
        self._clear()

    def _clear(self) -> None:
        for path in (self._live, self._stop):
            with suppress(OSError):
                path.unlink(missing_ok=True)

    def watch(self, training: Training) -> None:
        """Tells of that training from now on."""
        self._training = training

    def watch_evaluation(self, progress: EvalProgress) -> None:
        """Tells of an evaluation that belongs to the end of the run, from now on."""
        self._evaluation = progress

    def look(self) -> str | None:
        """Writes where the run is; returns who asks it to stop, in words, if anybody does."""
        if self._training is not None:
            figures = _figures(self._training, self._evaluation)
            with suppress(OSError):  # a full disk shows where something has to be kept
                atomic_write.write(self._live, json.dumps(asdict(figures)))
        try:
            return self._stop.read_text(errors="replace").strip()[:TROUBLE] or "stopped"
        except OSError:
            return None


def _figures(training: Training, evaluation: EvalProgress | None) -> LiveFigures:
    progress = training.progress
    meter, trouble = progress.meter, progress.meter.trouble
    values: dict[str, Any] = {
        one.name: getattr(progress, one.name)
        for one in fields(LiveFigures)
        if hasattr(progress, one.name)
    }
    return LiveFigures(
        time=time.time_ns() // 1000,
        in_flight=meter.in_flight,
        retries=meter.retries,
        trouble=None if trouble is None else trouble[:TROUBLE],
        endpoints=tuple(
            EndpointHealth(
                one.endpoint.model,
                member.throttle.in_flight,
                int(member.throttle.limit),
                member.throttle.most,
                member.state,
                member.name,
                member.calls,
                member.prompt_tokens,
                member.cached_tokens,
            )
            for one in training.calls
            for member in one.fleet.members
        ),
        evaluating=None if evaluation is None else (evaluation.done, evaluation.total),
        **values,
    )
