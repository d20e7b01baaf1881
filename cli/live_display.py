"""What is shown of training, evaluation or a fetch: a view on a terminal, elsewhere plain lines."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tfgrpo.cli import printing
from tfgrpo.evaluation.scores import Scores
from tfgrpo.evaluation.scoring import EvalProgress
from tfgrpo.learn.progress import Progress
from tfgrpo.model.client import Meter
from tfgrpo.model.fleet import describe_endpoints
from tfgrpo.notices import DownloadProgress, Notice, ScoresReady, StepFinished, WarningNotice
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.wording import money as dollars
from tfgrpo.wording import span

PLAIN_SECONDS = 15.0


def _text(line: str, style: str = "") -> Text:
    """A line for rich to draw: rich lets through what commands a terminal."""
    return Text(printing.shown(line), style=style)


def _bar(title: str, share: float, *beside: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=1.0, completed=share, width=24)
    grid.add_row(_text(title, style="bold"), bar, *map(_text, beside))
    return grid


class Shown:
    """Shows `draw()` on a terminal, or `line()` every few seconds elsewhere."""

    def __init__(self, draw: Callable[[], Group], line: Callable[[], str]) -> None:
        self._console = Console(stderr=True)
        self._terminal = sys.stderr.isatty()  # which forced colours do not make of a file
        self._draw, self._line = draw, line
        self._live = Live(
            console=self._console,
            get_renderable=lambda: self._draw(),
            refresh_per_second=4,
            transient=True,
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def say(self, line: str) -> None:
        """Prints a line that stays, above the view."""
        if self._terminal:
            self._console.print(_text(line))
        else:
            printing.echo(line, err=True)

    def __enter__(self) -> Self:
        if self._terminal:
            self._live.start()
        else:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._terminal:
            self._live.stop()

    def _tick(self) -> None:
        while not self._stop.wait(PLAIN_SECONDS):
            printing.echo(self._line(), err=True)


def training(progress: Progress) -> Shown:
    """The view of a training run."""

    def draw() -> Group:
        step = f"step {min(progress.step + 1, progress.steps)}/{progress.steps}"
        time_left = left(progress.seconds_left, progress.dollars_left)
        bar = _bar(step, progress.fraction, f"{progress.fraction:4.0%}", time_left)
        usage = [_text(line, style="dim") for line in _usage_lines(progress.meter)]
        return Group(bar, _text(_describe_position(progress)), *usage)

    def line() -> str:
        return (
            f"step {min(progress.step + 1, progress.steps)}/{progress.steps} "
            f"{progress.fraction:.0%}: {_describe_position(progress)}; "
            f"{'; '.join(_usage_lines(progress.meter))}; "
            f"{left(progress.seconds_left, progress.dollars_left)}"
        )

    return Shown(draw, line)


def _describe_position(progress: Progress) -> str:
    mean = progress.mean_reward
    reward = "–" if mean is None else f"{mean:.2f}"
    activity = {
        "starting": "starting",
        "rollouts": f"rollouts {progress.attempts_done}/{progress.attempts}",
        "reflection": f"comparing groups {progress.reflected}/{progress.teaching}",
        "controller": f"deciding on lessons {progress.decided}/{progress.lessons}",
        "gate": "trying the candidate on the gate's problems",
        "finished": "finished",
    }[progress.phase]
    if progress.stopping:
        activity = f"stopping, waiting for {progress.meter.in_flight} answers"
    return (
        f"epoch {progress.epoch}/{progress.epochs}  {activity}  "
        f"groups {progress.groups_done}/{progress.groups}, {progress.mixed} mixed  "
        f"reward {reward}  library {progress.library}"
    ) + (f"; {progress.workers}" if progress.workers else "")


def evaluation(progress: EvalProgress) -> Shown:
    """The view of an evaluation."""

    def draw() -> Group:
        share = progress.done / progress.total if progress.total else 0.0
        at, time_left = f"{progress.done}/{progress.total}", left(progress.seconds_left)
        bar = _bar("evaluating", share, at, time_left)
        return Group(bar, _text(_describe_usage(progress.meter), style="dim"))

    def line() -> str:
        return (
            f"evaluating {progress.done}/{progress.total}; {_describe_usage(progress.meter)}; "
            f"{left(progress.seconds_left)}"
        )

    return Shown(draw, line)


def _usage_lines(meter: Meter) -> list[str]:
    """What calls have come to, and where several endpoints serve them which does what."""
    served = [printing.shown(describe_endpoints(meter.endpoints))] if meter.endpoints else []
    return [_describe_usage(meter), *served]


def _describe_usage(meter: Meter) -> str:
    cached = f" ({meter.cached_tokens:,} cached)" if meter.cached_tokens else ""
    thought = f" ({meter.reasoning_tokens:,} reasoning)" if meter.reasoning_tokens else ""
    tokens = f"{meter.prompt_tokens:,} tokens in{cached}, {meter.completion_tokens:,} out{thought}"
    line = f"{meter.calls:,} calls, {tokens}, {_cost(meter)}, {meter.in_flight} in flight"
    if meter.estimated:
        line += f", {meter.estimated:,} with estimated tokens"
    if meter.replayed:
        line += f", {meter.replayed:,} from the journal"
    if meter.trouble:
        line += f"; trying again: {printing.shown(meter.trouble[:80])}"
    return line


def _cost(meter: Meter) -> str:
    if not meter.cost:
        return money(meter.cost)
    parts = ", ".join(f"{stage} {money(cost)}" for stage, cost in meter.cost_by_stage.items())
    return f"{money(meter.cost)} ({parts})"


def money(amount: float | None) -> str:
    """An amount in US dollars as people read it."""
    return "price unknown" if amount is None else dollars(amount)


def left(seconds: float | None, dollars: float | None = None) -> str:
    """A time that is left, as people read it, and what it may cost."""
    if seconds is None:
        return "time left: not known yet"
    cost = "" if dollars is None else f" and {money(dollars)}"
    return f"about {span(seconds)}{cost} left"


class Reporter:
    """Shows notices of a run or an evaluation as they come. A context manager."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._download = Fetch()
        self._shown: Shown | None = None
        self._progress: object = None

    def __call__(self, notice: Notice) -> None:
        if notice is self._progress:  # the view reads it by itself
            return
        match notice:
            case Progress() | EvalProgress():
                self._show(notice)
            case DownloadProgress():
                self._download.update(notice.name, notice.done, notice.total)
            case WarningNotice() if self._shown is not None:
                self._shown.say(f"warning: {printing.shown(notice.text)}")
            case WarningNotice():
                printing.warn([notice.text])
            case StepFinished() if self._shown is not None:
                self._shown.say(self._line(notice.version))
            case ScoresReady():
                self.close()
                printing.echo_each(scores_lines(notice.scores))
            case _:
                printing.echo(str(notice))

    def close(self) -> None:
        """Takes away what is shown."""
        self._download.close()
        if self._shown is not None:
            self._shown.__exit__()
        self._shown = self._progress = None

    def _show(self, progress: Progress | EvalProgress) -> None:
        self.close()
        view = training(progress) if isinstance(progress, Progress) else evaluation(progress)
        self._shown, self._progress = view.__enter__(), progress

    def _line(self, version: Version) -> str:
        counts = " ".join(word.text for word in printing.counts(self._store.counts(version)))
        return f"{version.name}  {counts}{'  ' if counts else ''}{version.message}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def scores_lines(scores: Scores) -> Iterator[str]:
    """Yields scores as a table, and how the libraries compare."""
    view = scores.view()
    yield printing.style(view.title, bold=True)
    yield from printing.table(view.rows, header=view.header)
    yield from view.notes
    if not scores.differences:
        yield "`--against v0` compares it with the empty library in the same prompt"


class Fetch:
    """A progress bar for fetching weights, or a line now and then where there is no terminal."""

    def __init__(self) -> None:
        self._bar: Live | None = None
        self._printed_at = 0.0
        self._at = (0, 1)
        self._name = ""
        self._console = Console(stderr=True)

    def update(self, name: str, done: int, total: int) -> None:
        """Shows that `done` of `total` bytes are here."""
        self._name, self._at = name, (done, max(total, 1))
        if done >= total:
            return
        if sys.stderr.isatty():
            if self._bar is None:
                self._bar = Live(
                    console=self._console,
                    get_renderable=self._draw,
                    refresh_per_second=8,
                    transient=True,
                )
                self._bar.start()
        elif time.monotonic() - self._printed_at > PLAIN_SECONDS or not self._printed_at:
            self._printed_at = time.monotonic()
            printing.echo(f"fetching {name}: {done / 1e6:.0f} of {total / 1e6:.0f} MB", err=True)

    def close(self) -> None:
        """Takes the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self) -> Table:
        done, total = self._at
        size = f"{done / 1e6:,.0f}/{total / 1e6:,.0f} MB"
        return _bar(f"fetching {self._name}", done / total, size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
