"""How a file is checked beside `sql/checks.py`: its schema, and SQLite's own checks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING

from tfgrpo.store.defects import Defect, attempt
from tfgrpo.store.sql.checks import check_storage as sql_checks
from tfgrpo.store.sqlite.foreign_schema import foreign, schema
from tfgrpo.store.sqlite.packed_texts import define_plain

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.sqlite.port import SqlitePort

JSON = {
    "journal": ("answer",),
    "rollouts": ("calls", "verdict"),
    "evaluations": ("config", "summary"),
    "texts": ("text",),
    "decisions": ("content",),
}


def check_storage(port: SqlitePort) -> list[Defect]:
    """Checks the file, the schema, places, names and records, reading all of them."""
    define_plain(port.connection)
    return sql_checks(port, _schema, _file, _json)


def check_beside(path: Path | str) -> Callable[[], list[Defect]]:
    """Begins to check the storage at `path` in a thread, whose work is SQLite's for the most part
    and leaves the interpreter to others; returns what waits for its end."""
    from tfgrpo.store.sqlite.port import SqlitePort

    defects: list[Defect] = []
    failed: list[BaseException] = []

    def check() -> Iterator[Defect]:
        port = SqlitePort(path, unchecked=True)
        try:
            with port.reading():
                yield from check_storage(port)
        finally:
            port.close()

    def work() -> None:
        try:
            defects.extend(attempt("storage", check))
        except BaseException as error:  # whoever waits is told
            failed.append(error)

    thread = threading.Thread(target=work, name="tfgrpo-check", daemon=True)
    thread.start()

    def finished() -> list[Defect]:
        thread.join()
        if failed:
            raise failed[0]
        return defects

    return finished


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


def _json(port: SqlitePort) -> Iterator[Defect]:
    for table, columns in JSON.items():
        for column in columns:
            query = f"select id from {table} where not json_valid(plain({column}))"
            for (id,) in port.rows(query):
                yield Defect(f"row {id} of {table}", f"has a {column} that is no JSON")
