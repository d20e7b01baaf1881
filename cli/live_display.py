"""What is shown of training, evaluation or a fetch: a view on a terminal, lines elsewhere. A signal
ends such work as Ctrl-C does: what is in flight is recorded, and it can be resumed."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any, TypeVar

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tfgrpo.cli import printing
from tfgrpo.evaluation.scoring import EvalProgress
from tfgrpo.learn.progress import Progress
from tfgrpo.model.fleet import describe_endpoints
from tfgrpo.notices import (
    DownloadProgress,
    Notice,
    OnProgress,
    ScoresReady,
    StepFinished,
    WarningNotice,
    describe_usage,
)
from tfgrpo.store.store import Store
from tfgrpo.wording import money, span

T = TypeVar("T")
PLAIN_SECONDS = 15.0
RESUMES = "every answer is saved, run the same command to resume"
CONTROL = "`--against v0` compares it with the empty library in the same prompt"
ENDING = ("SIGTERM", "SIGHUP")
"""What a system sends when it shuts down, and a terminal when it is closed."""


class Interrupted(Exception):
    """The work was ended by a signal. `code` is what the process should exit with."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number


def watched(
    store: Store,
    work: Callable[[OnProgress], Coroutine[Any, Any, T]],
    again: Callable[[], str] = lambda: RESUMES,
) -> T:
    """Runs work that tells how it goes; an interruption says what to do `again`, and ends the
    command. Raises BrokenPipeError where nobody reads what is printed."""
    with closing(Reporter(store)) as report:
        try:
            return run(work(report))
        except (Interrupted, BrokenPipeError) as stop:
            report.close()
            unread = isinstance(stop, BrokenPipeError)
            why = "nobody reads the output" if unread else "interrupted"
            printing.echo(f"{why}; {again()}", err=True)
            if isinstance(stop, BrokenPipeError):
                raise
            click.get_current_context().exit(stop.code)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs work on an event loop of its own, which Ctrl-C, SIGTERM and SIGHUP (unless ignored,
    as by `nohup`) cancel. Raises Interrupted, and what the work does."""
    received: list[int] = []

    async def cancellable() -> T:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def end(number: int) -> None:
            received.append(number)
            task.cancel()

        for name in ENDING:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                loop.add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(cancellable())
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT) from None
    except asyncio.CancelledError:
        if not received:
            raise
        raise Interrupted(received[0]) from None


def no_scores(report: OnProgress) -> OnProgress:
    """A reporter that leaves out the tables of scores."""
    return lambda notice: None if isinstance(notice, ScoresReady) else report(notice)


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
        self._terminal = sys.stderr.isatty()  # which forced colours do not make of a file
        self._line = line
        self._live = Live(
            console=Console(stderr=True), get_renderable=draw, refresh_per_second=4, transient=True
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)

    def say(self, line: str) -> None:
        """Prints a line that stays, above the view."""
        if self._terminal:
            self._live.console.print(_text(line))
        else:
            printing.echo(line, err=True)

    def start(self) -> None:
        """Begins to show it."""
        if self._terminal:
            self._live.start()
        else:
            self._thread.start()

    def stop(self) -> None:
        """Takes it away."""
        self._stop.set()
        if self._terminal:
            self._live.stop()

    def _tick(self) -> None:
        while not self._stop.wait(PLAIN_SECONDS):
            printing.echo(self._line(), err=True)


def training(progress: Progress) -> Shown:
    """The view of a training run."""

    def parts() -> tuple[str, str, list[str], str]:
        step = f"step {min(progress.step + 1, progress.steps)}/{progress.steps}"
        time_left = left(progress.seconds_left, progress.dollars_left)
        usage, endpoints = [describe_usage(progress.meter)], progress.meter.endpoints
        if endpoints:  # several serve them: which does what
            usage.append(describe_endpoints(endpoints))
        return step, _describe_position(progress), usage, time_left

    def draw() -> Group:
        step, position, usage, time_left = parts()
        bar = _bar(step, progress.fraction, f"{progress.fraction:4.0%}", time_left)
        return Group(bar, _text(position), *(_text(line, style="dim") for line in usage))

    def line() -> str:
        step, *rest, usage, time_left = parts()
        return f"{step} {progress.fraction:.0%}: " + "; ".join((*rest, *usage, time_left))

    return Shown(draw, line)


def _describe_position(progress: Progress) -> str:
    mean = progress.mean_reward
    reward = "–" if mean is None else f"{mean:.2f}"
    activity = {
        "starting": "starting",
        "rollouts": f"rollouts {progress.attempts_done}/{progress.attempts}",
        "reflection": f"comparing groups {progress.reflected}/{progress.teaching}",
        "decide": f"deciding on lessons {progress.decided}/{progress.lessons}",
        "gate": "trying the candidate on the gate's problems",
        "gain": "measuring what the run gains",
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

    def parts() -> tuple[str, str, str]:
        at = f"{progress.done}/{progress.total}"
        return at, describe_usage(progress.meter), left(progress.seconds_left)

    def draw() -> Group:
        at, usage, time_left = parts()
        share = progress.done / progress.total if progress.total else 0.0
        return Group(_bar("evaluating", share, at, time_left), _text(usage, style="dim"))

    return Shown(draw, lambda: "evaluating " + "; ".join(parts()))


def left(seconds: float | None, dollars: float | None = None) -> str:
    """A time that is left, as people read it, and what it may cost."""
    if seconds is None:
        return "time left: not known yet"
    cost = "" if dollars is None else f" and {money(dollars)}"
    return f"about {span(seconds)}{cost} left"


class Reporter:
    """Shows notices of a run or an evaluation as they come, until it is closed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._download = Fetch()
        self._shown: Shown | None = None
        self._progress: object = None

    def __call__(self, notice: Notice) -> None:
        if notice is self._progress:  # the view reads it by itself
            return
        match notice:
            case Progress():
                self._show(training(notice), notice)
            case EvalProgress():
                self._show(evaluation(notice), notice)
            case DownloadProgress():
                self._download.update(notice)
            case WarningNotice() if self._shown is not None:
                self._shown.say(str(notice))
            case WarningNotice():
                printing.warn([notice.text])
            case StepFinished(version=version) if self._shown is not None:
                counts = " ".join(
                    word.text for word in printing.counts(self._store.counts(version))
                )
                self._shown.say("  ".join(filter(None, (version.name, counts, version.message))))
            case ScoresReady():
                self.close()
                printing.echo_each(printing.view_lines(notice.scores.view()))
                if not notice.scores.differences:
                    printing.echo(CONTROL)
            case _:
                printing.echo(str(notice))

    def close(self) -> None:
        """Takes away what is shown."""
        self._download.close()
        if self._shown is not None:
            self._shown.stop()
        self._shown = self._progress = None

    def _show(self, view: Shown, progress: object) -> None:
        self.close()
        view.start()
        self._shown, self._progress = view, progress


class Fetch:
    """A progress bar for fetching weights, or a line now and then where there is no terminal."""

    def __init__(self) -> None:
        self._shown: Shown | None = None
        self._at = DownloadProgress("", 0, 1)

    def update(self, at: DownloadProgress) -> None:
        """Shows how much is here."""
        self._at = at
        if self._shown is None and at.done < at.total:
            self._shown = Shown(self._draw, lambda: str(self._at))
            self._shown.start()

    def close(self) -> None:
        """Takes the bar away."""
        if self._shown is not None:
            self._shown.stop()
            self._shown = None

    def _draw(self) -> Group:
        share = self._at.done / max(self._at.total, 1)
        return Group(_bar(f"fetching {self._at.name}", share, self._at.size))
