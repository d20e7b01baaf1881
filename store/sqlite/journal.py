"""Appending to the journal: calls and rollouts, many rows to a statement, one transaction a batch.

The interpreter's lock changes hands with every statement, and a busy event loop gives it back
only every few milliseconds: hence statements of many rows each.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfgrpo.store.activity.runs import Call
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.port import CallValues, RolloutValues
from tfgrpo.store.sql.runs import CALL_COLUMNS, ROLLOUT_COLUMNS, Since, SqlRecords
from tfgrpo.store.sqlite.file import FAILURES, WriterQueue, connect, translated, writing
from tfgrpo.store.sqlite.packed_texts import define_plain, pack_text, unpack_text

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.sqlite.port import SqlitePort


CHUNKS = (64, 16, 4, 1)
"""Rows or keys of a statement: few sizes, so that each is prepared once."""


class SqliteWriter:
    """A journal's writer with a connection of its own, opened when there is something to write."""

    def __init__(self, path: Path | str) -> None:
        """`path` is the store's file."""
        self._path = path
        self._turns = WriterQueue(path)
        self._connection: sqlite3.Connection | None = None

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        if self._connection is None:
            self._connection = connect(self._path)
        try:
            with writing(self._connection, self._turns):
                _insert_calls(self._connection, calls)
                places = "(?,?,?,?,?,?,?,?,?,?)"
                _insert(self._connection, f"rollouts ({ROLLOUT_COLUMNS})", places, rollouts)
        except FAILURES as error:
            raise translated(error, self._path) from error

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._turns.close()


def _insert_calls(db: sqlite3.Connection, calls: Sequence[CallValues]) -> None:
    texts = {call[5]: hashlib.sha256(call[5].encode()).digest() for call in calls}
    new = [(key, pack_text(text)) for text, key in texts.items()]
    _insert(db, "texts (digest, text)", "(?,?)", new)
    row = "(?,?,?,?,?,(select id from texts where digest = ?),?,?,?,?,?,?,?,?)"
    rows = [(*call[:5], texts[call[5]], pack_text(call[6]), *call[7:]) for call in calls]
    _insert(db, f"journal ({CALL_COLUMNS})", row, rows)


def _insert(db: sqlite3.Connection, into: str, row: str, rows: Sequence[tuple[Any, ...]]) -> None:
    for start, size in _chunks(len(rows)):
        chunk = rows[start : start + size]
        places = ",".join([row] * len(chunk))
        values = [value for one in chunk for value in one]
        db.execute(f"insert or ignore into {into} values {places}", values)


def _chunks(count: int) -> Iterator[tuple[int, int]]:
    """The starts and sizes of parts of so many, the largest first."""
    start = 0
    for size in CHUNKS:
        while count - start >= size:
            yield start, size
            start += size


class SqliteRecords(SqlRecords):
    """The records of a file, whose long texts are packed."""

    _port: SqlitePort

    def writer(self) -> SqliteWriter:
        return SqliteWriter(self._port.path)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        calls: list[Call] = []
        for start, size in _chunks(len(keys)):
            places = ",".join("?" * size)
            calls += self.calls_where(f"where key in ({places})", keys[start : start + size])
        return calls

    def since(self, table: str, run: int, after: int) -> Since:
        # The plus has the rows found by their number: those of the run before it are not read.
        of_run = "+run = ?" if after else "run = ?"
        return Since("id", f"{of_run} and id > ?", (run, after), "id")

    def last_key(self, column: str) -> str:
        def last_key(calls: str) -> bytes | None:
            try:
                return bytes.fromhex(calls[2:-2].rpartition('"')[2])
            except ValueError:
                return None

        self._port.connection.create_function("last_key", 1, last_key, deterministic=True)
        return f"last_key({column})"

    def plain(self, column: str) -> str:
        define_plain(self._port.connection)
        return f"plain({column})"

    def unpacked_call(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            return (*row[:5], unpack_text(row[5]), unpack_text(row[6]), *row[7:])
        except ValueError:
            raise damage_error("a call has a text that cannot be read") from None
