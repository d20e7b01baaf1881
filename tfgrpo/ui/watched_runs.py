"""Runs that are being watched: one look a second at each, whoever many look on.

A look asks whether anything was committed, which takes microseconds, and reads what is new; a
page's part is rendered once for everybody, and the less often the longer that takes. Nobody
watching, nothing is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tfgrpo.runs.run_status import RunFigures, RunFollower
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.store import Store

EVERY = 1.0
"""Seconds between two looks."""
SHARE = 0.006
"""The most of a core that looking at one run takes: what takes longer is done less often."""
SELDOM = 10.0
"""The most seconds between two looks."""
QUIET = 15.0
"""Seconds after which a viewer is told that there is nothing new, so that one who left is found."""

Opening = Callable[[], Store]
"""Opens the store; raises StoreError."""
Render = Callable[[Store, RunFigures], str]
"""Makes the part of the page, in the thread of the store."""


class WatchedRun:
    """One run and who watches it. Belongs to the event loop; its store to a thread of its own."""

    def __init__(
        self, open_store: Opening, name: str, prices: Mapping[str, Any], render: Render
    ) -> None:
        self._open, self._name, self._prices, self._render = open_store, name, prices, render
        self._changed = asyncio.Condition()
        self._part: str | None = None
        self._number = 0
        self._over = False
        self._viewers = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether anybody watches."""
        return self._viewers > 0

    async def parts(self) -> AsyncIterator[str | None]:
        """Yields the part of the page whenever it has changed, and None now and then when it has
        not. It ends with the run."""
        self._viewers += 1
        if self._task is None or self._task.done():
            self._over = False
            self._task = asyncio.create_task(self._look())
        seen = 0
        try:
            while True:
                async with self._changed:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(QUIET):
                            await self._changed.wait_for(
                                lambda: self._number != seen or self._over  # noqa: B023
                            )
                    part = self._part if self._number != seen else None
                    seen, over = self._number, self._over
                yield part
                if over:
                    return
        finally:
            self._viewers -= 1
            if not self._viewers and self._task is not None:
                self._task.cancel()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="watch") as thread:
            opened: list[Store] = []

            def follower() -> RunFollower:
                opened.append(self._open())
                return RunFollower(opened[0], opened[0].runs.get(self._name), self._prices)

            try:
                follow = await loop.run_in_executor(thread, follower)

                def look() -> tuple[str | None, bool, float]:
                    began = time.thread_time()
                    figures = follow.look()
                    part = None if figures is None else self._render(opened[0], figures)
                    is_over = figures is not None and not figures.is_running
                    return part, is_over, time.thread_time() - began

                while True:
                    part, is_over, took = await loop.run_in_executor(thread, look)
                    if part is not None:
                        await self._show(part)
                    if is_over:
                        break
                    await asyncio.sleep(min(max(EVERY, took / SHARE), SELDOM))
            except TfgrpoError:  # the page says it when it is asked for again
                pass
            finally:
                for store in opened:
                    thread.submit(store.close)
                await self._end()

    async def _show(self, part: str) -> None:
        async with self._changed:
            self._part, self._number = part, self._number + 1
            self._changed.notify_all()

    async def _end(self) -> None:
        async with self._changed:
            self._over = True
            self._changed.notify_all()


def watched(
    runs: dict[str, WatchedRun],
    open_store: Opening,
    name: str,
    prices: Mapping[str, Any],
    render: Render,
) -> WatchedRun:
    """Returns the watch of a run among those of a server, shared by all who look on; it reads a
    store of its own."""
    for key in [key for key, one in runs.items() if not one.is_watched]:
        del runs[key]
    return runs.setdefault(name, WatchedRun(open_store, name, prices, render))
