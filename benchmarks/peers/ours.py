"""This store, through its Python API."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.workload import Change, batches, changes
from tfgrpo.store import Operation, Store
from tfgrpo.store.canonical import seal
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import replay
from tfgrpo.store.history.blame import blame
from tfgrpo.store.sqlite.port import SqlitePort


class Ours:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "ours.db"
        self.store = Store.init(self.path, author="benchmark")
        assert isinstance(self.store.port, SqlitePort)
        self.db = self.store.port.connection
        self.fresh = itertools.count()

    def build(self, count: int, live: int | None) -> None:
        self.db.execute("pragma synchronous = off")
        stream = changes(count, live=live)
        for size in batches(count):
            self.append(self.prepared([next(stream) for _ in range(size)]))
        self.db.execute("pragma wal_checkpoint(truncate)")
        self.db.execute("pragma synchronous = full")

    def prepared(self, changes: Sequence[Change]) -> list[Operation]:
        return [Operation(*change) for change in changes]

    def append(self, prepared: list[Operation]) -> None:
        self.store.commit("main", prepared, message="step")

    def checkout(self, version: int) -> int:
        return len(self.store.library(f"v{version}"))

    def diff(self, a: int, b: int) -> int:
        return len(self.store.diff(f"v{a}", f"v{b}"))

    def log(self) -> None:
        next(self.store.log())

    def history(self, key: str) -> int:
        return len(self.store.history(key))

    def blame(self) -> int:
        self.store.forget()  # the library, which the last call has read
        return len(blame(self.store, self.store.head.version))

    def check(self) -> None:
        problems = fsck(self.store).problems
        if problems:
            raise AssertionError(problems[:3])

    def size(self) -> int:
        self.db.execute("pragma wal_checkpoint(truncate)")
        return self.path.stat().st_size

    # What only this store is asked:

    def recheckout(self, version: int) -> int:
        """Checks a version out with nothing remembered."""
        self.store.forget()
        return self.checkout(version)

    def bare(self) -> int:
        """Fetches the rows that a checkout needs, and makes nothing of them.

        Which they are was found before by `ask`; the statement is the one that a checkout runs.
        """
        query = (
            "select e.experience, e.text, e.row, coalesce(e.birth, e.row)"
            " from json_each(?) j cross join events e on e.row = j.value"
        )
        return len(self.db.execute(query, (self.asked,)).fetchall())

    def ask(self, version: int) -> None:
        """Prepares `bare`."""
        live = replay.live_rows(self.store.port, self.store.version(version).position)
        self.asked = json.dumps(sorted(live))

    def hash(self) -> int:
        """Recomputes every seal and nothing else: reads what was sealed, quotes it, hashes it."""
        query = "select salt, text, reason from events where salt is not null order by row"
        return sum(len(seal(*row)) for row in self.db.execute(query))

    def authors(self) -> int:
        """Fetches what blame says of each live event, and makes nothing of it: the events, and the
        number of each one's version. Which they are was found before by `ask`."""
        query = (
            "select e.*, (select number from versions where position >= e.row"
            " order by position, number limit 1)"
            " from json_each(?) j cross join events e on e.row = j.value"
        )
        return len(self.db.execute(query, (self.asked,)).fetchall())

    def reinsert(self, batch: int) -> float:
        """Inserts this store's rows into an empty one, so many events at a time, with nothing
        made or checked; returns the median of seconds per event."""
        rows = self.db.execute("select * from events order by row").fetchall()
        path = self.path.with_name(f"again{next(self.fresh)}.db")
        with Store.init(path) as empty:
            assert isinstance(empty.port, SqlitePort)
            spent = []
            for start in range(0, len(rows) - batch + 1, batch):
                begun = time.perf_counter()
                with empty.port.transaction():
                    empty.port.connection.executemany(
                        "insert into events values (?,?,?,?,?,?,?,?,?,?,?)",
                        rows[start : start + batch],
                    )
                spent.append((time.perf_counter() - begun) / batch)
        return statistics.median(spent)

    def snapshots(self) -> int:
        """Returns how many bytes the snapshots have."""
        (size,) = self.db.execute("select sum(length(live)) from snapshots").fetchone()
        return int(size or 0)

    def live(self, count: int) -> list[str]:
        """Returns the ids of `count` experiences of the newest library, spread over it."""
        ids = [e.id for e in self.store.library()]
        return ids[:: max(1, len(ids) // count)][:count]

    def branch(self) -> int:
        """Makes a branch; returns how many rows that wrote. So do the next two."""
        return self._rows(lambda: self.store.create_branch(f"b{next(self.fresh)}"))

    def tag(self) -> int:
        return self._rows(lambda: self.store.create_tag(f"t{next(self.fresh)}"))

    def rollback(self) -> int:
        return self._rows(lambda: self.store.move_branch("main", "main~1"))

    def _rows(self, act: object) -> int:
        assert callable(act)
        before = self.db.total_changes
        act()
        return self.db.total_changes - before
