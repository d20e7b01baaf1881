"""What a run or an evaluation tells `on_progress`; each reads as a line, for
`on_progress=print`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from tfgrpo.evaluation.scores import Scores
    from tfgrpo.evaluation.scoring import EvalProgress
    from tfgrpo.learn.progress import Progress
    from tfgrpo.model.client import Meter
    from tfgrpo.store.records import Version


@dataclass(frozen=True, slots=True)
class WarningNotice:
    """Something a person should know: leaked problems, ground truths that cannot be judged."""

    text: str

    def __str__(self) -> str:
        return f"warning: {self.text}"


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """Weights of a local model are being fetched. Sizes are in bytes."""

    name: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"fetching {self.name}: {self.done / 1e6:.0f} of {self.total / 1e6:.0f} MB"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run begins, or resumes where it was."""

    run: str
    resumed: bool
    problems: int
    steps: int
    batch_size: int
    group_size: int
    model: str

    def __str__(self) -> str:
        problems = f"{self.problems:,} problem{'s' * (self.problems != 1)}"
        steps = f"{self.steps} step{'s' * (self.steps != 1)}"
        return (
            f"run {self.run}{' resumed' if self.resumed else ''}: {problems}, {steps} of up to "
            f"{self.batch_size} × {self.group_size} attempts, {self.model}"
        )


@dataclass(frozen=True, slots=True)
class SettingsChosen:
    """Settings that nobody named were chosen to fit the data and the model; they are on record."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class NothingToLearn:
    """The first attempts leave nothing to learn, as `finding` says (right, wrong, unreadable,
    unjudged); `quote` is one. StoppedEarly follows, unless the run is to keep going."""

    finding: str
    attempts: int
    text: str
    advice: str
    quote: str

    def __str__(self) -> str:
        return f"{self.text}: {self.advice}\n  {self.quote}"


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step has made a version."""

    version: Version

    def __str__(self) -> str:
        return f"{self.version.name}  {self.version.message}"


@dataclass(frozen=True, slots=True)
class ScoresReady:
    """An evaluation is done."""

    scores: Scores

    def __str__(self) -> str:
        return str(self.scores)


Notice: TypeAlias = (
    "WarningNotice | DownloadProgress | RunStarted | SettingsChosen | NothingToLearn | StepFinished"
    " | ScoresReady | Progress | EvalProgress"
)
OnProgress: TypeAlias = Callable[[Notice], None]


def describe_usage(meter: Meter) -> str:
    """What calls have come to so far, as a line: calls and tokens."""
    return (
        f"{meter.calls:,} calls, {meter.prompt_tokens:,} tokens in, "
        f"{meter.completion_tokens:,} out, {meter.in_flight} in flight"
    )


def ignore(notice: Notice) -> None:
    """Shows nothing."""
