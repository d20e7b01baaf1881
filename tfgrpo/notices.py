"""What a run or an evaluation tells `on_progress`; each reads as a line, for
`on_progress=print`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.wording import money, plural

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

    @property
    def size(self) -> str:
        """How much of it is here."""
        return f"{self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB"

    def __str__(self) -> str:
        return f"fetching {self.name}: {self.size}"


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
        sizes = f"{plural(self.problems, 'problem')}, {plural(self.steps, 'step')} of up to "
        sizes += f"{self.batch_size} × {self.group_size} attempts"
        return f"run {self.run}{' resumed' * self.resumed}: {sizes}, {self.model}"


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
    """What calls have come to so far, as a line: calls, tokens and cost."""
    cached = f" ({meter.cached_tokens:,} cached)" if meter.cached_tokens else ""
    thought = f" ({meter.reasoning_tokens:,} reasoning)" if meter.reasoning_tokens else ""
    tokens = f"{meter.prompt_tokens:,} tokens in{cached}, {meter.completion_tokens:,} out{thought}"
    stages = ", ".join(f"{stage} {money(cost)}" for stage, cost in meter.cost_by_stage.items())
    cost = "price unknown" if meter.cost is None else money(meter.cost)
    cost += f" ({stages})" if meter.cost else ""
    line = f"{meter.calls:,} calls, {tokens}, {cost}, {meter.in_flight} in flight"
    if meter.estimated:
        line += f", {meter.estimated:,} with estimated tokens"
    if meter.replayed:
        line += f", {meter.replayed:,} from the journal"
    return line + (f"; trying again: {meter.trouble[:80]}" if meter.trouble else "")


def ignore(notice: Notice) -> None:
    """Shows nothing."""
