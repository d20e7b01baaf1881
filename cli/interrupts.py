"""Work that a signal ends as Ctrl-C does: what is in flight is recorded, and it can be resumed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
ENDING = ("SIGTERM", "SIGHUP")
"""What a system sends when it shuts down, and a terminal when it is closed."""


class Interrupted(Exception):
    """The work was ended by a signal. `code` is what the process should exit with."""

    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {signal.Signals(number).name}")
        self.code = 128 + number


def run(work: Coroutine[Any, Any, T]) -> T:
    """Returns what work comes to, on an event loop of its own.

    Ctrl-C, SIGTERM and SIGHUP cancel it and let it end. A signal that the process was started to
    ignore, as by `nohup`, stays ignored. Raises Interrupted, and what the work does.
    """
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
