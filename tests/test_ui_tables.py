"""Every table of figures is sorted by its heads and taken away as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from test_ui_compare import candidates_at
from test_ui_runs import folder as folder
from ui_rig import Visitor, links, store_at

from tfgrpo.store import Operation, Store

TABLES = {
    "/evaluations": ["scores-DIGEST"],
    "/paired/0/1/DIGEST": ["pairs"],
    "/cost": ["runs", "stages", "models", "days"],
    "/cost?run=quick": ["stages", "models", "steps", "days"],
    "/run/quick": ["steps"],
    "/compare-runs?a=quick&b=a/b": ["steps", "settings"],
    "/library?at=main": ["library"],
}


def taken(visitor: Visitor, page: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the tables that a page offers as files → their rows, which both kinds have."""
    found = {}
    for link in links(page):
        kind, _, key = parse_qs(urlsplit(link).query).get("as", [""])[0].partition("-")
        if kind == "json":
            answer = visitor.client.get(link)
            assert f'filename="{key}.json"' in answer.headers["content-disposition"]
            found[key] = json.loads(answer.text)
            text = visitor.client.get(link.replace("as=json", "as=csv")).text
            rows = list(csv.DictReader(io.StringIO(text)))
            assert [list(row) for row in rows] == [list(row) for row in found[key]]
    return found


def sorts(page: str, key: str) -> list[str]:
    """Returns the addresses by which a table of a page is sorted."""
    return [link for link in links(page) if f"sort-{key}=" in link]


@pytest.mark.parametrize("address", TABLES)
def test_a_table_is_sorted_and_taken_away(address: str, folder: Path) -> None:
    visitor = Visitor(folder / ".tfgrpo/store.db")
    with Store.open(folder / ".tfgrpo/store.db") as store:
        digest = store.runs.all_evaluations()[0].digest
    page = visitor.get(address.replace("DIGEST", digest))
    files = taken(visitor, page)
    assert list(files) == [key.replace("DIGEST", digest[:12]) for key in TABLES[address]]
    for key, rows in files.items():
        assert rows, key
        heads = sorts(page, key)
        assert len(heads) > 2, key
        for link in heads:
            once = visitor.get(link)
            assert once.count("aria-sort=") == 1, link
            again = next(one for one in sorts(once, key) if f"{key}=-" in one)
            ways = re.findall(r'aria-sort="(\w+)"', once + visitor.get(again))
            assert sorted(ways) == ["ascending", "descending"], link
    visitor.get(f"{urlsplit(address).path}?sort-no=1".replace("DIGEST", digest))
    path = address.replace("DIGEST", digest)
    nothing = f"{path}{'&' if '?' in path else '?'}sort-{list(files)[-1]}=nothing"
    assert "is not sorted by" in visitor.get(nothing, status=400)


def test_candidates_are_sorted_by_what_they_do(tmp_path: Path) -> None:
    store, _ = candidates_at(tmp_path)
    visitor = Visitor(store)
    page = visitor.get("/run/r")
    rows = taken(visitor, page)["candidates"]
    assert {row["text"]: row["effect"] for row in rows} == {
        "It enters.": 0.2,
        "It is given up.": -0.2,
        "It waits.": None,
    }
    for order, texts in (
        ("effect", ("It enters.", "It is given up.", "It waits.")),
        ("-effect", ("It is given up.", "It enters.", "It waits.")),
    ):
        page = visitor.get(f"/run/r?sort-candidates={order}")
        places = [page.index(text) for text in texts]
        assert places == sorted(places), order


def test_what_is_sorted_begins_at_its_first_page_and_goes_on_in_its_order(tmp_path: Path) -> None:
    store = store_at(tmp_path, *(f"{'word ' * (n + 1)}number {n:02}." for n in range(70)))
    visitor = Visitor(store)
    second = visitor.get("/library?start=50")
    (link,) = (one for one in sorts(second, "library") if one.endswith("=tokens"))
    assert "start" not in link
    page = visitor.get(link)
    assert page.index("number 69.") < page.index("number 20.")
    assert "number 19." not in page
    further = next(one for one in links(page) if "start=50" in one)
    assert "number 19." in visitor.get(further)
    assert len(taken(visitor, page)["library"]) == 70


def test_a_link_to_a_library_and_a_diff_stays_when_the_names_move_on(tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both days.")
    visitor = Visitor(store)
    pages = ("/library?at=main&q=days", "/diff?a=main~1&b=main", "/library/prompt?at=main")
    before = [visitor.get(path) for path in pages]
    with Store.open(store) as opened:
        digest = opened.head.version.digest.hex()[:16]
        opened.commit("main", [Operation("ADD", text="Other days.")], message="on")
    for page in before:
        link = next(one for one in links(page) if f"={digest}" in one)
        kept = visitor.get(link)
        assert "Count both days." in kept
        assert "Other days." not in kept
        assert link in links(kept)
    assert "q=days" in next(one for one in links(before[0]) if f"={digest}" in one)
