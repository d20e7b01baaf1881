"""DoltLite: a table of experiences, and one Dolt commit for each version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import doltlite  # noqa: F401 - takes the place of SQLite

from benchmarks.workload import Change, batches, changes

Statement: TypeAlias = tuple[str, tuple[str | None, ...]]


class DoltLite:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "doltlite.db"
        import sqlite3  # after doltlite, which it then is

        self.db = sqlite3.connect(self.path, isolation_level=None)
        self.db.execute("create table experience (id text primary key, text text)")
        self.commits = [self._commit("-A")]

    def _commit(self, flag: str) -> str:
        (commit,) = self.db.execute(
            "select dolt_commit(?, '--allow-empty', '-m', 'step')", (flag,)
        ).fetchone()
        return str(commit)

    def build(self, count: int, live: int | None) -> None:
        stream = changes(count, live=live)
        for size in batches(count):
            self.append(self.prepared([next(stream) for _ in range(size)]))

    def prepared(self, changes: Sequence[Change]) -> list[Statement]:
        statements: list[Statement] = []
        for op, key, text in changes:
            if op == "ADD":
                statements.append(("insert into experience values (?, ?)", (key, text)))
            elif op == "MODIFY":
                statements.append(("update experience set text = ? where id = ?", (text, key)))
            elif op == "DELETE":
                statements.append(("delete from experience where id = ?", (key,)))
        return statements

    def append(self, prepared: list[Statement]) -> None:
        self.db.execute("begin")
        for statement, values in prepared:
            self.db.execute(statement, values)
        self.db.execute("commit")
        self.commits.append(self._commit("-A"))

    def checkout(self, version: int) -> int:
        query = "select id, text from dolt_at_experience(?)"
        return len(self.db.execute(query, (self.commits[version],)).fetchall())

    def diff(self, a: int, b: int) -> int:
        query = "select to_id, to_text, from_id, from_text from dolt_diff_experience(?, ?)"
        return len(self.db.execute(query, (self.commits[a], self.commits[b])).fetchall())

    def log(self) -> None:
        self.db.execute("select * from dolt_log limit 1").fetchone()

    def history(self, key: str) -> int:
        query = "select * from dolt_history_experience where id = ?"
        return len(self.db.execute(query, (key,)).fetchall())

    def blame(self) -> int:
        return len(self.db.execute("select * from dolt_blame_experience").fetchall())

    def check(self) -> None:
        assert self.db.execute("pragma integrity_check").fetchone() == ("ok",)

    def size(self) -> int:
        return self.path.stat().st_size
