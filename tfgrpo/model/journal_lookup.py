"""Looking up what is journalled: what is asked for before the event loop comes round again is one
query, and one round trip to a server."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tfgrpo.store.activity.runs import Call, Runs


class Lookup:
    """Finds journalled calls for coroutines of one event loop."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._waiting: list[tuple[Sequence[bytes], asyncio.Future[list[Call | None]]]] = []

    async def find(self, keys: Sequence[bytes]) -> list[Call | None]:
        """The call of each key, None for one that was never answered. Raises StoreError."""
        if not keys:
            return []
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._read)
        answer: asyncio.Future[list[Call | None]] = loop.create_future()
        self._waiting.append((keys, answer))
        return await answer

    def _read(self) -> None:
        waiting = [one for one in self._waiting if not one[1].done()]
        self._waiting = []
        try:
            calls = self._runs.calls_by_key(key for keys, _ in waiting for key in keys)
        except BaseException as error:
            for _, answer in waiting:
                answer.set_exception(error)
            return
        for keys, answer in waiting:
            answer.set_result([calls.get(key) for key in keys])
