"""Many things at once: coroutines that the first error ends together, and look-ups in the journal
that become one query."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from tfgrpo.store.activity.runs import Call, Runs

T = TypeVar("T")


async def gather_all(awaitables: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results in order. The first error ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(awaitable) for awaitable in awaitables]
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    return [task.result() for task in tasks]


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
