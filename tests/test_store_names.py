"""Branches, tags and HEAD move, the ref log only grows; writers take turns and lose nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_helpers import add, broken, child, clock

from tfgrpo.store import (
    InvalidName,
    InvalidOperation,
    Operation,
    RefMove,
    StaleVersion,
    Store,
    TfgrpoError,
    UnknownRevision,
    derived_id,
    process_lock,
)
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.history.name_moves import redo, rename, take_back, undo


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / "store.db", author="ann", now=clock()) as store:
        for i in range(1, 4):
            store.commit("main", [add(f"{i}")], message=f"m{i}")
        yield store


def log(store: Store) -> list[RefMove]:
    """The whole ref log, oldest first."""
    return list(store.port.names.ref_log(None))[::-1]


class Growth:
    """Asserts that the ref log keeps what it had; `rows` is what came since."""

    def __init__(self, store: Store) -> None:
        self.store, self.before = store, log(store)

    @property
    def rows(self) -> list[tuple[str, int | None, int | None]]:
        now = log(self.store)
        assert now[: len(self.before)] == self.before
        return [(m.name, m.previous, m.version) for m in now[len(self.before) :]]


def test_a_new_store_has_head_on_main_at_the_empty_root(tmp_path: Path) -> None:
    with Store.init(tmp_path / "new" / "store.db") as store:
        assert store.head == ("main", store.version(0))
        assert store.branches() == {"main": 0}
        assert len(store.library()) == 0
        with Store.init(tmp_path / "new" / "store.db") as again:
            assert [m.row for m in log(again)] == [m.row for m in log(store)] == [1, 2]


def test_making_moving_and_deleting_a_branch_only_appends_to_the_ref_log(store: Store) -> None:
    growth = Growth(store)
    store.create_branch("b", "v1")
    store.move_branch("b", "v3")
    store.delete_branch("b")
    assert growth.rows == [("heads/b", None, 1), ("heads/b", 1, 3), ("heads/b", 3, None)]
    assert store.branches() == {"main": 3}
    assert store.version(1).number == 1
    store.create_branch("b", "v2")
    assert store.tip("b").number == 2
    assert store.resolve("b@{2}").number == 3


def test_making_moving_and_deleting_a_tag_only_appends_to_the_ref_log(store: Store) -> None:
    growth = Growth(store)
    store.create_tag("t", "v1")
    with pytest.raises(InvalidName) as caught:
        store.create_tag("t", "v2")
    assert "v1" in str(caught.value)
    store.create_tag("t", "v2", force=True)
    store.delete_tag("t")
    assert growth.rows == [("tags/t", None, 1), ("tags/t", 1, 2), ("tags/t", 2, None)]
    assert store.tags() == {}
    assert store.resolve("t@{2}").number == 1


def test_every_move_says_who_when_and_why(store: Store) -> None:
    store.create_tag("t", "v1")
    move = log(store)[-1]
    assert (move.author, move.action) == ("ann", "tag t")
    assert move.time > log(store)[0].time
    assert [m.action for m in store.port.names.ref_log("heads/main")][:2] == [
        "commit: m3",
        "commit: m2",
    ]


def test_the_names_a_commit_moves_are_one_batch(store: Store) -> None:
    store.commit("main", [add("x")], message="m", tags=["a", "b"], author="ben")
    moves = log(store)[-3:]
    assert [m.name for m in moves] == ["heads/main", "tags/a", "tags/b"]
    assert {m.batch for m in moves} == {moves[0].row}
    assert {m.author for m in moves} == {"ben"}
    assert store.tags() == {"a": 4, "b": 4}


def test_a_branch_that_exists_is_not_made_again(store: Store) -> None:
    growth = Growth(store)
    with pytest.raises(InvalidName):
        store.create_branch("main", "v1")
    assert growth.rows == []


def test_names_that_are_not_there_cannot_move_or_go(store: Store) -> None:
    growth = Growth(store)
    for act in (
        lambda: store.move_branch("nobody", "v1"),
        lambda: store.delete_branch("nobody"),
        lambda: store.delete_tag("nobody"),
        lambda: store.tip("nobody"),
        lambda: store.commit("nobody", [], message="m"),
        lambda: store.checkout("nobody"),
    ):
        with pytest.raises(UnknownRevision) as caught:
            act()
        assert caught.value.hint
    assert growth.rows == []


def test_the_branch_head_is_on_cannot_be_deleted(store: Store) -> None:
    with pytest.raises(InvalidName):
        store.delete_branch("main")
    store.checkout("v1")
    store.delete_branch("main")
    assert store.head.version.number == 1
    assert len(store.library("v3")) == 3


def test_an_operation_is_not_taken_back_from_under_head(store: Store) -> None:
    store.create_branch("new")
    creation = log(store)[-1].batch
    with store.operation("switch -c other"):
        store.create_branch("other")
        store.checkout("other")
    switch = log(store)[-1].batch
    store.checkout("new")
    with pytest.raises(InvalidOperation, match="HEAD would be on new") as caught:
        take_back(store, creation)
    assert caught.value.hint
    assert [move.name for move in take_back(store, switch)] == ["heads/other"]
    assert (store.head.branch, store.branches().keys()) == ("new", {"main", "new"})
    store.checkout("v1")
    take_back(store, creation)
    assert (store.head.branch, store.head.version.number) == (None, 1)


def test_head_does_not_go_back_to_where_nothing_is_any_more(store: Store) -> None:
    store.create_branch("other")
    store.checkout("other")
    switch = log(store)[-1].batch
    store.checkout("v1")
    with pytest.raises(InvalidOperation, match="HEAD has moved since"):
        take_back(store, switch)
    store.checkout("main")
    store.checkout("other")
    switch = log(store)[-1].batch
    store.delete_branch("main")
    with pytest.raises(InvalidOperation, match="HEAD would be on main"):
        take_back(store, switch)
    assert store.head.branch == "other"


@pytest.fixture
def at_work(store: Store) -> Iterator[Run]:
    """A run at work on main, while HEAD is on another branch."""
    run = store.runs.create("quick", "uid", "main", 0, {}, "ann")
    store.create_branch("side")
    store.checkout("side")
    with process_lock.held(store.runs.lock_path(run)):
        yield run


def test_an_undo_takes_no_name_of_a_run_at_work_away(store: Store, at_work: Run) -> None:
    acts: list[Callable[[], object]] = [
        lambda: store.create_branch("quick/candidates"),
        lambda: store.commit("quick/candidates", [add("y")], message="m"),
        lambda: store.commit("main", [add("x")], message="m", meta={"run": "quick"}),
        lambda: store.create_tag("quick/step_1", "main"),
    ]
    for act in acts:
        act()
        branches = store.branches()
        for back in (undo, lambda s: take_back(s, log(s)[-1].batch)):
            with pytest.raises(InvalidOperation, match="run quick, which is at work"):
                back(store)
        assert store.branches() == branches
    for branch in ("side", "main"):  # what a person does on its branch too
        before = store.tip(branch)
        store.commit(branch, [add(branch)], message="m")
        assert undo(store)
        assert store.tip(branch) == before


def test_the_names_of_a_run_at_work_are_taken_away_only_by_force(
    store: Store, at_work: Run
) -> None:
    store.create_branch("quick/candidates", "main")
    store.create_tag("quick/step_1", "main")
    acts: list[Callable[[], object]] = [
        lambda: store.delete_branch("quick/candidates"),
        lambda: rename(store, "branch", "main", "old"),
        lambda: rename(store, "tag", "quick/step_1", "old"),
        lambda: store.delete_tag("quick/step_1"),
        lambda: store.move_branch("quick/candidates", "v0"),
        lambda: rename(store, "branch", "quick/candidates", "old"),
        lambda: store.delete_branch("main"),
    ]
    names = (store.branches(), store.tags())
    for act in acts:
        with pytest.raises(InvalidName, match="run quick is at work on") as refused:
            act()
        assert "--force" in str(refused.value.hint)
        assert (store.branches(), store.tags()) == names
    with store.forced():
        for act in acts[3:]:
            act()


def test_a_redo_takes_no_branch_of_a_run_at_work_away(store: Store) -> None:
    store.create_branch("side")
    store.delete_branch("side")
    undo(store)
    run = store.runs.create("quick", "uid", "side", 0, {}, "ann")
    at_work = process_lock.held(store.runs.lock_path(run))
    with at_work, pytest.raises(InvalidName, match="run quick is at work on side"):
        redo(store)
    redo(store)
    assert "side" not in store.branches()


def test_the_branch_of_a_run_at_work_moves_as_a_person_wants(store: Store, at_work: Run) -> None:
    store.move_branch("main", "v1")
    assert undo(store)


def test_head_on_a_branch_follows_its_commits_and_moves(store: Store) -> None:
    store.create_branch("b", "v1")
    assert store.checkout("b") == ("b", store.version(1))
    store.commit("b", [add("x")], message="m")
    assert store.head == ("b", store.version(4))
    store.commit("main", [add("y")], message="m")
    assert store.head == ("b", store.version(4))
    store.move_branch("b", "v2")
    assert store.head == ("b", store.version(2))


def test_a_detached_head_stays_where_it_is(store: Store) -> None:
    for revision, number in (("v2", 2), ("main~3", 1)):
        assert store.checkout(revision) == (None, store.version(number))
        store.commit("main", [add("x")], message="m")
        assert store.head == (None, store.version(number))
    store.create_tag("t", "v3")
    assert store.checkout("t") == (None, store.version(3))


def test_checkout_only_appends_to_the_ref_log(store: Store) -> None:
    growth = Growth(store)
    store.checkout("v1")
    store.checkout("main")
    assert growth.rows == [("HEAD", 0, 1), ("HEAD", 1, 3)]
    assert [m.symbol for m in log(store)[-2:]] == [None, "heads/main"]
    assert log(store)[-1].previous_symbol is None
    assert log(store)[-2].previous_symbol == "heads/main"


def test_checkout_of_a_branchs_name_goes_onto_the_branch_though_a_tag_has_it_too(
    store: Store,
) -> None:
    store.create_branch("both", "v1")
    store.create_tag("both", "v2")
    assert store.checkout("both") == ("both", store.version(1))


def test_a_rollback_deletes_nothing(store: Store) -> None:
    store.move_branch("main", "v1")
    assert [e.text for e in store.library()] == ["1"]
    assert [e.text for e in store.library("main@{1}")] == ["1", "2", "3"]
    store.commit("main", [add("other")], message="m")
    assert [e.text for e in store.library()] == ["1", "other"]
    store.move_branch("main", "v3")
    assert [e.text for e in store.library()] == ["1", "2", "3"]


# writers:


def test_a_commit_onto_a_version_the_branch_has_left_is_refused(store: Store) -> None:
    growth = Growth(store)
    for expected in ("v2", store.version(2), "main@{1}"):
        with pytest.raises(StaleVersion) as caught:
            store.commit("main", [add("x")], message="m", expected=expected)
        assert "v3" in str(caught.value)
        assert caught.value.hint
    assert growth.rows == []
    assert store.port.last_version() == 3
    assert store.commit("main", [add("x")], message="m", expected="v3").number == 4


def test_a_commit_is_checked_against_the_library_of_another_writer(store: Store) -> None:
    id = derived_id("x")
    store.commit("main", [add("x", id)], message="m")
    with Store.open(store.path) as other:
        other.commit("main", [Operation("DELETE", id)], message="m")
        other.commit("main", [add("x again", id)], message="m")
    store.commit("main", [Operation("MODIFY", id, "y")], message="m")
    assert store.library().by_id[id].text == "y"
    assert [e.op for e in store.history(id)] == ["ADD", "DELETE", "ADD", "MODIFY"]


HALF = "caf\udce9"


@pytest.mark.parametrize("field", ["message", "author", "meta"])
def test_half_a_character_in_a_version_is_refused_in_few_words(store: Store, field: str) -> None:
    given = {"message": "m"} | {field: {"why": HALF} if field == "meta" else HALF}
    with pytest.raises(InvalidOperation) as caught:
        store.commit("main", [add("a text that nobody asked about")], **given)  # type: ignore[arg-type]
    assert str(caught.value) == f"the {field} is not valid Unicode (surrogates not allowed)"
    assert "surrogate" in str(caught.value.hint)
    assert store.port.last_version() == 3


def test_half_a_character_anywhere_else_is_refused_too(store: Store) -> None:
    for act in half_a_character_elsewhere(store):
        with pytest.raises(TfgrpoError, match="Unicode") as caught:
            act()
        assert len(str(caught.value)) < 100
        assert caught.value.hint
    assert (store.tags(), store.runs.all(), decisions(store)) == ({}, [], [])


def half_a_character_elsewhere(store: Store) -> list[Callable[[], object]]:
    return [
        lambda: store.create_tag("t", why="w" * 100 + HALF),
        lambda: decide(store, "note", "x", {"text": HALF}),
        lambda: decide(store, "note", "x", {}, why=HALF),
        lambda: store.runs.create("r", "u", "main", 1, {"data": HALF}, "ann"),
        lambda: store.resolve(HALF),
    ]


WRITER = """
import sys
from tfgrpo.store import Operation, Store
path, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with Store.open(path, author=name) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for i in range(count):
        operations = [Operation("ADD", text=f"{name} {i} {k}") for k in range(3)]
        store.commit("main", operations, message=f"{name} {i}", tags=[f"{name}/{i}"])
"""


def check_writers(store: Store, names: list[str], count: int) -> None:
    """Every version of every writer is there, whole, in one line, in each writer's order."""
    versions = [v for v in list(store.log("main"))[::-1] if v.author in names]
    assert len(versions) == len(names) * count
    line = list(store.log("main"))
    assert [v.parent for v in line[:-1]] == [v.number for v in line[1:]]
    for version in versions:
        texts = [e.text for e in store.events(version)]
        assert texts == [f"{version.message} {k}" for k in range(3)]
        name, _, i = version.message.partition(" ")
        assert store.tags()[f"{name}/{i}"] == version.number
    for name in names:
        mine = [v.message for v in versions if v.author == name]
        assert mine == [f"{name} {i}" for i in range(count)]
    texts = [e.text for v in versions for e in store.events(v)]
    assert [e.text for e in store.library()][-len(texts) :] == texts
    assert not broken(store.path)


def test_four_processes_on_one_branch_never_interleave_and_lose_nothing(store: Store) -> None:
    names = ["p0", "p1", "p2", "p3"]
    processes = [child(WRITER, store.path, name, 25) for name in names]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    check_writers(store, names, 25)


def test_threads_that_retry_a_stale_commit_lose_nothing(store: Store) -> None:
    stale: list[str] = []
    start = threading.Barrier(3)

    def work(name: str) -> None:
        with Store.open(store.path, author=name) as mine:
            start.wait()
            for i in range(15):
                while True:
                    tip = mine.tip("main")
                    operations = [add(f"{name} {i} {k}") for k in range(3)]
                    try:
                        mine.commit(
                            "main",
                            operations,
                            message=f"{name} {i}",
                            expected=tip,
                            tags=[f"{name}/{i}"],
                        )
                        break
                    except StaleVersion:
                        stale.append(name)

    names = ["t0", "t1", "t2"]
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check_writers(store, names, 15)


def test_a_reader_sees_whole_versions_only_while_another_process_writes(store: Store) -> None:
    process = child(WRITER, store.path, "w", 60)
    assert process.stdout is not None
    process.stdout.readline()
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    sizes = set()
    while process.poll() is None:
        size = len(store.library())
        assert size % 3 == 0
        sizes.add(size)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert len(store.library()) == 3 + 180
    assert len(sizes) > 1, "nothing was read while it was written"
