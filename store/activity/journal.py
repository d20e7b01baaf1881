"""The journal's writer: every answer on the disk before anybody acts on it.

One thread owns one writer. What is handed to it while it writes goes into the next transaction
together, so 128 calls in flight share an fdatasync. A failed write is raised to everyone whose row
was in it. `benchmarks/kills.py` measures what a kill costs.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from tfgrpo.store.activity.runs import Call, RolloutRow
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import RowRefused, StoreError
from tfgrpo.store.port import CallValues, JournalWriter, RolloutValues

AGAIN = 0.25
"""Seconds before a store that is away is tried again."""


class Write(NamedTuple):
    """A row that waits to be written, and who waits for it."""

    call: CallValues | None
    rollout: RolloutValues | None
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Journal:
    """Appends calls and rollouts in batches from a thread of its own. Close it when done."""

    def __init__(self, writer: JournalWriter, *, patience: float = 0.0) -> None:
        """`writer` is `store.port.records.writer()`; it is closed with the journal. What cannot be
        written is tried again for `patience` seconds: a database may be restarting."""
        self._writer, self._patience = writer, patience
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tfgrpo-journal", daemon=True)
        self._closed = False
        self._thread.start()

    async def append(self, call: Call) -> None:
        """Records a call; returns when it is durable. Raises StoreError when it cannot be."""
        await self._put((*call[:6], canonical(call.answer).decode(), *call[7:]), None)

    async def rollout(self, rollout: RolloutRow) -> None:
        """Records a rollout; one that is there already stays as it is."""
        verdict = canonical(rollout.verdict).decode()
        values = (*rollout[:5], json.dumps(rollout.calls), *rollout[6:8], verdict, rollout.time)
        await self._put(None, values)

    def close(self) -> None:
        """Writes what is waiting and ends the thread."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    async def _put(self, call: CallValues | None, rollout: RolloutValues | None) -> None:
        if self._closed:
            raise StoreError("the journal is closed", hint="nothing more can be recorded")
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.put(Write(call, rollout, loop, done))
        await done

    def _work(self) -> None:
        last = False
        while not last:
            batch = [self._queue.get(), *self._waiting()]
            last = None in batch
            writes = [item for item in batch if item is not None]
            try:
                failed = self._write(writes)
            except BaseException as error:
                failed = dict.fromkeys(range(len(writes)), error)
            _tell(writes, failed)
        self._writer.close()

    def _waiting(self) -> Iterator[Write | None]:
        while not self._queue.empty():
            yield self._queue.get()

    def _write(self, writes: Sequence[Write]) -> dict[int, BaseException]:
        """Writes a batch; returns what failed. A row that cannot be written costs itself alone."""
        try:
            self._append(writes)
        except RowRefused as error:
            if len(writes) == 1:
                return {0: error}
            failed: dict[int, BaseException] = {}
            for number, write in enumerate(writes):
                try:
                    self._append([write])
                except StoreError as alone:
                    failed[number] = alone
            return failed
        return {}

    def _append(self, writes: Sequence[Write]) -> None:
        """Writes rows; where the store is away, again: those that are there stay as they are."""
        until = time.monotonic() + self._patience
        while True:
            try:
                self._writer.append(
                    [write.call for write in writes if write.call is not None],
                    [write.rollout for write in writes if write.rollout is not None],
                )
                return
            except RowRefused:
                raise
            except StoreError as error:
                if time.monotonic() >= until:
                    lost = sum(write.call is not None for write in writes)
                    if not lost:
                        raise
                    answers = f"{lost} answer{'s' * (lost > 1)} that had arrived"
                    raise StoreError(
                        f"{error}; {answers} could not be kept", hint=error.hint
                    ) from error
                time.sleep(AGAIN)


def _tell(writes: Sequence[Write], failed: dict[int, BaseException]) -> None:
    for number, write in enumerate(writes):
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            write.loop.call_soon_threadsafe(_settle, write.done, failed.get(number))


def _settle(done: asyncio.Future[None], error: BaseException | None) -> None:
    if done.done():  # whoever waited was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
