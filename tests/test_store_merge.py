"""Merging, taking back, blaming and checking: what changes history without losing it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.store import Operation, Store, TfgrpoError, derived_id
from tfgrpo.store.fsck import fsck, repair
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.blame import blame
from tfgrpo.store.history.merge import (
    MergeConflict,
    NothingToChange,
    cherry_pick,
    cherry_pick_all,
    merge,
    merge_words,
    revert,
    revert_all,
    side,
)
from tfgrpo.store.history.name_moves import redo, undo
from tfgrpo.store.history.walks import common_ancestor, common_ancestors
from tfgrpo.store.sqlite.port import SqlitePort

A, B, C = (derived_id(name) for name in "abc")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A library of two on main, and a branch web at the same place."""
    with Store.init(tmp_path / "store.db", author="tester") as made:
        operations = [Operation("ADD", A, "count both days"), Operation("ADD", B, "round up")]
        made.commit("main", operations, message="first")
        made.create_branch("web", "main")
        yield made


def texts(store: Store, revision: str) -> list[str]:
    return [e.text for e in store.library(revision)]


def change(store: Store, branch: str, op: str, id: str, text: str | None = None) -> None:
    store.commit(branch, [Operation(op, id, text)], message=f"{op} on {branch}")  # type: ignore[arg-type]


def test_a_branch_with_nothing_of_its_own_is_moved_forward(store: Store) -> None:
    change(store, "web", "MODIFY", A, "count every day")
    merged = merge(store, "main", store.tip("web"), message="m")
    assert merged.number == store.tip("web").number == store.tip("main").number


def test_a_merge_joins_words_and_has_both_parents(store: Store) -> None:
    change(store, "web", "MODIFY", A, "always count both days")
    change(store, "main", "MODIFY", A, "count both days of a hire")
    change(store, "web", "DELETE", B)
    change(store, "main", "ADD", C, "use whole hours")
    web = store.tip("web")
    merged = merge(store, "main", web, message="m")
    assert texts(store, "main") == ["always count both days of a hire", "use whole hours"]
    assert (merged.parent, merged.merged) == (merged.number - 1, web.number)
    assert common_ancestor(store, merged, web).number == web.number
    assert merge(store, "main", web, message="again").number == merged.number


def crossed(store: Store, first: str, second: str) -> None:
    """Merges what web was into main and what main was into web, each as a branch of its own."""
    store.create_branch("was", first)
    merge(store, first, store.tip(second), message="m")
    merge(store, second, store.tip("was"), message="m")
    store.delete_branch("was")


@pytest.mark.parametrize("sides", [("main", "web"), ("web", "main")])
def test_what_one_side_took_back_after_both_had_merged_stays_taken_back(
    store: Store, sides: tuple[str, str]
) -> None:
    change(store, "main", "MODIFY", B, "round up always")
    modified = store.tip("main")
    change(store, "web", "ADD", C, "add tax")
    crossed(store, *sides)
    assert texts(store, "main") == texts(store, "web")
    revert(store, "main", modified, message="back")
    ours, theirs = sides
    merge(store, ours, store.tip(theirs), message="m")
    assert texts(store, ours) == ["count both days", "round up", "add tax"]


def test_what_both_decided_in_other_ways_is_asked_of_a_person_again(store: Store) -> None:
    change(store, "main", "MODIFY", B, "round up to ten")
    change(store, "web", "MODIFY", B, "round up to five")
    store.create_branch("was", "main")
    merge(store, "main", store.tip("web"), message="m", resolve=side("ours"))
    merge(store, "web", store.tip("was"), message="m", resolve=side("ours"))
    with pytest.raises(MergeConflict) as caught:
        merge(store, "main", store.tip("web"), message="m")
    (conflict,) = caught.value.conflicts
    assert (conflict.ours, conflict.theirs) == ("round up to ten", "round up to five")
    merge(store, "main", store.tip("web"), message="m", resolve=side("theirs"))
    assert texts(store, "main") == ["count both days", "round up to five"]


def test_lines_that_cross_again_and_again_are_merged_with_few_comparisons(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds, lines, compared = 9, ("main", "web", "new"), []
    store.create_branch("new", "main")
    for line in lines:
        change(store, line, "ADD", derived_id(line), f"words of {line}")
    for number in range(rounds):
        tips = {line: store.tip(line) for line in lines}
        for line, other in permutations(lines, 2):
            merge(store, line, tips[other], message="m")
        for line in lines:
            change(store, line, "ADD", derived_id(f"{line} {number}"), f"word {number} of {line}")
    three_way = merges.three_way
    monkeypatch.setattr(
        merges, "three_way", lambda *a, **k: compared.append(a) or three_way(*a, **k)
    )
    merge(store, "main", store.tip("web"), message="m")
    assert len(compared) <= 10 * rounds
    assert len(texts(store, "main")) == 2 + 3 + 3 * (rounds - 1) + 2


def test_common_ancestors_are_alike_in_every_order(store: Store) -> None:
    change(store, "main", "ADD", C, "add tax")
    change(store, "web", "DELETE", A)
    there = {store.tip("main").digest, store.tip("web").digest}
    crossed(store, "main", "web")
    main, web = store.tip("main"), store.tip("web")
    both = common_ancestors(store, main, web)
    assert {one.digest for one in both} == there
    assert [*both] == common_ancestors(store, web, main)
    assert common_ancestors(store, main, main) == [main]
    assert common_ancestors(store, both[0], main) == [both[0]]
    change(store, "main", "DELETE", C)
    assert common_ancestor(store, store.tip("main"), main) == main


def test_a_conflict_records_nothing_and_can_be_decided(store: Store) -> None:
    change(store, "web", "MODIFY", A, "count the first day")
    change(store, "main", "MODIFY", A, "count the last day")
    last = store.port.last_version()
    with pytest.raises(MergeConflict) as found:
        merge(store, "main", store.tip("web"), message="m")
    (conflict,) = found.value.conflicts
    assert conflict == (A, "count both days", "count the last day", "count the first day")
    assert store.port.last_version() == last
    merge(store, "main", store.tip("web"), message="m", resolve=side("theirs"))
    assert texts(store, "main")[0] == "count the first day"


def test_delete_against_modify_is_a_conflict(store: Store) -> None:
    change(store, "web", "DELETE", A)
    change(store, "main", "MODIFY", A, "count every day")
    with pytest.raises(MergeConflict):
        merge(store, "main", store.tip("web"), message="m")


def test_a_cherry_pick_applies_one_version_alone(store: Store) -> None:
    change(store, "web", "MODIFY", A, "count every day")
    change(store, "web", "MODIFY", B, "round down")
    cherry_pick(store, "main", store.tip("web"), message="pick")
    assert texts(store, "main") == ["count both days", "round down"]
    with pytest.raises(TfgrpoError, match="nothing"):
        cherry_pick(store, "main", store.tip("web"), message="again")


def test_a_revert_takes_back_one_version_and_keeps_places(store: Store) -> None:
    before = store.library("main")
    change(store, "main", "DELETE", A)
    deleted = store.tip("main")
    change(store, "main", "ADD", C, "use whole hours")
    revert(store, "main", deleted, message="back")
    assert texts(store, "main") == ["count both days", "round up", "use whole hours"]
    assert [e.id for e in store.library("main")][:2] == [e.id for e in before]


def test_a_revert_of_what_was_changed_again_is_a_conflict(store: Store) -> None:
    change(store, "main", "MODIFY", A, "count the first day")
    changed = store.tip("main")
    change(store, "main", "MODIFY", A, "count the last day")
    with pytest.raises(MergeConflict):
        revert(store, "main", changed, message="back")


def with_idle_versions(store: Store) -> None:
    """On web: a KEEP, a version without events, a merge of main, and two changes."""
    change(store, "main", "ADD", C, "use whole hours")
    change(store, "web", "KEEP", A)
    change(store, "web", "MODIFY", B, "round down")
    store.commit("web", [], message="nothing")
    merge(store, "web", store.tip("main"), message="merge main")
    change(store, "web", "MODIFY", A, "count every day")


def test_a_range_passes_over_what_has_nothing_to_change(store: Store) -> None:
    with_idle_versions(store)
    was = texts(store, "web")
    reverted = revert_all(store, "web", ["v1..web"])
    assert texts(store, "web") == texts(store, "v1")
    assert [v.message.split(":")[0] for v in reverted] == ["revert v7", "revert v6", "revert v4"]
    undo(store)
    assert texts(store, "web") == was
    picked = cherry_pick_all(store, "main", ["v1..web"])
    assert texts(store, "main") == was
    assert [v.message.split(":")[0] for v in picked] == ["cherry-pick v4", "cherry-pick v7"]


def test_a_range_of_which_nothing_is_left_to_change_is_refused(store: Store) -> None:
    change(store, "web", "KEEP", A)
    change(store, "web", "KEEP", B)
    change(store, "web", "MODIFY", B, "round down")
    for verb in (cherry_pick_all, revert_all):
        for revisions in (["v1..v3"], ["v1..v2"], ["v2"], ["v2", "v3..v4"]):
            before = store.port.last_version()
            with pytest.raises(NothingToChange):
                verb(store, "web", revisions)
            assert store.port.last_version() == before


WORDS = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8).map(" ".join)


@given(WORDS, WORDS)
def test_merging_with_an_unchanged_side_gives_the_other(base: str, other: str) -> None:
    assert merge_words(base, base, other) == other
    assert merge_words(base, other, base) == other
    assert merge_words(base, other, other) == other


@given(WORDS, WORDS, WORDS)
def test_a_merge_of_words_does_not_depend_on_whose_side_is_whose(
    base: str, ours: str, theirs: str
) -> None:
    assert merge_words(base, ours, theirs) == merge_words(base, theirs, ours)


def test_undo_and_redo_walk_over_operations_of_every_kind(store: Store) -> None:
    states = [(store.head.branch, store.head.version.number, store.tags(), store.branches())]

    def seen() -> tuple[object, ...]:
        return store.head.branch, store.head.version.number, store.tags(), store.branches()

    change(store, "main", "MODIFY", A, "count every day")
    states.append(seen())  # type: ignore[arg-type]
    store.create_tag("approved")
    states.append(seen())  # type: ignore[arg-type]
    store.checkout("v1")
    states.append(seen())  # type: ignore[arg-type]
    store.move_branch("web", "main")
    states.append(seen())  # type: ignore[arg-type]
    for expected in states[-2::-1]:
        undo(store)
        assert seen() == expected
    for expected in states[1:]:
        redo(store)
        assert seen() == expected
    with pytest.raises(TfgrpoError, match="nothing to redo"):
        redo(store)
    undo(store)
    store.create_tag("other")
    with pytest.raises(TfgrpoError, match="nothing to redo"):
        redo(store)


def test_undo_ends_at_the_beginning_and_loses_no_version(tmp_path: Path) -> None:
    with Store.init(tmp_path / "s.db") as store:
        store.commit("main", [Operation("ADD", A, "x")], message="m")
        undo(store)
        assert texts(store, "main") == []
        assert texts(store, "v1") == ["x"]
        with pytest.raises(TfgrpoError, match="nothing to undo"):
            undo(store)


def test_blame_counts_the_keeps_of_this_history_since_the_last_change(store: Store) -> None:
    change(store, "main", "KEEP", A)
    change(store, "main", "MODIFY", A, "count every day")
    change(store, "main", "KEEP", A)
    change(store, "main", "KEEP", A)
    change(store, "web", "KEEP", B)
    change(store, "main", "KEEP", B)
    found = {b.experience.id: b for b in blame(store, store.tip("main"))}
    assert (found[A].keeps, found[A].version.message) == (2, "MODIFY on main")
    assert (found[B].keeps, found[B].version.message) == (1, "first")
    assert [b.keeps for b in blame(store, store.tip("web"))] == [0, 1]


def test_blame_and_what_comes_back_look_a_lane_up_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = [derived_id("gone", n) for n in range(30)]
    store.commit("main", [Operation("ADD", id, f"gone {id}") for id in gone], message="m")
    store.commit("main", [Operation("DELETE", id) for id in gone], message="m")
    for n in range(30):
        change(store, "web", "ADD", derived_id("web", n), f"web {n}")
        change(store, "main", "KEEP", A)
        merge(store, "main", store.tip("web"), message="merge web")
        merge(store, "web", store.tip("main"), message="forward")
    lanes: list[object] = []
    row = SqlitePort.row

    def counted(port: SqlitePort, query: str, *values: Any) -> Any:
        if "@.lanes where" in query:
            lanes.append(values)
        return row(port, query, *values)

    monkeypatch.setattr(SqlitePort, "row", counted)
    with Store.open(store.path, author="tester") as again:
        found = blame(again, again.tip("main"))
        assert {b.version.message for b in found[2:]} == {"ADD on web"}
        back = [Operation("ADD", id, "back") for id in gone]
        again.commit("main", back, message="back")
    assert len(lanes) == len(set(map(str, lanes))) <= 60
    assert texts(store, "main")[-30:] != ["back"] * 30, "they are in their places"


def damaged(store: Store, *statements: str) -> None:
    """Changes the file as nobody is allowed to: without its triggers."""
    with sqlite3.connect(store.path) as db:
        query = "select name, sql from sqlite_master where type = 'trigger'"
        triggers = db.execute(query).fetchall()
        for name, _ in triggers:
            db.execute(f"drop trigger {name}")
        for statement in statements:
            db.execute(statement)
        for _, sql in triggers:
            db.execute(sql)


def test_what_a_revert_brings_back_is_of_who_taught_it(store: Store) -> None:
    change(store, "main", "KEEP", A)
    for op, text in (("MODIFY", "count no day"), ("DELETE", None)):
        change(store, "main", op, A, text)
        revert(store, "main", store.tip("main"), message="back")
        change(store, "main", "KEEP", A)
    (found, _) = blame(store, store.tip("main"))
    assert (found.experience.text, found.version.number, found.keeps) == ("count both days", 1, 3)
    change(store, "main", "MODIFY", A, "count no day")
    cherry_pick(store, "web", store.tip("main"), message="picked")
    revert(store, "web", store.tip("web"), message="back")
    (found, _) = blame(store, store.tip("web"))
    assert (found.experience.text, found.version.number, found.keeps) == ("count both days", 1, 0)


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("update events set text = 'forged' where row = 1", "event 1"),
        ("update events set reason = 'forged' where row = 1", "event 1"),
        ("update events set op = 'DELETE' where row = 3", "v2"),
        ("update events set replaces = 2 where row = 3", "event 3"),
        ("update events set birth = 2 where row = 3", "event 3"),
        ("update events set evidence = '{}' where row = 3", "v2"),
        ("delete from events where row = 2", "v1"),
        ("update versions set author = 'nobody' where number = 2", "v2"),
        ("update versions set message = 'x' where number = 1", "v1"),
        ("update versions set time = time + 1 where number = 1", "v1"),
        ("update reflog set version = 99 where name = 'heads/web'", "heads/web"),
        ("insert into snapshots values (3, x'00')", "snapshot 3"),
    ],
)
def test_fsck_names_what_was_changed_behind_its_back(
    store: Store, statement: str, where: str
) -> None:
    change(store, "main", "MODIFY", A, "count every day")
    assert fsck(store).problems == ()
    damaged(store, "pragma foreign_keys = off", statement)
    assert where in [problem.where for problem in fsck(store).problems]


def test_a_branch_made_in_the_operation_that_commits_to_it_is_sound(store: Store) -> None:
    with store.operation("commit: tried and rejected"):
        store.create_branch("side", "main")
        store.commit("side", [Operation("DELETE", A)], message="tried and rejected")
        store.commit("main", [], message="tried and rejected")
    assert fsck(store).problems == ()
    (made,) = [m for m in store.port.names.ref_log("heads/side") if m.previous is None]
    damaged(store, f"update reflog set action = 'commit: forged' where row = {made.row}")
    assert [p.where for p in fsck(store).problems] == [f"move {made.row}"]


def test_repair_rebuilds_what_is_derived_alone(store: Store) -> None:
    damaged(store, "insert into snapshots values (2, x'00')")
    (problem,) = fsck(store).problems
    assert problem.derived
    assert repair(store) == 1
    assert fsck(store).problems == ()
    assert texts(store, "main") == ["count both days", "round up"]


def test_an_empty_reason_is_none_and_needs_no_seal(store: Store) -> None:
    store.commit("main", [Operation("KEEP", A, reason="")], message="m")
    (event,) = store.events(store.tip("main"))
    assert event.reason is None
    assert fsck(store).problems == ()
