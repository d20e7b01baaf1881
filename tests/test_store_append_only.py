"""Nothing recorded is changed, not even by a program that opens the file itself; no half versions.

The attacks come over a bare `sqlite3` connection, as any other program's would.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import add, broken, child, clock, kill_after_ready, kills

from tfgrpo.store import InvalidOperation, Operation, Store, derived_id
from tfgrpo.store.activity.decisions import decide, decisions

FIRST, SECOND = derived_id("first"), derived_id("second")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of two versions with a text, a reason, evidence, a tag and a run in it."""
    path = tmp_path / "store.db"
    with Store.init(path, now=clock()) as store:
        first = Operation("ADD", FIRST, "a secret", "seen in a rollout", {"reward": 1})
        store.commit("main", [first, add("b", SECOND)], message="one", tags=["one"])
        store.commit("main", [Operation("DELETE", SECOND, None, "wrong")], message="two")
        run = store.runs.create("R", "uid", "main", 1, {"a": 1}, "me")
        store.runs.note(run, "started")
        decide(store, "experiment", "shorter", {"share": 0.1}, why="to try it")
    return path


@pytest.fixture
def db(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()


def everything(db: sqlite3.Connection) -> list[str]:
    return list(db.iterdump())


def columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"pragma table_info({table})")]


TABLES = ("events", "versions", "reflog", "redactions", "runs", "run_states", "decisions")


def redact(db: sqlite3.Connection, row: int) -> None:
    db.execute(
        "insert into redactions (event, author, time, reason) values (?, 'me', 1, 'leak')", (row,)
    )


@pytest.mark.parametrize("table", TABLES)
def test_update_of_any_column_is_refused(db: sqlite3.Connection, table: str) -> None:
    if table == "redactions":
        redact(db, 1)
    before = everything(db)
    for column in columns(db, table):
        for value in ("null", "7", "'x'", column):
            with pytest.raises(sqlite3.Error):
                db.execute(f"update {table} set {column} = {value}")
            with pytest.raises(sqlite3.Error):
                db.execute(f"update or replace {table} set {column} = {value}")
    assert everything(db) == before


@pytest.mark.parametrize("table", TABLES)
def test_delete_is_refused(db: sqlite3.Connection, table: str) -> None:
    if table == "redactions":
        redact(db, 1)
    before = everything(db)
    with pytest.raises(sqlite3.Error, match="append-only"):
        db.execute(f"delete from {table}")
    assert everything(db) == before


@pytest.mark.parametrize("table", TABLES)
def test_insert_or_replace_of_a_row_that_is_there_is_refused(
    db: sqlite3.Connection, table: str
) -> None:
    if table == "redactions":
        redact(db, 1)
    before = everything(db)
    with pytest.raises(sqlite3.Error):
        db.execute(f"insert or replace into {table} select * from {table} limit 1")
    assert everything(db) == before


def test_insert_or_replace_under_another_number_cannot_push_a_version_out_by_its_digest(
    db: sqlite3.Connection,
) -> None:
    names = columns(db, "versions")
    with pytest.raises(sqlite3.Error):
        db.execute(
            "insert or replace into versions"
            f" select 999, {', '.join(names[1:])} from versions where number = 1"
        )
    assert [n for (n,) in db.execute("select number from versions order by number")] == [0, 1, 2]


def test_insert_or_replace_under_another_id_cannot_push_a_run_out_by_its_name(
    db: sqlite3.Connection,
) -> None:
    names = columns(db, "runs")
    with pytest.raises(sqlite3.Error):
        db.execute(f"insert or replace into runs select 999, {', '.join(names[1:])} from runs")
    assert [n for (n,) in db.execute("select id from runs")] == [1]


def test_a_recorded_redaction_may_blank_text_reason_and_salt(
    path: Path, db: sqlite3.Connection
) -> None:
    redact(db, 1)
    db.execute("update events set text = null, reason = null, salt = null where row = 1")
    assert not broken(path)
    with Store.open(path) as store:
        assert [e.text for e in store.library()] == ["[redacted]"]
        event = store.history(FIRST)[0]
        assert (event.text, event.reason, event.redacted) == (None, None, True)
        assert event.evidence == {"reward": 1}
        store.commit("main", [Operation("MODIFY", FIRST, "clean")], message="on it goes")
        assert [e.text for e in store.library()] == ["clean"]


def test_a_decision_changes_only_where_a_redaction_is_on_record(
    path: Path, db: sqlite3.Connection
) -> None:
    with Store.open(path) as store:
        (made,) = decisions(store)
        decide(store, "redaction", made.id, {}, why="leak")
    for column in ("row", "id", "time", "author", "kind"):
        with pytest.raises(sqlite3.Error):
            db.execute(f"update decisions set {column} = 77 where id = ?", (made.id,))
    with pytest.raises(sqlite3.Error):
        db.execute("update decisions set why = 'x' where kind = 'redaction'")
    db.execute("update decisions set why = 'x' where id = ?", (made.id,))
    with pytest.raises(sqlite3.Error):
        db.execute(
            "insert or replace into decisions select 99, id, 1, 'me', 'a', 'b', '{}', null"
            " from decisions where row = 1"
        )


def test_blanking_without_a_recorded_redaction_is_refused(db: sqlite3.Connection) -> None:
    redact(db, 2)
    with pytest.raises(sqlite3.Error, match="append-only"):
        db.execute("update events set text = null, reason = null, salt = null where row = 1")


def test_nothing_else_about_an_event_may_change_with_its_redaction(db: sqlite3.Connection) -> None:
    redact(db, 1)
    before = everything(db)
    blank = {"text": "null", "reason": "null", "salt": "null"}
    for column in columns(db, "events"):
        for value in ("null", "'x'", "77", "x'00'"):
            changed = blank | {column: value}
            same = db.execute(f"select {column} is {value} from events where row = 1").fetchone()
            if same == (1,) or changed == blank:
                continue
            sets = ", ".join(f"{name} = {new}" for name, new in changed.items())
            with pytest.raises(sqlite3.Error):
                db.execute(f"update events set {sets} where row = 1")
    assert everything(db) == before


def test_a_redaction_of_an_event_that_is_not_there_is_refused(path: Path) -> None:
    with Store.open(path) as store, pytest.raises(sqlite3.IntegrityError):
        redact(store.port.connection, 12345)  # type: ignore[attr-defined]


BAD = [
    Operation("MODIFY", derived_id("nobody"), "x"),
    Operation("DELETE", derived_id("nobody")),
    Operation("KEEP", SECOND),  # deleted in v2
    Operation("KEEP", None),
    Operation("ADD", FIRST, "twice"),
    Operation("ADD", "G0", "a label is no id"),
    Operation("ADD", None, "  "),
    Operation("ADD", None, None),
    Operation("MODIFY", FIRST, ""),
    Operation("MERGE", FIRST, "x"),  # type: ignore[arg-type]
    Operation("ADD", None, "half of an emoji \ud83d"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda o: f"{o.op}-{o.text!r}")
def test_an_operation_that_cannot_apply_leaves_nothing_of_its_batch(
    path: Path, db: sqlite3.Connection, bad: Operation
) -> None:
    before = everything(db)
    with Store.open(path) as store:
        library = store.library()
        with pytest.raises(InvalidOperation) as caught:
            store.commit("main", [add("good"), bad, add("too")], message="m", tags=["t"])
        assert caught.value.hint or bad.text
        assert everything(db) == before
        assert store.library() == library
        store.commit("main", [add("good")], message="m")
        assert [e.text for e in store.library()] == ["a secret", "good"]


def test_deleting_and_adding_one_experience_in_one_version_is_refused(path: Path) -> None:
    with Store.open(path) as store, pytest.raises(InvalidOperation):
        store.commit("main", [Operation("DELETE", FIRST), add("x", FIRST)], message="m")


def test_an_error_in_what_must_land_with_a_version_leaves_nothing(
    path: Path, db: sqlite3.Connection
) -> None:
    before = everything(db)

    def also(_: object) -> None:
        db.execute("select 1")
        raise KeyboardInterrupt

    with Store.open(path) as store:
        with pytest.raises(KeyboardInterrupt):
            store.commit("main", [add("x")], message="m", also=also)
        assert everything(db) == before
        assert store.commit("main", [add("y")], message="m").number == 3


COMMITS = """
import sys
from tfgrpo.store import Operation, Store
store = Store.open(sys.argv[1])
print("ready", flush=True)
while True:
    i = store.head.version.number + 1
    operations = [Operation("ADD", text=f"{i}.{k}", evidence={"i": i}) for k in range(i % 7)]
    store.commit("main", operations, message=str(i), tags=[f"t{i}"])
    print(i, flush=True)
"""


def test_kill_9_at_any_instant_leaves_a_prefix_of_whole_versions(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.init(path).close()
    dice = random.Random()
    last = rounds = 0
    while rounds < kills() or last == 0:  # a slow machine may kill many before a first commit
        rounds += 1
        printed = kill_after_ready(child(COMMITS, path), dice, 0.04 if rounds < kills() else 1)
        with Store.open(path) as store:
            last = store.head.version.number
            if printed:
                assert int(printed[-1]) in (last, last - 1), "a version that was told of is lost"
            versions = list(store.log())
            assert [v.number for v in versions] == list(range(last, -1, -1))
            assert store.tags() == {f"t{i}": i for i in range(1, last + 1)}
            for version in versions[:-1][:200]:
                i = version.number
                assert version.message == str(i)
                assert [e.text for e in store.events(version)] == [f"{i}.{k}" for k in range(i % 7)]
        assert not broken(path)


INIT = """
import sys
from tfgrpo.migrations.migrations import migrations
from tfgrpo.store import Store
print("ready", flush=True)
Store.init(sys.argv[1])
"""


def test_kill_9_during_init_leaves_a_file_that_init_completes(tmp_path: Path) -> None:
    dice = random.Random()
    for i in range(kills(10)):
        path = tmp_path / f"{i}.db"
        kill_after_ready(child(INIT, path), dice, 0.015)
        with Store.init(path) as store:
            assert store.head.branch == "main"
            store.commit("main", [add("x")], message="m")
        assert not broken(path)
