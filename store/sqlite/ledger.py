"""Virtual keys and what was spent, in one SQLite file."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfgrpo.store.activity.key_ledger import Budget, KeyLimits, Spent, VirtualKey
from tfgrpo.store.errors import InvalidOperation, StoreError
from tfgrpo.store.sqlite.read_only_folder import open_database, use_wal

APPLICATION = 0x74666C65
SCHEMA = 1
TABLES = """
create table keys (
    number integer primary key, name text not null, digest blob not null unique,
    author text not null, created integer not null, revoked integer, limits text not null
);
create unique index keys_by_name on keys (name) where revoked is null;
create table spent (
    scope text not null, day text not null, dollars real not null, primary key (scope, day)
) without rowid;
create table told (note text primary key) without rowid;
"""


class SqliteLedger:
    """A ledger in one SQLite file."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        if not create and not os.path.isfile(path):
            raise StoreError(f"there are no keys at {path}", hint="`tfgrpo key new` makes one")
        with self._translating():
            if not os.path.exists(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = open_database(path, timeout=10)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        (schema,) = self._db.execute("pragma user_version").fetchone()
        (application,) = self._db.execute("pragma application_id").fetchone()
        if schema > SCHEMA or (schema and application != APPLICATION):
            raise StoreError(f"{self.path} is no ledger", hint="move it away")
        use_wal(self._db)
        self._db.execute("pragma synchronous = normal")
        with self._writing():
            if self._db.execute("pragma user_version").fetchone() == (SCHEMA,):
                return
            for statement in TABLES.split(";"):
                self._db.execute(statement)
            self._db.execute(f"pragma application_id = {APPLICATION}")
            self._db.execute(f"pragma user_version = {SCHEMA}")

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: {error}", hint="is the disk full?") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._translating():
            self._db.execute("begin immediate")
            try:
                yield
                self._db.execute("commit")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("rollback")
                raise

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._translating():
            return self._db.execute(query, values).fetchall()

    def close(self) -> None:
        self._db.close()

    def changes(self) -> int:
        ((version,),) = self._rows("pragma data_version")
        return int(version)

    def virtual_keys(self) -> list[VirtualKey]:
        columns = ", ".join(VirtualKey._fields)
        rows = self._rows(f"select {columns} from keys order by number")
        return [VirtualKey._make((*row[:-1], _limits(row[-1]))) for row in rows]

    def add_key(self, key: VirtualKey) -> None:
        columns = ", ".join(VirtualKey._fields[1:])
        values = (*key[1:-1], json.dumps(key.limits._asdict()))
        with self._writing():
            if self._db.execute(
                "select 1 from keys where name = ? and revoked is null", (key.name,)
            ).fetchone():
                raise InvalidOperation(
                    f"there is a key {key.name!r}", hint="`tfgrpo key revoke` ends it"
                )
            self._db.execute(f"insert into keys ({columns}) values (?, ?, ?, ?, ?, ?)", values)

    def change_key(self, name: str, limits: KeyLimits) -> None:
        self._update("limits", json.dumps(limits._asdict()), name)

    def revoke_key(self, name: str, time: int) -> None:
        self._update("revoked", time, name)

    def _update(self, column: str, value: object, name: str) -> None:
        query = f"update keys set {column} = ? where name = ? and revoked is null"
        with self._writing():
            if not self._db.execute(query, (value, name)).rowcount:
                raise InvalidOperation(
                    f"there is no key {name!r}", hint="`tfgrpo key list` lists them"
                )

    def spend(self, amounts: Spent) -> None:
        with self._writing():
            self._db.executemany(
                "insert into spent values (?, ?, ?)"
                " on conflict (scope, day) do update set dollars = dollars + excluded.dollars",
                [(*key, dollars) for key, dollars in amounts.items()],
            )

    def spent(self, since: str) -> Spent:
        rows = self._rows("select scope, day, dollars from spent where day >= ?", (since,))
        return {(scope, day): dollars for scope, day, dollars in rows}

    def notes(self) -> set[str]:
        return {note for (note,) in self._rows("select note from told")}

    def note(self, line: str) -> None:
        with self._writing():
            self._db.execute("insert or ignore into told values (?)", (line,))


def _limits(written: str) -> KeyLimits:
    fields = json.loads(written)
    for name in ("models", "libraries", "paths"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    fields["budget"] = None if fields["budget"] is None else Budget(*fields["budget"])
    return KeyLimits(**fields)
