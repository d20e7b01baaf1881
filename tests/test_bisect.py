"""`bisect`: the first bad version of any history is found, in few tries, and killed at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli, environment, one_line_error
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import add, clock
from waiting import until

from tfgrpo.evaluation import bisect_judges
from tfgrpo.store import Store, Version
from tfgrpo.store.history import bisect as searches
from tfgrpo.store.history.bisect import BisectError, choose, reach, suspects

History = dict[int, list[int]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A random history with merges: number → parents, lower numbers."""
    size = draw(st.integers(2, 16))
    return {0: []} | {
        n: draw(st.lists(st.integers(max(0, n - 5), n - 1), min_size=1, max_size=2, unique=True))
        for n in range(1, size)
    }


def past(history: History, number: int) -> set[int]:
    """A version and all its ancestors, by brute force."""
    return {number}.union(*(past(history, parent) for parent in history[number]))


@given(histories(), st.data())
def test_suspects_and_reach_are_those_of_brute_force(history: History, data: st.DataObject) -> None:
    numbers = st.sampled_from(sorted(history))
    bad = data.draw(numbers)
    good = data.draw(st.lists(numbers, max_size=3))
    expected = past(history, bad).difference(*(past(history, n) for n in good))
    found = suspects(history.__getitem__, bad, good)
    assert found == sorted(expected)
    assert reach(history.__getitem__, found) == {n: len(past(history, n) & expected) for n in found}


@given(histories(), st.data())
def test_the_choice_halves_best(history: History, data: st.DataObject) -> None:
    bad = max(history)
    among = suspects(history.__getitem__, bad, [0])
    untried = data.draw(st.sets(st.sampled_from(among))) if among else set()
    chosen = choose(history.__getitem__, among, untried)
    able = untried - {bad}
    if not able:
        assert chosen is None
        return
    worth = {
        n: min(len(past(history, n) & set(among)), len(set(among) - past(history, n))) for n in able
    }
    assert chosen in able
    assert worth[chosen] == max(worth.values())


@given(histories(), st.data())
def test_a_search_ends_at_the_first_bad_version(history: History, data: st.DataObject) -> None:
    bad = max(history)
    culprit = data.draw(st.sampled_from(sorted(past(history, bad) - {0})))
    unjudgeable = data.draw(st.sets(st.sampled_from(sorted(history)))) - {bad}
    good, skipped, tries = [0], set(), 0
    while True:
        among = suspects(history.__getitem__, bad, good)
        number = choose(history.__getitem__, among, set(among) - skipped)
        if number is None:
            break
        tries += 1
        if number in unjudgeable:
            skipped.add(number)
        elif culprit in past(history, number):
            bad = number
        else:
            good.append(number)
    assert culprit in among
    assert set(among) - {bad} <= unjudgeable
    assert tries <= len(history)


@settings(deadline=None)  # what is counted is tries, and not time
@given(st.integers(2, 2000), st.data())
def test_a_line_takes_no_more_than_its_logarithm(size: int, data: st.DataObject) -> None:
    history = {0: [], **{n: [n - 1] for n in range(1, size)}}
    culprit = data.draw(st.integers(1, size - 1))
    bad, good, tries = size - 1, [0], 0
    while True:
        among = suspects(history.__getitem__, bad, good)
        number = choose(history.__getitem__, among, set(among))
        if number is None:
            break
        tries += 1
        if number >= culprit:
            bad = number
        else:
            good.append(number)
    assert among == [culprit]
    assert tries <= (size - 2).bit_length()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Twelve versions of main; a side branch of three is merged into v10."""
    with Store.init(tmp_path / "store.db", author="ann", now=clock()) as store:
        for n in range(1, 7):
            store.commit("main", [add(f"main {n}")], message=f"m{n}")
        store.create_branch("side", "v3")
        for n in range(7, 10):
            store.commit("side", [add(f"side {n}")], message=f"m{n}")
        store.commit("main", [add("merged")], message="merge", merged=store.tip("side"))
        for n in range(11, 13):
            store.commit("main", [add(f"main {n}")], message=f"m{n}")
        yield store


def parents(store: Store) -> History:
    versions = [store.version(n) for n in range(store.port.last_version() + 1)]
    return {v.number: [p for p in (v.parent, v.merged) if p is not None] for v in versions}


@pytest.mark.parametrize("culprit", range(1, 13))
def test_a_judge_finds_the_culprit_on_any_side_of_a_merge(store: Store, culprit: int) -> None:
    history = parents(store)

    def judge(version: Version) -> bisect_judges.Finding:
        bad = culprit in past(history, version.number)
        return bisect_judges.Finding("bad" if bad else "good", "known")

    searches.start(store, store.version(12), [store.version(0)])
    assert bisect_judges.run(store, judge).first_bad == culprit
    assert len(searches.load(store).marks) <= 2 + 5


def test_nothing_of_a_search_enters_the_store(store: Store) -> None:
    before = (list(store.port.names.ref_log(None)), store.port.last_version())
    searches.start(store, store.version(12), [store.version(0)])
    bisect_judges.run(store, lambda version: bisect_judges.Finding("bad", ""))
    assert searches.reset(store)
    assert (list(store.port.names.ref_log(None)), store.port.last_version()) == before
    assert not searches.reset(store)
    with pytest.raises(BisectError, match="no search in progress"):
        searches.load(store)


def test_ends_and_marks_that_do_not_fit_are_refused(store: Store) -> None:
    version = store.version
    with pytest.raises(BisectError, match="in the history of"):
        searches.start(store, version(3), [version(12)])
    with pytest.raises(BisectError, match="not in the history") as found:
        searches.start(store, version(6), [version(9)])
    assert "v3" in str(found.value.hint)
    searches.start(store, version(12), [version(3)])
    for number, verdict in ((2, "bad"), (12, "good"), (12, "skip"), (3, "bad")):
        with pytest.raises(BisectError, match="already"):
            searches.mark(store, version(number), verdict)  # type: ignore[arg-type]
    assert len(searches.load(store).marks) == 2
    searches.file(store).write_text('{"format": 99, "marks": []}')
    with pytest.raises(BisectError, match="cannot read") as unread:
        searches.load(store)
    assert "reset" in str(unread.value.hint)


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """Eight versions; v5 brings the word that spoils it."""
    cli("init")
    for n in range(1, 9):
        cli("add", f"Lesson {n}" + (" is a poison." if n == 5 else "."))
    return cli


def test_a_command_finds_the_version_and_head_stays(shop: Cli, tmp_path: Path) -> None:
    assert "about 3 steps to go: test v4" in shop("bisect", "start", "HEAD", "v0").stdout
    script = 'grep -q poison "$TFGRPO_LIBRARY" && grep -q poison "$TFGRPO_PROMPT" && exit 1; exit 0'
    said = shop("bisect", "run", "sh", "-c", script).stdout
    assert "v4 good (exit code 0)" in said
    assert "v5 is the first bad version" in said
    assert "Lesson 5 is a poison." in said
    assert json.loads(shop("bisect", "status", "--json").stdout)["found"] == "v5"
    assert json.loads(shop("status", "--json").stdout)["head"] == "v8"
    marks = json.loads(shop("bisect", "log", "--json").stdout)
    assert [m["verdict"] for m in marks[:2]] == ["good", "bad"]
    shop("bisect", "reset")
    assert not (tmp_path / ".tfgrpo/bisect.json").exists()
    one_line_error(shop("bisect", "good", ok=False), "no search in progress")


def test_by_hand_it_says_what_to_try_and_where(shop: Cli, tmp_path: Path) -> None:
    assert "bisect good" in shop("bisect", "start", "HEAD").stdout
    shop("bisect", "good", "v0")
    for verdict in ("good", "bad", "skip"):
        library = json.loads((tmp_path / ".tfgrpo/bisect/experiences.json").read_text())
        tried = len(library)
        assert f"next v{tried}" in shop("bisect", "status").stdout
        said = shop("bisect", verdict).stdout
    assert tried == 5
    assert "the first bad version is one of v5, v6" in said


def test_exit_codes_are_gits(shop: Cli) -> None:
    shop("bisect", "start", "v3", "v0")
    one_line_error(shop("bisect", "run", "sh", "-c", "exit 200", ok=False), "ended with 200")
    one_line_error(shop("bisect", "run", "sh", "-c", "kill -9 $$", ok=False), "signal 9")
    one_line_error(shop("bisect", "run", "/no/such", ok=False), "cannot run")
    assert len(json.loads(shop("bisect", "log", "--json").stdout)) == 2
    one_line_error(shop("bisect", "run", "sh", "-c", "exit 125", ok=False), "one of v1, v2, v3")
    shop("bisect", "start", "v3", "v0")
    assert "v1 is the first" in shop("bisect", "run", "sh", "-c", "exit 127").stdout
    one_line_error(shop("bisect", "run", ok=False), "COMMAND", code=2)


def test_scores_decide_and_a_missing_one_is_named(shop: Cli, tmp_path: Path) -> None:
    with Store.open(tmp_path / ".tfgrpo/store.db") as store:

        def score(number: int, mean: float, digest: str = "d") -> None:
            summary = {"mean": [mean, None, None], "samples": 1, "problems": 4}
            config = {"model": "m", "temperature": 0.0}
            store.runs.put_evaluation(number, "held.jsonl", digest, config, summary, ())

        for number, mean in ((0, 0.9), (2, 0.9), (8, 0.2)):
            score(number, mean)
        score(4, 0.1, "other conditions")
        shop("bisect", "start", "HEAD", "v0")
        by_score = ["bisect", "run", "--data", "held.jsonl", "--below"]
        one_line_error(shop(*by_score, "0.7", ok=False), "one of 6", "v5", "eval held.jsonl")
        score(5, 0.5)
        one_line_error(shop(*by_score, "0.7", ok=False), "one of 3", "--library v4")
        score(4, 0.7)
        assert "v5 is the first bad version" in shop(*by_score, "0.7").stdout
        one_line_error(shop(*by_score, "0.1", ok=False), "v5 is marked bad", "0.500")
    one_line_error(
        shop("bisect", "run", "--data", "else.jsonl", "--below", "1", ok=False), "no score"
    )


def test_a_search_that_was_killed_goes_on_where_it_was(shop: Cli, tmp_path: Path) -> None:
    shop("bisect", "start", "HEAD", "v0")
    script = 'echo "$TFGRPO_REVISION" >> tried; [ "$TFGRPO_REVISION" = v4 ] || sleep 60'
    process = subprocess.Popen(
        [Path(sys.executable).with_name("tfgrpo"), "bisect", "run", "sh", "-c", script],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    tried = tmp_path / "tried"
    until(lambda: tried.exists() and len(tried.read_text().split()) == 2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    marks = json.loads(shop("bisect", "log", "--json").stdout)
    assert [m["version"] for m in marks] == ["v0", "v8", "v4"]
    said = shop("bisect", "run", "sh", "-c", '! grep -q poison "$TFGRPO_PROMPT"').stdout
    assert "v5 is the first bad version" in said
    assert "v4" not in said.splitlines()[0]
