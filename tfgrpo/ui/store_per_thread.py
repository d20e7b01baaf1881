"""Stores for threads: a handler runs in one of a few, each with a store of its own.

A store belongs to one thread, and opening one for each request would forget the libraries that
it has replayed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tfgrpo.store.errors import FileChanged
from tfgrpo.store.store import Store
from tfgrpo.ui.without_content import opened

T = TypeVar("T")
THREADS = 4


class Stores:
    """Runs functions with a store, in threads."""

    def __init__(self, path: Path, *, content: bool = True) -> None:
        self._path, self._content = path, content
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="page")
        self._own = threading.local()

    async def run(self, author: str, work: Callable[[Store], T]) -> T:
        """Returns what `work` returns, called in a thread with its store, which signs as `author`.
        Raises StoreError where the store cannot be opened, and what `work` raises."""

        def called() -> T:
            store = self._store(author)
            try:
                return work(store)
            except FileChanged:  # nothing can have been written there
                store.close()
                self._own.store = None
                return work(self._store(author))

        return await asyncio.get_running_loop().run_in_executor(self._threads, called)

    def close(self) -> None:
        """Waits for what runs and lets the threads end."""
        self._threads.shutdown()

    def _store(self, author: str) -> Store:
        store: Store | None = getattr(self._own, "store", None)
        if store is None:
            store = opened(self._path, content=self._content)
            self._own.store = store
        store.author = author
        return store
