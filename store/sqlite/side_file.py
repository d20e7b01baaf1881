"""A SQLite file of its own beside a store: made, opened, read and written by whole transactions."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from tfgrpo.store.errors import StoreError
from tfgrpo.store.sqlite.file import translated
from tfgrpo.store.sqlite.foreign_schema import Schema, refuse_foreign, schema
from tfgrpo.store.sqlite.read_only_folder import UnchangingFile, open_database, use_wal

SCHEMA = 1


class SideFile:
    """A file of one kind, with the tables and the mark of that kind."""

    application: ClassVar[int]
    tables: ClassVar[str]
    kind: ClassVar[str]
    missing: ClassVar[tuple[str, str]]
    """What is said where there is none, before its path, and how one comes about."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        if not create and not os.path.isfile(path):
            raise StoreError(f"{self.missing[0]} {path}", hint=self.missing[1])
        with self._translating():
            if create and not os.path.exists(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = open_database(path, timeout=10)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        (version,) = self._db.execute("pragma user_version").fetchone()
        # In this order: what is made meanwhile has its tables and its mark at once.
        (tables,) = self._db.execute("select count(*) from sqlite_master").fetchone()
        (application,) = self._db.execute("pragma application_id").fetchone()
        if (application != self.application and tables) or version > SCHEMA:
            raise StoreError(f"{self.path} is no {self.kind}", hint="move it away")
        if not isinstance(self._db, UnchangingFile):
            use_wal(self._db)
        self._db.execute("pragma synchronous = normal")
        if version == SCHEMA:
            refuse_foreign(self._db, self.path, self._expected)
            return
        with self._writing():
            if self._db.execute("pragma user_version").fetchone() == (SCHEMA,):
                return  # another process was quicker
            for statement in self.tables.split(";"):
                self._db.execute(statement)
            self._fill()
            self._db.execute(f"pragma application_id = {self.application}")
            self._db.execute(f"pragma user_version = {SCHEMA}")

    def _expected(self) -> Schema:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(self.tables)
            return schema(connection)

    def _fill(self) -> None:
        """Writes what a new file holds."""

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeError, OverflowError) as error:  # values that no SQL can hold
            raise translated(error, self.path) from error
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
