"""Review as review of code: what is said and decided of each change, who is asked, who is told; and
logins that look, log out and are not guessed."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_ui_forms import form_of
from ui_demo import add_proposals
from ui_rig import (
    OTHER,
    PATIENCE,
    TOKEN,
    Hand,
    HandAt,
    Visitor,
    serving,
    settings_of,
    store_at,
    violations,
)
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.improvement.proposal_comments import ask, comment, discussions
from tfgrpo.improvement.proposals import Draftsman, get_proposal, propose, reject
from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.errors import FileChanged
from tfgrpo.ui.notifications import Notifier
from tfgrpo.ui.store_per_thread import Stores
from tfgrpo.ui.ui_settings import UiSettings

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = store_at(tmp_path, *(f"Lesson {n}." for n in range(4)))
    with Store.open(path, author="tfgrpo") as opened:
        add_proposals(opened, 2)
    return path


def test_comments_stand_at_their_change_and_decide_nothing(store: Path) -> None:
    visitor, other = Visitor(store), Visitor(store, token=OTHER)
    with Store.open(store) as opened:
        first = get_proposal(opened, "p1").changes[0].experience
    visitor.post("/review/comment", {"id": "p1", "comment": "Why so?", "on": first})
    page = other.post("/review/comment", {"id": "p1", "comment": "<b>All</b> of it."})
    assert page.index("Why so?") < page.index("Discussion") < page.index("&lt;b&gt;All&lt;/b&gt;")
    visitor.post("/review/ask", {"id": "p1", "name": "other"})
    assert "Asked to look" in visitor.get("/review?id=p1")
    assert "p1" in visitor.get("/")
    with Store.open(store) as opened:
        assert get_proposal(opened, "p1").state == "open"
        spoken = discussions(opened)["p1"]
        assert [(one.author, one.experience) for one in spoken.comments] == [
            ("tester", first),
            ("other", None),
        ]
        assert spoken.awaited == (("other", "tester"),)
    other.post("/review/comment", {"id": "p1", "comment": "I looked."})
    assert "Asked to look:" not in visitor.get("/review?id=p1")
    for fields in ({"id": "p1", "comment": " "}, {"id": "p1", "comment": "x" * 10_001}):
        visitor.post("/review/comment", fields, status=400)
    visitor.post("/review/comment", {"id": "p1", "comment": "x", "on": "nothing"}, status=404)
    with Store.open(store) as opened:
        reject(opened, "p2", why="no")
        with pytest.raises(TfgrpoError, match="was decided"):
            ask(opened, "p2", "ben")


def in_conflict(folder: Path) -> tuple[Path, list[str]]:
    """Makes a store with a proposal of which two of three changes were changed meanwhile; returns
    its file and the ids of the three."""
    store = store_at(folder, "One.", "Two.", "Three.")
    with Store.open(store, author="tfgrpo") as opened:
        ids = [e.id for e in opened.library("main")]
        base = opened.tip("main")
        opened.create_branch("better", base)
        theirs = [Operation("MODIFY", id, f"Theirs {n}.") for n, id in enumerate(ids)]
        opened.commit("better", theirs, message="learned")
        propose(opened, Draftsman("better", "main", "a test", base))
        ours = [Operation("MODIFY", id, f"Ours {n}.") for n, id in enumerate(ids[:2])]
        opened.commit("main", ours, message="by hand")
    return store, ids


def test_each_conflict_of_a_proposal_has_a_side_of_its_own(tmp_path: Path) -> None:
    store, ids = in_conflict(tmp_path)
    visitor = Visitor(store)
    fields = form_of(visitor.get("/review"), "/review")
    page = visitor.post("/review", fields, status=409)
    fields = form_of(page, "/review")
    assert page.count('<fieldset class="conflict">') == 2
    half = fields | {f"take-{ids[0]}": "theirs"}
    assert "Choose a side for each" in visitor.post("/review", half, status=409)
    whole = half | {f"take-{ids[1]}": "text", f"words-{ids[1]}": "Both of two."}
    assert "accepted" in visitor.post("/review", whole)
    with Store.open(store) as opened:
        assert [e.text for e in opened.library("main")] == [
            "Theirs 0.",
            "Both of two.",
            "Theirs 2.",
        ]


def chosen(page: str) -> set[str]:
    """Which sides are chosen on a page, as name=value."""
    radios = re.findall(r'name="(take-\w+)" value="(\w+)"(?: required)? checked', page)
    return {f"{name}={value}" for name, value in radios}


def test_a_conflict_form_that_is_refused_has_all_that_was_chosen(tmp_path: Path) -> None:
    store, ids = in_conflict(tmp_path)
    visitor = Visitor(store)
    page = visitor.post("/review", form_of(visitor.get("/review"), "/review"), status=409)
    fields = form_of(page, "/review")
    whole = fields | {f"take-{ids[0]}": "theirs", f"take-{ids[1]}": "text"}
    sides = {f"take-{ids[0]}=theirs", f"take-{ids[1]}=text"}
    page = visitor.post("/review", whole | {f"words-{ids[1]}": " "}, status=409)
    assert f"{ids[1]} has no text" in page
    assert chosen(page) == sides
    whole |= {f"words-{ids[1]}": "Both of two."}
    down = {f"do-{ids[2]}": "reject", f"why-{ids[2]}": " "}
    page = visitor.post("/review", whole | down, status=400)
    assert "is missing" in page
    assert chosen(page) == sides
    assert ">Both of two.</textarea>" in page
    page = visitor.post("/review", whole | {"seen": "0"}, status=409)
    assert chosen(page) == sides
    page = visitor.post("/review", whole | form_of(page, "/review"))
    with Store.open(store) as opened:
        assert [e.text for e in opened.library("main")] == [
            "Theirs 0.",
            "Both of two.",
            "Theirs 2.",
        ]
        again = [Operation("MODIFY", id, f"Later {n}.") for n, id in enumerate(ids[:2])]
        opened.commit("main", again, message="later")
    undo = {"id": "p1", "seen": "2", "why": "In doubt."}
    page = visitor.post("/review/undo", undo, status=409)
    whole = {f"take-{ids[0]}": "theirs", f"take-{ids[1]}": "text"} | form_of(page, "/review/undo")
    page = visitor.post("/review/undo", whole | {f"words-{ids[1]}": ""}, status=409)
    assert f"{ids[1]} has no text" in page
    assert chosen(page) == sides
    assert not re.search(r"Later 1\.</textarea>", page), "what was taken out stays out"
    mine = whole | {f"words-{ids[1]}": "Mine.", "why": "In doubt."}
    for onto in (whole["onto"], "v1"):
        page = visitor.post("/review/undo", mine | {"seen": "1", "onto": onto}, status=409)
        assert "meanwhile" in page
        assert chosen(page) == sides
    assert ">Mine.</textarea>" in page
    assert 'value="In doubt."' in page
    assert "waits again" in visitor.post("/review/undo", mine)
    with Store.open(store) as opened:
        assert [e.text for e in opened.library("main")][:2] == ["Ours 0.", "Mine."]


@contextmanager
def hook(status: int = 200) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An address that keeps what is posted to it."""
    posted: list[dict[str, Any]] = []

    class Kept(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = json.loads(self.rfile.read(length))
            if status == 200:
                posted.append(body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Kept)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", posted
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_what_begins_to_wait_is_told_once_and_again_where_it_was_not_delivered(store: Path) -> None:
    async def looks(notifier: Notifier, acts: list[Any]) -> list[int]:
        counts = [await notifier.look()]
        for act in acts:
            with Store.open(store, author="ana") as opened:
                act(opened)
            counts.append(await notifier.look())
        return [*counts, await notifier.look()]

    def fails(opened: Store) -> None:
        run = opened.runs.create("r", "6" * 32, "main", 1, {"models": {"model": "m"}}, "ana")
        opened.runs.note(run, "started")
        opened.runs.note(run, "failed", "the endpoint said 503")

    stores = Stores(store)
    try:
        with hook() as (url, posted):
            settings = UiSettings(store, {}, notify=(url,), public="http://pages")
            acts = [lambda s: ask(s, "p1", "ben"), lambda s: comment(s, "p1", "hm"), fails]
            assert asyncio.run(looks(Notifier(stores, settings), acts)) == [0, 1, 0, 1, 0]
        assert [one["kind"] for one in posted] == ["asked", "run"]
        assert posted[0] == {
            "kind": "asked",
            "text": "ana asks ben to look at proposal p1",
            "address": "http://pages/review?id=p1",
        }
        assert "503" in posted[1]["text"]
        with hook(500) as (url, _):
            gone = Notifier(stores, UiSettings(store, {}, notify=(url,)))
            again = [lambda s: add_proposals_to(s)]
            assert asyncio.run(looks(gone, again)) == [0, 0, 0]
        with hook() as (url, posted):
            gone._undelivered = dict(zip([url], gone._undelivered.values(), strict=True))
            assert asyncio.run(gone.look()) == 1
            assert posted[0]["text"].startswith("Proposal p3 waits: ")
    finally:
        stores.close()


def test_a_store_that_had_to_be_opened_again_signs_as_who_asked(store: Path) -> None:
    seen: list[Store] = []

    def work(opened: Store) -> str:
        seen.append(opened)
        if len(seen) == 1:
            raise FileChanged("it has changed", hint="again")
        return opened.author

    stores = Stores(store)
    try:
        assert asyncio.run(stores.run("ana", work)) == "ana"
    finally:
        stores.close()
    assert seen[0] is not seen[1]


def add_proposals_to(store: Store) -> None:
    """Makes a third proposal."""
    from tfgrpo.improvement.proposals import Draftsman, propose

    base = store.tip("main")
    store.create_branch("third", base)
    store.commit("third", [Operation("ADD", text="A third.")], message="learned")
    propose(store, Draftsman("third", "main", "a test", base))


def test_a_reader_sees_everything_and_records_nothing(store: Path) -> None:
    visitor = Visitor(store, readers=frozenset({TOKEN}))
    page = visitor.get("/review")
    assert "read-only" in page
    assert "/review/comment" not in page
    assert "<textarea" not in page
    form = {"csrf": visitor.csrf(), "id": "p1", "comment": "x"}
    answer = visitor.client.post("/review/comment", data=form)
    assert answer.status_code == 400
    assert "this login only looks" in answer.text
    Visitor(store, token=OTHER, readers=frozenset({TOKEN})).post(
        "/review/comment", {"id": "p1", "comment": "x"}
    )


def test_who_logs_out_is_out_and_others_of_that_name_are_not(store: Path) -> None:
    from starlette.testclient import TestClient

    from tfgrpo.ui.site import create_site

    site = create_site(settings_of(store))
    here, there = (TestClient(site, base_url="http://127.0.0.1:7433") for _ in range(2))
    for client in (here, there):
        client.get("/", params={"token": TOKEN})
    cookies = dict(here.cookies)
    elsewhere = {"origin": "http://evil.example"}
    assert here.post("/logout", headers=elsewhere).status_code == 403
    assert here.get("/").status_code == 200
    assert "logged out" in here.post("/logout").text
    here.cookies.update(cookies)
    assert here.get("/").status_code == 401, "the cookie stands for nobody any more"
    assert there.get("/").status_code == 200
    assert here.get("/", params={"token": TOKEN}).status_code == 200


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_a_proposal_is_discussed_and_decided_in_a_browser(
    how: str, hand_at: HandAt, store: Path
) -> None:
    hand = hand_at(store)
    page = hand.page
    hand.open("/review")
    hand.write("#comment", "Is that so?")
    hand.follow("form[action='/review/comment'] button")
    hand.sees("Is that so?")
    hand.write("form[action='/review/ask'] input[name=name]", "other")
    hand.follow("form[action='/review/ask'] button")
    hand.sees("Asked to look")
    if how != "no script":
        assert violations(page) == []
        hand.press("button[data-chooses=open]")
        chosen = "[...document.querySelectorAll('.verdict-of input:checked')].map(e => e.value)"
        assert page.evaluate(chosen) == ["open", "open"]
        hand.press("button[data-chooses=accept]")
        assert page.evaluate(chosen) == ["accept", "accept"]
    hand.follow("#accept button.main")
    hand.sees("accepted", ".notice")
    hand.follow(".logout button")
    assert "logged out" in page.inner_text("body")


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_one_change_is_turned_down_with_a_reason_in_a_browser(hand_at: HandAt, store: Path) -> None:
    with Store.open(store) as opened:
        one, other = (change.experience for change in get_proposal(opened, "p1").changes)
    hand = hand_at(store)
    hand.open("/review?id=p1")
    choose(hand, f"do-{one}", "reject")
    hand.write(f"input[name=why-{one}]", "not so in this shop")
    hand.follow("#accept button.main")
    hand.sees("p1", ".notice")
    with Store.open(store) as opened:
        decided = {each.experience: each for each in get_proposal(opened, "p1").changes}
    assert (decided[one].state, decided[one].why) == ("rejected", "not so in this shop")
    assert decided[other].state == "accepted"


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_sides_of_a_conflict_are_chosen_in_a_browser(
    how: str, chromium: Browser, tmp_path: Path
) -> None:
    store, ids = in_conflict(tmp_path)
    script = how != "no script"
    with serving(store) as url, chromium.new_context(java_script_enabled=script) as context:
        page = context.new_page()  # not a watched one: a browser's console tells of a status 409
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        hand = Hand(page, url.partition("/?")[0], mouse=how != "keyboard")
        hand.open("/review")
        hand.follow("#accept button.main")
        hand.sees("has changed the same words meanwhile", "main .error")
        choose(hand, f"take-{ids[0]}", "theirs")
        choose(hand, f"take-{ids[1]}", "text")
        hand.write(f"textarea[name=words-{ids[1]}]", "Both of two.")
        hand.follow("#accept button.main")
        hand.sees("accepted", ".notice")
        with Store.open(store) as opened:
            texts = [e.text for e in opened.library("main")]
        assert texts == ["Theirs 0.", "Both of two.", "Theirs 2."]


def choose(hand: Hand, name: str, value: str) -> None:
    """Chooses one of several: with the keyboard, Tab comes to the one that is chosen, or to the
    first, and arrows lead to the others."""
    wanted = f"input[name='{name}'][value={value}]"
    if hand.mouse:
        hand.press(wanted)
        return
    hand.reach(f"input[name='{name}']:checked, input[name='{name}'][value=ours]")
    if not hand.page.is_checked(wanted):
        while hand.page.evaluate("wanted => !document.activeElement.matches(wanted)", wanted):
            hand.page.keyboard.press("ArrowDown")
    assert hand.page.is_checked(wanted)
