"""`status -v`: figures that add up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from store_helpers import add, clock

from tfgrpo.store import Operation, Store, derived_id
from tfgrpo.store.history.blame import stats
from tfgrpo.store.history.merge import merge

A, B, C = (derived_id(name) for name in "abc")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A run of two steps on main, a branch web that was merged, one that was not."""
    with Store.init(tmp_path / "store.db", author="ann", now=clock()) as store:
        run = store.runs.create("quick", "uid", "main", 0, {}, "ann")
        for step, operations in enumerate(
            ([add("a", A), add("b", B)], [Operation("KEEP", A), Operation("MODIFY", B, "b2")])
        ):
            meta = {"run": run.name, "step": step}
            tags = [f"quick/step_{step + 1}"]
            store.commit("main", operations, message=f"step {step}", meta=meta, tags=tags)
        store.create_branch("web")
        store.create_branch("aside", "v1")
        store.commit("web", [Operation("MODIFY", A, "a2"), Operation("KEEP", B)], message="web")
        store.commit("main", [add("c", C), Operation("KEEP", A)], message="main")
        store.commit("aside", [Operation("DELETE", A)], message="aside")
        merge(store, "main", store.tip("web"), message="merged")
        store.commit("main", [Operation("DELETE", C), Operation("KEEP", B)], message="out")
        yield store


def test_events_are_those_of_the_history_and_the_file_has_all(store: Store) -> None:
    found = stats(store, store.tip("main"))
    assert found.events == {"ADD": 3, "MODIFY": 2, "DELETE": 1, "KEEP": 4}
    assert (found.versions, found.file_versions) == (5, 8)
    assert found.file_events == 12
    assert found.first is not None
    assert found.first.number == 1
    assert found.bytes > found.snapshot_bytes


def test_confirmations_count_for_the_present_text_and_churn_for_all(store: Store) -> None:
    found = stats(store, store.tip("main"))
    texts = {c.experience.text: (c.keeps, c.modified) for c in found.experiences}
    assert texts == {"a2": (0, 1), "b2": (2, 1)}
    assert [c.experience.text for c in found.most_confirmed] == ["b2", "a2"]
    assert len(found.churn) == 2
    before = stats(store, store.version(2))
    assert [(c.keeps, c.modified) for c in before.experiences] == [(1, 0), (0, 1)]


def test_steps_are_those_of_the_history(store: Store) -> None:
    steps = stats(store, store.tip("main")).steps
    assert [(s.run, s.step, s.version.number) for s in steps] == [("quick", 0, 1), ("quick", 1, 2)]
    assert steps[1].events == {"KEEP": 1, "MODIFY": 1}
    assert [s.step for s in stats(store, store.tip("aside")).steps] == [0]


def test_the_empty_library_has_figures_too(store: Store) -> None:
    found = stats(store, store.version(0))
    assert (found.versions, found.experiences, found.first, found.steps) == (0, (), None, ())


def test_snapshots_are_a_share_of_the_file(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="ann", now=clock()) as store:
        store.commit("main", [add(f"text {n}") for n in range(1500)], message="many")
        found = stats(store, store.tip("main"))
        assert found.snapshots == 1
        assert 0 < found.snapshot_share < 0.5


def test_what_has_no_place_is_refused_and_not_ignored(cli: Cli) -> None:
    cli("init")
    one_line_error(cli("status", "v0", ok=False), "tfgrpo status -v v0", code=2)
    filtered = cli("traffic", "--figures", "--failed", ok=False)
    one_line_error(filtered, "--failed", "--figures", code=2)


def test_the_verbs_say_it(cli: Cli) -> None:
    cli("init")
    assert "no events" in cli("status", "-v").stdout
    cli("add", "Count both days.", "Round up.")
    cli("modify", "G0", "Count both the days.")
    cli("keep", "G0")
    said = cli("status", "-v").stdout
    assert "3 versions with +2 ~1 =1" in said
    assert "  =1 [G0] Count both the days. (v2, just now)" in said
    assert "  =0 [G1] Round up. (v1, just now)" in said
    found = json.loads(cli("status", "-v", "v1", "--json").stdout)["library"]
    assert found["events"] == {"ADD": 2, "MODIFY": 0, "DELETE": 0, "KEEP": 0}
    assert [e["keeps"] for e in found["experiences"]] == [0, 0]
    assert cli("status", "-s").stdout == "on branch main, at v3\n"
    cli("branch", "--protect", "main")
    assert "protected: it moves only with --force" in cli("status").stdout
    assert json.loads(cli("status", "--json").stdout)["protected"] is True
