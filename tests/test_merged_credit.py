"""Credit goes to whoever wrote a text, however it came here: by merge, pull or cherry-pick."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import add, clock
from sync_helpers import grow, made

from tfgrpo.store import Operation, Store, derived_id
from tfgrpo.store.history.blame import blame
from tfgrpo.store.history.merge import cherry_pick, merge, revert
from tfgrpo.store.transfer import sync
from tfgrpo.store.transfer.other_store import StorePeer

A, B, C = (derived_id(name) for name in "abc")
TAUGHT = {"run": "quick", "step": 0, "problem": "hire-12", "rollouts": [["r", 1.0], ["s", 0.0]]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A rule on main; a lesson, three votes for it and one for the rule on a trained branch."""
    with Store.init(tmp_path / "store.db", author="ann", now=clock()) as store:
        store.commit("main", [add("count both days", A)], message="by hand")
        store.create_branch("web", "main")
        lesson = Operation("ADD", B, "round up", evidence=TAUGHT)
        store.commit("web", [lesson], message="step 1", author="trainer")
        for _ in range(3):
            store.commit("web", [Operation("KEEP", B)], message="again", author="trainer")
        store.commit("web", [Operation("KEEP", A)], message="again", author="trainer")
        store.commit("main", [add("name the unit", C)], message="by hand too")
        yield store


def credits(store: Store, revision: str = "main") -> dict[str, tuple[str, str, int]]:
    """Experience → who wrote it, the message of the version, and its votes."""
    return {
        b.experience.id: (b.version.author, b.version.message, b.keeps)
        for b in blame(store, store.resolve(revision))
    }


def test_a_merge_takes_no_credit_and_loses_no_vote(store: Store) -> None:
    merge(store, "main", store.tip("web"), message="merge web")
    assert credits(store) == {
        A: ("ann", "by hand", 1),
        B: ("trainer", "step 1", 3),
        C: ("ann", "by hand too", 0),
    }
    (taught,) = [b.event for b in blame(store, store.tip("main")) if b.experience.id == B]
    assert taught.evidence == TAUGHT


def test_votes_after_a_merge_add_to_those_before_it(store: Store) -> None:
    merge(store, "main", store.tip("web"), message="merge web")
    store.commit("main", [Operation("KEEP", B)], message="still")
    assert credits(store)[B] == ("trainer", "step 1", 4)


def test_credit_passes_through_merges_of_merges(store: Store) -> None:
    store.create_branch("team", "v1")
    store.commit("team", [add("team's own")], message="t")
    merge(store, "team", store.tip("web"), message="merge web")
    merge(store, "main", store.tip("team"), message="merge team")
    assert credits(store)[B] == ("trainer", "step 1", 3)


def test_neither_a_cherry_pick_nor_a_revert_takes_credit(store: Store) -> None:
    cherry_pick(store, "main", store.resolve("web~4"), message="pick")
    assert credits(store)[B][:2] == ("trainer", "step 1")
    store.commit("main", [Operation("KEEP", B)], message="still")
    before = credits(store)[B]
    store.commit("main", [Operation("MODIFY", B, "round down")], message="worse")
    revert(store, "main", store.tip("main"), message="back")
    assert credits(store)[B] == before
    assert before[2] == 1


def test_words_of_both_sides_are_the_merges_own(store: Store) -> None:
    store.commit("web", [Operation("MODIFY", A, "count both whole days")], message="w")
    store.commit("main", [Operation("MODIFY", A, "always count both days")], message="m")
    merge(store, "main", store.tip("web"), message="merge web")
    assert credits(store)[A][1] == "merge web"


def test_a_pull_takes_no_credit(store: Store, tmp_path: Path) -> None:
    with Store.init(tmp_path / "mine.db", author="ben", now=clock(5_000_000)) as mine:
        mine.commit("main", [add("my own")], message="mine")
        peer = StorePeer(store)
        sync.pull(mine, peer, "origin", "web", into="main", called="origin web")
        assert credits(mine)[B] == ("trainer", "step 1", 3)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.integers(5, 40))
def test_credit_goes_to_an_event_of_the_history_with_that_very_text(
    tmp_path_factory: pytest.TempPathFactory, seed: int, versions: int
) -> None:
    with made(tmp_path_factory.mktemp("grown") / "s.db") as store:
        grow(store, random.Random(seed), versions)
        for branch in store.branches():
            tip = store.tip(branch)
            inside = {v.number for v in store.log(tip)}
            for one in blame(store, tip):
                assert one.event.text == one.experience.text
                assert one.event.op in ("ADD", "MODIFY")
                if one.version.merged is not None:
                    other = store.library(store.version(one.version.merged)).by_id
                    there = other.get(one.experience.id)
                    assert there is None or there.text != one.experience.text
                else:
                    brought = (one.event.evidence or {}).get("version")
                    assert one.version.number in inside or brought


def test_the_verbs_say_who_it_was(cli: Cli) -> None:
    cli("init")
    cli("add", "Count both days.", env={"TFGRPO_AUTHOR": "ann"})
    cli("switch", "-c", "web")
    cli("add", "Round up.", env={"TFGRPO_AUTHOR": "wim"})
    cli("keep", "G1", env={"TFGRPO_AUTHOR": "wim"})
    cli("switch", "main")
    cli("add", "Name the unit.", env={"TFGRPO_AUTHOR": "ann"})
    cli("merge", "web", env={"TFGRPO_AUTHOR": "ben"})
    blamed = {b["text"]: b for b in json.loads(cli("blame", "--json").stdout)}
    assert {text: b["author"] for text, b in blamed.items()} == {
        "Count both days.": "ann",
        "Round up.": "wim",
        "Name the unit.": "ann",
    }
    assert blamed["Round up."]["keeps"] == 1
    assert "by wim" in cli("blame").stdout
    assert "v2: by wim" in cli("show").stdout
    (event,) = json.loads(cli("show", "--json").stdout)["events"]
    assert event["origin"]["author"] == "wim"
