"""A flipped byte anywhere: an error with a hint, a correct answer, or one that fsck exposes.

A store that has lived (branches, a merge, redactions, snapshots, a training run, an evaluation)
is damaged a byte at a time: raw bytes of the pages of every table and index, and the values of
every column of every table. Then every question that the API answers is asked. TFGRPO_LONG=1
tries many more bytes; TFGRPO_COUNTS=FILE appends what each class of damage ended in.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, run_command
from store_helpers import add, clock
from test_store_redact import train

from tfgrpo.store import Operation, Store, TfgrpoError, derived_id
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history import replay
from tfgrpo.store.history.blame import blame
from tfgrpo.store.history.name_moves import protect, protected
from tfgrpo.store.redact import Target, redact
from tfgrpo.store.transfer.remotes import Remotes

ENDS = ("correct", "error", "found", "wrong")
RAW = 150 if LONG else 5
VALUES = 12 if LONG else 2

SAID_ONCE = {
    "journal": "id key run stage step model request answer attempts time",
    "rollouts": "run step problem sample version outcome reward verdict time",
    "evaluations": "version dataset digest config summary time",
    "scores": "evaluation problem sample call reward answer",
    "runs": "name uid branch base author time",
    "run_states": "row run state detail time",
    "redactions": "author time reason",
    "reflog": "name version symbol author time action",
    "remotes": "name location",
    "decisions": "row id time author kind subject content why",
}
"""Columns that hold something the file says only once: docs/format.md, "What is not covered"."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with something in every table, in one file without a log."""
    path = tmp_path_factory.mktemp("sound") / "store.db"
    with (
        pytest.MonkeyPatch.context() as often,
        Store.init(path, author="ann", now=clock(1_700_000_000_000_000)) as store,
    ):
        often.setattr(replay, "SNAPSHOT_EVERY", 20)
        ids = [derived_id(n) for n in range(6)]
        rules = [Operation("ADD", id, f"rule {id}", "seen", {"reward": 1}) for id in ids]
        store.commit("main", rules, message="rules", tags=["approved"], meta={"step": 1})
        store.create_branch("web")
        store.commit("web", [Operation("MODIFY", ids[0], "changed on web")], message="on web")
        store.commit("main", [Operation("DELETE", ids[1], reason="wrong")], message="less")
        store.commit("main", [Operation("ADD", ids[1], "back again")], message="back")
        store.commit("main", [Operation("KEEP", id) for id in ids[2:4]], message="votes")
        merges.merge(store, "main", store.tip("web"), message="merge web")
        store.commit("main", [add(f"{n} " + "long " * 200) for n in range(20)], message="long")
        store.commit("main", [add(f"short {n}") for n in range(40)], message="many")
        late = [Operation("DELETE", e.id) for e in list(store.library())[20:]]
        store.commit("main", late, message="fewer")
        train(store)
        store.runs.note(store.runs.get("R"), "started")
        redact(store, Target(ids[5]), reason="leaked")
        Remotes(store).add("origin", "/srv/team")
        for share in (0.1, 0.2):
            decide(store, "experiment", "shorter", {"share": share}, why="to try it")
        protect(store, "branch", "web")
        store.checkout("v1")
        store.checkout("main")
        assert fsck(store).problems == ()
        assert store.port.counts.snapshot_positions()
    return path


def answers(path: Path) -> dict[str, Any]:
    """Everything that the API says of a store, as plain values."""
    with Store.open(path) as store:
        versions = list(store.log()) + list(store.log("web"))
        runs = store.runs.all()
        evaluations = [e for v in versions for e in store.runs.evaluations(v.number)]
        ids = sorted({e.experience for v in versions for e in store.events(v)})[::10]
        return {
            "log": versions,
            "head": store.head,
            "branches": store.branches(),
            "tags": store.tags(),
            "protected": protected(store, "branch"),
            "remotes": Remotes(store).all(),
            "decisions": [decisions(store), decisions(store, kind="experiment", subject="shorter")],
            "reflog": list(store.port.names.ref_log(None)),
            "libraries": [(v.number, tuple(store.library(v))) for v in versions],
            "events": [store.events(v) for v in versions],
            "counts": [store.counts(v) for v in versions],
            "diffs": [store.diff("v0"), store.diff("v2", "v6"), store.diff("v1", "main")],
            "histories": [store.history(id) for id in ids],
            "blame": blame(store, store.head.version),
            "digests": [store.resolve(v.digest.hex()[:12]).number for v in versions],
            "runs": [(r, store.runs.states(r), store.runs.rollouts(r)) for r in runs],
            "calls": [store.runs.call(bytes([n]) * 32) for n in range(3)],
            "evaluations": [(e, store.runs.scores(e)) for e in evaluations],
            "redactions": [
                (row, store.port.redactions.of(row)) for row in store.port.redactions.rows()
            ],
        }


@pytest.fixture(scope="module")
def right(sound: Path) -> dict[str, Any]:
    """What the sound store answers."""
    return answers(sound)


def ended(path: Path, right: dict[str, Any]) -> str:
    """How a damaged store answers: correct, error, found (by fsck), or wrong."""
    try:
        same = answers(path) == right
    except TfgrpoError as error:
        return "error" if error.hint else "error without a hint"
    if same:
        return "correct"
    try:
        with Store.open(path) as store:
            return "found" if fsck(store).problems else "wrong"
    except TfgrpoError:
        return "found"


def tell(kind: str, where: str, count: Counter[str]) -> None:
    if "TFGRPO_COUNTS" in os.environ:
        with open(os.environ["TFGRPO_COUNTS"], "a") as file:
            file.write(json.dumps({"kind": kind, "where": where, **count}) + "\n")


def trees() -> list[str]:
    """The tables and indexes of a store."""
    from tfgrpo.store.sqlite.checks import schema

    tables = [name for kind, name in schema(None) if kind != "trigger"]
    return ["sqlite_schema", *sorted(tables)]


def pages(path: Path, tree: str) -> list[tuple[int, int, int]]:
    """The pages of a table or index: where each begins, its size, its free bytes in the middle."""
    db = sqlite3.connect(path)
    try:
        query = "select pgoffset, pgsize, unused from dbstat where name = ?"
        return db.execute(query, (tree,)).fetchall()
    except sqlite3.OperationalError:
        pytest.skip("this SQLite cannot say which page belongs to what")
    finally:
        db.close()


@pytest.mark.parametrize("tree", trees())
def test_a_flipped_bit_in_any_page_is_an_error_or_found_or_harmless(
    sound: Path, right: dict[str, Any], tmp_path: Path, tree: str
) -> None:
    whole = sound.read_bytes()
    dice = random.Random(tree)
    path = tmp_path / "store.db"
    count: Counter[str] = Counter()
    places = pages(sound, tree)
    for _ in range(RAW):
        start, size, _ = dice.choice(places)
        used = [at for at in range(start, start + size) if whole[at]] or [start]
        at = dice.choice(used)
        damaged = bytearray(whole)
        damaged[at] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        told = ended(path, right)
        count[told] += 1
        assert told in ENDS
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
        if told == "wrong":
            assert tree in SAID_ONCE, (tree, at - start)
    tell("bit", tree, count)


def columns() -> Iterator[tuple[str, str]]:
    """Every column of every table that the product reads."""
    from sqlite_utils import Database

    from tfgrpo.migrations.migrations import migrations

    db = Database(memory=True)
    migrations.apply(db)
    for table in db.table_names():
        if not table.startswith(("_", "sqlite_")) and db[table].columns:
            yield from ((table, column.name) for column in db[table].columns)


def flipped(value: object, dice: random.Random) -> object:
    """The value with one bit of it changed."""
    if isinstance(value, int):
        return value ^ (1 << dice.randrange(12))
    if isinstance(value, float):
        return value + 0.5
    if isinstance(value, bytes):
        at = dice.randrange(len(value))
        return value[:at] + bytes([value[at] ^ 1 << dice.randrange(8)]) + value[at + 1 :]
    assert isinstance(value, str)
    at = dice.randrange(len(value)) if value else 0
    other = chr(ord(value[at]) ^ 1 << dice.randrange(5)) if value else "x"
    return value[:at] + other + value[at + 1 :]


@pytest.mark.parametrize("place", [".".join(place) for place in columns()])
def test_a_changed_value_in_any_column_is_an_error_or_found_or_harmless(
    sound: Path, right: dict[str, Any], tmp_path: Path, place: str
) -> None:
    table, column = place.split(".")
    dice = random.Random(f"{table}.{column}")
    path = tmp_path / "store.db"
    count: Counter[str] = Counter()
    row = {"scores": "problem", "remotes": "name"}.get(table, "rowid")
    for number in range(VALUES):
        shutil.copy(sound, path)
        db = sqlite3.connect(path, isolation_level=None)
        triggers = db.execute(
            "select name, sql from sqlite_master where type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            db.execute(f"drop trigger {name}")
        query = f"select {row}, {column} from {table} where {column} is not null"
        found = db.execute(query).fetchall()
        if not found:
            db.close()
            break
        at, value = dice.choice(found)
        value = None if number == 1 else flipped(value, dice)
        try:
            db.execute(f"update {table} set {column} = ? where {row} = ?", (value, at))
        except sqlite3.IntegrityError:
            count["refused"] += 1
            db.close()
            continue
        for _, sql in triggers:
            db.execute(sql)
        db.execute("pragma wal_checkpoint(truncate)")
        db.close()
        told = ended(path, right)
        count[told] += 1
        assert told in ENDS
        if told == "wrong":
            assert column in SAID_ONCE.get(table, "").split(), (at, value)
    tell("value", f"{table}.{column}", count)


LOOKS = (
    ["log"],
    ["log", "--json"],
    ["show", "v1"],
    ["show", "HEAD", "--json"],
    ["diff", "v1", "main"],
    ["blame"],
    ["show", "G0"],
    ["status"],
    ["reflog"],
    ["runs"],
    ["branch"],
    ["tag"],
    ["export"],
    ["fsck"],
)


@pytest.mark.parametrize("seed", range(20 if LONG else 3))
def test_no_command_shows_a_traceback_on_a_damaged_store(
    sound: Path, tmp_path: Path, seed: int
) -> None:
    dice = random.Random(seed)
    damaged = bytearray(sound.read_bytes())
    used = [at for at in range(100, len(damaged)) if damaged[at]]
    for _ in range(2 ** dice.randrange(8)):
        damaged[dice.choice(used)] ^= 1 << dice.randrange(8)
    (tmp_path / "store.db").write_bytes(damaged)
    for look in LOOKS if LONG else dice.sample(LOOKS, 3):
        done = run_command(["--store", "store.db", *look], tmp_path, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode in (0, 1), (look, done.stderr)
        assert done.returncode == 0 or "error: " in done.stderr or look == ["fsck"]


# files that are not whole:


def test_a_file_cut_at_any_length_is_an_error_or_found(
    sound: Path, right: dict[str, Any], tmp_path: Path
) -> None:
    whole = sound.read_bytes()
    path = tmp_path / "store.db"
    dice = random.Random(1)
    lengths = {0, 1, 15, 16, 99, 100, 4095, 4096, 4097, len(whole) - 1, len(whole) - 4096}
    lengths |= {dice.randrange(len(whole)) for _ in range(600 if LONG else 20)}
    count: Counter[str] = Counter()
    for length in sorted(lengths):
        path.write_bytes(whole[:length])
        count[ended(path, right)] += 1
        for extra in ("-wal", "-shm"):
            path.with_name(path.name + extra).unlink(missing_ok=True)
    assert count["wrong"] == count["correct"] == 0, count
    tell("cut", "file", count)


def with_log(sound: Path, folder: Path) -> Path:
    """A store whose last versions are in its log alone, as a killed process leaves it."""
    folder.mkdir()
    path = folder / "store.db"
    shutil.copy(sound, path)
    live = folder / "live.db"
    shutil.copy(sound, live)
    with Store.open(live) as store:
        for n in range(5):
            store.commit("main", [add(f"in the log {n}")], message=f"late {n}")
        shutil.copy(folder / "live.db-wal", folder / "store.db-wal")
    return path


def test_a_log_that_is_lost_cut_or_flipped_leaves_a_whole_prefix(
    sound: Path, tmp_path: Path
) -> None:
    path = with_log(sound, tmp_path / "a")
    with Store.open(path) as store:
        messages = [v.message for v in store.log()]
    assert messages[0] == "late 4"
    dice = random.Random(3)
    count: Counter[str] = Counter()
    for number in range(100 if LONG else 15):
        path = with_log(sound, tmp_path / f"log{number}")
        log = path.with_name("store.db-wal")
        content = bytearray(log.read_bytes())
        if number == 0:
            log.unlink()
        elif number % 2:
            log.write_bytes(content[: dice.randrange(len(content))])
        else:
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
            log.write_bytes(content)
        with Store.open(path) as store:
            assert fsck(store).problems == ()
            found = [v.message for v in store.log()]
            assert found == messages[len(messages) - len(found) :]
            assert len(found) >= len(messages) - 5
            count[f"{len(messages) - len(found)} versions back"] += 1
        shutil.rmtree(path.parent)
    tell("log", "wal", count)


def test_a_log_of_another_store_is_refused_found_or_left_aside(sound: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with Store.init(other) as store:
        for n in range(30):
            store.commit("main", [add(f"of another {n} " + "x" * 900)], message="other")
        path = tmp_path / "store.db"
        shutil.copy(sound, path)
        shutil.copy(tmp_path / "other.db-wal", tmp_path / "store.db-wal")
    told = ended(path, right)
    tell("log", "of another store", Counter([told]))
    assert told in ("correct", "error", "found")
