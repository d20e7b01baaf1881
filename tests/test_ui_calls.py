"""Finding a call: by words and ids, page by page, as the conversation that it was."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, post
from proxy_fixtures import Choice, make
from test_proxy import CHAT
from ui_demo import demo
from ui_rig import HandAt, Visitor, links, violations
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.store import Store
from tfgrpo.store.activity.traffic import (
    CallContent,
    CallFilter,
    CallRecord,
    Feedback,
    traffic_path,
)
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.sqlite.side_files import LOOKED_AT
from tfgrpo.ui.call_conversation import answer_turns, turns_of, with_library

TEXTS = ("Count both days.", 'Say "units", \u00e9 and \U0001f600.', example_text("2 + 2?", "4"))
USER = {"role": "user", "content": "A bike from 3 to 5 May?"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Which day?"}]}
TOOLS = [
    USER,
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "price", "arguments": '{"days": 3}'}}],
    },
    {"role": "tool", "tool_call_id": "1", "content": "36"},
]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [USER]}),
    (CHAT, {"messages": [{"role": "system", "content": "Be short."}, USER]}),
    (
        CHAT,
        {"messages": [{"role": "developer", "content": [{"type": "text", "text": "Hm."}]}, USER]},
    ),
    (CHAT, {"messages": TOOLS}),
    ("/v1/responses", {"input": "How many days?"}),
    ("/v1/responses", {"instructions": "Be short.", "input": [PARTS]}),
    ("/v1/messages", {"messages": [USER], "system": "Be short.", "max_tokens": 9}),
    ("/v1/messages", {"messages": [PARTS], "system": [{"type": "text", "text": "Hm."}]}),
]


@pytest.mark.parametrize("top_k", [None, 1], ids=["whole", "a part"])
def test_the_prompt_of_a_call_is_shown_as_the_provider_got_it(
    top_k: int | None, tmp_path: Path
) -> None:
    answer = b'{"choices":[{"message":{"role":"assistant","content":"3 days"}}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with (
        make(tmp_path / ".tfgrpo/store.db", *TEXTS) as store,
        Provider(head % len(answer) + answer) as provider,
    ):
        upstream = parse_upstream(provider.url)
        choices = {"support": Choice(store.path, top_k=top_k)}
        settings = ProxySettings(choices, "support", upstream, upstream, port=0, record="content")
        with ProxyThread(settings) as proxy:
            for path, body in REQUESTS:
                proxy.ask(post(path, json.dumps({"model": "m", **body}).encode()))
        traffic = open_traffic(traffic_path(store.path))
        calls = [one.call for one in traffic.calls(CallFilter(), 100)][::-1]
        contents = [traffic.content(call.id) for call in calls]
        traffic.close()
        visitor = Visitor(store.path)
        for call, content, got in zip(calls, contents, provider.received, strict=True):
            assert content is not None
            assert call.digest is not None
            body = with_library(call, content, store.library(call.digest))
            assert body is not None
            assert json.loads(body) == json.loads(got.body), call.route
            assert turns_of(json.loads(body)) == turns_of(json.loads(got.body))
            page = visitor.get(f"/call/{call.id}")
            marked = unescape(" ".join(re.findall(r"<mark>(.*?)</mark>", page)))
            shown = [text for text in TEXTS[:2] if f">{text}<" in marked]
            assert len(shown) == (2 if top_k is None else min(1, len(shown)))
            assert (
                "The library&#39;s part of it is marked" in page or "part of it is marked" in page
            )
            assert "3 days" in page
        assert "called <code>price</code>" in visitor.get(f"/call/{calls[3].id}")
        with_examples = visitor.get(f"/call/{calls[0].id}")
        assert top_k or with_examples.count('<article class="turn') == 5, "the example's two turns"


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("plain words", [("assistant", "plain words")]),
        ('{"choices": [{"message": {"content": "a"}}]}', [("user", "a")]),
        ('{"output": [{"type": "reasoning"}, {"role": "assistant", "content": "b"}]}', None),
        ('{"role": "assistant", "content": [{"type": "text", "text": "c"}]}', [("assistant", "c")]),
        (
            '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}',
            [("user", "[image_url]")],
        ),
        ('{"messages": [3, null, {"role": 4, "content": {"x": 1}}]}', None),
        ('{"messages": "half of', [("assistant", '{"messages": "half of')]),
        ("[1, 2]", [("assistant", "[1, 2]")]),
        ('{"input": {"a": 1}}', [("assistant", '{"input": {"a": 1}}')]),
    ],
)
def test_bodies_of_every_shape_are_turns_or_the_text_itself(
    text: str, turns: list[tuple[str, str]] | None
) -> None:
    found = answer_turns(text)
    assert all(isinstance(one.text, str) and one.role for one in found)
    assert turns is None or [(one.role, one.text) for one in found] == turns


def record(folder: Path, count: int, words: str = "a tandem, {n}") -> Path:
    """Makes a store with so many calls, a second apart."""
    path = folder / ".tfgrpo/store.db"
    with Store.init(path, author="tester"):
        pass
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(
        worker="w", route=CHAT, streamed=0, stale=0, model="m", status=200, latency=5, added=1
    )
    now = time.time_ns() // 1000
    calls, contents = [], []
    for n in range(count):
        calls.append(blank._replace(id=f"call-{n:032x}", time=now - (count - n) * 1_000_000))
        body = {"messages": [{"role": "user", "content": words.format(n=n)}]}
        contents.append(CallContent(calls[-1].id, json.dumps(body), '{"content": "=1+1"}'))
    traffic = open_traffic(traffic_path(path), create=True)
    traffic.add(calls, contents)
    traffic.close()
    return path


def test_every_call_is_found_page_by_page(tmp_path: Path) -> None:
    visitor = Visitor(record(tmp_path, 130))
    seen: list[str] = []
    address: str | None = "/calls"
    while address:
        page = visitor.get(address)
        seen += [link for link in links(page) if link.startswith("/call/")]
        address = next((link for link in links(page) if "after=" in link), None)
        if address in (None, "/calls"):
            break
    assert len(seen) == len(set(seen)) == 130
    assert seen == sorted(seen, reverse=True)


def test_a_call_is_found_by_its_id_by_words_and_by_dates(tmp_path: Path) -> None:
    store = record(tmp_path, 30, "caf\u00e9 \U0001f6b2 in room {n}")
    traffic = open_traffic(traffic_path(store))
    traffic.add_feedback(Feedback("call-" + f"{7:032x}", 1, "till", None, None, "Quite Rude"))
    traffic.close()
    visitor = Visitor(store)
    for words, count in (
        ("CAF\u00c9", 30), ("\U0001f6b2", 30), ("room 29", 1), ("quite rude", 1), ("till", 1),
        ("nothing like it", 0),
    ):  # fmt: skip
        page = visitor.get(f"/calls?q={words}")
        assert page.count('data-title="When"') == count, words
    assert "The conversation" in visitor.get("/calls?q=call-" + f"{7:032x}")
    assert visitor.get("/calls?until=2020-01-01&since=2019-01-01").count('data-title="When"') == 0
    assert "not a time" in unescape(visitor.get("/calls?since=soon", status=400))
    assert visitor.get("/calls?after=x", status=400)
    rows = list(csv.DictReader(io.StringIO(visitor.client.get("/calls?as=csv-calls").text)))
    assert len(rows) == 30
    assert json.loads(visitor.client.get("/calls?as=json-calls").text)[0]["status"] == 200
    assert "not searched" in Visitor(store, content=False).get("/calls?q=room", status=400)


def test_a_file_has_every_call_or_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = Visitor(record(tmp_path, 130))
    second = next(link for link in links(visitor.get("/calls")) if "after=" in link)
    address = next(link for link in links(visitor.get(second)) if "as=csv" in link)
    rows = list(csv.DictReader(io.StringIO(visitor.client.get(address).text)))
    assert len(rows) == 130, "the file of a later page is of the calls before it too"
    monkeypatch.setattr("tfgrpo.ui.pages.calls.FILED", 129)
    assert "too many for a file" in visitor.get("/calls?as=csv-calls", status=400)


def test_a_file_of_a_search_has_every_call_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = Visitor(record(tmp_path, LOOKED_AT + 20))

    def filed(words: str) -> int:
        answer = visitor.client.get(f"/calls?since=1d&as=json-calls&q={words}")
        return len(answer.json())

    assert (filed("tandem"), filed("tandem, 199"), filed("trike")) == (LOOKED_AT + 20, 11, 0)
    monkeypatch.setattr("tfgrpo.ui.pages.calls.FILED", 19)
    assert filed("tandem, 199") == 11, "the bound is of the calls that fit"
    refusal = visitor.get("/calls?since=1d&as=json-calls&q=tandem", status=400)
    assert "too many for a file" in refusal


def test_a_search_says_how_far_it_looked_and_goes_on(tmp_path: Path) -> None:
    visitor = Visitor(record(tmp_path, LOOKED_AT + 20))
    page = visitor.get("/calls?q=tandem, 7</nothing&since=1d")
    assert "Looked at the calls back to" in page
    further = next(link for link in links(page) if "after=" in link)
    assert "No call is like that." in visitor.get(further)


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_a_call_is_found_in_a_browser(how: str, hand_at: HandAt, tmp_path: Path) -> None:
    store = demo(tmp_path, now=time.time_ns() // 1000)
    hand = hand_at(store)
    page = hand.page
    hand.open("/production")
    hand.follow("main a[href^='/calls']")
    hand.write("main input[name=q]", "36 EUROS")
    hand.follow("main form.line button")
    hand.follow("main tbody tr:first-child a.id")
    hand.sees("This prompt was sent")
    assert page.locator("main mark a").count() == 8
    if how != "no script":
        for address in (page.url, hand.at + "/calls"):
            page.goto(address)
            assert violations(page) == []
