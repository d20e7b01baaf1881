"""The playground: one prompt under two versions, with a scripted model on loopback."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from scripted import Reply, ScriptedEndpoint, streamed
from test_ui_calls import record
from test_ui_runs import folder as folder
from ui_demo import UNDECIDED
from ui_rig import WIDTHS, HandAt, Visitor, links, serving, store_at, violations
from ui_rig import chromium as chromium
from ui_rig import hand_at as hand_at

from tfgrpo.data.datasets import load
from tfgrpo.improvement.proposals import Draftsman, propose
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.rendering.retrieve import NEAREST, WHOLE
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import CallContent, CallRecord, traffic_path
from tfgrpo.store.opening import open_traffic

LESSON = "Count both days."


def script(request: dict[str, Any]) -> str:
    """Answers by whether the lesson was in the prompt."""
    return "three <b>" if LESSON in json.dumps(request["messages"]) else "two"


def project(folder: Path, url: str) -> Path:
    store = store_at(folder, LESSON)
    settings = (
        f'[model]\nmodel = "m"\nbase_url = "{url}"\n[prices]\nm = {{prompt=1.0, completion=2.0}}\n'
    )
    (folder / "tfgrpo.toml").write_text(settings)
    return store


def over(visitor: Visitor, page: str) -> tuple[str, str]:
    """Returns a trial and its page once it is over."""
    address = re.search(
        r'"/playground-live/([0-9a-f]+)"|action="/playground/([0-9a-f]+)/keep"', page
    )
    assert address is not None, page
    id = address[1] or address[2]
    stream = visitor.client.get(f"/playground-live/{id}").text
    assert "event: over" in stream
    return id, visitor.get(f"/playground/{id}")


def test_a_prompt_is_answered_with_and_without_the_library(tmp_path: Path) -> None:
    with ScriptedEndpoint(script) as server:
        visitor = Visitor(project(tmp_path, server.base_url))
        fields = {"prompt": "From 3 to 5 May?", "system": "Be short.", "a": "none", "b": "HEAD"}
        id, page = over(visitor, visitor.post("/playground", fields))
        assert "two" in page
        assert "three &lt;b&gt;" in page
        assert page.count("$0.00") == 2
        assert "without a library" in page
        visitor.post(f"/playground/{id}/keep", {"answer": "3"})
        (case,) = (tmp_path / "cases.jsonl").read_text().splitlines()
        problem = [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "From 3 to 5 May?"},
        ]
        assert json.loads(case) == {"problem": problem, "answer": "3"}
        with Store.open(tmp_path / ".tfgrpo/store.db") as store:
            assert sum(one.usage.calls for one in store.runs.spent()) == 2
        assert "v9" in visitor.post("/playground", fields | {"b": "v9"}, status=404)
        assert visitor.post("/playground", fields | {"prompt": " "}, status=400)
        assert visitor.get("/playground/0", status=404)
    assert "<textarea" not in Visitor(tmp_path / ".tfgrpo/store.db", read_only=True).get(
        "/playground"
    )


def test_of_many_examples_a_prompt_gets_the_part_that_fits_it(tmp_path: Path) -> None:
    topics = ("litres", "planets", "cents", "yards", "reams")
    texts = [example_text(f"Where are {n} {topics[n % 5]}?", f"shelf {n % 5}") for n in range(50)]
    with ScriptedEndpoint(script) as server:
        path = project(tmp_path, server.base_url)
        with Store.open(path) as store:
            meta = {"run": "r", "step": 0, "rendering": {"top_k": 1}}
            more = [Operation("ADD", text=f"Look for {topic}.") for topic in topics]
            added = [*more, *(Operation("ADD", text=text) for text in texts)]
            store.commit("main", added, message="add", meta=meta)
        visitor = Visitor(path)
        page = visitor.get("/library/prompt")
        assert "A request gets a part of the library" in page
        assert page.count("Example: Where") == 2 * WHOLE, "the text, and line by line"
        fields = {"prompt": "Where are the yards?", "a": "none", "b": "HEAD"}
        over(visitor, visitor.post("/playground", fields))
        sent = max((request["messages"] for request in server.requests), key=len)
    answers = [one["content"] for one in sent if one["role"] == "assistant"]
    assert len(answers) == WHOLE
    assert answers.count("shelf 3") >= NEAREST
    assert re.findall(r"Look for \w+", sent[0]["content"]) == ["Look for yards"]


def test_a_case_follows_a_line_without_an_end_and_a_write_that_fails_is_said(
    tmp_path: Path,
) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"problem": "One?", "answer": "1"}')
    with ScriptedEndpoint(script) as server:
        visitor = Visitor(project(tmp_path, server.base_url))
        fields = {"prompt": "From 3 to 5 May?", "a": "none", "b": "HEAD"}
        id, _ = over(visitor, visitor.post("/playground", fields))
        visitor.post(f"/playground/{id}/keep", {"answer": "3"})
        visitor.post(f"/playground/{id}/keep", {"answer": "4"})
        assert [one.answer for one in load(str(cases))] == ["1", "3", "4"]
        cases.unlink()
        cases.symlink_to("/dev/full")
        page = visitor.post(f"/playground/{id}/keep", {"answer": "5 & 6"}, status=503)
        assert "No space left on device" in page
        assert "5 &amp; 6" in page, "what was written is not lost"


def test_an_answer_is_told_as_it_is_written(tmp_path: Path) -> None:
    """In whichever pieces it comes, and without the key that it quotes."""
    said, key, go = "From \u202e3 to 5 May: three days.", "kKx9" * 8, threading.Event()

    def script(request: dict[str, Any]) -> Reply:
        assert request["stream"] is True
        text = said if LESSON in json.dumps(request["messages"]) else f"Two, says {key}, two."
        events = list(streamed(text[n : n + 3] for n in range(0, len(text), 3)))
        first = b"".join(events[: text.index("kKx9" if key in text else "days") // 3 + 1])
        rest = b"".join(events)[len(first) :]

        def pieces() -> Iterator[bytes]:
            yield from (first[at : at + 7] for at in range(0, len(first), 7))
            assert go.wait(240)
            yield rest

        return Reply(pieces=pieces())

    with ScriptedEndpoint(script) as server, pytest.MonkeyPatch.context() as patched:
        patched.setenv("TFGRPO_API_KEY", key)
        with serving(project(tmp_path, server.base_url)) as url:
            at, _, token = url.partition("/?")
            with httpx2.Client(base_url=at, follow_redirects=True, timeout=60) as client:
                csrf = re.search(r'"x-csrf": "([0-9a-f]+)"', client.get(f"/?{token}").text)
                assert csrf is not None
                form = {"csrf": csrf[1], "seen": "form", "prompt": "x", "a": "none", "b": "HEAD"}
                page = client.post("/playground", data=form, headers={"origin": at}).text
                live = re.search(r'data-live="([^"]+)"', page)
                assert live is not None
                whole = live[1].replace("-live", "")
                kinds, heard = [], ""
                with client.stream("GET", live[1]) as stream:
                    for line in stream.iter_lines():
                        name, _, value = line.partition(": ")
                        if name == "event":
                            kinds.append(value)
                        elif name == "data":
                            heard += value
                            assert "kKx" not in heard
                            assert "\u202e" not in heard
                        page = "" if go.is_set() else client.get(whole).text
                        if "three" in page and "Two, says" in page:
                            assert "It is answering" in page
                            assert "days." not in page
                            go.set()
                        if value == "over":
                            break
                page = client.get(whole).text
    assert kinds[0] == "part"
    assert kinds[-1] == "over"
    assert "three days." in page
    assert "Two, says ***, two." in page
    assert page.count("7 tokens in, 3 out") == 2
    assert page.count("$0.00") == 2


@pytest.mark.parametrize("refused", ["stream", "stream_options"])
def test_a_server_that_streams_nothing_is_asked_for_the_whole(refused: str, tmp_path: Path) -> None:
    def refuses(request: dict[str, Any]) -> str | Reply:
        if refused in request:
            return Reply({"error": {"message": f"unknown parameter: {refused}"}}, 400)
        return script(request)

    with ScriptedEndpoint(refuses) as server:
        visitor = Visitor(project(tmp_path, server.base_url))
        page = visitor.post("/playground", {"prompt": "x", "a": "none", "b": "HEAD"})
        _, page = over(visitor, page)
        assert "two" in page
        assert "three &lt;b&gt;" in page


def test_what_cannot_be_asked_is_said(tmp_path: Path) -> None:
    visitor = Visitor(project(tmp_path, "https://models.invalid/v1"))
    with (tmp_path / "tfgrpo.toml").open("a") as settings:
        settings.write('[eval]\napi_key_env = "NO_SUCH_VARIABLE_HERE"\n')
    page = visitor.post("/playground", {"prompt": "x", "a": "none", "b": "HEAD"})
    _, page = over(visitor, page)
    assert page.count('class="failed"') == 2, page


def test_a_call_is_tried_again_under_another_version(tmp_path: Path) -> None:
    visitor = Visitor(record(tmp_path, 1, "Which <b>day</b>?"))
    page = visitor.get("/call/call-" + f"{0:032x}")
    link = re.search(r'href="(/playground[^"]+)"', page)
    assert link is not None
    assert "Which &lt;b&gt;day&lt;/b&gt;?" in visitor.get(link[1].replace("&amp;", "&"))
    hidden = Visitor(tmp_path / ".tfgrpo/store.db", content=False)
    hidden.get(link[1].replace("&amp;", "&"), status=404)


TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": 'A "bike"\n& a helmet?'},
    {"role": "assistant", "content": "Yes."},
    {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "price"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "36"},
    {"role": "user", "content": "From 3 to 5 May?"},
    {"role": "assistant", "content": "Let me see."},
]


def conversation(folder: Path, url: str) -> tuple[Path, str]:
    """Makes a project with a call of several turns; returns its store and the call's address."""
    store, id = project(folder, url), "call-" + "7" * 32
    blank = CallRecord(*[None] * len(CallRecord._fields))
    call = blank._replace(
        id=id,
        time=1,
        worker="w",
        route="/v1/chat/completions",
        model="m",
        streamed=0,
        stale=0,
        status=200,
        latency=5,
        added=1,
    )
    traffic = open_traffic(traffic_path(store), create=True)
    traffic.add([call], [CallContent(id, json.dumps({"messages": TURNS}), "{}")])
    traffic.close()
    return store, f"/call/{id}"


def spoken(request: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns the turns that a model was asked with, but the system's."""
    return [(one["role"], one["content"]) for one in request["messages"] if one["role"] != "system"]


ASKED = [(one["role"], one["content"]) for one in (TURNS[1], TURNS[2], TURNS[5])]


def test_the_earlier_turns_of_a_call_go_along_and_are_in_its_case(tmp_path: Path) -> None:
    with ScriptedEndpoint(script) as server:
        store, address = conversation(tmp_path, server.base_url)
        visitor = Visitor(store)
        link = next(one for one in links(visitor.get(address)) if "playground" in one)
        page = visitor.get(link)
        assert "2 earlier turns" in page
        turns = re.search(r'name="turns" value="([^"]*)"', page)
        assert turns is not None
        fields = {"system": "Be short.", "prompt": ASKED[-1][1], "a": "none", "b": "HEAD"}
        fields["turns"] = unescape(turns[1])
        for wrong in ("x", "{}", '[["system", "x"]]', '[["user", 1]]', '[["user"]]', '["user"]'):
            assert visitor.post("/playground", fields | {"turns": wrong}, status=400)
        id, page = over(visitor, visitor.post("/playground", fields))
        assert [spoken(one) for one in server.requests] == [ASKED, ASKED]
        assert all("Be short." in json.dumps(one["messages"]) for one in server.requests)
        assert turns[0] in page, "they go along with the next trial too"
        visitor.post(f"/playground/{id}/keep", {"answer": "3"})
        alone, _ = over(visitor, visitor.post("/playground", fields | {"turns": "", "system": ""}))
        visitor.post(f"/playground/{alone}/keep", {"answer": "3"})
    first, second = load(str(tmp_path / "cases.jsonl"))
    assert first.messages == (("system", "Be short."), *ASKED)
    assert (second.problem, second.messages) == (ASKED[-1][1], ())


def test_a_bisection_leads_to_the_last_good_version_beside_the_one_under_test(
    tmp_path: Path,
) -> None:
    store = store_at(tmp_path)
    with Store.open(store) as opened:
        for n in range(1, 10):
            opened.commit("main", [Operation("ADD", text=f"Lesson {n}.")], message=f"{n}")
    visitor = Visitor(store)
    page = visitor.post("/bisect/start", {"seen": "0", "bad": "HEAD", "good": "v1 v0"})
    tested = re.search(r"To be tested: <a [^>]*>(v\d+)<", page)
    assert tested is not None
    assert f"/playground?a=v1&b={tested[1]}" in links(page)


def test_a_proposal_is_tried_on_the_problem_that_taught_it(folder: Path) -> None:
    store = folder / ".tfgrpo/store.db"
    with Store.open(store, author="tfgrpo") as opened:
        row = opened.runs.rollouts(opened.runs.get("quick"))[0]
        evidence = {"run": "quick", "step": row.step, "problem": row.problem, "rollouts": [[0, 1]]}
        base = opened.tip("main")
        for name, run in (("proposal/1", "quick"), ("proposal/2", "elsewhere")):
            opened.create_branch(name, base)
            words = [
                Operation("ADD", text="Nothing taught this."),
                Operation("ADD", text=f"{run} did.", evidence={**evidence, "run": run}),
            ]
            opened.commit(name, words, message="from calls", author="tfgrpo")
            propose(opened, Draftsman(name, "main", "improve", base, UNDECIDED, {"problems": 1}))
    visitor = Visitor(store)
    link = next(one for one in links(visitor.get("/review?id=p1")) if "playground" in one)
    page = visitor.get(link)
    problem = next(one for one in load(str(folder / "p.jsonl")) if one.id == row.problem)
    assert f">{problem.problem}</textarea>" in unescape(page)
    assert "problem=" not in next(
        one for one in links(visitor.get("/review?id=p2")) if "playground" in one
    )
    visitor.get(link.replace("problem=", "problem=no"), status=404)
    hidden = Visitor(store, content=False)
    hidden.get(link, status=404)
    assert "problem=" not in next(
        one for one in links(hidden.get("/review?id=p1")) if "playground" in one
    )


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_a_call_goes_on_in_the_playground_in_a_browser(
    how: str, hand_at: HandAt, tmp_path: Path
) -> None:
    with ScriptedEndpoint(script) as server:
        store, address = conversation(tmp_path, server.base_url)
        hand = hand_at(store)
        page = hand.page
        hand.open(address)
        hand.follow("main a[href^='/playground']")
        hand.press("main details > summary")
        hand.sees("a helmet?")
        if how == "mouse":
            assert violations(page) == []
        hand.follow("main form button.main")
        if how == "no script":
            deadline = time.monotonic() + 240
            while page.locator("pre.said").count() < 2 and time.monotonic() < deadline:
                hand.follow("main a.button")
        page.wait_for_selector("form[action$='/keep']")
        hand.write("main input[name=answer]", "3")
        hand.follow("form[action$='/keep'] button")
        hand.sees("It is a case", ".notice")
    assert [spoken(one) for one in server.requests] == [ASKED, ASKED]
    (case,) = load(str(tmp_path / "cases.jsonl"))
    assert case.messages == (("system", "Be short."), *ASKED)


@pytest.mark.browser
@pytest.mark.parametrize("how", ["mouse", "keyboard", "no script"])
def test_the_playground_in_a_browser(how: str, hand_at: HandAt, tmp_path: Path) -> None:
    begin, go = threading.Event(), threading.Event()

    def waits(request: dict[str, Any]) -> Reply:
        def words() -> Iterator[str]:
            assert begin.wait(240)
            yield "It begins, "
            assert go.wait(240)
            yield script(request)

        return Reply(pieces=streamed(words()))

    with ScriptedEndpoint(waits) as server:
        hand = hand_at(project(tmp_path, server.base_url))
        page = hand.page
        hand.open("/library?at=main")
        hand.follow("main a[href^='/playground']")
        hand.write("#prompt", "From 3 to 5 May?")
        hand.follow("main form button.main")
        hand.sees("Waiting for the answer")
        begin.set()
        deadline = time.monotonic() + 240
        while how == "no script" and page.locator("pre:has-text('It begins')").count() < 2:
            assert time.monotonic() < deadline
            hand.follow("main a.button")
        page.wait_for_function(
            "() => [...document.querySelectorAll('[data-words]')].filter("
            "one => one.textContent === 'It begins, ').length === 2"
        )
        assert page.locator("form[action$='/keep']").count() == 0
        go.set()
        if how == "no script":
            deadline = time.monotonic() + 240
            while page.locator("pre.said").count() < 2 and time.monotonic() < deadline:
                hand.follow("main a.button")
        page.wait_for_selector("form[action$='/keep']")
        hand.write("main input[name=answer]", "3")
        hand.follow("form[action$='/keep'] button")
        hand.sees("It is a case", ".notice")
        if how == "mouse":
            for width, (across, down) in WIDTHS.items():
                page.set_viewport_size({"width": across, "height": down})
                for scheme in ("light", "dark"):
                    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                    assert violations(page) == [], (width, scheme)
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
