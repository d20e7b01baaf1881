"""Every text area gives back what it was given: what a page shows is not changed by saving. What a
person writes anew is one line, as everywhere."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from ui_rig import Visitor, store_at

from tfgrpo.improvement.proposals import Draftsman, list_proposals, propose
from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store import Operation, Store

HOSTILE = (
    "two\nlines",
    "\nbegins with a break",
    "ends with one\n",
    "\n\n\nthree of them\n\n",
    "as Windows\r\nwrites, as old\rMacs do\r",
    " spaces  around ",
    "\ttab\t",
    "word\u202eword\u202c, \x1b[2J, \x07",
    "lines \u2028 of \u2029 other \x85 kinds \x0b \x0c \x1c \x1d \x1e",
    "\ufeffmark, \u200f(2), \u200e, \u061c, \u200b, \u00ad",
    "e\u0301 is no \u00e9; \U0001f469\u200d\U0001f52c; \uffff; \U0010ffff",
    "</textarea><script>alert(1)</script>",
    "&lt;b&gt; &amp;amp; &#13; <b>bold</b> \\n \\u202e",
    "[G1] another's label\n- of a list\n\n## and a head\n```\ncode\n```",
    "<!-- a comment -->\n# G0\n---\nreason: x",
    "'\"` {{ 7 * 7 }} {% raw %} ${x} %s %0A",
    "z" * 200_000,
    "word " * 40_000,
)


def as_a_browser(value: str) -> str:
    """Returns what a browser sends of a text area that was given a value: it has one kind of line
    break, and sends another one (WHATWG HTML, sections 4.10.11 and 4.10.21.7)."""
    return re.sub("\r\n|\r|\n", "\r\n", value)


def areas(page: str) -> dict[str, str]:
    """Returns the text areas of a page by name, as a browser sends them."""
    found = re.findall(r'<textarea[^>]* name="([^"]+)"[^>]*>(.*?)</textarea>', page, re.S)
    return {name: as_a_browser(html.unescape(text.removeprefix("\n"))) for name, text in found}


def hidden(page: str) -> dict[str, str]:
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: html.unescape(value) for name, value in found if name != "csrf"}


@pytest.fixture(params=HOSTILE, ids=lambda text: ascii(text[:24]))
def text(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def texts(store: Path) -> list[str]:
    with Store.open(store) as opened:
        return [e.text for e in opened.library("main")]


def test_an_experience_that_was_saved_as_it_stood(text: str, tmp_path: Path) -> None:
    store = store_at(tmp_path, text, "Last.")
    visitor = Visitor(store)
    page = visitor.get("/library/change?branch=main&experience=G0")
    fields = hidden(page) | areas(page) | {"reason": "-", "act": "modify"}
    sent = visitor.client.post(
        "/library/change", data=fields | {"csrf": visitor.csrf()}, headers=ORIGIN
    )
    assert sent.status_code in (200, 400), sent.text[:2000]
    assert texts(store) == [text, "Last."]
    fields["text"] += "more"
    visitor.post("/library/change", fields)
    assert texts(store) == [one_line(text + "more"), "Last."]


ORIGIN = {"origin": "http://127.0.0.1:7433"}


def test_a_library_that_was_saved_as_a_whole(text: str, tmp_path: Path) -> None:
    store = store_at(tmp_path, text, "Last.")
    visitor = Visitor(store)
    page = visitor.get("/library/whole?branch=main")
    fields = hidden(page) | areas(page) | {"reason": "clearer"}
    fields["content"] = fields["content"].replace("Last.", "Very last.")
    visitor.post("/library/whole", fields)
    assert texts(store) == [text, "Very last."]


def test_a_conflict_that_was_solved_by_the_text_that_stands_there(
    text: str, tmp_path: Path
) -> None:
    store = store_at(tmp_path, "Before both.")
    with Store.open(store) as opened:
        (id,) = (e.id for e in opened.library())
        opened.create_branch("web")
        opened.commit("main", [Operation("MODIFY", id, text)], message="ours")
        opened.commit("web", [Operation("MODIFY", id, "Theirs.")], message="theirs")
    visitor = Visitor(store)
    page = visitor.get("/combine?kind=merge&version=web&branch=main")
    fields = hidden(page) | areas(page) | {"reason": "-", f"take-{id}": "text"}
    visitor.post("/combine", fields)
    assert texts(store) == [text]


def test_a_proposal_that_was_accepted_with_the_words_that_stand_there(
    text: str, tmp_path: Path
) -> None:
    store = store_at(tmp_path, "Before.")
    with Store.open(store) as opened:
        (id,) = (e.id for e in opened.library())
        base = opened.tip("main")
        opened.create_branch("proposal/1", base)
        opened.commit("proposal/1", [Operation("MODIFY", id, text)], message="learned")
        propose(opened, Draftsman("proposal/1", "main", "a test", base))
    visitor = Visitor(store)
    page = visitor.get("/review")
    fields = hidden(page) | areas(page) | {f"decide-{id}": "accept", "act": "accept", "why": "-"}
    visitor.post("/review", fields)
    with Store.open(store) as opened:
        assert [one.state for one in list_proposals(opened)] == ["accepted"]
    assert texts(store) == [text]


def test_an_experience_that_is_added_again_after_it_was_deleted(text: str, tmp_path: Path) -> None:
    store = store_at(tmp_path, text, "Last.")
    visitor = Visitor(store)
    page = visitor.get("/library/change?branch=main&experience=G0")
    with Store.open(store) as opened:
        (id, _) = (e.id for e in opened.library())
        opened.commit("main", [Operation("DELETE", id)], message="-")
    fields = hidden(page) | areas(page) | {"reason": "-", "act": "modify"}
    page = visitor.post("/library/change", fields | {"text": fields["text"] + "!"}, status=409)
    fields = hidden(page) | areas(page) | {"reason": "-"}
    visitor.post("/library/add", fields)
    last, added = texts(store)
    assert last == "Last."
    assert added == one_line(text + "!")


def test_words_that_are_said_are_one_text(text: str, tmp_path: Path) -> None:
    """What is typed into an area that begins empty: new experiences, a line each."""
    store = store_at(tmp_path)
    visitor = Visitor(store)
    fields = hidden(visitor.get("/library")) | {"texts": as_a_browser(text), "reason": "-"}
    visitor.post("/library/add", fields)
    lines = [line for line in re.split("\r\n|\r|\n", text) if line.strip()]
    assert texts(store) == list(dict.fromkeys(map(one_line, lines)))
