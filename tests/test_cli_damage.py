"""Unusable store files at a prompt: one line and a hint, whatever the command."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from conftest import Cli, one_line_error

from tfgrpo.cli.main import tfgrpo
from tfgrpo.store import Operation, Store, TfgrpoError


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


FOREIGN = {
    "trigger": "create trigger sneaky after insert on versions begin"
    " insert into redactions (event, author, time, reason) values (1, 'x', 1, 'x'); end",
    "trigger _sneaky": "create trigger _sneaky after insert on lanes begin select 1; end",
    "view": "create view odd as select 1",
    "index": "create index odd on versions (author)",
    "table": "create table odd (x)",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_fsck_names_what_no_migration_made(cli: Cli, tmp_path: Path, kind: str) -> None:
    cli("init")
    cli("add", "Round up.")
    with sqlite3.connect(tmp_path / ".tfgrpo" / "store.db") as db:
        db.execute(FOREIGN[kind])
    db.close()
    assert f"{kind.split()[0]} " in cli("fsck", ok=False).stdout
    repaired = cli("fsck", "--repair", ok=kind != "table").stdout
    assert ("no problems" in repaired) == (kind != "table"), "a table may hold somebody's rows"


def test_a_schema_that_others_wrote_is_not_trusted(tmp_path: Path) -> None:
    with Store.init(tmp_path / "s.db") as store:
        pragma = "pragma trusted_schema"
        assert store.port.connection.execute(pragma).fetchone() == (0,)  # type: ignore[attr-defined]


def broken_code(monkeypatch: pytest.MonkeyPatch, path: Path) -> Result:
    """Runs a verb whose code has a bug."""

    def replay(self: Store, revision: object = "HEAD") -> None:
        raise TypeError("'NoneType' object is not iterable")

    monkeypatch.setattr(Store, "library", replay)
    return CliRunner().invoke(tfgrpo, ["--store", str(path), "show"])


def test_a_bug_is_called_one_though_something_derived_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    with Store.init(path) as store:
        store.commit("main", [Operation("ADD", text="x")], message="m")
        store.port.connection.execute("insert into snapshots values (1, x'00')")  # type: ignore[attr-defined]
    error = broken_code(monkeypatch, path).exception
    assert isinstance(error, TfgrpoError)
    assert "bug" in str(error)
    assert "damaged" not in str(error)
    assert error.hint
    kept = Path(re.search(r"in (\S+\.txt)", error.hint)[1])  # type: ignore[index]
    assert "TypeError: 'NoneType' object is not iterable" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0
    kept.unlink()


def test_damage_is_what_broken_code_stumbled_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    with Store.init(path) as store:
        store.commit("main", [Operation("ADD", text="x")], message="m")
    odd_evidence(path)
    error = broken_code(monkeypatch, path).exception
    assert isinstance(error, TfgrpoError)
    assert "the store is damaged: v1" in str(error)
