"""Undo after every act, as a line where it happened."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ui_demo import demo
from ui_rig import Visitor, serving, store_at, watched
from ui_rig import chromium as chromium

from tfgrpo.store import InvalidOperation, Operation, Store
from tfgrpo.store.history import name_moves

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def texts(store: Path, branch: str = "main") -> list[str]:
    with Store.open(store) as opened:
        return [e.text for e in opened.library(branch)]


def line(page: str) -> tuple[str, dict[str, str]]:
    """Returns the form in the line that says what was done."""
    form = re.search(
        r'<div class="notice".*?<form method="post" action="([^"]+)">(.*?)</form>', page
    )
    assert form is not None, page[:3000]
    hidden = re.findall(r'name="([^"]+)" value="([^"]*)"', form[2])
    return form[1], {name: html.unescape(value) for name, value in hidden if name != "csrf"}


def test_every_change_of_a_library_is_taken_back_where_it_was_made(tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.", "Two.")
    visitor = Visitor(store)
    with Store.open(store) as opened:
        first = next(iter(opened.library("main"))).id
    change = {"branch": "main", "experience": first, "reason": "x", "onto": "main"}
    acts = [
        ("/library/add", {"branch": "main", "texts": "Three.", "reason": "x"}),
        ("/library/change", change | {"act": "modify", "text": "Other."}),
        ("/library/change", change | {"act": "delete"}),
        ("/library/order", {"branch": "main", "onto": "main", "order": "1.0", "reason": "x"}),
    ]
    for address, fields in acts:
        before = texts(store)
        page = visitor.post(address, fields)
        after = texts(store)
        assert after != before
        undo = line(page)
        page = visitor.post(*undo)
        assert texts(store) == before
        page = visitor.post(*line(page))
        assert texts(store) == after, "what was taken back is put back"
        visitor.post(*line(page))
        assert texts(store) == before
    assert "no such operation" in visitor.post("/undo", {"seen": "999", "back": "/"})


def test_what_others_did_since_stays(tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.")
    visitor = Visitor(store)
    add = {"branch": "main", "texts": "Two.", "reason": "x"}
    undo = line(visitor.post("/library/add", add))
    with Store.open(store) as opened:
        opened.create_branch("other", "v1")
        opened.commit("other", [Operation("ADD", text="Elsewhere.")], message="x")
    visitor.post(*undo)
    assert (texts(store), texts(store, "other")) == (["One."], ["One.", "Elsewhere."])
    undo = line(visitor.post("/library/add", add))
    with Store.open(store) as opened:
        opened.commit("main", [Operation("ADD", text="Three.")], message="x")
    assert "main has moved since" in visitor.post(*undo)
    assert texts(store) == ["One.", "Two.", "Three."]
    with Store.open(store) as opened:
        assert [e.text for e in opened.library("main")][-1] == "Three."
        name_moves.undo(opened)
        assert [e.text for e in opened.library("main")] == ["One.", "Two."]
        with pytest.raises(InvalidOperation):
            name_moves.take_back(opened, 1 << 40)


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example", "/\\\\evil", ""])
def test_the_way_back_leads_to_no_other_site(back: str, tmp_path: Path) -> None:
    visitor = Visitor(store_at(tmp_path, "One."))
    add = {"branch": "main", "texts": "Two.", "reason": "x"}
    _, fields = line(visitor.post("/library/add", add))
    form = {"csrf": visitor.csrf(), **fields, "back": back}
    answer = visitor.client.post("/undo", data=form, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_decisions_rollbacks_and_feedback_are_taken_back(tmp_path: Path) -> None:
    import time

    store = demo(tmp_path, now=time.time_ns() // 1000)
    visitor = Visitor(store)
    with Store.open(store) as opened:
        was = opened.tip("prod").name
    back = {"branch": "prod", "onto": "prod", "to": "v1", "why": "worse"}
    visitor.post(*line(visitor.post("/rollback", back)))
    with Store.open(store) as opened:
        assert opened.tip("prod").name == was
    decision = {"id": "p1", "seen": "1", "act": "reject", "why": "no", "onto": "main"}
    assert "waits again" in visitor.post(*line(visitor.post("/review", decision)))
    call = "/call/call-000000000001"
    page = visitor.post(*line(visitor.post(call, {"score": "1"})))
    assert "taken back" in page
    bounds = {"seen": "0", "errors": "1", "score": "", "latency": "", "dollars": ""}
    page = visitor.post(*line(visitor.post("/production/bounds", bounds)))
    assert "No bound is set." in page


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "key", "no script"])
def test_undo_in_a_browser(how: str, chromium: Browser, tmp_path: Path) -> None:
    from test_ui_browser import Hand, violations

    store = store_at(tmp_path, "One.")
    with serving(store) as url, watched(chromium, java_script_enabled=how != "no script") as page:
        page.goto(url)
        hand = Hand(page, url.partition("/?")[0], mouse=how in ("mouse", "no script"))
        hand.open("/library?at=main")
        hand.press("details:has(#texts) > summary")
        hand.write("#texts", "Two.")
        hand.write("#why", "asked for")
        hand.follow("form[action='/library/add'] button")
        if how != "no script":
            assert violations(page) == []
        if how == "key":
            with page.expect_navigation():
                page.keyboard.press("z")
        else:
            hand.follow(".notice button")
        hand.sees("Taken back", ".notice")
    assert texts(store) == ["One."]
