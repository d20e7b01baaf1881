"""A rule that asks a model of which kind a subject is, and which library that kind gets."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from providers import OK, Provider, ProxyThread, Received, post
from proxy_fixtures import Choice, answer, make
from test_proxy import CHAT

from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import Classifier, ProxySettings, Rule, parse_upstream
from tfgrpo.proxy.subject_kinds import Asking
from tfgrpo.rendering.request_placement import OPENAI
from tfgrpo.store import Operation
from tfgrpo.store.errors import SettingsError
from tfgrpo.trust.trusted_folders import NotTrusted

KIND = Classifier("Who writes this?", "tiny", {"private": "s", "company": "s@main"}, 5.0)
Says = Callable[[str], bytes]


def chat(content: object) -> bytes:
    return answer(json.dumps({"choices": [{"message": {"content": content}}]}).encode())


class Kinds(Provider):
    """A provider that tells kinds as it is told to, and keeps both sorts of requests apart."""

    def __init__(self, says: Says) -> None:
        super().__init__(self._answer)
        self.says = says
        self.asked: list[Received] = []
        self.calls: list[Received] = []

    def _answer(self, connection: socket.socket, request: Received) -> None:
        if b"Answer with one of these words" in request.body:
            self.asked.append(request)
            found = json.loads(request.body)["messages"][-1]["content"]
            connection.sendall(self.says(found))
        else:
            self.calls.append(request)
            connection.sendall(OK)


@pytest.fixture
def provider() -> Iterator[Kinds]:
    with Kinds(lambda words: chat("Company." if "invoice" in words else "private")) as running:
        yield running


@pytest.fixture
def settings(tmp_path: Path, provider: Kinds) -> ProxySettings:
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as store:
        store.create_branch("prod")
        store.commit("main", [Operation("ADD", text="Give net prices.")], message="net")
        path = store.path
    upstream = parse_upstream(provider.url)
    rules = (Rule("none", header="x-plain", equals="1"), Rule("", classifier=KIND))
    libraries = {"s": Choice(path, "prod")}
    return ProxySettings(libraries, "s", upstream, upstream, rules=rules, port=0)


def request(words: str, *headers: bytes) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": words}]}
    return post(CHAT, json.dumps(body).encode(), b"Authorization: Bearer sk-1", *headers)


def got(proxy: ProxyThread, provider: Kinds, words: str, *headers: bytes) -> str:
    """Asks, and returns what the library said; empty where there was none."""
    assert proxy.ask(request(words, *headers)).startswith(b"HTTP/1.1 200 ")
    first = json.loads(provider.calls[-1].body)["messages"][0]
    return str(first["content"]) if first["role"] == "system" else ""


def test_a_subject_is_asked_about_once_and_gets_its_kinds_library(
    settings: ProxySettings, provider: Kinds
) -> None:
    ann, bob = b"x-tfgrpo-subject: ann", b"x-tfgrpo-subject: bob"
    with ProxyThread(settings) as proxy:
        assert "net prices" in got(proxy, provider, "Send the invoice to us.", ann)
        assert "net prices" not in got(proxy, provider, "A bike for Sunday?", bob)
        for _ in range(3):
            assert "net prices" in got(proxy, provider, "And on Sunday?", ann)
            assert "net prices" not in got(proxy, provider, "An invoice?", bob)
        assert len(provider.asked) == 2
        assert "net prices" in got(proxy, provider, "Our invoice.")
        assert "net prices" in got(proxy, provider, "Our invoice.")
        assert len(provider.asked) == 3, "a conversation without a subject is known by its words"
        assert got(proxy, provider, "x", b"x-plain: 1") == "", "the first rule that fits"
        assert "net" not in got(proxy, provider, "An invoice!", b"x-tfgrpo-library: s@prod")
        assert len(provider.asked) == 3
    asked = provider.asked[0]
    assert asked.line.startswith(b"POST /v1/chat/completions ")
    assert asked.header(b"authorization") == b"Bearer sk-1"
    body = json.loads(asked.body)
    assert body["model"] == "tiny"
    assert body["messages"][0]["content"].startswith("Who writes this?\n\nAnswer with one of these")
    assert "private, company" in body["messages"][0]["content"]


def test_what_is_remembered_is_of_one_rule_alone_and_outlives_settings_that_are_read_anew() -> None:
    def key(rule: Classifier, subject: str | None, words: str) -> bytes:
        return Asking(rule, subject, words, {}, parse_upstream("http://127.0.0.1:1"), OPENAI).key

    same = Classifier(KIND.prompt, KIND.model, dict(KIND.libraries), 9.0)
    assert key(KIND, "ann", "x") == key(same, "ann", "y")
    others = [
        key(replace(KIND, prompt="Who?"), "ann", "x"),
        key(replace(KIND, model="big"), "ann", "x"),
        key(replace(KIND, libraries={"private": "s"}), "ann", "x"),
        key(KIND, None, "ann"),
        key(KIND, "ben", "x"),
    ]
    assert len({key(KIND, "ann", "x"), *others}) == 1 + len(others)


@pytest.mark.parametrize("said", [b'{"content":["x"]}', b"[" * 60_000, b"[]", b"\xff"])
def test_whatever_the_provider_says_the_request_goes_on_with_the_default(
    settings: ProxySettings, provider: Kinds, said: bytes
) -> None:
    provider.says = lambda _: answer(said)
    with ProxyThread(settings) as proxy:
        assert "net prices" not in got(proxy, provider, "Send the invoice to us.")
        assert proxy.proxy.open == 0


def test_on_anthropics_routes_the_question_is_a_message(
    settings: ProxySettings, provider: Kinds
) -> None:
    said = {"content": [{"type": "text", "text": "company"}]}
    provider.says = lambda _: answer(json.dumps(said).encode())
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    headers = (b"x-api-key: sk-2", b"anthropic-version: 2023-06-01")
    with ProxyThread(settings) as proxy:
        proxy.ask(post("/v1/messages", json.dumps(body).encode(), *headers))
    assert "net prices" in json.loads(provider.calls[-1].body)["system"]
    (asked,) = provider.asked
    assert asked.line.startswith(b"POST /v1/messages ")
    assert asked.header(b"x-api-key") == b"sk-2"
    assert json.loads(asked.body)["system"].startswith("Who writes this?")


GARBAGE = {
    "an error": answer(b"{}", status=b"500 No"),
    "no json": answer(b"company"),
    "another shape": answer(b'{"choices":[]}'),
    "a list": answer(b"[]"),
    "nothing": chat(None),
    "neither": chat("I cannot tell."),
    "both": chat("private or company"),
    "part of a word": chat("companywide"),
    "too long": answer(b"x" * 70_000),
    "no http": b"company\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_names_no_kind_leaves_the_default_and_is_not_asked_again_at_once(
    name: str, settings: ProxySettings, provider: Kinds, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.says = lambda _: GARBAGE[name]
    with ProxyThread(settings) as proxy:
        for _ in range(2):
            library = got(proxy, provider, "An invoice", b"x-tfgrpo-subject: ann")
            assert library.endswith("[G0] Count both days.")
        assert len(provider.asked) == 1
        provider.says = lambda _: chat("company")
        monkeypatch.setattr("tfgrpo.proxy.subject_kinds.monotonic", lambda: time.monotonic() + 31)
        assert "net prices" in got(proxy, provider, "An invoice", b"x-tfgrpo-subject: ann")


def test_a_request_waits_no_longer_than_the_rule_says_and_others_not_at_all(
    settings: ProxySettings, provider: Kinds
) -> None:
    release = threading.Event()

    def says(words: str) -> bytes:
        if "slow" in words:
            release.wait(240)
        return chat("company")

    provider.says = says
    quick = replace(KIND, seconds=4.0)
    settings = replace(settings, rules=(Rule("", classifier=quick),))
    with ProxyThread(settings) as proxy:
        took: list[float] = []

        def slow() -> None:
            began = time.monotonic()
            assert "net" not in got(proxy, provider, "slow", b"x-tfgrpo-subject: ann")
            took.append(time.monotonic() - began)

        threads = [threading.Thread(target=slow) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert "net prices" in got(proxy, provider, "quick", b"x-tfgrpo-subject: bob")
        for thread in threads:
            thread.join()
        release.set()
        assert len(took) == 3
        assert min(took) >= 3.9
        assert max(took) < 50
        assert len(provider.asked) == 2, "those who wait for one subject wait together"


def test_a_client_that_vanishes_while_its_kind_is_asked_for_is_no_trouble(
    settings: ProxySettings, provider: Kinds
) -> None:
    asked = threading.Event()
    release = threading.Event()

    def says(_: str) -> bytes:
        asked.set()
        release.wait(240)
        return chat("company")

    provider.says = says
    with ProxyThread(settings) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
            connection.sendall(request("An invoice", b"x-tfgrpo-subject: ann"))
            assert asked.wait(240)
        release.set()
        assert "net prices" in got(proxy, provider, "again", b"x-tfgrpo-subject: ann")
        assert len(provider.calls) == 1
        assert len(provider.asked) == 1, "what was asked for is kept"
        assert proxy.proxy.open == 0


def test_a_model_that_a_file_would_ask_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TFGRPO_TRUST")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "proxy.toml"
    path.write_text('[[rules]]\nheader = "x"\nequals = "1"\nlibrary = "a"\n')
    assert len(read_file(path)["rules"]) == 1
    kinds = 'classify = "Who?"\nmodel = "big"\nlibraries = { a = "x", b = "y" }\n'
    path.write_text(f"[[rules]]\n{kinds}")
    with pytest.raises(NotTrusted) as refused:
        read_file(path)
    assert "asks big about each conversation once" in f"{refused.value} {refused.value.hint}"


def test_a_file_says_which_kinds_there_are(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    good = '[[rules]]\nclassify = "Who?"\nmodel = "m"\nlibraries = { a = "x", b = "y" }\n'
    path.write_text(good)
    (rule,) = read_file(path)["rules"]
    assert rule.classifier == Classifier("Who?", "m", {"a": "x", "b": "y"}, 2.0)
    for wrong in (
        good.replace('"Who?"', '" "'),
        good.replace('"Who?"', "3"),
        good.replace('model = "m"\n', ""),
        good.replace(', b = "y"', ""),
        good.replace('"y"', "7"),
        good + "seconds = 0\n",
        good + "seconds = 'soon'\n",
        good + "header = 'x'\n",
    ):
        path.write_text(wrong)
        with pytest.raises(SettingsError):
            read_file(path)
