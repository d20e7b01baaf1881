"""Unusable store files at a prompt: one line and a hint, whatever the command."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from conftest import Cli, one_line_error


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])


def no_head(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("drop trigger reflog_no_delete")
        db.execute("delete from reflog")
    db.close()


def bad_meta(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("drop trigger versions_no_update")
        db.execute("update versions set meta = '{' where number = 1")
    db.close()


def odd_evidence(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("drop trigger events_no_update")
        db.execute("""update events set evidence = '{"rollouts":[7]}' where row = 1""")
    db.close()


@pytest.mark.parametrize("look", ["log", "show", "status", "blame", "export"])
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (folder, "no store"),
        (lambda path: path.write_bytes(b""), "not a tfgrpo store"),
        (cut, "damaged"),
        (no_head, "damaged"),
        (bad_meta, "damaged"),
    ],
    ids=["folder", "empty", "cut", "no HEAD", "bad meta"],
)
def test_a_damaged_store_is_one_line_and_a_hint(
    cli: Cli, tmp_path: Path, damage: object, said: str, look: str
) -> None:
    cli("init")
    cli("add", "Round up.", "Count both days.")
    assert callable(damage)
    damage(tmp_path / ".tfgrpo" / "store.db")
    one_line_error(cli(look, ok=False), said)


def test_damage_that_only_a_view_stumbles_over_is_said_too(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "Round up.")
    odd_evidence(tmp_path / ".tfgrpo" / "store.db")
    done = cli("show", "v1", ok=False)
    one_line_error(done, "damaged", "v1 is not what its digest says")
    assert "v1" in cli("fsck", ok=False).stdout


def test_fsck_makes_indexes_and_triggers_anew(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "Round up.")
    with sqlite3.connect(tmp_path / ".tfgrpo" / "store.db") as db:
        db.execute("drop trigger events_no_delete")
        db.execute("drop index events_experience")
    db.close()
    said = cli("fsck", ok=False).stdout
    assert "events_no_delete is missing" in said
    assert "events_experience is missing" in said
    assert "no problems" in cli("fsck", "--repair").stdout
    assert "no problems" in cli("fsck").stdout
