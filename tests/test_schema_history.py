"""A store made by an earlier release opens, reads the same and can be brought up from outside."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from store_helpers import add, broken

from tfgrpo.migrations import SCHEMA, migrations
from tfgrpo.store import Store, StoreError
from tfgrpo.store.fsck import fsck

FIXTURES = Path(__file__).parent / "fixtures"
OLD = ["schema-1"]


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of an old store."""
    return Path(shutil.copy(FIXTURES / f"{request.param}.db", tmp_path))


def said(path: Path) -> dict[str, object]:
    """What the code of its day read from it."""
    found = json.loads((FIXTURES / path.with_suffix(".json").name).read_text())
    assert isinstance(found, dict)
    return found


def contents(path: Path) -> dict[str, object]:
    with Store.open(path) as store:
        return {
            "head": store.head.branch,
            "branches": store.branches(),
            "tags": store.tags(),
            "snapshots": len(store.port.counts.snapshot_positions()),
            "versions": [
                {
                    "digest": version.digest.hex(),
                    "message": version.message,
                    "meta": version.meta,
                    "library": [[e.id, e.text] for e in store.library(version)],
                }
                for version in map(store.version, range(store.port.last_version() + 1))
            ],
        }


def number(path: Path) -> int:
    with sqlite3.connect(path) as db:
        (found,) = db.execute("pragma user_version").fetchone()
    db.close()
    return int(found)


def migrate_outside(path: Path) -> None:
    script = Path(str(migrations.__file__)).parent / "migrations.py"
    command = [sys.executable, "-m", "sqlite_utils", "migrate", str(path), str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_old_store_opens_and_reads_as_it_did(old: Path) -> None:
    assert number(old) == int(old.stem.rpartition("-")[2]) < SCHEMA
    assert contents(old) == said(old)
    assert number(old) == SCHEMA


def test_an_old_store_is_whole_after_opening(old: Path) -> None:
    with Store.open(old) as store:
        assert fsck(store).problems == ()
    assert broken(old) == []


def test_an_old_store_keeps_its_records_of_training(old: Path) -> None:
    with Store.open(old) as store:
        run = store.runs.get("first")
        assert store.runs.state(run) == "finished"
        assert [r.reward for r in store.runs.rollouts(run)] == [1.0, 1.0]
        assert store.runs.usage(run)["rollout"].prompt_tokens == 20
        (evaluation,) = store.runs.evaluations(store.resolve("first/step_2").number)
        assert [s.answer for s in store.runs.scores(evaluation)] == ["42"]
        assert store.resolve("step_1").number == store.tags()["first/step_1"]


def test_an_old_store_takes_new_versions(old: Path) -> None:
    with Store.open(old) as store:
        before = len(store.library())
        store.commit("main", [add("x")], message="m")
        assert len(store.library()) == before + 1
        assert fsck(store).problems == ()


def test_an_old_store_is_brought_up_from_outside(old: Path) -> None:
    migrate_outside(old)
    assert number(old) == SCHEMA
    assert contents(old) == said(old)
    with Store.open(old) as store:
        assert fsck(store).problems == ()


def test_an_old_store_brought_up_has_the_schema_of_a_new_one(old: Path, tmp_path: Path) -> None:
    Store.open(old).close()
    Store.init(tmp_path / "new.db").close()
    query = "select name, sql from sqlite_master where sql <> '' order by name"
    made = []
    for path in (old, tmp_path / "new.db"):
        with sqlite3.connect(path) as db:
            made.append(db.execute(query).fetchall())
        db.close()
    assert made[0] == made[1]


def test_a_store_of_a_newer_schema_is_refused_with_a_hint(old: Path) -> None:
    with sqlite3.connect(old) as db:
        db.execute(f"pragma user_version = {SCHEMA + 1}")
    db.close()
    with pytest.raises(StoreError, match=f"schema {SCHEMA + 1}") as caught:
        Store.open(old)
    assert "upgrade" in str(caught.value.hint)
