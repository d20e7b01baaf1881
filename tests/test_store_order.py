"""Another order of a library: recorded, replayed, merged, sent to other stores and taken back."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli
from format_reader import Reader
from store_helpers import clock

from tfgrpo.hand_edits import commit_edit, move_experiences
from tfgrpo.mirror.commit_layout import Rendering
from tfgrpo.rendering.markdown_edit import document
from tfgrpo.store import InvalidOperation, Operation, StaleVersion, Store
from tfgrpo.store.errors import TransferError
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.blame import blame
from tfgrpo.store.history.library_order import moved, moves
from tfgrpo.store.history.merge import ORDER_CONFLICTS
from tfgrpo.store.history.name_moves import undo
from tfgrpo.store.transfer.locations import clone, parse
from tfgrpo.store.transfer.pack import PackedVersion
from tfgrpo.store.transfer.receive import digest_of, receive

IDS = {name: name.lower() * 12 for name in "ABCDEFG"}
NAMES = {id: name for name, id in IDS.items()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store.init(tmp_path / "store.db", author="ann", now=clock())
    store.commit("main", [Operation("ADD", IDS[n], f"rule {n}") for n in "ABCDE"], message="m")
    return store


def order(store: Store, revision: str = "main") -> str:
    return "".join(NAMES[e.id] for e in store.library(revision))


def arrange(store: Store, letters: str, branch: str = "main", message: str = "m") -> None:
    store.commit(branch, [], message=message, order=[IDS[n] for n in letters])


def test_an_order_is_in_force_until_another_is_and_new_experiences_come_last(store: Store) -> None:
    arrange(store, "BADCE")
    assert order(store) == "BADCE"
    store.commit("main", [Operation("ADD", IDS["F"], "rule F")], message="m")
    store.commit("main", [Operation("DELETE", IDS["A"])], message="m")
    assert order(store) == "BDCEF"
    store.commit("main", [Operation("ADD", IDS["A"], "again")], message="m")
    assert order(store) == "BADCEF"  # it has its place back
    arrange(store, "ABCDEF")
    assert store.tip("main").meta == {"order": []}  # and nothing is carried on
    store.commit("main", [Operation("ADD", IDS["G"], "rule G")], message="m")
    assert (order(store), store.tip("main").meta) == ("ABCDEFG", {})
    assert order(store, "v1") == "ABCDE"
    mirror = Rendering(store)
    for version in list(store.log("main"))[::-1]:
        lines = re.findall(r"<!-- (\w{12}) -->", mirror.at(version))
        assert "".join(NAMES[id] for id in lines) == order(store, version.name)
    assert fsck(store).problems == ()


def test_a_list_is_no_longer_than_up_to_what_was_moved(store: Store) -> None:
    arrange(store, "BACDE")
    assert store.tip("main").meta == {"order": [IDS["B"]]}


def test_another_reader_a_clone_and_a_replay_without_snapshots_agree(
    store: Store, tmp_path: Path
) -> None:
    arrange(store, "EDCBA")
    store.commit("main", [Operation("MODIFY", IDS["C"], "rule C2")], message="m")
    store.port.storage.drop_snapshots()
    store.forget()
    assert order(store) == "EDCBA"
    reader = Reader(store.path)
    assert [e.id for e in reader.library(3)] == [IDS[n] for n in "EDCBA"]
    assert list(reader.wrong()) == []
    reader.close()
    clone(parse(store.file), tmp_path / "there.db", author="bob")
    with Store.open(tmp_path / "there.db") as there:
        assert order(there) == "EDCBA"
        assert there.tip("main").digest == store.tip("main").digest
        assert fsck(there).problems == ()


def test_blame_and_undo_are_as_they_were(store: Store) -> None:
    before = {b.experience.id: (b.version, b.keeps) for b in blame(store, store.tip("main"))}
    arrange(store, "EDCBA")
    assert {
        b.experience.id: (b.version, b.keeps) for b in blame(store, store.tip("main"))
    } == before
    undo(store)
    assert order(store) == "ABCDE"


@pytest.mark.parametrize(
    ("ours", "theirs", "merged", "left"),
    [
        ("ABCDE", "BACDE", "BACDE", ""),
        ("EABCD", "BACDE", "EBACD", ""),
        ("ACBDE", "ABCED", "ACBED", ""),
        ("BCADE", "BCDEA", "BCADE", "A"),
        ("EABCD", "EABCD", "EABCD", ""),
        ("EABCD", "ABCDE", "EABCD", ""),
    ],
)
def test_a_merge_has_both_sides_moves_and_ours_where_both_moved(
    store: Store, ours: str, theirs: str, merged: str, left: str
) -> None:
    store.create_branch("web")
    arrange(store, ours)
    arrange(store, theirs, "web")
    version = merges.merge(store, "main", store.tip("web"), message="merge")
    assert order(store) == merged
    assert version.meta.get(ORDER_CONFLICTS, []) == [IDS[n] for n in left]
    assert fsck(store).problems == ()


def test_a_merge_brings_what_was_added_to_where_it_was_put(store: Store) -> None:
    store.create_branch("web")
    store.commit("web", [Operation("ADD", IDS["F"], "rule F")], message="m")
    arrange(store, "AFBCDE", "web")
    store.commit("main", [Operation("ADD", IDS["G"], "rule G")], message="m")
    merges.merge(store, "main", store.tip("web"), message="merge")
    assert order(store) == "AFBCDEG"


def test_moves_are_applied_and_taken_back_like_other_changes(store: Store) -> None:
    store.create_branch("web")
    arrange(store, "EABCD")
    version = store.tip("main")
    merges.cherry_pick(store, "web", version, message="apply")
    assert order(store, "web") == "EABCD"
    arrange(store, "EADBC")
    merges.revert(store, "main", version, message="take back")
    assert order(store) == "ADBCE"  # what came later stands


def test_a_move_is_made_beside_a_writer_and_an_arrangement_of_an_old_order_is_refused(
    store: Store,
) -> None:
    at = store.tip("main")
    with Store.open(store.path, author="bob") as other:
        other.commit("main", [Operation("ADD", IDS["F"], "rule F")], message="m")
        store.commit("main", [], message="m", order=[IDS[n] for n in "BACDE"], onto=at)
        assert order(store) == "BACDEF"
        with pytest.raises(StaleVersion, match="another order"):
            other.commit("main", [], message="m", order=[IDS[n] for n in "CABDE"], onto=at)
        move_experiences(other, "main", [IDS["F"]], before=IDS["B"], reason="first of all")
    assert order(store) == "FBACDE"
    assert store.tip("main").message == f"move {IDS['F']}: first of all"
    with pytest.raises(InvalidOperation, match="stand there already"):
        move_experiences(store, "main", [IDS["F"]])


def test_moves_are_the_fewest_that_explain_it(store: Store) -> None:
    arrange(store, "BCDEA")
    found = moves(store, store.version(1), store.tip("main"))
    assert [(NAMES[m.experience], m.before, m.after) for m in found] == [("A", 0, 4)]
    assert moves(store, store.version(1), store.version(1)) == ()
    assert moved("abcd", "dcba") in (list("dcb"), list("cba"), list("dba"), list("dca"))


def test_a_received_order_that_is_not_its_parents_is_refused(store: Store) -> None:
    arrange(store, "BACDE")
    tip = store.tip("main")
    for meta in ({"ordered": "0" * 64}, {"order": ["x"]}, {"order": [IDS["A"]] * 2}):
        text = json.dumps(meta, separators=(",", ":"))
        packed = PackedVersion(*(b"", (tip.digest,), 1, "eve", 1, "m", text), events=())
        packed = packed._replace(digest=digest_of(packed))
        with pytest.raises(TransferError, match="order"), store.port.transaction():
            receive(store.port, [packed])
    with pytest.raises(InvalidOperation, match="order"):
        store.commit("main", [], message="m", meta={"order": []})


def test_an_edited_file_moves_lines_and_places_new_ones(store: Store) -> None:
    library = store.library("main")
    lines = document(library).splitlines()
    lines[-5:] = [lines[-1], "- rule new", *lines[-5:-1]]
    version = commit_edit(store, "main", library, "\n".join(lines), reason="because")
    assert version is not None
    assert [e.text[-3:] for e in store.library("main")] == [
        "e E",
        "new",
        "e A",
        "e B",
        "e C",
        "e D",
    ]
    assert version.message == f"add 1 experience; move {IDS['E']}"
    library = store.library("main")
    assert commit_edit(store, "main", library, document(library)) is None


def test_the_command_line_moves_and_shows_it(cli: Cli) -> None:
    cli("init")
    cli("add", "Rule one.", "Rule two.", "Rule three.")
    done = cli("move", "G2", "--before", "G0", "--why", "it matters most").stdout
    assert "it matters most" in done
    assert "[G2 → G0] Rule three." in done
    assert "↕1" in cli("log", "--oneline").stdout
    assert "[G2 → G0] Rule three." in cli("show", "HEAD").stdout
    assert "1 moved" in cli("diff", "v1", "v2").stdout
    assert json.loads(cli("diff", "v1", "v2", "--json").stdout)["moves"][0]["to"] == "G0"
    exported = cli("export", "--format", "prompt", "-o", "-").stdout
    assert exported.index("three") < exported.index("one")
    cli("revert", "HEAD")
    library = json.loads(cli("show", "--json").stdout)["library"]
    assert library[0]["text"] == "Rule one."
