"""The search for the first bad version in the browser: one search with the command line."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from test_ui_undo import line
from ui_rig import OTHER, Visitor, forms, store_at

from tfgrpo.display.bisect_strip import bisect_strip
from tfgrpo.store import Operation, StaleVersion, Store
from tfgrpo.store.history import bisect as searches
from tfgrpo.store.history import merge


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """v0 to v9, of which v6 is the first bad one."""
    path = store_at(tmp_path)
    monkeypatch.chdir(tmp_path)
    with Store.open(path, author="writer") as opened:
        for n in range(1, 10):
            opened.commit("main", [Operation("ADD", text=f"Lesson {n}.")], message=f"lesson {n}")
    return path


def strip(page: str) -> dict[str, str]:
    """Returns version or stretch → how it is drawn."""
    found = re.search(r'<ol class="strip".*?</ol>', page, re.S)
    assert found is not None
    drawn = {}
    for kind, inside in re.findall(r'<li class="([^"]+)">(.*?)</li>', found[0], re.S):
        names = re.findall(r">(v\d+)<|</span> (v\d+) <", inside)
        drawn[" ".join(a or b for a, b in names)] = kind.removeprefix("mark-")
    return drawn


def seen(page: str, **fields: str) -> dict[str, str]:
    """A form that was made from a page."""
    found = re.search(r'name="seen" value="(\w+)"', page)
    assert found is not None
    return {"seen": found[1], **fields}


def test_the_first_bad_version_is_found_in_the_page(store: Path) -> None:
    visitor = Visitor(store, token=OTHER)
    assert "No search is on" in visitor.get("/bisect")
    assert '"/bisect?bad=v9"' in visitor.get("/version/v9")
    page = visitor.post("/bisect/start", {"seen": 0, "bad": "HEAD", "good": "v1 v0"})
    while tested := re.search(r"To be tested: <a [^>]*>v(\d+)<", page):
        number = int(tested[1])
        trial = json.loads((store.parent / "bisect" / "experiences.json").read_text())
        assert len(trial) == number, "the library under test is laid out for a program to read"
        verdict = "bad" if number >= 6 else "good"
        page = visitor.post(
            "/bisect/mark",
            seen(page, version=f"v{number}", verdict=verdict, why="ran <it>"),
        )
    assert ">v6</a> is the first bad version" in page
    assert "ran &lt;it&gt; (other)" in page
    drawn = strip(page)
    assert drawn["v0"] == drawn["v1"] == "good marked"
    assert {drawn[f"v{n}"].split()[0] for n in range(2, 6)} == {"good"}
    assert drawn["v6"].startswith("first-bad")
    assert {drawn[f"v{n}"].split()[0] for n in range(7, 10)} == {"bad"}
    visitor.post("/bisect/end", seen(page))
    assert "No search is on" in visitor.get("/bisect")
    assert not (store.parent / "bisect").exists()


def test_the_page_and_the_command_go_on_with_one_search(store: Path) -> None:
    visitor = Visitor(store)
    with Store.open(store) as opened:
        searches.start(opened, opened.resolve("v8"), [opened.resolve("v0")])
        middle = searches.progress(opened, searches.load(opened)).next
        assert middle is not None
        searches.mark(opened, opened.version(middle), "skip", "exit code 125")
    page = visitor.get("/bisect")
    assert strip(page)[f"v{middle}"] == "skip marked"
    assert "exit code 125" in page
    assert list(strip(page).values()).count("next") == 1
    mark = seen(page, version="v2", verdict="good")
    visitor.post("/bisect/mark", mark)
    again = visitor.post("/bisect/mark", mark | {"verdict": "bad"}, status=409)
    assert "Somebody went on with the search meanwhile" in again
    assert "you said that v2 is bad" in again
    with Store.open(store) as opened:
        last = searches.load(opened).marks[-1]
    assert (last.version, last.verdict, last.why) == (2, "good", "by hand, tester")


def test_a_stale_undo_takes_back_nobody_else_s_mark(store: Path) -> None:
    """Also where there are as many marks as when it was offered."""
    visitor, other = Visitor(store), Visitor(store, token=OTHER)
    page = visitor.post("/bisect/start", {"seen": 0, "bad": "v9", "good": "v1"})
    end = line(page)
    page = visitor.post("/bisect/mark", seen(page, version="v5", verdict="good"))
    undo = line(page)
    other.post("/bisect/undo", seen(page))
    other.post("/bisect/mark", seen(other.get("/bisect"), version="v3", verdict="good"))
    before = (store.parent / "bisect.json").read_bytes()
    assert "Somebody went on with the search" in visitor.post(*undo, status=409)
    other.post("/bisect/end", seen(other.get("/bisect")))
    other.post("/bisect/start", {"seen": 0, "bad": "v8", "good": "v1"})
    assert "Somebody went on with the search" in visitor.post(*end, status=409)
    with Store.open(store) as opened:
        assert len(searches.load(opened).marks) == 2
    assert len(json.loads(before)["marks"]) == 3


def test_of_several_who_mark_at_once_one_is_recorded_and_the_others_are_told(store: Path) -> None:
    with Store.open(store) as opened:
        searches.start(opened, opened.resolve("v9"), [opened.resolve("v0")])
        seen = searches.state(searches.load(opened))
    together = Barrier(6)

    def mark(number: int) -> bool:
        with Store.open(store) as own:
            version = own.version(number)
            together.wait()
            try:
                return bool(searches.mark(own, version, "skip", seen=seen))
            except StaleVersion:
                return False

    with ThreadPoolExecutor(6) as pool:
        won = [number for number, done in enumerate(pool.map(mark, range(1, 7)), 1) if done]
    with Store.open(store) as opened:
        assert [one.version for one in searches.load(opened).marks] == [0, 9, *won]
        assert len(won) == 1
        with pytest.raises(StaleVersion):
            searches.end(opened, seen=seen)


def test_a_library_that_cannot_be_laid_out_is_said(store: Path) -> None:
    (store.parent / "bisect").write_text("in the way")
    search = {"seen": 0, "bad": "v9", "good": "v1"}
    assert "File exists" in Visitor(store).post("/bisect/start", search, status=503)


def test_marks_that_do_not_fit_and_read_only_change_nothing(store: Path) -> None:
    visitor = Visitor(store)
    page = visitor.post("/bisect/start", {"seen": 0, "bad": "v8", "good": "v2"})
    before = (store.parent / "bisect.json").read_bytes()
    assert "already marked" in visitor.post(
        "/bisect/mark", seen(page, version="v1", verdict="bad"), status=400
    )
    assert "cannot be" in visitor.post(
        "/bisect/mark", seen(page, version="v5", verdict="worse"), status=400
    )
    watching = Visitor(store, read_only=True)
    assert not forms(watching.get("/bisect"))
    assert "the pages are read-only" in watching.post("/bisect/end", {}, status=400)
    assert (store.parent / "bisect.json").read_bytes() == before


def test_a_long_range_is_shown_as_stretches(store: Path) -> None:
    with Store.open(store) as opened:
        search = searches.start(opened, opened.resolve("v9"), [opened.resolve("v0")])
        search = searches.mark(opened, opened.version(4), "good")
        whole, short = bisect_strip(opened, search), bisect_strip(opened, search, most=5)
    assert [part.first for part in whole.parts] == list(range(10))
    assert sum(part.versions for part in short.parts) == whole.versions == 10
    assert [(p.first, p.last, p.state) for p in short.parts] == [
        (0, 0, "good"),
        (1, 3, "good"),
        (4, 4, "good"),
        (5, 6, "open"),
        (7, 7, "next"),
        (8, 8, "open"),
        (9, 9, "bad"),
    ]


def test_what_lies_beside_a_bad_version_in_a_merge_is_not_called_bad(store: Path) -> None:
    with Store.open(store) as opened:
        opened.create_branch("side", opened.resolve("v3"))
        side = opened.commit("side", [Operation("ADD", text="Aside.")], message="aside")
        merged = merge.merge(opened, "main", side, message="together")
        search = searches.start(opened, merged, [opened.resolve("v0")])
        search = searches.mark(opened, opened.version(8), "bad")
        states = {part.first: part.state for part in bisect_strip(opened, search).parts}
    assert states[side.number] == "aside"
    assert states[merged.number] == states[9] == states[8] == "bad"
