"""A form that is sent twice, as by a double click, is done once, and answered as it was."""

from __future__ import annotations

import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

from starlette.responses import Response
from test_ui_round_trips import ORIGIN, areas, hidden
from test_ui_stale import BUTTON
from ui_demo import BEGIN
from ui_records import every_record
from ui_rig import Visitor, crawl, store_at

from tfgrpo.store.activity.key_ledger import ledger_path
from tfgrpo.store.opening import open_ledger
from tfgrpo.ui.visitor_sessions import Session

FORM = re.compile(r"<form[^>]*method=\"post\".*?</form>", re.S)
TOKEN = re.compile(r'name="csrf" value="([^"]+)"')
CONTROL = re.compile(r"<input[^>]* name=\"([^\"]+)\"[^>]*>")
CHOICE = re.compile(r"<select[^>]* name=\"([^\"]+)\"[^>]*><option(?: value=\"([^\"]*)\")?[^>]*>")
KINDS = 24
"""Actions that forms of the pages have, at least."""


def filled(form: str) -> list[dict[str, str]]:
    """What a form sends, with its own token, once for each of its buttons."""
    fields = {name: "1" for name in CONTROL.findall(form) if "checkbox" not in name}
    fields |= {name: text or "Said here." for name, text in areas(form).items()} | hidden(form)
    fields |= dict(re.findall(r' name="([^"]+)"[^>]* value="([^"]+)"', form))
    fields |= dict(CHOICE.findall(form))
    token = TOKEN.search(form)
    assert token is not None, form
    fields["csrf"] = token[1]
    return [fields | dict([button]) for button in BUTTON.findall(form) if button[0] != "csrf"] or [
        fields
    ]


def on_record(path: Path) -> dict[str, int]:
    """How many rows each table of the files beside a store has: all that a form can add to."""
    rows = {}
    for file in sorted(path.parent.glob("*.db")):
        with closing(sqlite3.connect(file)) as opened:
            for (name,) in opened.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
                (rows[f"{file.name} {name}"],) = opened.execute(
                    f'SELECT count(*) FROM "{name}"'
                ).fetchone()
    return rows


def test_every_form_that_is_sent_again_records_nothing_more(tmp_path: Path) -> None:
    path = every_record(tmp_path, now=BEGIN)
    visitor = Visitor(path)
    sent: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for page in crawl(visitor, most=250):
        for form in FORM.findall(visitor.client.get(page).text):
            action = re.search(r'action="([^"]+)"', form)
            where = action[1] if action else page.partition("?")[0]
            if where != "/logout":
                kind = re.sub(r"/[0-9a-z-]*\d[^/]*", "/…", where)
                sent.setdefault(kind, [(where, fields) for fields in filled(form)])
    assert len(sent) >= KINDS, sorted(sent)
    accepted = set[str]()
    for kind, forms in sent.items():
        for where, fields in forms:
            first = visitor.client.post(where, data=fields, headers=ORIGIN, follow_redirects=False)
            after = on_record(path)
            again = visitor.client.post(where, data=fields, headers=ORIGIN, follow_redirects=False)
            if first.status_code >= 400:
                continue
            accepted.add(kind)
            assert again.status_code == first.status_code, (where, fields, again.text[-3000:])
            assert again.text == first.text
            assert again.headers.get("location") == first.headers.get("location")
            assert on_record(path) == after, (where, fields)
    assert {"/review/comment", "/review/ask", "/keys", "/call/…"} <= accepted, sorted(accepted)


def test_a_key_is_shown_to_whoever_clicks_twice(tmp_path: Path) -> None:
    store = store_at(tmp_path, "Count both days.")
    visitor = Visitor(store)
    token = TOKEN.search(visitor.get("/keys").partition("<main")[2])
    assert token is not None
    fields = {"csrf": token[1], "name": "shop", "budget": "5/day"}
    with ThreadPoolExecutor(2) as pool:
        pages = list(pool.map(lambda _: visitor.post("/keys", fields), range(2)))
    first, second = (re.findall(r"tfk-[\w-]+", page) for page in pages)
    assert first == second
    assert len(first) == 1
    with closing(open_ledger(ledger_path(str(store)))) as ledger:
        assert len(ledger.virtual_keys()) == 1
    assert first[0] not in visitor.get("/keys")
    wrong = fields | {"name": "", "csrf": fields["csrf"]}
    for _ in range(2):
        assert "has a name" in visitor.post("/keys", wrong, status=400), "and is not kept"
    fresh = TOKEN.search(visitor.get("/keys").partition("<main")[2])
    assert fresh is not None
    again = fields | {"csrf": fresh[1]}
    assert "there is a key" in visitor.post("/keys", again, status=400), "another form is another"


def test_a_form_that_takes_long_holds_up_no_other_one() -> None:
    session, begun, goes_on = Session("k", "n", "c"), Event(), Event()

    def slow() -> Response:
        begun.set()
        assert goes_on.wait(30)
        return Response("slow")

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(session.once, "one", slow)
        assert begun.wait(30)
        again = pool.submit(session.once, "one", slow)
        other = pool.submit(session.once, "other", lambda: Response("other"))
        try:
            assert other.result(30).body == b"other"
            assert not again.done()
        finally:
            goes_on.set()
        assert first.result(30).body == again.result(30).body == b"slow"
