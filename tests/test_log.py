"""`log`: what it draws, what it picks, and that it reads no more than it has shown."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from conftest import Cli, environment, one_line_error
from hypothesis import given
from hypothesis import strategies as st
from store_helpers import add, clock

from tfgrpo.cli.log import Graph
from tfgrpo.store import Operation, Store, Version, derived_id
from tfgrpo.store.history.log_filter import Filter, UnknownTime, marked, parse_time, select

A, B = derived_id("a"), derived_id("b")
HOUR = 3_600_000_000


@st.composite
def histories(draw: st.DrawFn) -> dict[int, list[int]]:
    """A random history: number → parents, all of them reached from the newest."""
    size = draw(st.integers(1, 14))
    parents: dict[int, list[int]] = {0: []}
    for number in range(1, size):
        several = st.lists(st.integers(0, number - 1), min_size=1, max_size=2, unique=True)
        parents[number] = draw(several)
    wanted = {size - 1}
    for number in sorted(parents, reverse=True):
        if number in wanted:
            wanted.update(parents[number])
    return {number: parents[number] for number in sorted(wanted, reverse=True)}


TOP = {"|": 0, "*": 0, "/": 1, "\\": -1}


def below(rows: list[str], row: int, at: int) -> set[tuple[int, int]]:
    """The stars that a reader reaches by following the lines down from a sign.

    `/` leads from its upper right to its lower left, `_` carries it on; where lines cross, each
    goes straight on.
    """
    sign, found = rows[row][at], set()
    bottom = at - TOP[sign]
    while sign == "/" and rows[row][bottom - 1 : bottom] == "_":
        bottom -= 2
    if row + 1 < len(rows):
        under = rows[row + 1]
        ways = [i for i, s in enumerate(under) if s in TOP and i + TOP[s] == bottom]
        if sign != "*":
            ways = [i for i in ways if under[i] == sign] or ways
        for way in ways:
            here = (row + 1, way)
            found |= {here} if under[way] == "*" else below(rows, *here)
    return found


@given(histories())
def test_the_lines_of_a_drawing_lead_from_each_version_to_its_parents(
    history: dict[int, list[int]],
) -> None:
    graph, rows = Graph(), []
    stars: dict[int, tuple[int, int]] = {}
    for number, parents in history.items():
        drawn = graph.draw(number, parents)
        stars[number] = (len(rows), drawn[0].index("*"))
        rows += [*drawn, graph.padding()]
    at = {star: number for number, star in stars.items()}
    for number, star in stars.items():
        assert {at[there] for there in below(rows, *star)} == set(history[number]), "\n".join(rows)


def test_a_drawing_is_what_git_draws() -> None:
    graph = Graph()
    history = {5: [3, 4], 4: [2], 3: [2], 2: [1], 1: []}
    rows = [row.rstrip() for n, parents in history.items() for row in graph.draw(n, parents)]
    assert rows == ["*", "|\\", "| *", "* |", "|/", "*", "*"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Hour by hour: two added on main, one changed on web, a KEEP on main, the merge, a DELETE."""
    with Store.init(tmp_path / "store.db", author="ann", now=clock(0)) as store:
        times = iter(range(HOUR, 9 * HOUR, HOUR))
        now = {"time": 0}
        store.now = lambda: now["time"]

        def commit(branch: str, *operations: Operation, **more: object) -> Version:
            now["time"] = next(times)
            return store.commit(branch, operations, **more)  # type: ignore[arg-type]

        commit("main", add("count both days", A), add("round up", B), message="house rules")
        store.create_branch("web")
        web = commit(
            "web",
            Operation("MODIFY", A, "count both the days", "the Customs office"),
            message="learned",
            meta={"run": "web", "step": 0},
        )
        commit("main", Operation("KEEP", B), message="confirmed")
        texts = [Operation("MODIFY", A, "count both the days")]
        commit("main", *texts, message="merge web", merged=web)
        commit("main", Operation("DELETE", B, reason="misleads"), message="out")
        yield store


def chosen(store: Store, revision: str = "main", **wanted: object) -> list[int]:
    return [v.number for v in select(store, store.log(revision), Filter(**wanted))]  # type: ignore[arg-type]


def test_versions_are_picked_by_what_they_hold(store: Store) -> None:
    assert chosen(store) == [5, 4, 3, 2, 1, 0]
    assert chosen(store, run="web") == [2]
    assert chosen(store, experience=B) == [5, 3, 1]
    assert chosen(store, experience=B, ops=frozenset({"KEEP", "DELETE"})) == [5, 3]
    assert chosen(store, ops=frozenset({"MODIFY"})) == [4, 2]
    assert chosen(store, words="CUSTOMS") == [2]
    assert chosen(store, words="web") == [4]
    assert chosen(store, words="round", ops=frozenset({"KEEP"})) == []
    assert chosen(store, "v2..main", experience=A) == [4]
    assert chosen(store, experience=derived_id("nobody")) == []


def test_versions_are_picked_by_time_wherever_clocks_were_wrong(store: Store) -> None:
    assert chosen(store, since=3 * HOUR) == [5, 4, 3]
    assert chosen(store, until=2 * HOUR) == [2, 1, 0]
    assert chosen(store, since=2 * HOUR, until=4 * HOUR) == [4, 3, 2]
    assert chosen(store, since=99 * HOUR) == []
    store.now = lambda: HOUR  # a clock that was set back
    store.commit("main", [add("late")], message="late")
    assert chosen(store, since=3 * HOUR) == [5, 4, 3]


def test_the_first_row_needs_no_more_than_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.init(tmp_path / "long.db", author="ann", now=clock()) as store:
        for number in range(300):
            store.commit("main", [add(f"text {number}")], message=f"m{number}")
        read: list[int] = []
        version = store.port.version
        monkeypatch.setattr(store.port, "version", lambda n: read.append(n) or version(n))
        for wanted in (Filter(), Filter(since=1_000_000), Filter(words="m2"), Filter(ops={"ADD"})):  # type: ignore[arg-type]
            read.clear()
            next(select(store, store.log(), wanted))
            assert len(read) <= 4, wanted
        first = store.history(next(iter(store.library("v290"))).id)[0]
        read.clear()
        newest = store.history(list(store.library())[-1].id)[0].experience
        read.clear()
        assert len(list(select(store, store.log(), Filter(experience=newest)))) == 1
        assert len(read) <= 5, "the walk ends with the oldest version that can fit"
        assert len(list(marked(store, store.log(), Filter(experience=first.experience)))) == 300


@pytest.mark.parametrize(
    ("text", "end", "expected"),
    [
        ("3d", False, -3 * 24 * HOUR),
        ("2 hours ago", False, -2 * HOUR),
        ("90m", False, -3 * HOUR // 2),
        ("1 week ago", True, -7 * 24 * HOUR),
        ("30 min", False, -HOUR // 2),
    ],
)
def test_ages_are_counted_from_now(text: str, end: bool, expected: int) -> None:
    assert parse_time(text, now=10**15, end=end) - 10**15 == expected


def test_dates_are_local_and_a_day_that_ends_a_period_is_in_it() -> None:
    noon = int(datetime(2026, 11, 20, 12).timestamp()) * 1_000_000
    assert parse_time("2026-11-20", now=0) == noon - 12 * HOUR
    assert parse_time("2026-11-20", now=0, end=True) == noon + 12 * HOUR - 1
    assert parse_time("2026-11-20T12:00", now=0) == noon
    assert parse_time("1970-01-01T01:00:00+01:00", now=0) == 0


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "3 parsecs", "-3d", "0001-01-01T00:00"])
def test_what_names_no_time_is_an_error(text: str) -> None:
    with pytest.raises(UnknownTime):
        parse_time(text, now=0)


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """main and web, merged, and a branch math beside them."""
    cli("init")
    cli("add", "Count both days.", "Round up.", "-r", "the shop's rule")
    cli("switch", "-c", "web")
    cli("modify", "G0", "Count both the days of a hire.")
    cli("switch", "main")
    cli("add", "Use whole hours wherever a customer comes back late, and say so on the bill.")
    cli("merge", "web")
    return cli


def test_the_graph_of_a_merge(shop: Cli) -> None:
    drawn = shop("log", "--graph", "--oneline").stdout
    assert [re.sub(r" v(\d).*", r" v\1", line) for line in drawn.splitlines()] == [
        "* v4",
        "|\\",
        "* | v3",
        "| * v2",
        "|/",
        "* v1",
        "* v0",
    ]
    one_line_error(shop("log", "--graph", "--json", ok=False), "--graph", code=2)


def test_the_patch_holds_the_texts_that_are_asked_for(shop: Cli) -> None:
    shown = shop("log", "-p", "--op", "modify").stdout
    assert shown.count("Count both [-days.-] {+the days of a hire.+}") == 2
    assert "Use whole hours" not in shown
    rows = json.loads(shop("log", "-p", "--json").stdout)
    assert [len(row["events"]) for row in rows] == [1, 1, 1, 2, 0]
    assert rows[0]["events"][0]["before"] == "Count both days."
    (kept,) = shop("log", "--experience", "G1", "--oneline").stdout.splitlines()
    assert kept.startswith("v1 ")
    assert shop("log", "--grep", "SHOP'S RULE", "--oneline").stdout == kept + "\n"
    assert len(shop("log", "--since", "1h", "--oneline").stdout.splitlines()) == 4
    one_line_error(shop("log", "--since", "soon", ok=False), "soon", "2 weeks ago", code=2)
    for option in ("--since", "--until"):
        one_line_error(shop("log", option, "", ok=False), "is not a time", "2 weeks ago", code=2)
    one_line_error(shop("log", "--experience", "G9", ok=False), "G9")


@pytest.mark.parametrize(("columns", "flags"), [(80, ["-p"]), (140, ["-p"]), (80, ["--oneline"])])
def test_on_a_terminal_no_line_is_wider_than_it(
    shop: Cli, tmp_path: Path, columns: int, flags: list[str]
) -> None:
    shop("add", "Bring the lock.", "Say when the shop closes.", "-r", "what was asked most")
    shop("tag", "a-long-name-for-a-version-that-was-approved-by-many")
    shop("merge", "v1")
    outer, inner = pty.openpty()
    done = subprocess.Popen(
        [Path(sys.executable).with_name("tfgrpo"), "--no-pager", "log", "--graph", *flags],
        cwd=tmp_path,
        env=environment(COLUMNS=str(columns), TERM="xterm"),
        stdout=inner,
        stdin=subprocess.DEVNULL,
    )
    os.close(inner)
    printed = b""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            part = os.read(outer, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not part:
            break
        printed += part
    assert done.wait(timeout=240) == 0
    os.close(outer)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", printed.decode()).splitlines()
    assert len(lines) > 6
    assert max(map(len, lines)) <= columns
