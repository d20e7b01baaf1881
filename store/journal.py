"""The journal's writer: every answer on the disk before anybody acts on it.

One thread owns one connection. Whatever has been handed to it while it was writing goes into
the next transaction together, and where rows come thick, it waits `WINDOW` seconds for more: 128
calls in flight share an fdatasync, few pages are written twice, and the event loop never waits
for the disk. `append` returns when the row is durable; a run killed
right after has it. A failed write (a full disk) is raised to everyone whose row was in it.

Rows go in by statements of many rows each. The interpreter's lock changes hands with every
statement, and a busy event loop gives it back only every few milliseconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import StoreError
from tfgrpo.store.runs import TOKENS, Call, RolloutRow
from tfgrpo.store.sqlite import connect, translated, writing
from tfgrpo.store.turns import Turns

WINDOW = 0.05
THICK = 2
"""Rows of a batch beyond which the next one waits for more."""
CHUNKS = (64, 16, 4, 1)
"""Rows of a statement: few sizes, so that each is prepared once."""

Values: TypeAlias = tuple[Any, ...]
T = TypeVar("T")


class Write(NamedTuple):
    """A row that waits to be written, and who waits for it."""

    call: Values | None
    rollout: Values | None
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None]


class Journal:
    """Appends calls and rollouts in batches from a thread of its own. Close it when done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turns = Turns(path)
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

    async def _put(self, call: Values | None, rollout: Values | None) -> None:
        if self._closed:
            raise StoreError("the journal is closed", hint="nothing more can be recorded")
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._queue.put(Write(call, rollout, loop, done))
        await done

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        last, rows = False, 0
        while not last:
            batch = [self._queue.get()]
            if rows > THICK and not self._closed:
                time.sleep(WINDOW)
            while not self._queue.empty():
                batch.append(self._queue.get())
            last, rows = None in batch, len(batch)
            writes = [item for item in batch if item is not None]
            try:
                if connection is None:
                    connection = connect(self._path)
                failed = self._write(connection, writes)
            except BaseException as error:
                told = translated(error, self._path) if isinstance(error, sqlite3.Error) else error
                failed = dict.fromkeys(range(len(writes)), told)
            _tell(writes, failed)
        if connection is not None:
            connection.close()
        self._turns.close()

    def _write(
        self, connection: sqlite3.Connection, writes: Sequence[Write]
    ) -> dict[int, BaseException]:
        """Writes a batch; returns what failed. A row that cannot be written costs itself alone."""
        try:
            self._transact(connection, writes)
        except sqlite3.IntegrityError as error:
            if len(writes) == 1:
                return {0: translated(error, self._path)}
            failed: dict[int, BaseException] = {}
            for number, write in enumerate(writes):
                try:
                    self._transact(connection, [write])
                except sqlite3.Error as alone:
                    failed[number] = translated(alone, self._path)
            return failed
        return {}

    def _transact(self, connection: sqlite3.Connection, writes: Sequence[Write]) -> None:
        with writing(connection, self._turns):
            _insert_calls(connection, [write.call for write in writes if write.call is not None])
            rollouts = [write.rollout for write in writes if write.rollout is not None]
            _insert_rollouts(connection, rollouts)


def _tell(writes: Sequence[Write], failed: dict[int, BaseException]) -> None:
    """Tells everyone in a batch, with one wake-up for each event loop."""

    def settle(told: list[tuple[asyncio.Future[None], BaseException | None]]) -> None:
        for done, error in told:
            if done.done():  # whoever waited was cancelled
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    loops: dict[asyncio.AbstractEventLoop, list[Any]] = {}
    for number, write in enumerate(writes):
        loops.setdefault(write.loop, []).append((write.done, failed.get(number)))
    for loop, told in loops.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, told)


def _insert_calls(db: sqlite3.Connection, calls: Sequence[Values]) -> None:
    texts: dict[str, bytes] = {}
    for call in calls:
        texts.setdefault(call[5], hashlib.sha256(call[5].encode()).digest())
    _insert(db, "texts (digest, text)", "(?,?)", [(key, text) for text, key in texts.items()])
    row = "(?,?,?,?,?,(select id from texts where digest = ?),?,?,?,?,?,?,?,?)"
    columns = f"key, run, stage, step, model, request, answer, {TOKENS}, attempts, seconds, time"
    rows = [(*call[:5], texts[call[5]], *call[6:]) for call in calls]
    _insert(db, f"journal ({columns})", row, rows)


def _insert_rollouts(db: sqlite3.Connection, rollouts: Sequence[Values]) -> None:
    columns = "run, step, problem, sample, version, calls, outcome, reward, verdict, time"
    _insert(db, f"rollouts ({columns})", "(?,?,?,?,?,?,?,?,?,?)", rollouts)


def _insert(db: sqlite3.Connection, into: str, row: str, rows: Sequence[Values]) -> None:
    for chunk in _chunks(rows):
        places = ",".join([row] * len(chunk))
        values = [value for one in chunk for value in one]
        db.execute(f"insert or ignore into {into} values {places}", values)


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    start = 0
    for size in CHUNKS:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size
