"""What a file from others may have in it that computes: views, triggers, indexes of expressions.

Such a schema is code, and what it computes may never end. A file is compared with what we make
before a row of it is read, and SQLite's own defences are set
(https://sqlite.org/security.html).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.migrations import DIGEST
from tfgrpo.store.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

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
    connection.set_progress_handler(_go_on, STEPS)


def _go_on() -> int:
    return 0


def schema(connection: sqlite3.Connection | None) -> Schema:
    """(type, name) → SQL of everything in a store's schema; without a connection, of what the
    migrations make. Left out is what SQLite and sqlite-utils keep for themselves: statistics, and
    which migrations have run."""
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
    """The SHA-256 of a schema. Of its module, `hashlib` takes longer to load than a log
    takes to be read."""
    content = repr(sorted(schema.items())).encode()
    for module in ("_sha2", "_sha256", "hashlib"):
        with suppress(ImportError):
            return str(__import__(module).sha256(content).hexdigest())
    raise AssertionError("hashlib is part of Python")


def refuse_computed(connection: sqlite3.Connection, path: Path | str) -> None:
    """Raises StoreError for a store whose rows would be computed as they are read, which not even
    a check could do: by a view in a table's place, a virtual table or a generated column."""
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
            f"{path} is not as we make it: its {one} is none of ours, and may compute for ever",
            hint="`tfgrpo fsck --repair` takes out of a store what is no table",
        )


def foreign(connection: sqlite3.Connection, there: Schema, expected: Schema) -> list[str]:
    """All that computes in a schema and is not as expected: views, triggers, indexes of an
    expression or of a part, and whatever of ours has another text. A plain table or index that
    somebody has added does not."""
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
