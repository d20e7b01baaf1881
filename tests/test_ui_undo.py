"""Undo after every act, as a line where it happened."""

from __future__ import annotations

import html
import importlib
import re
from contextlib import closing
from pathlib import Path

import pytest
from test_ui_forms import form_of
from ui_demo import demo
from ui_rig import OTHER, HandAt, Visitor, store_at, violations
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.improvement.proposal_comments import ask, discussions
from tfgrpo.production.experiment import at_work, experiment, resume, start, stop
from tfgrpo.redaction import redact_everywhere
from tfgrpo.store import InvalidOperation, Operation, Store
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.activity.traffic import CallFilter, traffic_path
from tfgrpo.store.history import bisect as searches
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.bisect import Mark
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.redact import Target
from tfgrpo.ui.pages import PAGES


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
    page = visitor.post("/rollback", back)
    assert "experiment clearer was stopped, and goes on if this is undone" in page
    undo = line(page)
    page = visitor.post(*undo)
    assert "experiment clearer goes on" in page
    with Store.open(store) as opened:
        assert opened.tip("prod").name == was
        running = experiment(opened, "clearer")
        assert (running.state, running.share, running.ended) == ("running", 0.2, None)
        assert at_work(opened, "prod") == running
        assert [one.content["action"] for one in decisions(opened, kind="experiment")] == [
            *("start", "stop", "resume")
        ]
        with pytest.raises(InvalidOperation, match="clearer cannot go on"):
            resume(opened, "clearer")
    assert "experiment: resume" in re.sub("<[^>]+>", "", page)
    again = line(visitor.post(*line(page)))
    with Store.open(store) as opened:
        stopped = experiment(opened, "clearer")
        assert (opened.tip("prod").name, stopped.state) == ("v1", "stopped")
        start(opened, "other", ("prod", "main"), 0.5)
        stop(opened, "other")
    assert "goes on" in visitor.post(*again)
    visitor.post("/rollback", back | {"resumed": "nothing"}, status=404)
    with Store.open(store) as opened:
        assert experiment(opened, "clearer").state == "running", "all of it is refused"
        assert opened.tip("prod").name == was
    decision = {"id": "p1", "seen": "1", "act": "reject", "why": "no", "onto": "main"}
    assert "waits again" in visitor.post(*line(visitor.post("/review", decision)))
    call = "/call/call-000000000001"
    page = visitor.post(*line(visitor.post(call, {"score": "1"})))
    assert "taken back" in page
    bounds = {"seen": "0", "errors": "1", "score": "", "latency": "", "dollars": ""}
    page = visitor.post(*line(visitor.post("/production/bounds", bounds)))
    assert "No bound is set." in page


def test_a_search_comes_back_with_all_its_marks(tmp_path: Path) -> None:
    store = demo(tmp_path)
    visitor = Visitor(store)

    def marks() -> tuple[Mark, ...]:
        with Store.open(store) as opened:
            return searches.load(opened).marks

    first = marks()
    fields = form_of(visitor.get("/bisect"), "/bisect/mark") | {"verdict": "skip", "why": "slow"}
    undo = line(visitor.post("/bisect/mark", fields))
    assert len(marks()) == len(first) + 1
    visitor.post(*undo)
    assert marks() == first
    assert "Somebody went on with the search" in visitor.post(*undo, status=409)
    page = visitor.post("/bisect/end", form_of(visitor.get("/bisect"), "/bisect/end"))
    assert "No search is on" in page
    page = visitor.post(*line(page))
    assert marks() == first
    assert (store.parent / "bisect" / "experiences.json").is_file()
    assert "No search is on" in visitor.post(*line(page))
    page = visitor.post("/bisect/start", {"seen": 0, "bad": "HEAD", "good": "v1"})
    assert "No search is on" in visitor.post(*line(page))
    assert "No search is on" in Visitor(store, token=OTHER).post("/bisect/undo", {"seen": 0})


def test_what_was_said_of_a_proposal_is_taken_back_and_said_again(tmp_path: Path) -> None:
    store = demo(tmp_path)
    visitor = Visitor(store)
    asked = line(visitor.post("/review/ask", {"id": "p1", "name": "ben"}))
    page = visitor.post("/review/comment", {"id": "p1", "comment": 'Why "so"?'})
    said = line(page)
    assert "is not yours" in Visitor(store, token=OTHER).post(*said, status=400)
    page = visitor.post(*said)
    assert "Why &#34;so&#34;?</p>" not in page
    assert "was taken back" in visitor.post(*said, status=400)
    with Store.open(store) as opened:
        last = decisions(opened, kind="discussion")[-1].id
    assert "is not yours" in visitor.post(said[0], said[1] | {"said": last}, status=400)
    assert "Why &#34;so&#34;?</p>" in visitor.post(*line(page))
    with Store.open(store) as opened:
        assert discussions(opened)["p1"].awaited == (("ben", "tester"),)
        ask(opened, "p1", "cy")
    page = visitor.post(*asked)
    assert "ben is asked no more" in page
    with Store.open(store) as opened:
        assert [name for name, _ in discussions(opened)["p1"].awaited] == ["cy"]
    visitor.post(*line(page))
    with Store.open(store) as opened:
        assert [name for name, _ in discussions(opened)["p1"].awaited] == ["cy", "ben"]


def test_feedback_that_was_withdrawn_comes_back_as_it_was(tmp_path: Path) -> None:
    store = demo(tmp_path)
    visitor, call = Visitor(store), "call-000000000004"
    with closing(open_traffic(traffic_path(store))) as traffic:
        before = traffic.feedback(call)
        (one,) = before
        which = {"which": f"{one.time}/{one.author}"}
        undo = line(visitor.post(f"/call/{call}/withdraw", which))
        assert traffic.feedback(call) == []
        page = visitor.post(*undo)
        assert traffic.feedback(call) == before
        assert not any(traffic.totals().values()), "the demonstration's are not added up"
        assert "There is nothing to put back" in visitor.post(*undo)
        visitor.post(*line(page))
        assert traffic.feedback(call) == []


def test_an_undo_brings_back_nothing_that_was_redacted(tmp_path: Path) -> None:
    store = demo(tmp_path)
    visitor, call = Visitor(store), "call-000000000001"
    with closing(open_traffic(traffic_path(store))) as traffic:
        undo = line(visitor.post(f"/call/{call}", {"comment": "Ask for Zoë Quux, always."}))
        undo = line(visitor.post(*undo))
        assert traffic.search(CallFilter(), "Quux", 9).calls == []
        assert traffic.redact(re.compile("Zoë Quux"), {}) == 1
        visitor.post(*undo)
        assert [one.comment for one in traffic.feedback(call)] == ["Ask for [redacted], always."]
    fields = form_of(visitor.get("/bisect"), "/bisect/mark") | {"verdict": "skip", "why": "Quux"}
    visitor.post("/bisect/mark", fields)
    undo = line(visitor.post("/bisect/end", form_of(visitor.get("/bisect"), "/bisect/end")))
    with Store.open(store) as opened:
        added = opened.commit("main", [Operation("ADD", text="Quux")], message="it")
        *_, last = opened.library(added)
        redact_everywhere(opened, Target(last.id), reason="a name")
        visitor.post(*undo)
        assert "Quux" not in searches.load(opened).marks[-1].why


UNDO = "Undo <kbd>z</kbd>"
FINAL = {
    "/experience/{id}/redact": "a redaction takes texts away for good, once that was said twice",
    "/run-stop/{run:path}": "its page resumes it",
    "/run-resume/{run:path}": "its page stops it",
    "/playground": "it records nothing",
    "/playground/{id}/keep": "it adds a line to a file of the project's",
    "/production/collect": "it adds lines to a file of the project's",
    "/keys": "Revoke stands beside the key, which is shown on the same page",
    "/keys/revoke": "who revokes a key wants it dead: another is made",
    "/review/undo": "it is an undo: the proposal waits and is decided anew",
}
"""POST routes that offer no Undo, and why."""


def test_every_act_offers_undo_or_says_why_it_cannot(tmp_path: Path) -> None:
    store = demo(tmp_path)
    visitor = Visitor(store)
    with Store.open(store) as opened:
        first = next(iter(opened.library("main"))).id
        tip, web = opened.tip("main").name, opened.tip("web").name
        opened.create_branch("side")
        opened.commit("side", [Operation("ADD", text="Aside.")], message="aside")
    on = {"branch": "main", "onto": "main", "reason": "x", "why": "x"}
    whole = form_of(visitor.get("/library/whole?branch=prod"), "/library/whole")
    marked = form_of(visitor.get("/bisect"), "/bisect/mark")
    seen = {"seen": "running 0.2", "why": "x"}
    new = {"branch": "web", "onto": web, "name": "n", "candidate": tip, "why": "x", "share": "5"}
    call = "/call/call-000000000001"
    done: list[tuple[str, str, dict[str, str]]] = [
        ("/library/add", "", on | {"texts": "More."}),
        ("/library/change", "", on | {"experience": first, "act": "delete"}),
        ("/library/order", "", on | {"order": "1.0"}),
        ("/library/whole", "", whole | {"content": "- One.", "reason": "x"}),
        ("/combine", "", on | {"kind": "merge", "version": "side"}),
        ("/production/bounds", "", {"seen": "0", "errors": "1"}),
        ("/experiment/new", "", new | {"metric": "score", "unit": "call"}),
        ("/experiment/{name}", "/experiment/clearer", seen | {"act": "share", "share": "30"}),
        ("/rollback", "", on | {"branch": "prod", "onto": "prod", "to": "v1"}),
        ("/review/comment", "", {"id": "p1", "comment": "Hm."}),
        ("/review/ask", "", {"id": "p1", "name": "ben"}),
        ("/review", "", {"id": "p1", "seen": "1", "act": "reject", "why": "x", "onto": tip}),
        ("/call/{id}", call, {"score": "1"}),
        ("/bisect/mark", "", marked | {"verdict": "good"}),
        ("/bisect/end", "", {}),
        ("/bisect/start", "", {"seen": "0", "bad": "v3", "good": "v1"}),
    ]
    offered: set[str] = set()
    for route, address, fields in done:
        if route == "/bisect/end":
            fields = form_of(visitor.get("/bisect"), route)
        page = visitor.post(address or route, fields)
        assert UNDO in page, f"{route} offers no Undo"
        offered.add(route)
        for _ in range(2):  # and what that offers, if anything
            if UNDO in page:
                address, fields = line(page)
                page = visitor.post(address, fields)
                assert 'role="alert"' not in page, (route, address)
                offered.add(re.sub("/call/[^/]+", "/call/{id}", address))
    posts = {
        route.path
        for page in PAGES
        for route in importlib.import_module(f"tfgrpo.ui.pages.{page.module}").ROUTES
        if route.method == "POST"
    }
    offered = {re.sub("/experiment/(?!new)[^/]+", "/experiment/{name}", one) for one in offered}
    assert FINAL.keys() < posts
    assert posts - FINAL.keys() == offered - FINAL.keys()


@pytest.mark.parametrize("act", ["stop", "rollback"])
def test_the_end_of_an_experiment_is_said_to_be_final(act: str, tmp_path: Path) -> None:
    visitor = Visitor(demo(tmp_path))
    page = visitor.get("/production")
    assert "The end of an experiment is final" in page
    fields = form_of(page, "/experiment/clearer") | {"act": act, "why": "x"}
    page = visitor.post("/experiment/clearer", fields)
    assert "That is final" in page
    assert UNDO not in page


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "key", "no script"])
def test_undo_in_a_browser(how: str, hand_at: HandAt, tmp_path: Path) -> None:
    store = store_at(tmp_path, "One.")
    hand = hand_at(store)
    page = hand.page
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
