"""The port over one SQLite file, its connection bare where a replay or an append is hot."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfgrpo.store.errors import StoreError
from tfgrpo.store.sql.port import Dialect, Port, Values
from tfgrpo.store.sql.port_parts import SqlRedactions, SqlStorage
from tfgrpo.store.sqlite.checks import refuse_foreign, schema
from tfgrpo.store.sqlite.file import FAILURES, WriterQueue, connect, translated, writing

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from tfgrpo.store.damaged_values import Defect
    from tfgrpo.store.sqlite.journal import SqliteRecords


def _kind(column: str, name: str, kind: str) -> str:
    of = "text" if kind == "string" else kind
    valid = f"instr({column}, '\"{name}\":') and json_valid({column})"
    return f"case when {valid} then json_type({column}, '$.{name}') = '{of}' else false end"


DIALECT = Dialect(
    integers="json_each(?)",
    texts="json_each(?)",
    pairs="(select json_extract(value, '$[0]') after, json_extract(value, '$[1]') upto"
    " from json_each(?))",
    numbers="json_each(?)",
    among=lambda table, alias, column: (
        f"json_each(?) j cross join {table} {alias} on {alias}.{column} = j.value"
    ),
    find="instr",
    member=lambda column, name: f"json_extract({column}, '$.{name}')",
    kind=_kind,
    text_key="id",
    bytes_of_snapshot="length(live)",
    differs="is not",
)


class SqlitePort(Port):
    """The port over one SQLite file. One instance belongs to one thread."""

    dialect = DIALECT

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = False,
        watching: bool = False,
        unchecked: bool = False,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        """With a `connection` of its own, to a store in memory, `path` is where a file would be."""
        self.path = path
        self.connection = connection or connect(path, create, watching, unchecked)
        self._queue = WriterQueue(None if connection else path)
        self._reading = False

    def close(self) -> None:
        self.connection.close()
        self._queue.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, and Python's about a text that no SQL can hold."""
        try:
            yield
        except FAILURES as error:
            raise translated(error, self.path) from error

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert not self._reading, "nothing is written while one state is read"
        if self.connection.in_transaction:  # joins the one that is open
            yield
            return
        try:  # as in `rows`: a transaction of one row feels each step
            with writing(self.connection, self._queue):
                yield
        except FAILURES as error:
            raise translated(error, self.path) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self.connection.in_transaction:  # joins the one that is open
            yield
            return
        with self.translating():
            self.connection.execute("begin")
        self._reading = True
        try:
            yield
        finally:
            self._reading = False
            if self.connection.in_transaction:  # a disk that fails ends it
                with self.translating():
                    self.connection.execute("commit")

    def changes(self) -> int:
        try:
            (number,) = self.connection.execute("pragma data_version").fetchone()
        except FAILURES as error:
            if "locked" in str(error):  # by whom is a search of milliseconds
                raise StoreError(f"{self.path} is locked", hint="wait for its writer") from error
            raise translated(error, self.path) from error
        return int(number)

    def rows(self, query: str, values: Values = ()) -> list[Any]:
        try:  # and not `translating`, which costs as much as a small query
            return self.connection.execute(query.replace("@.", ""), values).fetchall()
        except FAILURES as error:
            raise translated(error, self.path) from error

    def row(self, query: str, values: Values = ()) -> Any:
        try:
            return self.connection.execute(query.replace("@.", ""), values).fetchone()
        except FAILURES as error:
            raise translated(error, self.path) from error

    def stream(self, query: str, values: Values = ()) -> Generator[Any, None, None]:
        with self.translating():
            yield from self.connection.execute(query.replace("@.", ""), values)

    def execute(self, query: str, values: Values = ()) -> None:
        self.connection.execute(query.replace("@.", ""), values)

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        places = ",".join("?" * (columns.count(",") + 1))
        self.connection.executemany(f"insert into {table} ({columns}) values ({places})", rows)

    def items(self, values: Iterable[int] | Iterable[str]) -> str:
        listed = list(values)
        if listed and isinstance(listed[0], str):
            import json

            return json.dumps(listed)
        return str(listed)

    def packed(self, live: Sequence[int]) -> bytes:
        from tfgrpo.store.sqlite.packed_texts import pack

        return pack(live)

    def unpacked(self, column: Any) -> list[int]:
        from tfgrpo.store.sqlite.packed_texts import unpack

        query = "select page_count * page_size from pragma_page_count, pragma_page_size"
        return unpack(column, self.number(query))

    @cached_property
    def redactions(self) -> SqliteRedactions:
        return SqliteRedactions(self)

    @cached_property
    def storage(self) -> SqliteStorage:
        return SqliteStorage(self)

    @cached_property
    def records(self) -> SqliteRecords:
        from tfgrpo.store.sqlite.journal import SqliteRecords

        return SqliteRecords(self)


class SqliteRedactions(SqlRedactions):
    """Redactions in a file, which is written anew after them."""

    _port: SqlitePort

    def blank(self, row: int) -> None:
        self._zero()
        query = "update events set text = null, reason = null, salt = null where row = ?"
        self._port.execute(query, (row,))

    def text_columns(self) -> Iterator[tuple[str, str, str]]:
        tables = self._port.rows(
            "select name, sql like '%without rowid%' from sqlite_master where type = 'table'"
            " and sql not like 'create virtual%' and name not like 'sqlite_%' order by name"
        )
        for table, without in tables:
            for _, column, kind, *_ in self._port.rows(f'pragma table_info("{table}")'):
                if kind.lower() in ("text", ""):
                    yield table, column, "0" if without else "rowid"

    def keys(self, table: str) -> str:
        return "evaluation, problem, sample" if table == "scores" else "id"

    def put(self, table: str, column: str, key: Sequence[object], text: str) -> None:
        from tfgrpo.store.sqlite.packed_texts import pack_text

        self._zero()
        if table == "texts":
            self._put_request(key[0], text)
            return
        value = pack_text(text) if (table, column) == ("journal", "answer") else text
        where = " and ".join(f"{name} = ?" for name in self.keys(table).split(", "))
        self._port.execute(f"update {table} set {column} = ? where {where}", (value, *key))

    def _put_request(self, id: object, text: str) -> None:
        import hashlib

        from tfgrpo.store.sqlite.packed_texts import pack_text

        port, key = self._port, hashlib.sha256(text.encode()).digest()
        same = port.row("select id from texts where digest = ? and id <> ?", (key, id))
        if same is None:
            query = "update texts set digest = ?, text = ? where id = ?"
            port.execute(query, (key, pack_text(text), id))
        else:  # two requests that differed in the secret alone are one now
            port.execute("update journal set request = ? where request = ?", (same[0], id))
            port.execute("delete from texts where id = ?", (id,))

    def _zero(self) -> None:
        """From now on what is deleted is overwritten with zeros."""
        self._port.connection.execute("pragma secure_delete = on")

    def rewrite(self) -> bool:
        # Nothing deleted is left in the file or its log. Nobody may be reading for that.
        connection = self._port.connection
        with self._port.translating():
            refuse_foreign(connection, self._port.path)
            (timeout,) = connection.execute("pragma busy_timeout").fetchone()
            try:
                connection.execute("pragma busy_timeout = 1000")
                connection.execute("pragma secure_delete = on")
                connection.execute("vacuum")
                done = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            except FAILURES as error:
                if "locked" not in str(error):
                    raise
                return False
            finally:
                connection.execute(f"pragma busy_timeout = {timeout}")
        return bool(done[0] == 0)


class SqliteStorage(SqlStorage):
    """The file itself."""

    _port: SqlitePort

    def size(self) -> int:
        return os.stat(self._port.path).st_size

    def content(self) -> bytes:
        """What a file with all of this in it holds. Its header says (bytes 18 and 19) that changes
        go through a write-ahead log, as they do in every store: turning that on later would write a
        journal, which a kill leaves behind."""
        content = self._port.connection.serialize()
        return content[:18] + b"\x02\x02" + content[20:]

    def check(self) -> list[Defect]:
        from tfgrpo.store.sqlite.checks import check_file

        return check_file(self._port)

    def rebuild(self) -> None:
        # What no migration makes goes, but for tables; what is missing or another one is made anew.
        with self._port.transaction():
            connection = self._port.connection
            there, expected = schema(connection), schema(None)
            for (kind, name), sql in there.items():
                if kind != "table" and expected.get((kind, name)) != sql:
                    quoted = name.replace('"', '""')
                    connection.execute(f'drop {kind} "{quoted}"')
            for (kind, name), sql in expected.items():
                if kind != "table" and there.get((kind, name)) != sql:
                    connection.execute(sql)
            connection.execute("reindex")
