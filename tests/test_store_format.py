"""`docs/format.md` is enough to read a store: a reader that knows nothing else agrees with ours."""

from __future__ import annotations

import ast
import json
import random
import re
import sqlite3
from pathlib import Path

import format_reader
import pytest
from conftest import LONG, ROOT, Cli, problems
from format_reader import Reader
from scripted import ScriptedEndpoint
from store_helpers import clock

from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history import name_moves as undos
from tfgrpo.store.history.name_moves import batches
from tfgrpo.store.redact import Target, redact

SEEDS = range(40 if LONG else 2)


def lived(path: Path, seed: int) -> None:
    """Makes a store with a life: branches, merges, reverts, undo, tags, redactions, snapshots."""
    dice = random.Random(seed)
    with Store.init(path, author="ann", now=clock()) as store:
        store.create_branch("web")
        rules = [Operation("ADD", text=f"rule {n} ünï") for n in range(1200)]
        store.commit("main", rules, message="m")
        gone = [Operation("DELETE", e.id) for e in list(store.library("main"))[30:]]
        store.commit("main", gone, message="m")
        store.move_branch("web", "main")
        for turn in range(40):
            branch = dice.choice(list(store.branches()))
            library = list(store.library(branch))
            operations: list[Operation] = []
            for e in dice.sample(library, min(len(library), dice.randint(0, 4))):
                text = " ".join([*e.text.split()[:6], f'"{turn}"', "\t\\ 🙂"])
                operations.append(
                    dice.choice(
                        [
                            Operation("MODIFY", e.id, text, "words\n"),
                            Operation("DELETE", e.id, None, dice.choice([None, "gone"])),
                            Operation("KEEP", e.id, None, None, {"rollouts": [[0, 1.0], [1, 0.5]]}),
                        ]
                    )
                )
            operations += [
                Operation("ADD", None, f"{seed} {turn} {n}") for n in range(dice.randint(0, 2))
            ]
            tags = [f"t{turn}"] if dice.random() < 0.2 else []
            meta = {"step": turn, "x": [0.25, None]} if dice.random() < 0.3 else None
            store.commit(branch, operations, message=f"turn {turn}", tags=tags, meta=meta)
            act = dice.choice(
                ["merge", "revert", "undo", "branch", "checkout", "redact", "pick", ""]
            )
            try:
                other = store.version(dice.randint(1, store.port.last_version()))
                if act == "merge":
                    take = merges.side(dice.choice(["ours", "theirs"]))
                    merges.merge(store, branch, other, message="merge", resolve=take)
                elif act == "revert":
                    merges.revert(store, branch, other, message="back")
                elif act == "pick":
                    merges.cherry_pick(store, branch, other, message="pick")
                elif act == "undo":
                    undos.undo(store)
                elif act == "branch":
                    store.create_branch(f"b{turn}", other)
                elif act == "checkout":
                    store.checkout(dice.choice([*store.branches(), other.name]))
                elif act == "redact" and library and turn % 2:
                    redact(store, Target(dice.choice(library).id), reason=f"leak {turn}")
            except TfgrpoError:
                continue  # a conflict, or nothing to do: the store is as it was
        store.create_branch(
            "last", store.version(store.branches()["main"])
        )  # not every life has a merge by chance
        for branch in ("last", "main"):
            store.commit(branch, [Operation("ADD", None, f"on {branch}")], message="m")
        merges.merge(store, "main", store.version(store.branches()["last"]), message="merge")
        redact(store, Target(next(iter(store.library("main"))).id), reason="leak")


def agree(path: Path) -> None:
    """Compares everything that the reader finds with what the product says."""
    reader = Reader(path)
    with Store.open(path) as store:
        assert fsck(store).problems == ()
        assert list(reader.wrong()) == []
        assert sorted(reader.versions) == list(range(store.port.last_version() + 1))
        for number in reader.versions:
            ours = [tuple(e)[:3] for e in store.library(store.version(number))]
            assert reader.library(number) == ours
            assert reader.library(number, snapshots=True) == ours
            assert reader.digest(number) == store.version(number).digest
        heads = {f"heads/{name}": (v, None) for name, v in store.branches().items()}
        tags = {f"tags/{name}": (v, None) for name, v in store.tags().items()}
        head = store.head
        symbol = f"heads/{head.branch}" if head.branch else None
        assert reader.names() == heads | tags | {"HEAD": (head.version.number, symbol)}
        theirs = [[tuple(move) for move in batch] for batch in reader.operations()]
        assert theirs == [[tuple(move) for move in batch] for batch in batches(store)][::-1]
        assert sorted(reader.redactions()) == [
            (row, *said)
            for row in store.port.redactions.rows()
            for said in store.port.redactions.of(row)
        ]
        runs = store.runs.all()
        assert reader.runs() == {r.name: [s.state for s in store.runs.states(r)] for r in runs}
        for key, (messages, answer) in reader.calls().items():
            call = store.runs.call(bytes.fromhex(key))
            assert call is not None
            assert messages == json.loads(call.request)
            assert answer == call.answer
        assert reader.rollouts() == [
            (run.name, r.step, r.problem, r.sample, r.version, r.reward, list(r.calls))
            for run in runs
            for r in store.runs.rollouts(run)
        ]
    reader.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_reader_agrees_on_a_store_with_a_life(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "store.db"
    lived(path, seed)
    with sqlite3.connect(path) as db:
        count = {
            what: db.execute(query).fetchone()[0]
            for what, query in {
                "merges": "select count(*) from versions where merged is not null",
                "lanes": "select count(*) from lanes",
                "snapshots": "select count(*) from snapshots",
                "redactions": "select count(*) from redactions",
                "undos": "select count(*) from reflog where action like 'undo: %'",
                "births": "select count(*) from events where op = 'ADD' and birth is not null",
            }.items()
        }
    db.close()
    assert min(count[w] for w in ("merges", "snapshots", "redactions", "undos")) > 0, count
    assert count["lanes"] > 3
    agree(path)


def test_the_reader_agrees_on_a_store_that_a_run_was_trained_in(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    (tmp_path / "problems.jsonl").write_text(problems(range(8)))
    (tmp_path / "heldout.jsonl").write_text(problems(range(20, 24)))
    model = ("--model", "m", "--base-url", endpoint.base_url)
    cli("train", "problems.jsonl", "--epochs", "1", "--batch-size", "4", *model)
    cli("eval", "heldout.jsonl", *model)
    cli("redact", "G0", "--reason", "a leak", "--yes")
    path = tmp_path / ".tfgrpo" / "store.db"
    reader = Reader(path)
    assert reader.runs() == {"problems": ["started", "finished"]}
    assert reader.rollouts()
    assert any("[redacted]" in str(call) for call in reader.calls().values())
    reader.close()
    agree(path)


def test_the_reader_finds_what_was_changed(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    lived(path, 1)
    for change, found in {
        "update events set text = text || '.' where row = 7": "event 7",
        "update events set evidence = '{}' where row = 7": "v1",
        "update versions set message = 'other' where number = 3": "v3",
        "update events set text = null, reason = null, salt = null where row = 9": "event 9",
    }.items():
        with sqlite3.connect(path, isolation_level=None) as db:
            for (name,) in db.execute(
                "select name from sqlite_master where type = 'trigger'"
            ).fetchall():
                db.execute(f"drop trigger {name}")
            db.execute("begin")
            db.execute(change)
            db.execute("commit")
        db.close()
        reader = Reader(path)
        assert found in list(reader.wrong())
        reader.close()


def test_the_reader_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(format_reader.__file__).read_text())
    names = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    standard = {
        "__future__",
        "hashlib",
        "json",
        "sqlite3",
        "zlib",
        "collections.abc",
        "pathlib",
        "typing",
    }
    assert names <= standard


def test_the_page_names_every_table_and_column(tmp_path: Path) -> None:
    Store.init(tmp_path / "store.db").close()
    page = (ROOT / "docs/format.md").read_text()
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    db = sqlite3.connect(tmp_path / "store.db")
    tables = db.execute(
        "select name from sqlite_master where type = 'table' and name not like '\\_%' escape '\\'"
    ).fetchall()
    for (table,) in tables:
        assert table in words, table
        for _, column, *_ in db.execute(f"pragma table_info({table})").fetchall():
            assert column in words | {"id"}, (table, column)
    db.close()
