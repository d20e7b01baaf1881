"""Functions of the caller's, in threads that nobody waits for: one that hangs holds up nothing."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

MOST = min(32, (os.cpu_count() or 1) + 4)
"""Functions that run in threads at a time, as many as Python's own pool takes."""
NOT_ITS_OWN = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""What ends a call from outside, and is not what the function that was called did."""


class OutOfTime(Exception):
    """A function took too long. One in a thread is given up, not stopped."""


class Threads:
    """Runs functions of the caller's: plain ones in threads, so many at a time."""

    def __init__(self, most: int = MOST) -> None:
        self._free = asyncio.Semaphore(most)

    async def call(self, function: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
        """What a function gives within `seconds`: an `async` one on the event loop; what a plain
        one returns is awaited if it can be. Raises OutOfTime, and whatever the function raises."""
        on_loop = is_async(function)
        async with nullcontext() if on_loop else self._free:
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    if on_loop:
                        return await function(*arguments)
                    value = await _in_thread(partial(function, *arguments))
                    return await value if inspect.isawaitable(value) else value
            except TimeoutError:
                if limit.expired():
                    raise OutOfTime from None
                raise


def is_async(function: object) -> bool:
    """Whether what is called is an `async` function, or an object with such a call."""
    call = getattr(type(function), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


async def _in_thread(function: Callable[[], Any]) -> Any:
    """What a function gives, in a daemon thread of its own. Raises what it raises."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = contextvars.copy_context()

    def end(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_result((value, error))

    def run() -> None:
        value, error = None, None
        try:
            value = context.run(function)
        except BaseException as raised:  # for whoever waits
            error = raised
        with suppress(RuntimeError):  # the loop is closed: it was given up
            loop.call_soon_threadsafe(end, value, error)

    threading.Thread(target=run, name="tfgrpo function", daemon=True).start()
    value, error = await ended
    if isinstance(error, (Exception, SystemExit)) and not isinstance(error, StopIteration):
        raise error
    if error is not None:  # one that would end the event loop, or a coroutine
        raise RuntimeError(f"{type(error).__name__}: {error}".strip(": "))
    return value
