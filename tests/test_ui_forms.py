"""The forms of the pages: each says what it was made from, and a stale one overwrites nobody."""

from __future__ import annotations

import html
import importlib
import re
from pathlib import Path
from urllib.parse import urlencode

import pytest
from test_ui_library import commit, ids, shown_order, texts
from test_ui_round_trips import ORIGIN
from ui_demo import BEGIN, demo
from ui_records import every_record
from ui_rig import Visitor, crawl, store_at

from tfgrpo.improvement.proposals import Draftsman, accept, list_proposals, propose
from tfgrpo.production.experiment import start
from tfgrpo.store import Operation, Store
from tfgrpo.store.history.merge import merge
from tfgrpo.ui.pages import PAGES


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return store_at(tmp_path, "Count both days.", "Round up.", "Name the unit.")


def test_a_stale_merge_or_rollback_shows_what_others_did_and_records_nothing(store: Path) -> None:
    first, second, _ = ids(store)
    with Store.open(store) as opened:
        opened.create_branch("web")
    commit(store, "web", Operation("MODIFY", first, "Count the web's days."))
    commit(store, "main", Operation("MODIFY", first, "Count the main days."))
    visitor = Visitor(store)
    fields = form_of(visitor.get("/combine?kind=merge&version=web&branch=main"), "/combine")
    fields |= {"reason": "both", f"take-{first}": "theirs"}
    back = form_of(visitor.get("/rollback?branch=main&to=v1"), "/rollback") | {"why": "worse"}
    commit(store, "main", Operation("MODIFY", first, "Ben's words."))
    for path, form in (("/combine", fields), ("/rollback", back)):
        page = visitor.post(path, form, status=409)
        assert "main has moved on from v3 to v4 meanwhile" in page, path
        assert "<ins>Ben&#39;s words.</ins>" in page, path
        assert 'value="worse"' in page or 'value="both"' in page, path
        assert texts(store)[0] == "Ben's words.", path
    commit(store, "main", Operation("MODIFY", second, "Always round up."))
    again = fields | {"onto": "v4"}
    assert "main is now at v6" in visitor.post("/combine", again), (
        "an unrelated change is no matter"
    )
    assert texts(store)[:2] == ["Count the web's days.", "Always round up."]
    visitor.post("/rollback", back | {"onto": "main"})
    assert texts(store)[0] == "Count both days."


def test_a_stale_merge_of_lines_that_crossed_meets_only_what_it_changes(store: Path) -> None:
    first, second, third = ids(store)
    with Store.open(store) as opened:
        opened.create_branch("web")
    commit(store, "web", Operation("MODIFY", first, "Count the web's days."))
    commit(store, "main", Operation("MODIFY", second, "Always round up."))
    with Store.open(store) as opened:
        was = opened.tip("main")
        merge(opened, "main", opened.tip("web"), message="m")
        merge(opened, "web", was, message="m")
    commit(store, "web", Operation("MODIFY", third, "Name each unit."))
    visitor = Visitor(store)
    fields = form_of(visitor.get("/combine?kind=merge&version=web&branch=main"), "/combine")
    for id in (first, second):
        commit(store, "main", Operation("MODIFY", id, "Ben's words."))
    visitor.post("/combine", fields | {"reason": "both"})
    assert texts(store) == ["Ben's words.", "Ben's words.", "Name each unit."]


def test_a_reason_stays_while_an_order_is_arranged(store: Path) -> None:
    visitor = Visitor(store)
    page = visitor.get("/library/order?branch=main")
    found = re.search(r'<form method="post" action="/library/order">.*?</form>', page, re.S)
    assert found is not None
    form = found[0]
    assert 'name="reason"' in form
    arrows = re.findall(r'<button name="(?:up|down|first|last)"[^>]*>', form)
    assert len(arrows) == 12
    move = re.search(r"<button[^>]*>Move</button>", form)
    assert move is not None
    for button in (*arrows, move[0]):
        assert 'formmethod="get" formnovalidate' in button
    assert 'type="hidden" name="csrf"' not in form, "which does not belong into an address"
    sent = form_of(page, "/library/order") | {"move": "", "to": "", "last": "0"}
    page = visitor.get("/library/order?" + urlencode(sent | {"reason": "most <used>"}))
    assert 'name="reason" required class="wide" value="most &lt;used&gt;"' in page
    fields = form_of(page, "/library/order") | {"reason": "most used"}
    page = visitor.post("/library/order", fields | {"move": "G2", "to": "0"})
    assert shown_order(page) == "2.1.0", "Enter in the field of a place moves, and records nothing"
    assert 'value="most used"' in page
    assert texts(store)[0] == "Count both days."
    page = visitor.post("/library/order", form_of(page, "/library/order") | {"reason": "used"})
    assert texts(store) == ["Name the unit.", "Round up.", "Count both days."]


def form_of(page: str, action: str) -> dict[str, str]:
    """The hidden fields of the form of a page that is sent there, without its token."""
    form = re.search(rf'<form method="post" action="{action}".*?</form>', page, re.S)
    assert form is not None
    hidden = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form[0])
    return {name: html.unescape(value) for name, value in hidden if name != "csrf"}


def test_every_form_says_what_it_was_made_from(tmp_path: Path) -> None:
    """But those that add to a record and replace nothing, those that ask a run, which says itself
    where it is, and those about keys, each of which is made or ended once."""
    free = (
        "/call/",
        "/production/collect",
        "/run-stop/",
        "/run-resume/",
        "/redact",
        "/logout",
        "/keys",
    )
    visitor, searching = Visitor(every_record(tmp_path, now=BEGIN)), Visitor(demo(tmp_path / "on"))
    found: set[str] = set()
    looked = [*((visitor, path) for path in crawl(visitor, most=400)), (searching, "/bisect")]
    for visitor, path in looked:
        for form in re.findall(
            r"<form[^>]*method=\"post\".*?</form>", visitor.client.get(path).text, re.S
        ):
            action = re.search(r'action="([^"]+)"', form)
            where = action[1] if action else path.partition("?")[0]
            if any(part in where for part in free):
                continue
            assert re.search(r'name="(onto|seen)" value="[^"]+"', form), (path, where)
            found.add(where)
    assert found >= {"/library/add", "/library/change", "/combine", "/rollback", "/review"}
    assert found >= {"/review/undo", "/bisect/mark", "/bisect/end", "/library/whole"}


def test_a_decision_is_taken_back_although_later_ones_changed_what_it_brought(store: Path) -> None:
    first = ids(store)[0]
    for number, words in enumerate(("Words of p1.", "Words of p2."), 1):
        with Store.open(store) as opened:
            base, branch = opened.tip("main"), f"proposal/{number}"
            opened.create_branch(branch, base)
            opened.commit(branch, [Operation("MODIFY", first, words)], message="learned")
            accept(opened, propose(opened, Draftsman(branch, "main", "a test", base)).id)
    visitor = Visitor(store)
    page = visitor.post("/review/undo", {"id": "p1", "seen": "2"}, status=409)
    assert "Later versions changed what p1 brought" in page
    assert "--ours" not in page
    onto = re.search(r'name="onto" value="(v\d+)"', page)
    assert onto is not None
    choice = {"id": "p1", "seen": "2", "onto": onto[1], f"take-{first}": "ours"}
    commit(store, "main", Operation("MODIFY", first, "Later words."))
    assert "Later words." in visitor.post("/review/undo", choice, status=409)
    choice |= {"onto": "v6", f"take-{first}": "theirs"}
    assert "waits again" in visitor.post("/review/undo", choice)
    assert texts(store)[0] == "Count both days."


def test_a_library_of_any_size_is_arranged_page_by_page(tmp_path: Path) -> None:
    store = store_at(tmp_path, *(f"Lesson {n}." for n in range(1200)))
    visitor = Visitor(store)
    page = visitor.get("/library")
    link = re.search(r'href="([^"]+)">put it in another order', page)
    assert link is not None
    page = visitor.get(link[1])
    assert "1 to 200 of 1200" in page
    page = visitor.get("/library/order?branch=main&onto=v1&from=900")
    assert "801 to 1000 of 1200" in page
    page = visitor.get("/library/order?branch=main&onto=v1&first=950")
    fields = form_of(page, "/library/order")
    assert fields["order"] == "950.0-949.951-1199"
    page = visitor.get(
        f"/library/order?branch=main&onto=v1&order={fields['order']}&move=G3&to=1100"
    )
    fields = form_of(page, "/library/order")
    assert "1001 to 1200 of 1200" in page
    visitor.post("/library/order", fields | {"reason": "most used first"})
    now = texts(store)
    assert (now[0], now[1], now[1100], len(now)) == ("Lesson 950.", "Lesson 0.", "Lesson 3.", 1200)
    for bad in ("0-1200", "5-2", "x", "-", "0-1-2"):
        page = visitor.get(f"/library/order?branch=main&onto=v1&order={bad}", status=400)


FLAG = re.compile(r"(?<![\w-])--\w")


def shown_text(page: str) -> str:
    """What a page says above all else: its alerts, without their tags."""
    alerts = re.finditer(r'<(\w+)[^>]*role="alert".*?</\1>', page, re.S)
    return html.unescape(re.sub(r"<[^>]+>", "", " ".join(one[0] for one in alerts)))


def test_no_refused_form_names_a_flag_of_the_command_line(tmp_path: Path) -> None:
    path = every_record(tmp_path, now=BEGIN)
    visitor = Visitor(path)
    with Store.open(path) as store:
        base, branch = store.tip("web"), "proposal/w"
        store.create_branch(branch, base)
        first = next(iter(store.library(base))).id
        store.commit(branch, [Operation("MODIFY", first, "Words of it.")], message="learned")
        proposal = propose(store, Draftsman(branch, "web", "a test", base)).id
        tested = next(one for one in list_proposals(store, "open") if one.id != proposal)
        store.create_branch("shop")
        start(store, "trial", ("shop", tested.candidate.name), 0.5, why="to see")
    on_web = {"branch": "web", "onto": base.name, "reason": "x", "why": "x"}
    new = on_web | {"name": "e", "candidate": "v1", "share": "5", "auto": "1"}
    forms = [
        ("/library/add", on_web | {"texts": "More."}),
        ("/library/whole", on_web | {"content": "- More."}),
        ("/library/change", on_web | {"experience": first, "act": "delete"}),
        ("/rollback", on_web | {"to": "v1"}),
        ("/combine", on_web | {"kind": "merge", "version": "main"}),
        ("/experiment/new", new | {"metric": "score", "unit": "call"}),
        ("/experiment/test-0", {"seen": "running 0.5", "act": "promote", "why": "x"}),
        ("/review", {"id": proposal, "seen": "1", "act": "accept", "onto": base.name}),
        ("/review", {"id": tested.id, "seen": f"{tested.decisions}", "act": "reject", "why": "x"}),
        ("/call/call-000000000001", {"score": "7"}),
        ("/keys", {"name": "shop", "budget": "much"}),
    ]
    with Store.open(path) as store:
        store.commit("arm-0", [Operation("ADD", text="Meanwhile.")], message="meanwhile")
    for address, fields in forms:
        form = {"csrf": visitor.csrf(), **fields}
        answer = visitor.client.post(address, data=form, headers=ORIGIN)
        assert answer.status_code >= 400, (address, fields, answer.text)
        words = shown_text(answer.text)
        assert words.strip(), (address, answer.text)
        assert FLAG.search(words) is None, (address, words)


def test_every_error_page_leads_on(tmp_path: Path) -> None:
    """To the page that it was asked from, and to one beside the first; whichever page it is of."""
    visitor = Visitor(every_record(tmp_path, now=BEGIN))
    asked = errors = 0
    came = "http://127.0.0.1:7433/library?at=web"
    for page in PAGES:
        for route in importlib.import_module(f"tfgrpo.ui.pages.{page.module}").ROUTES:
            path = re.sub(r"\{[^}]+\}", "no-such-thing", route.path)
            for query in ("", "?at=nowhere&from=x&start=-1&a=nowhere&step=x&version=nowhere"):
                headers = {"referer": came, "origin": "http://127.0.0.1:7433"}
                if route.method == "GET":
                    answer = visitor.client.get(path + query, headers=headers)
                else:
                    form = {"csrf": visitor.csrf()}
                    answer = visitor.client.post(path, data=form, headers=headers)
                asked += 1
                found = re.search(r'role="alert".*?</section>', answer.text, re.S)
                assert answer.status_code < 500, (path, query, found and found[0])
                if answer.status_code < 400 or 'role="alert"' not in answer.text:
                    continue
                errors += 1
                assert FLAG.search(shown_text(answer.text)) is None, (path, answer.text)
                main = answer.text.partition("<main")[2].partition("</main")[0]
                out = set(re.findall(r'href="([^"]+)"', main))
                assert "/library?at=web" in out or "<form" in main, (path, query, main)
                assert out - {"/"}, (path, query, main)
    assert errors > asked // 3
