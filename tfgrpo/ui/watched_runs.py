"""Runs that are being watched: one look a second at each, whoever many look on.

A look asks whether anything was committed, which takes microseconds, and reads what is new; a
page's part is rendered once for everybody, and the less often the longer that takes. Nobody
watching, nothing is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
GLANCE = 0.1
"""Seconds after which a viewer asks again whether the part has changed."""
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
        self._part, self._number = "", 0
        self._task: asyncio.Task[None] | None = None
        self.viewers = 0

    async def parts(self) -> AsyncIterator[str | None]:
        """Yields the part of the page whenever it has changed, and None now and then when it has
        not. It ends with the run."""
        self.viewers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._follow())
        seen, last = 0, time.monotonic()
        try:
            while True:
                is_over, number = self._task.done(), self._number
                if number != seen or time.monotonic() - last > QUIET:
                    yield self._part if number != seen else None
                    seen, last = number, time.monotonic()
                if is_over:
                    return
                await asyncio.sleep(min(GLANCE, EVERY))
        finally:
            self.viewers -= 1
            if not self.viewers:
                self._task.cancel()

    async def _follow(self) -> None:
        with ThreadPoolExecutor(1, thread_name_prefix="watch") as thread:
            opening = thread.submit(self._open)
            in_thread = partial(asyncio.get_running_loop().run_in_executor, thread)
            try:
                store = await asyncio.wrap_future(opening)
                follower = await in_thread(
                    lambda: RunFollower(store, store.runs.get(self._name), self._prices)
                )
                is_over = False
                while not is_over:
                    part, is_over, took = await in_thread(self._look, store, follower)
                    if part is not None:
                        self._part, self._number = part, self._number + 1
                    await asyncio.sleep(0 if is_over else min(max(EVERY, took / SHARE), SELDOM))
            except TfgrpoError:  # the page says it when it is asked for again
                pass
            finally:
                thread.submit(lambda: opening.result().close())

    def _look(self, store: Store, follower: RunFollower) -> tuple[str | None, bool, float]:
        """Returns the part where it has changed, whether the run is over, and the seconds that the
        look took."""
        began = time.thread_time()
        figures = follower.look()
        if figures is None:
            return None, False, time.thread_time() - began
        part = self._render(store, figures)
        return part, not figures.is_running, time.thread_time() - began


def watched(
    runs: dict[str, WatchedRun],
    open_store: Opening,
    name: str,
    prices: Mapping[str, Any],
    render: Render,
) -> WatchedRun:
    """Returns the watch of a run among those of a server, shared by all who look on; it reads a
    store of its own."""
    for key in [key for key, one in runs.items() if not one.viewers]:
        del runs[key]
    return runs.setdefault(name, WatchedRun(open_store, name, prices, render))
