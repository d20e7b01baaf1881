"""One search over everything, and the tables and the prompt that readers take away."""

from __future__ import annotations

import csv
import io
import json
import time
from html import unescape
from pathlib import Path

import pytest
from port_rows import call, rollout, write
from test_ui_runs import folder as folder
from ui_records import every_record
from ui_rig import WIDTHS, HandAt, Visitor, links, store_at, violations
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.rendering.request_placement import addition
from tfgrpo.store import Operation, Store
from tfgrpo.store.redact import Target, redact


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return every_record(tmp_path_factory.mktemp("records"), now=time.time_ns() // 1000)


def test_experiences_are_found_deleted_ones_too_and_redacted_ones_never(tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both DAYS.", "Give units (a.b)*.")
    with Store.open(store) as opened:
        first, second = (e.id for e in opened.library("main"))
        opened.commit("main", [Operation("DELETE", first, None, "of no use")], message="-")
    visitor = Visitor(store)
    page = visitor.get("/search?q=both days")
    assert f"/experience/{first}" in links(page)
    assert ">deleted<" in page
    page = visitor.get("/search?q=(a.b)*")
    assert f"/experience/{second}" in links(page)
    assert "in main" in page
    assert "Nothing says that." in visitor.get("/search?q=axb")
    assert visitor.get("/search?q=" + "x" * 201, status=400)
    for hostile in ("<script>", "%", "'", "\\", "\u202e"):
        assert "<script>" not in visitor.get(f"/search?q={hostile}").partition("<main")[2]


def test_redacted_words_are_not_found(records: Path) -> None:
    assert "Nothing says that." in Visitor(records).get("/search?q=sk-123")


def test_problems_attempts_and_calls_are_found(folder: Path, records: Path) -> None:
    visitor = Visitor(folder / ".tfgrpo/store.db")
    page = visitor.get("/search?q=1")
    assert "<h2>Problems</h2>" in page
    assert "<h2>Attempts</h2>" in page
    for address in [link for link in links(page) if link.startswith("/group/")][:4]:
        visitor.get(address)
    page = Visitor(records).get("/search?q=36 EUROS")
    assert "<h2>Calls</h2>" in page
    hidden = Visitor(records, content=False).get("/search?q=36 EUROS")
    assert "<h2>Calls</h2>" not in hidden


def attempts_at(folder: Path, count: int) -> Path:
    """Makes a store with so many attempts, each with what it said in a call of its own."""
    store = store_at(folder)
    config = {"models": {"model": "m"}}
    with Store.open(store) as opened:
        run = opened.runs.create("shop", "5" * 32, "main", 0, config, "ana")
        calls = [
            call(
                f"k{n}",
                run.id,
                answer={"content": f'{"Let me see. " * 30}Am {n}. MÄRZ "war"\nRegen.'},
            )
            for n in range(count)
        ]
        rows = [
            rollout(run.id, n % 16, problem=f"hire-{n // 16}", calls=(one.key.hex(),))
            for n, one in enumerate(calls)
        ]
        write(opened.port, calls, rows)
    return store


def test_what_attempts_said_is_found_as_far_as_was_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = attempts_at(tmp_path, 50)
    visitor = Visitor(store)
    page = visitor.get('/search?q=am 7. märz "War"')
    assert [link for link in links(page) if link.startswith("/group/")] == [
        "/group/shop?step=1&sample=7&problem=hire-0"
    ]
    assert "Am 7. MÄRZ" in page
    assert "were looked at" not in page
    assert "Nothing says that.</p>" in visitor.get("/search?q=finish_reason")
    assert "MÄRZ" not in Visitor(store, content=False).get("/search?q=märz").partition("<h1")[2]
    page = visitor.get("/search?q=märz")
    assert page.count("/group/shop?") == 20, "the newest"
    assert "20 attempts were looked at, the newest" in page
    monkeypatch.setattr("tfgrpo.store.activity.runs.LOOKED_AT", 40)
    page = visitor.get("/search?q=am 7.")
    assert "Nothing says that, as far as it was looked." in page
    assert "40 attempts were looked at, the newest" in page
    (further,) = [link for link in links(page) if "before=" in link]
    page = visitor.get(further)
    assert "/group/shop?step=1&sample=7&problem=hire-0" in links(page)
    assert "10 attempts were looked at, older ones" in page
    assert not [link for link in links(page) if "before=" in link]
    with Store.open(store) as opened:
        redact(opened, Target(texts=("Am 7",)), reason="a date")
    assert "Am 7" not in visitor.get(further).partition("<h1")[2]


def test_the_whole_prompt_is_the_text_that_goes_into_requests(records: Path) -> None:
    visitor = Visitor(records)
    page = visitor.get("/library/prompt?at=v3")
    with Store.open(records) as store:
        sent = json.loads(f'"{addition(store.library("v3")).escaped}"')
        size = len(store.library("v3"))
    assert sent in unescape(page)
    rows = json.loads(visitor.client.get("/library/prompt?at=v3&as=json-prompt").text)
    assert len(rows) == size
    ordered = visitor.get("/library/prompt?at=v3&sort-prompt=tokens")
    assert 'aria-sort="descending"' in ordered
    most = max(rows, key=lambda row: row["tokens"])
    assert unescape(ordered.partition("<tbody>")[2]).index(most["text"]) < 400


def test_a_file_of_a_table_runs_nothing_in_a_spreadsheet(tmp_path: Path) -> None:
    visitor = Visitor(store_at(tmp_path, "=1+1", "+x", "@y", "-z", "\tq", 'a, "b"'))
    text = visitor.client.get("/library/prompt?as=csv-prompt").text
    for row in csv.DictReader(io.StringIO(text)):
        assert row["text"][:1] not in "=+-@\t"
    assert visitor.client.get("/library/prompt?as=xml-prompt").status_code == 400


def test_runs_are_sorted_and_taken_away(folder: Path) -> None:
    visitor = Visitor(folder / ".tfgrpo/store.db")
    names = [row["run"] for row in json.loads(visitor.client.get("/runs?as=json-runs").text)]
    assert names == ["a/b", "quick"]
    page = visitor.get("/runs?sort-runs=-run")
    assert page.index(">quick<") < page.index(">a/b<")
    assert 'aria-sort="descending"' in page


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard"])
def test_older_attempts_are_looked_in_in_a_browser(
    hand_at: HandAt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.store.activity.runs.LOOKED_AT", 40)
    hand = hand_at(attempts_at(tmp_path, 50))
    hand.open("/search")
    hand.write("main input[name=q]", "am 7.")
    hand.follow("main form button")
    hand.sees("40 attempts were looked at")
    hand.follow("main a.button")
    hand.sees("Am 7. MÄRZ")
    assert violations(hand.page) == []
    hand.follow("main a[href^='/group/shop']")


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_search_in_a_browser(how: str, hand_at: HandAt, records: Path) -> None:
    hand = hand_at(records)
    page = hand.page
    hand.follow("nav a[href='/search']")
    hand.write("main input[name=q]", "euros")
    hand.follow("main form button")
    hand.sees("Experiences")
    hand.open("/library?at=main")
    hand.follow("main a[href^='/library/prompt']")
    hand.follow("thead th:last-child a")
    assert page.get_attribute("thead th:last-child", "aria-sort") == "descending"
    if how == "mouse":
        for address in (page.url, hand.at + "/search?q=euros", hand.at + "/runs"):
            page.goto(address)
            assert violations(page) == []
            for width, (across, down) in WIDTHS.items():
                page.set_viewport_size({"width": across, "height": down})
                wide = "document.documentElement.scrollWidth <= innerWidth"
                assert page.evaluate(wide), (width, address)
