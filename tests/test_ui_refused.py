"""A form that is refused, or that somebody was faster than, has what was typed, beside what is so
now, with the refusal above it."""

from __future__ import annotations

import html
import re
import time
from pathlib import Path

import pytest
from test_ui_forms import form_of
from test_ui_undo import line
from ui_demo import demo
from ui_rig import Visitor

from tfgrpo.improvement.proposals import get_proposal, reject
from tfgrpo.production.by_day import bounds, set_bounds
from tfgrpo.production.experiment import change_share, experiment, stop
from tfgrpo.store import Operation, Store
from tfgrpo.store.history.name_moves import protect


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return demo(tmp_path, now=time.time_ns() // 1000)


def alert(page: str) -> str:
    """What stands above a form that was refused."""
    found = re.search(r'<div class="error" role="alert">(.*?)</div>', page, re.S)
    assert found is not None, page
    assert page.index("<h1") < found.start() < page.index("</main>")
    return html.unescape(re.sub("<[^>]+>", "", found[1]))


def controls(page: str, action: str) -> dict[str, str]:
    """The values of the controls of a form."""
    form = re.search(rf'<form method="post"[^>]* action="{action}".*?</form>', page, re.S)
    assert form is not None, page
    found = re.findall(
        r'<input (?:class="[^"]*" )?(?:id="\w+" )?name="([^"]+)"[^>]*value="([^"]*)"', form[0]
    )
    return {name: html.unescape(value) for name, value in found}


def test_a_change_that_is_turned_down_without_a_reason(store: Path) -> None:
    visitor = Visitor(store)
    page = visitor.get("/review?id=p1")
    with Store.open(store) as opened:
        first, second = (one.experience for one in get_proposal(opened, "p1").changes)
    chosen = {f"do-{first}": "reject", f"why-{first}": " ", f"text-{second}": "Mine, at length."}
    page = visitor.post("/review", form_of(page, "/review") | chosen | {"why": 'on"ce'}, status=400)
    assert "is missing" in alert(page)
    assert "Nothing was recorded" in alert(page)
    assert "Mine, at length.</textarea>" in page
    assert controls(page, "/review")["why"] == 'on"ce'
    assert re.search(rf'name="do-{first}" value="reject" checked', page)
    again = form_of(page, "/review") | chosen | {f"why-{first}": "wrong"}
    assert "1 change turned down: wrong" in visitor.post("/review", again)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"do": "open", "text": "Mine, at length."}, "has other words, and is not accepted"),
        ({"do": "reject", "why": "no", "text": "Mine."}, "has other words, and is not accepted"),
        ({"do": "accept", "why": "It is wrong."}, "has a reason, and is not turned down"),
        ({"do": "open", "why": "It is wrong."}, "has a reason, and is not turned down"),
    ],
)
def test_what_was_typed_for_a_change_is_not_dropped(
    fields: dict[str, str], words: str, store: Path
) -> None:
    visitor = Visitor(store)
    page = visitor.get("/review?id=p1")
    with Store.open(store) as opened:
        first, _ = (one.experience for one in get_proposal(opened, "p1").changes)
    typed = {f"{name}-{first}": value for name, value in fields.items()}
    page = visitor.post("/review", form_of(page, "/review") | typed, status=400)
    assert words in alert(page)
    assert re.search(rf'name="do-{first}" value="{fields["do"]}" checked', page)
    for name in {"text", "why"} & fields.keys():
        assert fields[name] in page.partition("<form")[2]
    with Store.open(store) as opened:
        assert len(get_proposal(opened, "p1").waiting) == 2


def test_a_proposal_that_is_turned_down_while_another_decides_of_it(store: Path) -> None:
    visitor = Visitor(store)
    down = {"id": "p1", "seen": "1", "act": "reject", "why": "It is wrong."}
    page = visitor.post("/review", down | {"why": " "}, status=400)
    assert "is missing" in alert(page)
    page = visitor.post("/review", down | {"seen": "0"}, status=409)
    assert "meanwhile" in alert(page)
    because, why = re.findall(r'name="why"[^>]*', page)
    assert "It is wrong." not in because
    assert 'value="It is wrong."' in why
    with Store.open(store) as opened:
        reject(opened, "p1", why="no")
    page = visitor.post("/review", down, status=400)
    assert "You wrote: It is wrong." in alert(page)


def test_a_comment_and_a_question_that_are_refused(store: Path) -> None:
    visitor = Visitor(store)
    long = "so " * 4000
    page = visitor.post("/review/comment", {"id": "p1", "comment": long}, status=400)
    assert "a comment says something" in alert(page)
    assert f">{long}</textarea>" in page
    page = visitor.post("/review/ask", {"id": "p1", "name": " "}, status=400)
    assert "is missing" in alert(page)


def test_an_experiment_that_another_has_decided_about(store: Path) -> None:
    visitor = Visitor(store)
    fields = form_of(visitor.get("/production"), "/experiment/clearer")
    typed = fields | {"act": "share", "share": "50", "why": "More of it."}
    page = visitor.post("/experiment/clearer", typed | {"why": " "}, status=400)
    assert controls(page, "/experiment/clearer") | {"share": "50"} == controls(
        page, "/experiment/clearer"
    )
    with Store.open(store) as opened:
        change_share(opened, "clearer", 0.3)
    page = visitor.post("/experiment/clearer", typed, status=409)
    assert "somebody has decided about clearer meanwhile" in alert(page)
    values = controls(page, "/experiment/clearer")
    assert (values["share"], values["why"]) == ("50", "More of it.")
    assert "30 % now" in page
    visitor.post("/experiment/clearer", typed | form_of(page, "/experiment/clearer"))
    with Store.open(store) as opened:
        assert experiment(opened, "clearer").share == 0.5
        stop(opened, "clearer", why="enough")
    page = visitor.post("/experiment/clearer", typed, status=409)
    assert "it is stopped" in alert(page)
    assert "You wrote: More of it." in alert(page)


def test_bounds_that_another_has_set(store: Path) -> None:
    visitor = Visitor(store)
    fields = form_of(visitor.get("/production"), "/production/bounds")
    typed = fields | {"errors": "7", "score": "x", "latency": "", "dollars": "9"}
    page = visitor.post("/production/bounds", typed, status=400)
    assert "'x' is no number" in alert(page)
    assert controls(page, "/production/bounds")["score"] == "x"
    with Store.open(store) as opened:
        set_bounds(opened, bounds(opened)[0]._replace(errors=0.02), seen=0)
    page = visitor.post("/production/bounds", typed | {"score": "0.5"}, status=409)
    assert "somebody has set other bounds meanwhile" in alert(page)
    values = controls(page, "/production/bounds")
    assert (values["errors"], values["dollars"]) == ("7", "9")
    assert "2.0 % now" in page
    visitor.post("/production/bounds", typed | values | form_of(page, "/production/bounds"))
    with Store.open(store) as opened:
        assert bounds(opened)[0].errors == 0.07


def test_an_undo_that_comes_too_late_is_refused_on_the_page_where_the_act_was(store: Path) -> None:
    visitor = Visitor(store)
    add = {"branch": "main", "texts": "Two.", "reason": "x"}
    address, fields = line(visitor.post("/library/add", add))
    with Store.open(store) as opened:
        opened.commit("main", [Operation("ADD", text="Three.")], message="x")
    page = visitor.post(address, fields)
    assert "main has moved since" in page.partition('role="alert"')[2]
    assert "Three." in page, "the page of the act is below"


def test_a_key_that_is_refused(store: Path) -> None:
    typed = {"name": "shop", "budget": "much", "rate": "60"}
    page = Visitor(store).post("/keys", typed, status=400)
    assert "is no budget" in alert(page)
    assert "--" not in alert(page)
    assert controls(page, "/keys").items() >= typed.items()


def test_no_page_of_an_error_loses_what_was_written(store: Path) -> None:
    """Where a form has no page of its own to be shown again on."""
    visitor = Visitor(store)
    with Store.open(store) as opened:
        protect(opened, "branch", "web")
        tip = opened.tip("web").name
        first = next(iter(opened.library("web"))).id
    words = "Say <both> days,\nat length."
    web = {"branch": "web", "onto": tip, "reason": "It is so."}
    for address, fields in (
        ("/library/add", web | {"texts": words}),
        ("/library/add", web | {"texts": words, "reason": " "}),
        ("/library/change", web | {"experience": first, "text": words}),
        ("/library/order", web | {"order": "1.0", "reason": words}),
        ("/rollback", {"branch": "web", "onto": tip, "to": "v1", "why": words}),
        ("/combine", web | {"kind": "merge", "version": "main", "reason": words}),
        ("/bisect/mark", {"seen": "3", "version": "v1", "verdict": "bad", "why": words}),
        ("/playground", {"prompt": words, "a": "nowhere", "b": "v1"}),
        (f"/experience/{first}/redact", {"reason": words, "sure": "no"}),
        ("/experiment/new", {"branch": "nowhere", "onto": "v1", "why": words}),
        ("/library/add", web | {"texts": words, "csrf": "of another login"}),
    ):
        form = {"csrf": visitor.csrf(), **fields}
        answer = visitor.client.post(
            address, data=form, headers={"origin": "http://127.0.0.1:7433"}
        )
        assert answer.status_code >= 400, address
        assert html.escape(words) in answer.text, (address, answer.text[-2000:])
        assert tip not in answer.text.partition("What you wrote")[2], "but no hidden field"
