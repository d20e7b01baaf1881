"""A store whose schema computes for ever is refused before a row of it is read."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Cli

import tfgrpo
from tfgrpo.migrations import DIGEST, SCHEMA
from tfgrpo.store import Store
from tfgrpo.store.errors import StoreError
from tfgrpo.store.fsck import fsck
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.sqlite.checks import LARGEST, TABLES, digest, schema
from tfgrpo.store.sqlite.packed_texts import unpack_text

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


BURNING: dict[str, tuple[str, ...]] = {
    "a trigger": (f"create trigger t after insert on reflog begin {ENDLESS}; end",),
    "a trigger in place of ours": (
        "drop trigger events_no_delete",
        f"create trigger events_no_delete before delete on events begin {ENDLESS}; end",
    ),
    "a trigger on what a repair drops": (
        f"create trigger t before delete on snapshots begin {ENDLESS}; end",
    ),
    "an index of an expression": ("create index i on versions (length(hex(zeroblob(number))))",),
    "an index of a part": ("create index i on versions (number) where length(message) > 0",),
    "an index in place of ours": (
        "drop index versions_position",
        "create index versions_position on versions (hex(position))",
    ),
    "a view": (f"create view v as {ENDLESS}",),
}


@pytest.mark.parametrize("kind", BURNING)
def test_what_computes_is_refused_and_a_repair_takes_it_out(
    kind: str, cli: Cli, tmp_path: Path
) -> None:
    cli("init")
    cli("add", "Round up.")
    file = tmp_path / ".tfgrpo/store.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        for statement in BURNING[kind]:
            connection.execute(statement)
    for opened in (Store.open, lambda path: Store.open(path, watching=True), tfgrpo.live):
        with pytest.raises(StoreError, match="is foreign"):
            opened(store=file) if opened is tfgrpo.live else opened(file)  # type: ignore[operator]
    for command in (("log",), ("add", "x"), ("clone", ".", "copy")):
        assert "is foreign" in cli(*command, ok=False).stderr, command
    with (
        Store.open(file, unchecked=True) as store,
        pytest.raises(StoreError, match="is foreign"),
    ):
        store.port.redactions.rewrite()
    said = cli("fsck", ok=False).stdout
    assert "what the migrations make" in said or "of a store" in said
    assert "no problems" in cli("fsck", "--repair").stdout
    cli("add", "Count both days.")
    assert "no problems" in cli("fsck").stdout


def test_a_constraint_that_burns_is_refused(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    file = tmp_path / ".tfgrpo/store.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("alter table lanes add column x check (length(hex(zeroblob(9))) > 0)")
    assert "table lanes is foreign" in cli("log", ok=False).stderr
    assert "what the migrations make" in cli("fsck", ok=False).stdout


def test_a_record_of_traffic_that_computes_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "traffic.db")
    open_traffic(path, create=True).close()
    open_traffic(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("alter table calls rename to old")
        connection.execute(f"create view calls as select * from old where ({ENDLESS}) > 0")
    with pytest.raises(StoreError, match="is foreign"):
        open_traffic(path)


def test_a_plain_table_and_a_plain_index_of_others_are_no_code(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    file = tmp_path / ".tfgrpo/store.db"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("create table theirs (x)")
        connection.execute("create index theirs_too on versions (author)")
    cli("add", "Round up.")


def test_packed_bombs_are_not_unpacked(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "Round up.")
    file = tmp_path / ".tfgrpo/store.db"
    packing = zlib.compressobj(9)
    rows = b"".join(packing.compress(bytes(1 << 24)) for _ in range(40)) + packing.flush()
    assert len(rows) < 700_000
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("insert or replace into snapshots values (1, ?)", (rows,))
    tracemalloc.start()
    try:
        with Store.open(file) as store:
            assert len(store.library()) == 1
        assert "snapshot 1" in "".join(p.where for p in fsck(Store.open(file)).problems)
        with pytest.raises(ValueError, match="larger"):
            unpack_text(rows)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * LARGEST  # a copy, and what it is made of
    finally:
        tracemalloc.stop()


def test_a_statement_that_goes_on_for_ever_heeds_ctrl_c(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from tfgrpo.store import Store\n"
        "with Store.init(sys.argv[1]) as store:\n"
        "    print('ready', flush=True)\n"
        f"    store.port.row({ENDLESS!r})\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "s.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=240)[1].decode()
    assert process.returncode == -signal.SIGINT, said
    assert "KeyboardInterrupt" in said


def test_the_digest_is_that_of_the_schema() -> None:
    assert digest(schema(None)) == DIGEST


def test_the_tables_are_those_that_the_migrations_make() -> None:
    assert {name for kind, name in schema(None) if kind == "table"} == set(TABLES)


def test_a_store_of_a_newer_schema_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.init(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"pragma user_version = {SCHEMA + 1}")
    db.close()
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}") as caught:
        Store.open(path)
    assert "upgrade" in str(caught.value.hint)
