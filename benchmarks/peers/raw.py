"""The floor: one append-only table of sqlite3, no versions, no digests; a library is a fold."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from benchmarks.workload import Change, batches, changes, fold

Row: TypeAlias = tuple[int, str, str, str | None, float]
TABLE = """
create table event (
    row integer primary key, step integer not null, op text not null, key text not null,
    text text, time real not null
)
"""
INSERT = "insert into event (step, op, key, text, time) values (?, ?, ?, ?, ?)"


class Raw:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "raw.db"
        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.execute("pragma journal_mode = wal")
        self.db.execute("pragma synchronous = full")
        self.db.execute(TABLE)
        self.ends = [0]

    def build(self, count: int, live: int | None) -> None:
        self.db.execute("pragma synchronous = off")
        stream = changes(count, live=live)
        for size in batches(count):
            self.append(self.prepared([next(stream) for _ in range(size)]))
            self.ends.append(self.ends[-1] + size)
        self.db.execute("pragma wal_checkpoint(truncate)")
        self.db.execute("pragma synchronous = full")

    def prepared(self, changes: Sequence[Change]) -> list[Row]:
        return [(1, *change, 1.0) for change in changes]

    def append(self, prepared: list[Row]) -> None:
        if len(prepared) == 1:
            self.db.execute(INSERT, prepared[0])
            return
        self.db.execute("begin immediate")
        self.db.executemany(INSERT, prepared)
        self.db.execute("commit")

    def checkout(self, version: int) -> int:
        return len(self._library(version))

    def _library(self, version: int) -> dict[object, str | None]:
        query = "select op, key, text from event where row <= ? order by row"
        return fold(self.db.execute(query, (self.ends[version],)))

    def diff(self, a: int, b: int) -> int:
        old, new = self._library(a), self._library(b)
        return sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())

    def log(self) -> None:
        self.db.execute("select * from event order by row desc limit 1").fetchone()

    def history(self, key: str) -> int:
        query = "select * from event where key = ? order by row"
        return len(self.db.execute(query, (key,)).fetchall())

    def blame(self) -> int:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError

    def size(self) -> int:
        self.db.execute("pragma wal_checkpoint(truncate)")
        return self.path.stat().st_size
