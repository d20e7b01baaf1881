"""Work that a signal ends as Ctrl-C does: what is in flight is recorded, and it can be resumed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tfgrpo.notices import OnProgress
    from tfgrpo.store.store import Store

T = TypeVar("T")
RESUMES = "every answer is saved, run the same command to resume"
ENDING = ("SIGTERM", "SIGHUP")
"""What a system sends when it shuts down, and a terminal when it is closed."""


class Interrupted(Exception):
    """The work was ended by a signal. `code` is what the process should exit with."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number


def watched(store: Store, work: Callable[[OnProgress], Coroutine[Any, Any, T]], again: str) -> T:
    """Runs work that tells how it goes; an interruption says `again`, and ends the command."""
    from tfgrpo.cli import live_display, printing

    with live_display.Reporter(store) as report:
        try:
            return run(work(report))
        except Interrupted as stop:
            report.close()
            printing.echo(f"interrupted; {again}", err=True)
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
