"""The grammar of revisions: every form finds its version, every other one says what to do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import add, clock

from tfgrpo.store import (
    AmbiguousRevision,
    InvalidName,
    Store,
    UnknownRevision,
    derived_id,
)
from tfgrpo.store.history.name_moves import redo, rename, undo
from tfgrpo.store.history.revisions import resolve_range


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """
    v0 - v1 - v2 - v4 - v5   main; v4 merges v3; run R made v4 (step_1) and v5 (step_2)
           `- v3 - v6        side, on which no run worked
    """
    with Store.init(tmp_path / "store.db", now=clock()) as store:
        store.commit("main", [add("1", derived_id(1))], message="one")
        store.create_branch("side", "v1")
        store.create_tag("good", "v1")
        store.commit("main", [add("2", derived_id(2))], message="two", tags=["R/step_0"])
        store.commit("side", [add("3", derived_id(3))], message="three")
        of_run = {"run": "R"}
        merged = store.tip("side")
        for step in (1, 2):
            store.commit(
                "main",
                [add(f"s{step}")],
                message=f"step {step}",
                meta=of_run,
                merged=merged if step == 1 else None,
                tags=[f"R/step_{step}"],
            )
        store.commit("side", [add("6")], message="six")
        yield store


FORMS = {
    "v0": 0,
    "v3": 3,
    "HEAD": 5,
    "@": 5,
    "main": 5,
    "side": 6,
    "good": 1,
    "step_0": 2,
    "step_1": 4,
    "step_2": 5,
    "R/step_1": 4,
    "HEAD~": 4,
    "HEAD~0": 5,
    "HEAD~1": 4,
    "HEAD~2": 2,
    "v5~4": 0,
    "@~2": 2,
    "main^": 4,
    "main^0": 5,
    "v4^1": 2,
    "v4^2": 3,
    "v4^2~": 1,
    "main~1^2": 3,
    "main~~": 2,
    "main^^2^": 1,
    "good~1": 0,
    "R/step_2~1": 4,
    "step_2^": 4,
    "main@{0}": 5,
    "main@{1}": 4,
    "main@{2}": 2,
    "main@{4}": 0,
    "side@{1}": 3,
    "side@{2}": 1,
    "good@{0}": 1,
    "main@{1}^2": 3,
    "HEAD@{0}": 5,
    "HEAD@{1}": 4,
    "@@{1}": 4,
    "@{1}": 4,
}


@pytest.mark.parametrize("revision", FORMS)
def test_every_form_finds_its_version(store: Store, revision: str) -> None:
    assert store.resolve(revision).number == FORMS[revision]


@pytest.mark.parametrize("revision", ["", "~", "~1", "^", "^2"])
def test_an_empty_revision_is_not_head(store: Store, revision: str) -> None:
    with pytest.raises(UnknownRevision, match="empty" if not revision else "names no version") as e:
        store.resolve(revision)
    assert "HEAD" in str(e.value.hint)


def test_a_range_may_leave_out_head(store: Store) -> None:
    for text, ends in (("..v3", (5, 3)), ("v3..", (3, 5)), ("..", (5, 5)), ("...v3", (3, 3))):
        low, high = resolve_range(store, text)
        assert low is not None
        assert (low.number, high.number) == ends


def test_a_digest_prefix_of_any_length_from_four_finds_its_version(store: Store) -> None:
    for version in store.log("HEAD"):
        whole = version.digest.hex()
        for length in (4, 5, 11, 12, 63, 64):
            try:
                assert store.resolve(whole[:length]) == version
                assert store.resolve(whole[:length] + "~0") == version
            except AmbiguousRevision:
                assert length <= 5


def test_a_digest_prefix_that_fits_several_versions_lists_them(store: Store) -> None:
    seen: dict[str, int] = {}
    for n in range(7, 3000):
        version = store.commit("main", [], message="m")
        prefix = version.digest.hex()[:4]
        if prefix in seen:
            break
        seen[prefix] = n
    with pytest.raises(AmbiguousRevision) as caught:
        store.resolve(prefix)
    assert f"v{seen[prefix]})" in str(caught.value.hint)
    assert f"{version.name})" in str(caught.value.hint)
    assert store.resolve(version.digest.hex()[:16]) == version


def test_a_name_that_is_also_a_digest_prefix_is_ambiguous(store: Store) -> None:
    prefix = store.version(1).digest.hex()[:6]
    store.create_tag(prefix, "v1")
    assert store.resolve(prefix).number == 1, "both mean the same version"
    store.create_branch(prefix, "v2")
    with pytest.raises(AmbiguousRevision) as caught:
        store.resolve(prefix)
    assert "branch" in str(caught.value.hint)


def test_a_branch_and_a_tag_of_one_name_are_ambiguous_only_when_they_differ(store: Store) -> None:
    store.create_tag("both", "v3")
    store.create_branch("both", "v3")
    assert store.resolve("both").number == 3
    store.commit("both", [add("x")], message="on")
    with pytest.raises(AmbiguousRevision) as caught:
        store.resolve("both")
    assert str(caught.value.hint) == "it may be branch both, tag both"


UNKNOWN = {
    "v99": "v6",
    "mian": "main",
    "R/step_9": "R/step_",
    "step_7": "R/step_2",
    "nothing-like-it": "tfgrpo log",
    "abcdef0123456789": "tfgrpo",
    "HEAD~6": "ancestors",
    "v0^": "v0",
    "v4^3": "v4",
    "v1^2": "v1",
    "main@{5}": "main@{4}",
    "HEAD@{99}": "HEAD@{4}",
    "qqqq@{0}": "tfgrpo",
    "sid@{0}": "side",
    "v3@{0}": "tfgrpo",
    "main~1@{1}": "directly follow a name",
    "main@{0}@{0}": "directly follow a name",
    "main~x": "v12~2",
    "main^-1": "v12~2",
    "main@{": "v12~2",
    "main@{x}": "v12~2",
    "main@{-1}": "v12~2",
    "v1..v2": "tfgrpo log",
    "main..": "tfgrpo log",
    "..": "tfgrpo log",
    "V1": "tfgrpo",
    "head": "tfgrpo",
    "v99999999999999999999": "v6",
}


@pytest.mark.parametrize("revision", UNKNOWN)
def test_an_unknown_or_unreadable_form_says_so_with_a_hint(store: Store, revision: str) -> None:
    with pytest.raises(UnknownRevision) as caught:
        store.resolve(revision)
    assert caught.value.hint is not None
    assert UNKNOWN[revision] in caught.value.hint


def test_an_earlier_place_where_the_name_was_deleted_is_an_error(store: Store) -> None:
    store.delete_branch("side")
    with pytest.raises(UnknownRevision, match="deleted"):
        store.resolve("side@{0}")
    assert store.resolve("side@{1}").number == 6
    with pytest.raises(UnknownRevision):
        store.resolve("side")


# steps:


def test_a_bare_step_belongs_to_another_run_when_heads_history_has_none(store: Store) -> None:
    store.checkout("side")
    assert store.resolve("step_1").number == 4
    with pytest.raises(UnknownRevision) as caught:
        store.resolve("step_3")
    assert caught.value.hint


def test_a_bare_step_of_several_runs_is_ambiguous_and_lists_them(store: Store) -> None:
    store.create_tag("S/step_1", "v3")
    assert store.resolve("step_1").number == 4, "HEAD's own run"
    store.checkout("side")
    with pytest.raises(AmbiguousRevision) as caught:
        store.resolve("step_1")
    assert str(caught.value.hint) == "it may be R/step_1, S/step_1"
    assert store.resolve("S/step_1").number == 3


def test_a_bare_step_is_of_the_run_nearest_on_heads_first_parent_history(store: Store) -> None:
    for run, branch in (("S", "side"), ("T", "main")):
        store.commit(branch, [add(run)], message="m", meta={"run": run}, tags=[f"{run}/step_1"])
    side, main = store.tip("side"), store.tip("main")
    store.commit("main", [add("by hand")], message="m", merged=side)
    assert store.resolve("step_1") == main
    store.checkout("side")
    assert store.resolve("step_1") == side
    store.checkout("v5")
    assert store.resolve("step_1").number == 4


def test_a_tag_beside_the_steps_does_not_break_the_error_for_a_missing_step(store: Store) -> None:
    store.create_tag("R/step_final", "v5")
    with pytest.raises(UnknownRevision) as caught:
        store.resolve("step_9")
    assert "R/step_2" in str(caught.value.hint)


def test_the_newest_step_named_in_a_hint_is_one_that_is_there(store: Store) -> None:
    store.delete_tag("R/step_2")
    with pytest.raises(UnknownRevision) as caught:
        store.resolve("step_9")
    assert "R/step_1" in str(caught.value.hint)


# names as they stood before:


def test_head_ago_is_where_head_stood_through_checkouts_commits_and_moves(tmp_path: Path) -> None:
    dice = random.Random(3)
    with Store.init(tmp_path / "store.db", now=clock()) as store:
        store.create_branch("a")
        store.create_branch("b")
        stood = [0]
        for _ in range(120):
            branch = dice.choice(["main", "a", "b"])
            move = dice.choice(["checkout", "detach", "commit", "commit", "move", "tag"])
            on = store.head.branch
            if move == "checkout":
                store.checkout(branch)
            elif move == "detach":
                store.checkout(f"v{dice.randrange(store.port.last_version() + 1)}")
            elif move == "commit":
                store.commit(branch, [add("x")], message="m")
            elif move == "move":
                store.move_branch(branch, f"v{dice.randrange(store.port.last_version() + 1)}")
            else:
                store.create_tag("t", branch, force=True)
            if move in ("checkout", "detach") or (move in ("commit", "move") and branch == on):
                stood.append(store.head.version.number)
            assert store.resolve("HEAD@{0}") == store.head.version
        stood.reverse()
        assert [store.resolve(f"HEAD@{{{n}}}").number for n in range(len(stood))] == stood
        with pytest.raises(UnknownRevision):
            store.resolve(f"HEAD@{{{len(stood)}}}")


def test_a_rename_of_heads_branch_and_its_undo_are_places_of_head(store: Store) -> None:
    rename(store, "branch", "main", "trunk")
    assert [store.resolve(f"HEAD@{{{n}}}").number for n in range(4)] == [5, 5, 4, 2]
    store.commit("trunk", [add("7")], message="seven")
    assert [store.resolve(f"HEAD@{{{n}}}").number for n in range(4)] == [7, 5, 5, 4]
    undo(store)
    undo(store)
    stood = [store.resolve(f"HEAD@{{{n}}}").number for n in range(6)]
    assert (stood, store.head.branch) == ([5, 5, 7, 5, 5, 4], "main")


def test_an_undo_puts_head_where_the_branch_stands_that_it_goes_back_to(store: Store) -> None:
    store.checkout("v1")
    undo(store)
    assert (store.resolve("HEAD@{0}"), store.head.branch) == (store.tip("main"), "main")
    redo(store)
    assert store.resolve("HEAD@{0}").number == 1


def test_an_earlier_place_is_of_the_name_that_stands(store: Store) -> None:
    store.create_branch("both", "v6")
    store.create_tag("both", "v1")
    store.create_tag("both", "v2", force=True)
    store.delete_branch("both")
    assert [store.resolve(f"both@{{{n}}}").number for n in range(2)] == [2, 1]
    store.delete_tag("both")
    with pytest.raises(UnknownRevision, match="deleted"):
        store.resolve("both@{0}")
    assert store.resolve("both@{1}").number == 6


# ranges:

RANGES = {
    "main": [5, 4, 3, 2, 1, 0],
    "side": [6, 3, 1, 0],
    "v4..": [5],
    "..side": [6],
    "side..main": [5, 4, 2],
    "main..side": [6],
    "v1..v4": [4, 3, 2],
    "v0..v0": [],
    "main..v1": [],
    "step_0..step_2": [5, 4, 3],
    "main@{1}..HEAD": [5],
    "HEAD~2..HEAD": [5, 4, 3],
    "..": [],
}


@pytest.mark.parametrize("text", RANGES)
def test_a_range_in_log_is_what_the_right_side_has_and_the_left_has_not(
    store: Store, text: str
) -> None:
    assert [v.number for v in store.log(text)] == RANGES[text]


@pytest.mark.parametrize("text", ["v1..nobody", "nobody..v1", "a...b", "v1..v2..v3"])
def test_a_range_with_an_unknown_side_is_an_error(store: Store, text: str) -> None:
    with pytest.raises(UnknownRevision):
        list(store.log(text))


# names that cannot be:

FORBIDDEN = [
    "",
    "HEAD",
    "@",
    "v1",
    "v007",
    "step_2",
    "a..b",
    "a//b",
    "/a",
    "a/",
    "a.",
    ".a",
    "-a",
    "a b",
    "a~1",
    "a^",
    "a@{1}",
    "a:b",
    "a\nb",
    "a\n",
    "ä",
    "a*",
]


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_name_that_reads_as_another_revision_is_refused(store: Store, name: str) -> None:
    before = list(store.port.names.ref_log(None))
    for make in (store.create_branch, store.create_tag):
        with pytest.raises(InvalidName) as caught:
            make(name, "v1")
        assert caught.value.hint
    assert list(store.port.names.ref_log(None)) == before


@pytest.mark.parametrize("name", ["HEAD", "v1", "step_2", "a..b", "a b"])
def test_force_does_not_let_a_forbidden_name_through(store: Store, name: str) -> None:
    with pytest.raises(InvalidName):
        store.create_tag(name, "v1", force=True)


def test_a_commit_does_not_make_a_tag_with_a_forbidden_name(store: Store) -> None:
    with pytest.raises(InvalidName):
        store.commit("main", [], message="m", tags=["a..b"])


@pytest.mark.parametrize("name", ["a", "math", "R/step_1x", "a.b-c+d_e", "vee", "v1a", "2", "x/v1"])
def test_an_ordinary_name_is_taken_and_resolves(store: Store, name: str) -> None:
    store.create_branch(name, "v3")
    assert store.resolve(name).number == 3


# experiences:


def test_an_experience_is_found_by_id_prefix_and_label(store: Store) -> None:
    library = store.library()
    for label, id in library.labels.items():
        assert store.experience_id(label) == store.experience_id(id) == id
        assert store.experience_id(id[:11]) == id
    store.commit(
        "main", [add("x", "0000000000a1"), add("y", "0000000000a2"), add("z", "zz0000000000")],
        message="m",
    )  # fmt: skip
    assert store.experience_id("zz0") == "zz0000000000"
    with pytest.raises(AmbiguousRevision) as caught:
        store.experience_id("0000000000a")
    assert "0000000000a1, 0000000000a2" in str(caught.value.hint)
    for text in ("", "G99", "nobody", "%", "_" * 12):
        with pytest.raises(UnknownRevision) as unknown:
            store.experience_id(text)
        assert unknown.value.hint
