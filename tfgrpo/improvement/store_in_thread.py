"""Work in a thread with the store opened for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from tfgrpo.store.store import Store

T = TypeVar("T")


async def apart(store: Store, work: Callable[[Store], T]) -> T:
    """What work comes to in a thread, given the store opened there: checking the problems of a
    run or an evaluation asks an event loop of its own, and a store belongs to one thread."""

    def opened() -> T:
        with Store.open(store.path, author=store.author) as there:
            return work(there)

    return await asyncio.to_thread(opened)
