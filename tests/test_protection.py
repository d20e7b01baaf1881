"""Protected names: nothing moves, renames or deletes one without force, whichever verb tries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import Cli, one_line_error, problems
from store_helpers import add

from tfgrpo.store import InvalidName, ProtectedName, Store, UnknownRevision
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.merge import cherry_pick, merge, revert
from tfgrpo.store.history.name_moves import protect, protected, redo, rename, undo, unprotect


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """main at v2, protected; a branch web with a version of its own; a protected tag."""
    with Store.init(tmp_path / "store.db", author="ann") as store:
        store.commit("main", [add("one")], message="one")
        store.create_branch("web")
        store.commit("main", [add("two")], message="two")
        store.commit("web", [add("three")], message="three")
        store.create_tag("approved", "v2")
        protect(store, "branch", "main")
        protect(store, "tag", "approved")
        yield store


MOVES: dict[str, Callable[[Store], object]] = {
    "commit": lambda s: s.commit("main", [add("x")], message="x"),
    "merge": lambda s: merge(s, "main", s.tip("web"), message="m"),
    "cherry-pick": lambda s: cherry_pick(s, "main", s.tip("web"), message="m"),
    "revert": lambda s: revert(s, "main", s.version(2), message="m"),
    "reset": lambda s: s.move_branch("main", "v1"),
    "delete": lambda s: (s.checkout("web"), s.delete_branch("main")),
    "rename": lambda s: rename(s, "branch", "main", "trunk"),
    "move tag": lambda s: s.create_tag("approved", "v1", force=True),
    "delete tag": lambda s: s.delete_tag("approved"),
    "rename tag": lambda s: rename(s, "tag", "approved", "old"),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_only_force_moves_a_protected_name(store: Store, move: Callable[[Store], object]) -> None:
    branches, tags, versions = store.branches(), store.tags(), store.port.last_version()
    with pytest.raises(ProtectedName) as refused:
        move(store)
    assert "--force" in str(refused.value.hint)
    assert (store.branches(), store.tags()) == (branches, tags)
    assert store.port.last_version() == versions
    with store.forced():
        move(store)
    assert (store.branches(), store.tags()) != (branches, tags)
    assert fsck(store).problems == ()


def test_undo_and_redo_stop_at_a_protected_name(store: Store) -> None:
    with store.forced():
        store.commit("main", [add("x")], message="x")
    with pytest.raises(ProtectedName):
        undo(store)
    assert store.tip("main").number == 4
    with store.forced():
        undo(store)
    with pytest.raises(ProtectedName):
        redo(store)
    assert store.tip("main").number == 2


def test_protecting_is_undone_like_anything_else(store: Store) -> None:
    undo(store)
    assert protected(store, "tag") == set()
    redo(store)
    assert protected(store, "tag") == {"approved"}


def test_a_protection_goes_with_its_name_and_comes_back_with_it(store: Store) -> None:
    with store.forced():
        rename(store, "branch", "main", "trunk")
        assert store.head.branch == "trunk"
        assert protected(store, "branch") == {"trunk"}
        undo(store)
        assert store.head.branch == "main"
        assert protected(store, "branch") == {"main"}
        store.delete_tag("approved")
    assert protected(store, "tag") == set()
    store.create_tag("approved", "v1")  # a new name, which nobody has protected
    store.create_tag("approved", "v2", force=True)


def test_what_is_not_protected_moves_and_so_does_head(store: Store) -> None:
    store.commit("web", [add("x")], message="x")
    store.checkout("v1")
    store.checkout("main")
    store.move_branch("main", "v2")  # where it stands: no move
    rename(store, "branch", "web", "domain/web")
    assert store.branches().keys() == {"main", "domain/web"}


def test_protecting_twice_or_nothing_changes_nothing(store: Store) -> None:
    rows = len(list(store.port.names.ref_log(None)))
    assert not protect(store, "branch", "main")
    assert not unprotect(store, "branch", "web")
    with pytest.raises(UnknownRevision):
        protect(store, "branch", "nobody")
    with pytest.raises(InvalidName):
        rename(store, "branch", "web", "main")
    with pytest.raises(InvalidName):
        rename(store, "branch", "web", "v7")
    assert len(list(store.port.names.ref_log(None))) == rows


def test_a_branch_that_a_run_still_grows_is_renamed_only_by_force(store: Store) -> None:
    run = store.runs.create("quick", "uid", "web", 0, {}, "ann")
    with pytest.raises(InvalidName, match="quick"):
        rename(store, "branch", "web", "math")
    store.runs.note(run, "finished")
    rename(store, "branch", "web", "math")


def test_every_verb_refuses_and_takes_force(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "Count both days.", "Round up.")
    cli("branch", "web")
    cli("switch", "web")
    cli("add", "Use whole hours.")
    cli("switch", "main")
    cli("branch", "--protect", "main")
    (tmp_path / "more.json").write_text('{"G0": "From a file."}')
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))
    train = ["train", "problems.jsonl", "--model", "m", "--base-url", "http://127.0.0.1:9/v1"]
    for arguments in (
        train,
        ["add", "x"],
        ["modify", "G0", "x"],
        ["keep", "G0"],
        ["import", "more.json"],
        ["cherry-pick", "web"],
        ["revert", "v1"],
        ["merge", "web"],
        ["delete", "G0"],
        ["reset", "v0"],
        ["branch", "--rename", "main", "trunk"],
    ):
        one_line_error(cli(*arguments, ok=False), "protected", "--force")
    assert json.loads(cli("status", "--json").stdout)["head"] == "v1"
    assert json.loads(cli("runs", "--json").stdout) == [], "refused before anything was begun"
    cli("modify", "G0", "Count both the days.", "--force")
    one_line_error(cli("undo", ok=False), "protected", "--force")
    cli("undo", "--force")
    cli("merge", "web", "--force")
    cli("branch", "--rename", "main", "trunk", "-f")
    listed = json.loads(cli("branch", "--json").stdout)
    assert listed == {"head": "trunk", "branches": {"trunk": 2, "web": 2}, "protected": ["trunk"]}
    assert "(protected)" in cli("branch").stdout
    assert "no longer protected" in cli("branch", "--unprotect", "trunk").stdout
    assert "protection of trunk" in cli("reflog", "-n", "1").stdout
    assert "again protected" in cli("undo").stdout
