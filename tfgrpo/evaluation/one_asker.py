"""Answers that several processes may want: one process asks at a time, and the others then find the
answers in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from tfgrpo.store.activity.runs import Runs
from tfgrpo.store.canonical import digest

AGAIN = 0.2
"""Seconds after which locks that another process holds are tried again."""
LOCKS = 64
"""How many locks a scope has at most: two parts of it seldom share one."""


@asynccontextmanager
async def alone(
    runs: Runs, scope: str, parts: Collection[Any], on_wait: Callable[[bool], None]
) -> AsyncIterator[None]:
    """Waits until no other process asks for answers in these parts of a scope, which are JSON
    values. `on_wait` is called when it begins to wait, and when that is over. A killed process
    holds nothing. Raises StoreError."""
    numbers = sorted({digest([scope, part])[0] % LOCKS for part in parts})
    paths = [runs.asking_path(f"{digest(scope).hex()[:24]}-{number}") for number in numbers]
    waits = False
    while True:
        with ExitStack() as stack:
            if all(stack.enter_context(runs.hold(path, patience=0)) for path in paths):
                if waits:
                    on_wait(False)
                yield
                return
        if not waits:
            waits = True
            on_wait(True)
        await asyncio.sleep(AGAIN)
