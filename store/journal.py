"""The journal's writer: every answer on the disk before anybody acts on it.

One thread owns one connection. Whatever has been handed to it while it was writing goes into
the next transaction together, so 128 calls in flight share an fdatasync and the event loop
never waits for the disk. `append` returns when the row is durable; a run killed right after has
it. A failed write (a full disk) is raised to everyone whose row was in it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import StoreError
from tfgrpo.store.runs import TOKENS, Call, RolloutRow
from tfgrpo.store.sqlite import connect, translated

Write: TypeAlias = Callable[[sqlite3.Connection], None]


class Journal:
    """Appends calls and rollouts in batches from a thread of its own. Close it when done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._queue: queue.SimpleQueue[tuple[Write, Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="tfgrpo-journal", daemon=True)
        self._closed = False
        self._thread.start()

    async def append(self, call: Call) -> None:
        """Records a call; returns when it is durable. Raises StoreError when it cannot be."""
        values = (*call[:5], call.request, canonical(call.answer).decode(), *call[7:])
        await self._put(lambda db: _insert_call(db, values))

    async def rollout(self, rollout: RolloutRow) -> None:
        """Records a rollout; one that is there already stays as it is."""
        verdict = canonical(rollout.verdict).decode()
        values = (*rollout[:5], json.dumps(rollout.calls), *rollout[6:8], verdict, rollout.time)
        await self._put(lambda db: _insert_rollout(db, values))

    def close(self) -> None:
        """Writes what is waiting and ends the thread."""
        self._closed = True
        self._queue.put(None)
        self._thread.join()

    async def _put(self, write: Write) -> None:
        if self._closed:
            raise StoreError("the journal is closed", hint="nothing more can be recorded")
        future: Future[None] = Future()
        self._queue.put((write, future))
        await asyncio.shield(asyncio.wrap_future(future))

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        while True:
            batch = [self._queue.get()]
            while batch[-1] is not None:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            writes = [item for item in batch if item is not None]
            try:
                if connection is None:
                    connection = connect(self._path)
                self._write(connection, writes)
            except BaseException as error:
                told = translated(error, self._path) if isinstance(error, sqlite3.Error) else error
                for _, future in writes:
                    future.set_exception(told)
            if batch[-1] is None:
                if connection is not None:
                    connection.close()
                return

    def _write(
        self, connection: sqlite3.Connection, writes: list[tuple[Write, Future[None]]]
    ) -> None:
        """Writes a batch, and tells everyone. A row that cannot be written costs itself alone."""
        try:
            _transact(connection, [write for write, _ in writes])
        except sqlite3.IntegrityError as error:
            if len(writes) == 1:
                raise translated(error, self._path) from error
            for write, future in writes:
                try:
                    _transact(connection, [write])
                except sqlite3.Error as alone:
                    future.set_exception(translated(alone, self._path))
                else:
                    future.set_result(None)
        else:
            for _, future in writes:
                future.set_result(None)


def _transact(connection: sqlite3.Connection, writes: list[Write]) -> None:
    connection.execute("begin immediate")
    try:
        for write in writes:
            write(connection)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _insert_call(db: sqlite3.Connection, values: tuple[Any, ...]) -> None:
    db.execute(
        f"insert or ignore into journal (key, run, stage, step, model, request, answer, {TOKENS},"
        " attempts, seconds, time) values (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (*values[:5], text_id(db, values[5]), *values[6:]),
    )


def _insert_rollout(db: sqlite3.Connection, values: tuple[Any, ...]) -> None:
    db.execute(
        "insert or ignore into rollouts"
        " (run, step, problem, sample, version, calls, outcome, reward, verdict, time)"
        " values (?,?,?,?,?,?,?,?,?,?)",
        values,
    )


def text_id(db: sqlite3.Connection, text: str) -> int:
    """Returns the row of a text that is kept once, adding it when it is new."""
    key = hashlib.sha256(text.encode()).digest()
    db.execute("insert or ignore into texts (digest, text) values (?, ?)", (key, text))
    (row,) = db.execute("select id from texts where digest = ?", (key,)).fetchone()
    return int(row)
