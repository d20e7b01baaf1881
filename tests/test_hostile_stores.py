"""A store whose schema computes for ever is refused before a row of it is read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Cli

from tfgrpo.store import Store
from tfgrpo.store.errors import StoreError
from tfgrpo.store.sqlite.file import TABLES, schema

ENDLESS = "with recursive n(i) as (select 1 union all select i + 1 from n) select sum(i) from n"


def schemas() -> dict[str, tuple[str, ...]]:
    """Statements that make each of the hostile stores, by name."""
    made: dict[str, tuple[str, ...]] = {}
    for table in ("versions", "reflog", "events"):
        made[f"{table} as a view"] = (
            f"alter table {table} rename to old_{table}",
            f"create view {table} as select * from old_{table} where ({ENDLESS}) > 0",
        )
        made[f"a generated column of {table}"] = (
            f"alter table {table} add column x as (length(hex(zeroblob(100000000)))) virtual",
        )
    return made


@pytest.mark.parametrize("kind", schemas())
def test_a_store_that_computes_its_rows_is_refused(kind: str, cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "Round up.")
    file = tmp_path / ".tfgrpo/store.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("pragma legacy_alter_table = on")
        for statement in schemas()[kind]:
            connection.execute(statement)
    with pytest.raises(StoreError, match="is not a plain table"):
        Store.open(file)
    for command in ("log", "status", "fsck", "reflog"):
        assert "not a plain table" in cli(command, ok=False).stderr


def test_the_tables_are_those_that_the_migrations_make() -> None:
    assert {name for kind, name in schema(None) if kind == "table"} == set(TABLES)
