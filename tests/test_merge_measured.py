"""Merging by measured effect: what helps alone and harms together is a conflict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli, one_line_error
from scripted import ScriptedEndpoint, stage, write_problems
from store_helpers import fixed

from tfgrpo.display.measured_merge import figure_lines
from tfgrpo.learn.advantage import Observation
from tfgrpo.learn.interplay import interplay
from tfgrpo.store import Operation, Store
from tfgrpo.ui.export_pages import page_alone

ADDS, ALSO = "Addiere zuerst die größere Zahl.", "Commence par le plus petit nombre."
SAME, AGAIN = "Lies die Frage zweimal.", "Leia a pergunta de novo."


def planted(request: dict[str, Any]) -> str:
    """Two lessons each help and harm together; two others help as much as either."""
    assert stage(request) == "rollout"
    user, shown = request["messages"][-1]["content"], request["messages"][0]["content"]
    a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
    there = {text for text in (ADDS, ALSO, SAME, AGAIN) if text in shown}
    chance = 0.25 + {0: 0.0, 1: 0.35, 2: -0.25}[len(there & {ADDS, ALSO})]
    chance += 0.35 * bool(there & {SAME, AGAIN})
    coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
    right = int.from_bytes(coin[:4], "big") / 2**32 < chance
    return f"\\boxed{{{a + b + (1 if right else 0)}}}"


@pytest.fixture
def mine() -> Iterator[ScriptedEndpoint]:
    with ScriptedEndpoint(planted) as running:
        yield running


@pytest.fixture
def merge(cli: Cli, mine: ScriptedEndpoint, tmp_path: Path) -> Callable[..., Any]:
    """Runs `tfgrpo merge web --measure`: main and web have two lessons each."""
    write_problems(tmp_path / "problems.jsonl", 36)
    (tmp_path / "tfgrpo.toml").write_text('[train]\ndata = "problems.jsonl"\n')
    with Store.init(tmp_path, author="tests") as store:
        store.commit("main", [fixed("Write the number last.")], message="m")
        store.create_branch("web")
        store.commit("main", map(fixed, (ADDS, SAME)), message="ours")
        store.commit("web", map(fixed, (ALSO, AGAIN)), message="theirs")

    def run(*arguments: str, **options: Any) -> Any:
        model = ("--model", "mine", "--base-url", mine.base_url)
        return cli("merge", "web", "--measure", *model, *arguments, **options)

    return run


def test_a_measured_conflict_stops_a_merge_and_a_side_decides_it(
    merge: Callable[..., Any], cli: Cli, tmp_path: Path, mine: ScriptedEndpoint
) -> None:
    refused = merge(ok=False)
    assert refused.returncode == 1
    assert "two help alone and harm together" in refused.stderr
    assert ADDS in refused.stderr
    assert ALSO in refused.stderr
    with Store.open(tmp_path) as store:
        assert len(store.library("main")) == 3, "nothing was recorded"
    asked = mine.stages["rollout"]
    done = merge("--ours")
    assert mine.stages["rollout"] == asked == 36 * 8 * 4, "the trial is not paid for again"
    assert "left out" in done.stdout
    assert "redundant" in done.stdout
    assert "pairs seen often enough to tell: 4 of 4" in done.stdout
    with Store.open(tmp_path) as store:
        main = store.tip("main")
        assert {e.text for e in store.library(main)} == {
            *("Write the number last.", ADDS, SAME, AGAIN)
        }
        assert main.merged == store.tip("web").number
        measured = main.meta["measured"]
        assert measured["attempts"] == asked
        assert measured["model"] == "mine"
        assert len(measured["experiences"]) == 4
        texts = {e.id: e.text for name in ("main", "web") for e in store.library(name)}
        kinds = {
            pair["kind"]: {texts[id] for id in pair["experiences"]} for pair in measured["pairs"]
        }
        assert kinds == {"conflict": {ADDS, ALSO}, "redundant": {SAME, AGAIN}}
        assert [*measured["left_out"].values()] == ["conflict"]
        assert (measured["pairs_possible"], measured["pairs_examined"]) == (4, 4)
    show = " ".join(cli("show", "main").stdout.split())
    page = page_alone(tmp_path / ".tfgrpo/store.db", "/version/main")
    for words in (
        "pairs seen often enough to tell: 4 of 4",
        "redundant: either alone helps as much as both: ",
        f"left out because it harms beside the other side: {ALSO}",
    ):
        assert words in show
        assert words in page
    cli("undo")
    merge("--theirs")
    with Store.open(tmp_path) as store:
        assert {ADDS, ALSO} & {e.text for e in store.library("main")} == {ALSO}
    cli("undo")
    cli("merge", "web")
    with Store.open(tmp_path) as store:
        assert len(store.library("main")) == 5, "the textual merge saw no conflict"
        assert "measured" not in store.tip("main").meta


def test_what_harms_by_itself_is_not_brought_in_and_stays_where_it_was(
    cli: Cli, tmp_path: Path
) -> None:
    harms = "Zieh am Ende eins ab."

    def subtracted(request: dict[str, Any]) -> str:
        user, shown = request["messages"][-1]["content"], request["messages"][0]["content"]
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
        return f"\\boxed{{{a + b + (coin < (70 if harms in shown else 200))}}}"

    write_problems(tmp_path / "problems.jsonl", 24)
    with Store.init(tmp_path, author="tests") as store:
        store.create_branch("web")
        store.commit("main", [fixed(SAME)], message="ours")
        store.commit("web", map(fixed, (harms, AGAIN)), message="theirs")
    with ScriptedEndpoint(subtracted) as server:
        model = ("--data", "problems.jsonl", "--model", "mine", "--base-url", server.base_url)
        done = cli("merge", "web", "--measure", *model)
        with Store.open(tmp_path) as store:
            assert [e.text for e in store.library("main")] == [SAME, AGAIN]
            figures = store.tip("main").meta["measured"]["experiences"]
        (said,) = [line for line in done.stdout.splitlines() if "harms by itself" in line]
        assert said.startswith(f"harms by itself, and is left out: {harms} (-0.")
        assert [one["verdict"] for one in figures.values()].count("harms") == 1
        cli("undo")
        cli("switch", "web")
        done = cli("merge", "main", "--measure", *model)
    (said,) = [line for line in done.stdout.splitlines() if "harms by itself" in line]
    assert said.startswith(f"harms by itself, and stays: {harms} (-0.")
    with Store.open(tmp_path) as store:
        assert {e.text for e in store.library("web")} == {SAME, AGAIN, harms}


def test_there_is_nothing_to_measure_where_one_side_has_nothing(cli: Cli) -> None:
    cli("init")
    cli("add", "One.")
    cli("branch", "web")
    cli("add", "Two.")
    cli("switch", "web")
    assert "nothing to measure" in cli("merge", "main", "--measure").stdout
    one_line_error(cli("merge", "main", "--budget", "1.00", ok=False), "need --measure", code=2)


def test_planted_pairs_are_found_and_others_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.interplay import KINDS, rates

    found = {kind: rates(kind, 8, 48, seed=3) for kind in KINDS}
    assert found["conflict"].found >= 0.75
    assert found["redundant"].found >= 0.5
    assert found["neither"].mistaken == 0
    assert sum(one.mistaken for one in found.values()) <= 0.125
    assert sum(one.others for one in found.values()) <= 0.25


def test_nothing_is_said_of_a_pair_that_was_hardly_seen() -> None:
    belongs = ("a0", "b0")
    few = [
        Observation(f"{n}", belongs, frozenset(shown), float(len(shown) == 1))
        for n in range(4)
        for shown in ((), ("a0",), ("b0",), belongs)
    ]
    assert interplay(few, ["a0"], ["b0", "b1"]) == ([], 2, 0)
    found = interplay(few * 12, ["a0"], ["b0", "b1"])
    assert [one.kind for one in found.pairs] == ["conflict"]
    assert (found.possible, found.examined) == (2, 1), "of the other nothing is known"


ONCE, TWICE, OVER = "Count once.", "Zähle zweimal und prüfe es.", "Tel alles drie keer over."


def changed(texts: dict[str, float]) -> Callable[[dict[str, Any]], str]:
    """Answers that are right as often as what is shown is worth; two of 0.35 harm together."""

    def answer(request: dict[str, Any]) -> str:
        user, shown = request["messages"][-1]["content"], request["messages"][0]["content"]
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        worths = [worth for text, worth in texts.items() if text in shown]
        chance = 0.4 + (-0.3 if worths.count(0.35) == 2 else sum(worths))
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
        return f"\\boxed{{{a + b + (int.from_bytes(coin[:4], 'big') / 2**32 < chance)}}}"

    return answer


@pytest.mark.parametrize("side", ["theirs", "ours"])
def test_a_text_that_one_side_changed_is_measured_in_the_place_of_what_it_was(
    cli: Cli, tmp_path: Path, side: str
) -> None:
    """Theirs that harms is left as it was, and ours is in a pair with what theirs brings."""
    write_problems(tmp_path / "problems.jsonl", 36)
    with Store.init(tmp_path, author="tests") as store:
        store.commit("main", [fixed(ONCE)], message="m")
        (known,) = store.library("main")
        store.create_branch("web")
        mine = [Operation("MODIFY", known.id, TWICE)]
        store.commit("main", mine if side == "ours" else [fixed(SAME)], message="ours")
        theirs = fixed(OVER) if side == "ours" else Operation("MODIFY", known.id, TWICE)
        store.commit("web", [theirs], message="theirs")
    worths = {TWICE: 0.35, OVER: 0.35} if side == "ours" else {TWICE: -0.35}
    with ScriptedEndpoint(changed(worths)) as server:
        model = ("--data", "problems.jsonl", "--model", "mine", "--base-url", server.base_url)
        merge = ("merge", "web", "--measure", *model)
        if side == "theirs":
            done = json.loads(cli(*merge, "--json").stdout)
            assert done["measured"]["left_out"] == {known.id: "harms"}
            assert done["measured"]["experiences"][known.id]["verdict"] == "harms"
            with Store.open(tmp_path) as store:
                assert [e.text for e in store.library("main")] == [ONCE, SAME]
            assert f"harms by itself, and is left out: {TWICE}" in " ".join(
                cli("show", "main").stdout.split()
            )
            return
        refused = cli(*merge, ok=False)
        assert "two help alone and harm together" in refused.stderr
        assert TWICE in refused.stderr
        cli(*merge, "--ours")
        with Store.open(tmp_path) as store:
            assert [e.text for e in store.library("main")] == [TWICE]
        cli("undo")
        cli(*merge, "--theirs")
        with Store.open(tmp_path) as store:
            assert {e.text for e in store.library("main")} == {ONCE, OVER}


def test_a_merge_says_how_many_pairs_were_seen_often_enough(
    merge: Callable[..., Any], cli: Cli, tmp_path: Path
) -> None:
    """Two problems do not show four lessons in all ways."""
    rows = (tmp_path / "problems.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "problems.jsonl").write_text("".join(rows[:1]))
    done = json.loads(merge("--json").stdout)["measured"]
    assert (done["pairs_possible"], done["pairs_examined"]) == (4, 0)
    assert done["calls"] == done["attempts"] == 8 * 4
    assert "dollars" in done
    assert done["run"]
    assert "pairs seen often enough to tell: 0 of 4" in cli("show", "main").stdout


@pytest.mark.parametrize(
    "junk",
    [
        {"run": 3, "attempts": "many", "pairs": 7, "experiences": [], "left_out": "all"},
        {"pairs": [3, {"experiences": [None, "a"], "kind": {}}], "pairs_possible": True},
        {"experiences": {"a": 3, "b": {"verdict": "harms", "effect": [1, "x", None]}}},
        {"left_out": {"a": ["harms"], "b": "harms"}, "experiences": {"a": {}, "b": {"effect": 3}}},
        {"attempts": 1e400, "pairs_possible": 10**400, "pairs_examined": 1, "model": ["m"]},
    ],
)
def test_what_a_stranger_wrote_of_a_trial_is_read_as_far_as_it_can_be(junk: Any) -> None:
    lines = list(figure_lines(junk, {"a": "A text."}))
    assert lines[0].startswith("measured in run ")
