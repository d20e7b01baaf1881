"""Checks of a file beside `sql/checks.py`: SQLite's own, and those for anything in a foreign file's
schema that computes: views, triggers, indexes of expressions.

Such a schema is code, and what it computes may never end. A file is compared with what we make
before a row of it is read, and SQLite's own defences are set
(https://sqlite.org/security.html).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.migrations import DIGEST
from tfgrpo.store.damaged_values import Defect
from tfgrpo.store.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.sqlite.port import SqlitePort

Schema: TypeAlias = dict[tuple[str, str], str]

TABLES = (
    *("decisions", "evaluations", "events", "journal", "lanes", "redactions", "reflog"),
    *("remotes", "rollouts", "run_states", "runs", "scores", "snapshots", "texts", "versions"),
)
"""The tables of a store, as the migrations make them."""

LARGEST = 1 << 28
"""Bytes that a value may have: four times a response as large as any that is taken."""
STEPS = 200_000
"""Steps of SQLite's machine, a few milliseconds, after which Ctrl-C is looked for."""


def defend(connection: sqlite3.Connection) -> None:
    """Has SQLite trust no schema, make no value without bound, and look for Ctrl-C: a signal's
    handler runs in the function that it asks, and an error there ends the statement."""
    connection.execute("pragma trusted_schema = off")
    connection.execute("pragma cell_size_check = on")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST)
    connection.setlimit(sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 4)
    connection.set_progress_handler(lambda: 0, STEPS)


def schema(connection: sqlite3.Connection | None) -> Schema:
    """(type, name) → SQL of a store's schema; without a connection, of what the migrations make.
    Left out is what SQLite and sqlite-utils keep: statistics, and which migrations have run."""
    if connection is None:
        from sqlite_utils import Database

        from tfgrpo.migrations.migrations import migrations

        database = Database(memory=True)
        migrations.apply(database)
        connection = database.conn
    rows = connection.execute(
        "select type, name, coalesce(sql, '') from sqlite_master"
        " where name not glob 'sqlite_stat*' and name not glob 'sqlite_autoindex_*'"
        " and (type, name) <> ('table', '_sqlite_migrations')"
    ).fetchall()
    return {(kind, name): sql for kind, name, sql in rows}


def digest(schema: Schema) -> str:
    """The SHA-256 of a schema. To load `hashlib` takes longer than to read a log."""
    content = repr(sorted(schema.items())).encode()
    for module in ("_sha2", "_sha256", "hashlib"):
        with suppress(ImportError):
            return str(__import__(module).sha256(content).hexdigest())
    raise AssertionError("hashlib is part of Python")


def refuse_computed(connection: sqlite3.Connection, path: Path | str) -> None:
    """Raises StoreError for a store whose rows would be computed as they are read, so that not even
    a check may read them: by a view in a table's place, a virtual table or a generated column."""
    places = ",".join("?" * len(TABLES))
    computed = connection.execute(
        f"select m.name from sqlite_master m where (m.type = 'view' and m.name in ({places}))"
        " or (m.type = 'table' and m.sql like 'create virtual%')"
        " or (m.type = 'table' and exists"
        " (select 1 from pragma_table_xinfo(m.name) where hidden > 0))",
        TABLES,
    ).fetchone()
    if computed is not None:
        raise StoreError(
            f"{path} is no store of ours: {computed[0]!r} in it is not a plain table",
            hint="it may be hostile: do not open it with other programs either",
        )


def refuse_foreign(
    connection: sqlite3.Connection, path: Path | str, expected: Callable[[], Schema] | None = None
) -> None:
    """Raises StoreError for a schema that computes anywhere as `expected` does not, which is what
    the migrations make. Nothing but the schema is read for this."""
    there = schema(connection)
    if expected is None and digest(there) == DIGEST:
        return
    for one in foreign(connection, there, expected() if expected else schema(None)):
        raise StoreError(
            f"{path} is not as tfgrpo makes it: its {one} is foreign, and may compute for ever",
            hint="`tfgrpo fsck --repair` removes everything foreign that is not a table",
        )


def foreign(connection: sqlite3.Connection, there: Schema, expected: Schema) -> list[str]:
    """All that computes in a schema and is not as expected: views, triggers, indexes of a part or
    an expression, and what of ours has another text. A plain table or index does not compute."""
    others = [one for one, sql in sorted(there.items()) if expected.get(one) != sql]
    return [
        f"{kind} {name}"
        for kind, name in others
        if kind in ("view", "trigger") or (kind, name) in expected or _is_part(connection, name)
    ]


def _is_part(connection: sqlite3.Connection, name: str) -> bool:
    query = (
        "select 1 from sqlite_master where type = 'index' and name = :name and (sql like '%where%'"
        " or exists (select 1 from pragma_index_xinfo(:name) where cid = -2))"
    )
    return connection.execute(query, {"name": name}).fetchone() is not None


def check_file(port: SqlitePort) -> list[Defect]:
    """Checks the file, the schema, places, names and records, reading all of them."""
    from tfgrpo.store.sql.checks import check_storage

    return check_storage(port, _schema, _file)


def _file(port: SqlitePort) -> Iterator[Defect]:
    """SQLite's own checks, which compute what indexes and constraints say: only where all of them
    are ours, as the check before has told."""
    with port.translating():
        if foreign(port.connection, schema(port.connection), _expected()):
            return
    for (message,) in port.rows("pragma integrity_check(20)"):
        if message != "ok":
            yield Defect("file", str(message), derived="index" in str(message))
    for table, row, parent, _ in port.rows("pragma foreign_key_check"):
        what = f"row {row} of {table} refers to a row of {parent} that is not there"
        yield Defect("file", what, derived="index" in what)


@cache
def _expected() -> dict[tuple[str, str], str]:
    """The schema that the migrations make, which takes as long as 300 events."""
    return schema(None)


def _schema(port: SqlitePort) -> Iterator[Defect]:
    """Every table, index, trigger and view is one that the migrations make, as they make it."""
    with port.translating():
        there = schema(port.connection)
    expected = _expected()
    for (kind, name), sql in expected.items():
        if (kind, name) not in there:
            yield Defect("schema", f"{name} is missing", derived=kind != "table")
        elif there[kind, name] != sql:
            what = f"{name} is not what the migrations make"
            yield Defect("schema", what, derived=kind != "table")
    for kind, name in there.keys() - expected.keys():
        what = f"{kind} {name} is not of a store: it may change what is written"
        yield Defect("schema", what, derived=kind != "table")
