"""`tfgrpo proxy`: which library a request gets, and what it withstands."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from conftest import TFGRPO, environment
from providers import OK, Provider, ProxyThread, Received, post
from proxy_fixtures import Choice, make, provider
from proxy_fixtures import prod_settings as settings
from proxy_fixtures import prod_store as store
from waiting import until

from tfgrpo.proxy import worker_processes
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import Limits, ProxySettings, Rule, parse_upstream
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.rendering.retrieve import NEAREST, WHOLE
from tfgrpo.store import Operation, Store
from tfgrpo.store.errors import SettingsError

__all__ = ["provider", "settings", "store"]  # fixtures

CHAT = "/v1/chat/completions"
ASK = b'{"model":"m","messages":[{"role":"user","content":"How long?"}]}'


def text_of(provider: Provider) -> str:
    """The system text that the provider was last sent; empty where there was none."""
    for first in json.loads(provider.received[-1].body)["messages"][:1]:
        return str(first["content"]) if first["role"] == "system" else ""
    return ""


# the library in force:


def test_the_next_request_has_the_library_after_a_commit_and_after_a_rollback(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    with ProxyThread(settings) as proxy:
        for number in range(10):
            store.commit("prod", [Operation("ADD", text=f"Rule {number}.")], message="add")
            answer = proxy.ask(post(CHAT, ASK))
            assert f"[G{number + 1}] Rule {number}." in text_of(provider)
            tip = store.tip("prod")
            assert f"X-Tfgrpo-Version: {tip.name} {tip.digest.hex()[:16]}\r\n".encode() in answer
        store.move_branch("prod", "v1")
        proxy.ask(post(CHAT, ASK))
        assert text_of(provider).endswith("follow it:\n[G0] Count both days.")
        store.move_branch("prod", "v0")
        proxy.ask(post(CHAT, ASK))
        assert provider.received[-1].body == ASK


@pytest.mark.usefixtures("always_looking")
def test_a_store_that_is_gone_leaves_the_last_library_and_that_is_said(
    settings: ProxySettings, provider: Provider, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    health = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with ProxyThread(settings) as proxy:
        answer = proxy.ask(health)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == "ok"
        folder = store.path.parent
        folder.rename(folder.with_name("away"))
        answer = proxy.ask(post(CHAT, ASK))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nX-Tfgrpo-Stale: " in answer
        assert "Count both days." in text_of(provider)
        answer = proxy.ask(health.replace(b"/healthz", b"/stale"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        found = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert found["status"] == "stale"
        assert "No such file" in found["libraries"]["support"]["trouble"]
        folder.with_name("away").rename(folder)
        assert b"X-Tfgrpo-Stale" not in proxy.ask(post(CHAT, ASK))
        assert proxy.ask(health).startswith(b"HTTP/1.1 200 ")
    assert [record.getMessage() for record in caplog.records if "goes on" in record.getMessage()]
    assert "read again" in caplog.text


# which library:


def test_a_library_is_chosen_by_header_model_rule_or_default(
    settings: ProxySettings, provider: Provider, store: Store, tmp_path: Path
) -> None:
    make(tmp_path / "sales.db", "Offer a trial.").close()
    store.commit("main", [Operation("ADD", text="Give units.")], message="add")
    settings = replace(
        settings,
        libraries={**settings.libraries, "sales": Choice(tmp_path / "sales.db")},
        rules=(
            Rule("sales", header="X-User-Kind", equals="enterprise"),
            Rule("support@main", field="metadata.workflow", matches=re.compile("^refund")),
        ),
    )

    def got(body: str, *headers: bytes) -> tuple[str, str]:
        answer = proxy.ask(post(CHAT, body.encode(), *headers))
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        sent = json.loads(provider.received[-1].body)
        assert not [n for n, _ in provider.received[-1].headers if n.lower().startswith(b"x-tf")]
        return " ".join(re.findall(r"\] (\w+)", text_of(provider))), sent.get("model", "")

    plain = '{"model":"m","messages":[]}'
    with ProxyThread(settings) as proxy:
        assert got(plain) == ("Count", "m")
        assert got(plain, b"x-user-kind: enterprise") == ("Offer", "m")
        assert got(plain, b"x-user-kind: private") == ("Count", "m")
        refund = '{"model":"m","messages":[],"metadata":{"workflow":"refund-2"}}'
        assert got(refund) == ("Count Give", "m")
        assert got(refund, b"x-tfgrpo-library: sales") == ("Offer", "m")
        assert got(plain, b"X-Tfgrpo-Library: support@main") == ("Count Give", "m")
        assert got(plain, b"x-tfgrpo-library: @v0") == ("", "m")
        assert got(plain, b"x-tfgrpo-library: none") == ("", "m")
        named = '{"model":"sales@main/gpt-5-mini","messages":[]}'
        assert got(named) == ("Offer", "gpt-5-mini")
        assert got(named, b"x-tfgrpo-library: support") == ("Count", "gpt-5-mini")
        assert got('{"model":"other@x/llama","messages":[]}') == ("Count", "other@x/llama")
        assert got('{"model":"meta/llama","messages":[]}') == ("Count", "meta/llama")
        for wrong in (b"billing", b"support@nowhere", b"support@../../etc/passwd"):
            answer = proxy.ask(post(CHAT, ASK, b"x-tfgrpo-library: " + wrong))
            assert answer.startswith(b"HTTP/1.1 404 "), (wrong, answer)


def test_only_the_experiences_that_fit_go_in_and_some_are_left_out_by_chance(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    for text in ("Convert litres to gallons.", "Round money to cents.", "Name the planets."):
        store.commit("prod", [Operation("ADD", text=text)], message="add")
    picked = replace(settings, libraries={"support": Choice(store.path, "prod", top_k=1)})
    with ProxyThread(picked) as proxy:
        body = '{"messages":[{"role":"user","content":"How many gallons are 5 litres?"}]}'
        proxy.ask(post(CHAT, body.encode()))
        assert text_of(provider).endswith("follow it:\n[G1] Convert litres to gallons.")
    chance = replace(settings, libraries={"support": Choice(store.path, "prod", dropout=0.5)})
    with ProxyThread(chance) as proxy:
        texts = {}
        for user in range(12):
            body = json.dumps({"user": f"u{user}", "messages": []})
            for _ in range(2):
                proxy.ask(post(CHAT, body.encode()))
                first = json.loads(provider.received[-1].body)["messages"]
                texts.setdefault(user, []).append(first[0]["content"] if first else "")
        assert all(a == b for a, b in texts.values()), "one conversation, one prompt"
        assert len({a for a, _ in texts.values()}) > 3


def test_a_request_gets_as_many_experiences_as_problems_did_in_training(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    for text in ("Convert litres to gallons.", "Round money to cents."):
        meta = {"run": "r", "step": 0, "rendering": {"inject": "top-k", "top_k": 1}}
        store.commit("prod", [Operation("ADD", text=text)], message="add", meta=meta)
    body = b'{"messages":[{"role":"user","content":"How many gallons are 5 litres?"}]}'
    for top_k, lines in ((None, 1), (2, 2)):
        told = {"support": Choice(store.path, "prod", top_k=top_k)}
        with ProxyThread(replace(settings, libraries=told)) as proxy:
            proxy.ask(post(CHAT, body))
            sent = text_of(provider)
            assert "[G1] Convert litres to gallons." in sent
            assert len(re.findall(r"^\[G\d\]", sent, re.M)) == lines


def test_of_many_examples_a_request_gets_those_that_are_most_like_its_words(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    topics = ("litres", "planets", "cents", "yards", "reams")
    texts = [example_text(f"Where are {n} {topics[n % 5]}?", f"shelf {n % 5}") for n in range(50)]
    store.commit("prod", [Operation("ADD", text=text) for text in texts], message="add")
    served = {"support": Choice(store.path, "prod")}
    with ProxyThread(replace(settings, libraries=served)) as proxy:
        for number, topic in enumerate(topics):
            words = {"role": "user", "content": f"Where are the {topic}?"}
            proxy.ask(post(CHAT, json.dumps({"messages": [words]}).encode()))
            sent = json.loads(provider.received[-1].body)["messages"]
            answers = [one["content"] for one in sent if one["role"] == "assistant"]
            assert len(answers) == WHOLE
            assert answers.count(f"shelf {number}") >= NEAREST


def test_a_file_names_libraries_and_rules(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text(
        'upstream = "http://127.0.0.1:9/v1"\ndefault = "support@prod"\n'
        '[libraries.support]\nstore = "agents/support"\nrevision = "prod"\ntop_k = 8\n'
        '[[rules]]\nfield = "metadata.kind"\nmatches = "^a"\nlibrary = "support@main"\n'
    )
    found = read_file(path)
    assert found["libraries"]["support"] == Choice(tmp_path / "agents/support", "prod", 8)
    assert str(found["anthropic"]) == str(found["openai"]) == "http://127.0.0.1:9"
    assert found["rules"][0].matches.search("abc")
    for wrong in (
        "port = [",
        "ports = 1",
        "[libraries.a]\nrevision = 'x'",
        "[libraries.a]\nstore = 'x'\nother = 1",
        "[libraries.'a/b']\nstore = 'x'",
        "[[rules]]\nlibrary = 'a'\nequals = 'b'",
        "[[rules]]\nlibrary = 'a'\nheader = 'b'",
        "[[rules]]\nlibrary = 'a'\nheader = 'b'\nmatches = '('",
        "upstream = 'ftp://x'",
    ):
        path.write_text(wrong)
        with pytest.raises(SettingsError):
            read_file(path)


# who may ask:


def test_beyond_this_machine_a_token_is_demanded(
    settings: ProxySettings, provider: Provider
) -> None:
    with pytest.raises(SettingsError, match="token"):
        replace(settings, host="0.0.0.0")
    with ProxyThread(replace(settings, token="s3cret-token")) as proxy:
        for headers in ((), (b"x-tfgrpo-token: wrong",), (b"Authorization: Bearer s3cret-token",)):
            assert proxy.ask(post(CHAT, ASK, *headers)).startswith(b"HTTP/1.1 401 ")
        assert provider.received == []
        right = b"X-Tfgrpo-Token: s3cret-token"
        assert proxy.ask(post(CHAT, ASK, right)).startswith(b"HTTP/1.1 200 ")
        assert b"s3cret" not in repr(provider.received[-1]).encode()
        assert proxy.ask(post(CHAT, ASK, right, right)).startswith(b"HTTP/1.1 400 ")
        health = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        assert proxy.ask(health).startswith(b"HTTP/1.1 200 ")


FOREIGN = (
    b"Host: evil.example",
    b"Host: localhost\r\nOrigin: http://evil.example",
    b"Host: localhost\r\nOrigin: null",
    b"Host: localhost\r\nSec-Fetch-Site: cross-site",
    b"Host: localhost:8484\r\nOrigin: http://localhost:3000",
)


def test_a_web_page_cannot_ask_what_this_machine_may(
    settings: ProxySettings, provider: Provider
) -> None:
    kind = b"\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b" % (len(ASK), ASK)
    with ProxyThread(settings) as proxy:
        lines = (b"GET /healthz", b"GET /v1/models", b"POST " + CHAT.encode(), b"POST /v1/files")
        for line, headers in product(lines, FOREIGN):
            head = line + b" HTTP/1.1\r\nConnection: close\r\n" + headers
            answer = proxy.ask(head + (kind if line.startswith(b"POST") else b"\r\n\r\n"))
            assert answer.startswith(b"HTTP/1.1 403 "), (line, headers)
            assert b"TFGRPO_PROXY_TOKEN" in answer
        assert provider.received == []
        own = (b"Origin: http://localhost", b"Sec-Fetch-Site: same-origin", b"Sec-Fetch-Site: none")
        for header in own:  # some clients name the address that they ask as where they come from
            assert proxy.ask(post(CHAT, ASK, header)).startswith(b"HTTP/1.1 200 "), header
    with ProxyThread(replace(settings, token="s3cret-token")) as proxy:
        head = b"GET /v1/models HTTP/1.1\r\nConnection: close\r\nx-tfgrpo-token: s3cret-token\r\n"
        assert proxy.ask(head + FOREIGN[0] + b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")


SMUGGLED = {
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    "a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "an odd transfer encoding": b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "a blank before the colon": b"Content-Length : 5\r\n\r\nhello",
    "a folded header": b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "a negative length": b"Content-Length: -1\r\n\r\n",
    "a bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "two hosts": b"Host: other\r\nContent-Length: 0\r\n\r\n",
    "two keys": b"Authorization: a\r\nauthorization: b\r\nContent-Length: 0\r\n\r\n",
    "two libraries": b"x-tfgrpo-library: none\r\nX-Tfgrpo-Library: support\r\n\r\n",
    "a nul": b"X-A: a\0b\r\nContent-Length: 0\r\n\r\n",
}


def test_a_request_that_two_programs_may_read_differently_is_refused(
    settings: ProxySettings, provider: Provider
) -> None:
    with ProxyThread(settings) as proxy:
        for name, rest in SMUGGLED.items():
            answer = proxy.ask(b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n" + rest)
            assert answer.startswith(b"HTTP/1.1 400 "), (name, answer)
            assert answer.count(b"HTTP/1.1 ") == 1, name
    assert not [got for got in provider.received if b"chat" in got.line]


def test_other_requests_that_are_refused(settings: ProxySettings, provider: Provider) -> None:
    settings = replace(settings, limits=replace(Limits(), body=1000, head=2000))
    with ProxyThread(settings) as proxy:
        for wanted, request in (
            (b"400", b"GET http://other/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            (
                b"501",
                b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
            ),
            (b"400", b"GET / HTTP/1.1\r\n\r\n"),
            (b"400", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
            (b"431", b"GET / HTTP/1.1\r\nX-A: " + b"a" * 4000),
            (b"413", post(CHAT, b"x" * 1001)),
            (b"400", post(CHAT, b'{"model":"a","messages":[],"mod\\u0065l":"b"}')),
            (b"400", post(CHAT, b'{"messages":[{"role":"user","role":"system","content":""}]}')),
            (b"415", post(CHAT, ASK, b"Content-Encoding: br")),
            (b"400", post(CHAT, ASK, b"Content-Encoding: gzip")),
        ):
            assert proxy.ask(request).startswith(b"HTTP/1.1 " + wanted), request[:80]
    assert provider.received == []


UNREADABLE = {
    "an integer of 5,000 digits": b'{"seed":%b,"messages":[]}' % (b"1" * 5000),
    "such a one in a message": b'{"messages":[{"content":"a","n":-%b}]}' % (b"1" * 5000),
    "an endless number": b'{"temperature":1e999999999,"messages":[]}',
    "half a character in the model": b'{"model":"support@prod/\\ud800","messages":[]}',
    "half a character in the user": b'{"user":"\\ud800","messages":[]}',
    "half a character in a text": b'{"messages":[{"role":"system","content":"\\udc00"}]}',
}


def test_a_body_that_python_cannot_read_or_write_is_answered(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    libraries = {"support": Choice(store.path, "prod", dropout=0.3)}
    with ProxyThread(replace(settings, libraries=libraries)) as proxy:
        for name, body in UNREADABLE.items():
            answer = proxy.ask(post(CHAT, body))
            assert answer.startswith(b"HTTP/1.1 200 "), (name, answer)
            assert b'"messages"' in provider.received[-1].body
            if "digits" in name:
                assert provider.received[-1].body == body


def test_a_body_is_answered_however_deep_it_is_nested(settings: ProxySettings) -> None:
    with ProxyThread(settings) as proxy:
        for depth in range(900, 1005):
            content = b"[" * depth + b"]" * depth
            body = b'{"messages":[{"role":"system","content":%b},{"role":"user"}]}' % content
            assert proxy.ask(post(CHAT, body))[9:12] in (b"200", b"400"), depth


def test_what_fails_in_the_proxy_is_answered_and_in_the_log(
    settings: ProxySettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with ProxyThread(settings) as proxy:
        monkeypatch.setattr(proxy.proxy.chooser, "named", None)
        answer = proxy.ask(post(CHAT, ASK))
    assert answer.startswith(b"HTTP/1.1 500 ")
    assert "its log has the traceback" in answer.decode()
    assert "TypeError" in caplog.text


# what happens to connections:


def test_requests_on_one_connection_are_answered_in_order(
    settings: ProxySettings, provider: Provider
) -> None:
    def echo(connection: socket.socket, request: Received) -> None:
        body = request.line.split()[1]
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    provider.answer = echo
    with ProxyThread(settings) as proxy:
        gets = [b"GET /v1/models/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % n for n in range(20)]
        last = b"GET /last HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        answer = proxy.ask(b"".join(gets) + last)
        bodies = re.findall(rb"\r\n\r\n(/[a-z0-9/]+?)(?=HTTP|$)", answer)
        assert bodies == [b"/v1/models/%d" % n for n in range(20)] + [b"/last"]
        assert provider.connections == 1


def test_many_requests_that_are_refused_at_once_are_answered_too(settings: ProxySettings) -> None:
    first = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    refused = post(CHAT, b"x", b"Content-Encoding: br").replace(b"Connection: close\r\n", b"")
    last = post(CHAT, b"x", b"Content-Encoding: br")
    with ProxyThread(settings) as proxy:
        answer = proxy.ask(first + refused * 1000 + last)
        assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200"] + [b"415"] * 1001


CHUNKED = b" HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
LONG = (64 << 10) + 10
ENDLESS = {
    "a trailer": b"0\r\nX: " + b"a" * LONG,
    "trailers": b"0\r\n" + b"X: aaaa\r\n" * (LONG // 9 + 1),
    "what follows the length of a chunk": b"5;" + b"a" * LONG,
}


def test_a_body_with_too_much_around_it_is_refused(settings: ProxySettings) -> None:
    with ProxyThread(settings) as proxy:
        for path, body in product((CHAT, "/v1/files"), ENDLESS.values()):
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client:
                head = b"POST %b%bExpect: 100-continue\r\n\r\n" % (path.encode(), CHUNKED)
                client.sendall(head)
                assert client.recv(65536).startswith(b"HTTP/1.1 100 ")
                client.sendall(body)
                assert client.recv(65536).startswith(b"HTTP/1.1 431 "), (path, body[:20])
                until(lambda: proxy.proxy.open == 0)


def test_a_body_of_many_small_chunks_is_none_of_them(
    settings: ProxySettings, provider: Provider
) -> None:
    with ProxyThread(settings) as proxy:
        pieces = b"1\r\na\r\n" * LONG + b"0\r\nX-A: b\r\n\r\n"
        head = b"POST /v1/files%bConnection: close\r\n\r\n" % CHUNKED
        assert proxy.ask(head + pieces).startswith(b"HTTP/1.1 200 ")
    assert provider.received[-1].body == b"a" * LONG


OVERLONG = {
    "a header": b"HTTP/1.1 200 OK\r\nX: " + b"a" * 2 * LONG,
    "headers": b"HTTP/1.1 200 OK\r\n" + b"X: aaaa\r\n" * (LONG // 4),
    "a head that ends": b"HTTP/1.1 200 OK\r\nX: "
    + b"a" * LONG
    + b"\r\nContent-Length: 2\r\n\r\n{}",
    "hints": (b"HTTP/1.1 103 Early Hints\r\nLink: " + b"a" * (LONG // 4) + b"\r\n\r\n") * 8,
}


@pytest.mark.parametrize("name", OVERLONG)
def test_a_provider_with_an_overlong_head_has_given_no_answer(
    name: str, settings: ProxySettings, provider: Provider
) -> None:
    provider.answer = OVERLONG[name]
    with ProxyThread(settings) as proxy:
        assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 502 ")
        provider.answer = OK
        assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("name", ENDLESS)
def test_an_answer_with_too_much_around_it_breaks_off(
    name: str, settings: ProxySettings, provider: Provider
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        begun.wait(120)
        connection.sendall(ENDLESS[name])
        ended.wait(120)

    provider.answer = endless
    with (
        ProxyThread(settings) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client,
    ):
        client.sendall(post(CHAT, ASK))
        answer = b""
        while not answer.endswith(b"2\r\n{}\r\n"):
            answer += client.recv(65536)
        begun.set()
        assert client.recv(65536) == b"", "cut off, and not ended"
        ended.set()


def test_a_connection_that_the_provider_let_go_of_costs_no_request(
    settings: ProxySettings, provider: Provider
) -> None:
    def once(connection: socket.socket, request: Received) -> None:
        connection.sendall(OK)
        connection.shutdown(socket.SHUT_RDWR)  # though it said that it would stay open

    provider.answer = once
    with ProxyThread(settings) as proxy:
        for _ in range(3):
            assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 200 ")
            until(lambda: not any(proxy.proxy.pool._idle.values()))
    assert len(provider.received) == provider.connections == 3


@pytest.mark.parametrize("after", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"])
def test_a_provider_that_breaks_off(
    after: bytes, settings: ProxySettings, provider: Provider
) -> None:
    def reset(connection: socket.socket, request: Received) -> None:
        connection.sendall(after)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.shutdown(socket.SHUT_RDWR)

    provider.answer = reset
    with ProxyThread(settings) as proxy:
        try:
            answer = proxy.ask(post(CHAT, ASK))
        except ConnectionResetError:
            answer = b""
        if after:
            assert not answer or answer.endswith(b"half"), "cut off here as it was there"
        else:
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert b'"tfgrpo_proxy"' in answer
        provider.answer = OK
        assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 200 ")


def test_a_provider_that_speaks_no_http_or_too_much_of_it(
    settings: ProxySettings, provider: Provider
) -> None:
    with ProxyThread(settings) as proxy:
        provider.answer = b"SSH-2.0-OpenSSH_9.6\r\n"
        assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 502 ")
        provider.answer = OK + b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        assert b"evil" not in proxy.ask(post(CHAT, ASK))
        provider.answer = OK
        assert proxy.ask(post(CHAT, ASK)).endswith(b"{}")


def test_nobody_upstream(settings: ProxySettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    upstream = parse_upstream(f"http://127.0.0.1:{port}/v1")
    with ProxyThread(replace(settings, openai=upstream)) as proxy:
        answer = proxy.ask(post(CHAT, ASK))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"cannot reach" in answer


def test_when_a_client_vanishes_its_request_is_taken_back(
    settings: ProxySettings, provider: Provider
) -> None:
    gone = threading.Event()

    def forever(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                connection.sendall(b"1\r\nx\r\n")
                time.sleep(0.005)
        except OSError:
            gone.set()

    provider.answer = forever
    with ProxyThread(settings) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(post(CHAT, ASK))
            assert client.recv(100)
        assert gone.wait(240)
        until(lambda: proxy.proxy.open == 0)


def test_open_streams_are_bounded_and_the_others_go_on(
    settings: ProxySettings, provider: Provider
) -> None:
    release = threading.Event()

    def held(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        release.wait(240)
        connection.sendall(b"1\r\nb\r\n0\r\n\r\n")

    provider.answer = held
    settings = replace(settings, limits=replace(Limits(), requests=40))
    with ProxyThread(settings) as proxy:
        clients = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(40)]
        for client in clients:
            client.settimeout(60)
            client.sendall(post(CHAT, ASK))
        until(lambda: proxy.proxy.open == 40)
        assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 503 ")
        release.set()
        for client in clients:
            answer = b""
            while piece := client.recv(4096):
                answer += piece
            assert answer.endswith(b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n")
            client.close()


def test_a_client_that_does_not_read_holds_the_provider_and_not_memory(
    settings: ProxySettings, provider: Provider
) -> None:
    sent = []
    stalled = threading.Event()

    def flood(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (200 << 20))
        connection.settimeout(1.5)
        try:
            for _ in range(200):
                connection.sendall(b"x" * (1 << 20))
                sent.append(1)
        except TimeoutError:
            stalled.set()

    provider.answer = flood
    with ProxyThread(settings) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as c:
        c.sendall(post(CHAT, ASK))
        assert stalled.wait(240)
        assert len(sent) < 60, "megabytes that nobody read"


# the command:


def listen(arguments: list[str], folder: Path, **env: str) -> tuple[subprocess.Popen[str], int]:
    """Starts the command, and returns it with its port."""
    process = subprocess.Popen(
        [TFGRPO, "proxy", "--port", "0", *arguments],
        cwd=folder,
        env=environment(**env),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    found = re.search(r":(\d+)/v1, asking", line)
    assert found, line + process.stderr.read()
    return process, int(found[1])


def test_every_worker_has_the_new_library_and_one_that_is_killed_is_replaced(
    store: Store, provider: Provider, tmp_path: Path
) -> None:
    process, port = listen(
        ["--library", "prod", "--upstream", provider.url, "--workers", "2"], tmp_path
    )
    try:

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", port), timeout=240) as client:
                client.sendall(post(CHAT, ASK))
                answer = b""
                while piece := client.recv(65536):
                    answer += piece
            return answer

        for number in range(8):
            store.commit("prod", [Operation("ADD", text=f"Rule {number}.")], message="add")
            for _ in range(3):
                ask()
                assert f"Rule {number}." in text_of(provider)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(children) == 2
        os.kill(int(children[0]), signal.SIGKILL)
        for _ in range(4):
            until(lambda: ask().startswith(b"HTTP/1.1 200 "))
        process.terminate()
        assert process.wait(240) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_worker_that_cannot_begin_says_why_and_is_not_started_at_once(
    settings: ProxySettings, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no room for a worker")

    monkeypatch.setattr(worker_processes, "_work", fail)
    began = time.monotonic()
    with socket.socket() as listener:
        _, status = os.waitpid(worker_processes._fork(settings, listener, None), 0)
    assert os.waitstatus_to_exitcode(status) == 1
    assert time.monotonic() - began >= 1
    assert "RuntimeError: no room for a worker" in capfd.readouterr().err


def test_workers_end_when_who_started_them_is_killed(
    store: Store, provider: Provider, tmp_path: Path
) -> None:
    process, port = listen(
        ["--library", "prod", "--upstream", provider.url, "--workers", "2"], tmp_path
    )
    process.kill()
    process.communicate(timeout=120)  # until nobody holds the pipe any more

    def is_free() -> bool:
        with socket.socket() as other:
            return other.connect_ex(("127.0.0.1", port)) != 0

    until(is_free)


@pytest.mark.parametrize("pause", [0.0, 0.001, 0.01, 0.05])
def test_an_end_while_a_worker_is_replaced_ends_the_new_one_too(
    store: Store, provider: Provider, tmp_path: Path, pause: float
) -> None:
    process, _ = listen(
        ["--library", "prod", "--upstream", provider.url, "--workers", "2"], tmp_path
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)
    time.sleep(pause)
    process.terminate()
    try:
        assert process.wait(240) == 0
    finally:
        process.kill()
        process.communicate(timeout=120)


def test_the_command_says_what_it_lacks(store: Store, tmp_path: Path, cli: Callable) -> None:
    from conftest import one_line_error

    one_line_error(cli("proxy", "--host", "0.0.0.0", ok=False), "needs a token", code=2)
    one_line_error(cli("proxy", "--library", "nowhere", "--port", "0", ok=False), "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        one_line_error(cli("proxy", "--port", port, ok=False), "cannot listen", code=2)
