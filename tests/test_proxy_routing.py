"""Several providers: their order, what is sent again and what is not, and time-outs."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from providers import OK, Provider, ProxyThread, Received, post
from proxy_fixtures import Choice, answer, make
from test_traffic import recorded
from waiting import until

from tfgrpo.proxy import provider_routing
from tfgrpo.proxy.proxy_file import read_file
from tfgrpo.proxy.proxy_settings import Limits, ProxySettings, Timeouts, parse_upstream
from tfgrpo.proxy.proxy_settings import Provider as Listed
from tfgrpo.store import Store
from tfgrpo.store.errors import SettingsError

CHAT = "/v1/chat/completions"
BUSY = answer(b'{"error":{"message":"busy"}}', status=b"503 Busy")
LIMITED = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 120\r\nContent-Length: 4\r\n\r\nslow"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        yield made


@pytest.fixture
def two() -> Iterator[tuple[Provider, Provider]]:
    with Provider() as first, Provider() as second:
        yield first, second


def routed(store: Store, *providers: Listed, **more: Any) -> ProxySettings:
    upstream = providers[0].upstream
    libraries = {"d": Choice(store.path)}
    return ProxySettings(libraries, "d", upstream, upstream, port=0, providers=providers, **more)


def listed(provider: Provider, weight: float = 1.0, **more: Any) -> Listed:
    return Listed(parse_upstream(provider.url), weight, **more)


def ask(proxy: ProxyThread, who: str = "anna", *headers: bytes, model: str = "m") -> bytes:
    body = json.dumps({"model": model, "user": who, "messages": []}).encode()
    return proxy.ask(post(CHAT, body, *headers))


def test_weights_share_out_whom_requests_are_for_and_each_stays_with_one(
    store: Store, two: tuple[Provider, Provider]
) -> None:
    first, second = two
    with ProxyThread(routed(store, listed(first, 3.0), listed(second, 1.0))) as proxy:
        for _ in range(2):
            for number in range(120):
                assert b" 200 OK" in ask(proxy, f"user {number}")
    whom = [{json.loads(got.body)["user"] for got in provider.received} for provider in two]
    assert not whom[0] & whom[1]
    assert 65 <= len(whom[0]) <= 110, "three of four"
    assert len(first.received) == 2 * len(whom[0])


@pytest.mark.parametrize("bad", [BUSY, LIMITED, answer(b"{}", status=b"500 Oops")])
def test_what_fails_goes_to_the_next_and_the_client_sees_one_answer(
    bad: bytes, store: Store, two: tuple[Provider, Provider]
) -> None:
    first, second = two
    first.answer = bad
    with ProxyThread(routed(store, listed(first), listed(second, 0.0))) as proxy:
        got = ask(proxy)
        assert got.startswith(b"HTTP/1.1 200 OK")
        assert b"busy" not in got
        (call,) = wait_for(store, 1)
        assert (call.status, call.tries) == (200, 2)
        assert call.provider == second.url
        if bad is LIMITED:
            ask(proxy)
            assert len(first.received) == 1, "nothing is sent where a pause was asked for"


def wait_for(store: Store, calls: int) -> list[Any]:
    def there() -> bool:
        try:
            return len(recorded(store)) == calls
        except Exception:
            return False

    until(there)
    return recorded(store)


def test_one_provider_is_asked_again_and_its_last_refusal_is_its_own(
    store: Store, two: tuple[Provider, Provider]
) -> None:
    first, _ = two
    answers = [BUSY, OK]
    first.answer = lambda connection, request: connection.sendall(answers.pop(0))
    with ProxyThread(routed(store, listed(first))) as proxy:
        assert ask(proxy).startswith(b"HTTP/1.1 200 ")
        first.answer = BUSY
        got = ask(proxy, "ben")
        assert got.startswith(b"HTTP/1.1 503 Busy")
        assert got.endswith(b'{"error":{"message":"busy"}}')
    assert len(first.received) == 2 + 3


def test_nobody_there_is_the_next_ones_turn_and_a_stream_begins_once(
    store: Store, two: tuple[Provider, Provider]
) -> None:
    _, second = two
    gone = Listed(parse_upstream("http://127.0.0.1:9/v1"))

    def broken(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        connection.shutdown(socket.SHUT_RDWR)

    with ProxyThread(routed(store, gone, listed(second, 0.0))) as proxy:
        assert ask(proxy).startswith(b"HTTP/1.1 200 ")
        second.answer = broken
        got = ask(proxy)
        assert got.endswith(b"1\r\na\r\n"), "what was begun is not begun again"
    assert len(second.received) == 2


@pytest.mark.parametrize(("header", "times"), [((), 1), ((b"idempotency-key: 1",), 2)])
def test_a_post_that_was_read_and_not_answered_is_sent_once_or_as_its_key_says(
    header: tuple[bytes, ...], times: int, store: Store, two: tuple[Provider, Provider]
) -> None:
    first, second = two
    first.answer = lambda connection, request: connection.shutdown(socket.SHUT_RDWR)
    with ProxyThread(routed(store, listed(first), listed(second, 0.0))) as proxy:
        got = ask(proxy, "anna", *header)
    assert got.startswith(b"HTTP/1.1 200 " if times == 2 else b"HTTP/1.1 502 ")
    assert len(first.received) + len(second.received) == times


def test_a_model_goes_where_it_is_under_the_name_that_it_has_there(
    store: Store, two: tuple[Provider, Provider]
) -> None:
    first, second = two
    settings = routed(
        store,
        listed(first, models={"big": "big"}),
        listed(second, models={"small": "acme/sm\u00e4ll-1", "big": "big-2"}),
    )
    with ProxyThread(settings) as proxy:
        assert ask(proxy, model="small").startswith(b"HTTP/1.1 200 ")
        assert json.loads(second.received[-1].body)["model"] == "acme/smäll-1"
        assert "Count both days." in json.dumps(json.loads(second.received[-1].body))
        first.answer = BUSY
        for number in range(8):
            assert ask(proxy, f"user {number}", model="big").startswith(b"HTTP/1.1 200 ")
        assert {json.loads(got.body)["model"] for got in first.received} <= {"big"}
        assert json.loads(second.received[-1].body)["model"] == "big-2"
        assert ask(proxy, model="other").startswith(b"HTTP/1.1 404 ")
    assert {call.model for call in recorded(store)} == {"small", "big", "other"}


def test_times_that_are_set_end_a_request(store: Store, two: tuple[Provider, Provider]) -> None:
    first, _ = two
    release = threading.Event()

    def silent(connection: socket.socket, request: Received) -> None:
        release.wait(120)

    def endless(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        release.wait(120)

    first.answer = silent
    quick, short = Timeouts(first_byte=0.2, total=60), Timeouts(first_byte=60, total=3)
    with ProxyThread(routed(store, listed(first), timeouts=quick)) as proxy:
        assert b"did not begin" in ask(proxy)
    first.answer = endless
    with ProxyThread(routed(store, listed(first), timeouts=short)) as proxy:
        assert ask(proxy).endswith(b"1\r\na\r\n")
        until(lambda: proxy.proxy.open == 0)
    release.set()
    assert {call.status for call in recorded(store)} == {504, 599}


def test_a_provider_that_fails_is_left_alone_but_for_one_request_at_a_time(
    store: Store, two: tuple[Provider, Provider]
) -> None:
    first, second = two
    first.answer = BUSY
    with ProxyThread(routed(store, listed(first), listed(second, 0.0))) as proxy:
        began = time.monotonic()
        for number in range(40):
            assert ask(proxy, f"user {number}").startswith(b"HTTP/1.1 200 ")
        shortest = 0.025  # seconds between two requests that see whether it answers again
        assert len(first.received) < max(10, (time.monotonic() - began) / shortest)
        first.answer = OK
        until(lambda: ask(proxy) and len(first.received) >= 30)  # once it answers


def test_a_long_pause_that_one_request_meets_closes_no_provider_to_all(
    store: Store, two: tuple[Provider, Provider], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit may be that of one caller's key."""
    monkeypatch.setattr(provider_routing, "PATIENCE", 2.0)
    first, _ = two
    first.answer = LIMITED.replace(b"120", b"86400")
    with ProxyThread(routed(store, listed(first), retries=0)) as proxy:
        assert b"\r\nRetry-After: 86400\r\n" in ask(proxy), "whoever is limited is told so"
        (member,) = proxy.proxy.members
        assert member.throttle.closed_until - time.monotonic() <= 2.0
        assert member.throttle.limit == 1, "one request sees whether it answers others"
        first.answer = OK
        until(lambda: ask(proxy, "berta").startswith(b"HTTP/1.1 200 "))
        assert member.throttle.limit > 100


def test_a_request_that_no_provider_was_sent_is_told_when_to_come_again(
    store: Store, two: tuple[Provider, Provider]
) -> None:
    first, _ = two
    first.answer = LIMITED
    settings = routed(store, listed(first), retries=0, timeouts=Timeouts(total=1))
    with ProxyThread(settings) as proxy:
        assert ask(proxy).startswith(b"HTTP/1.1 429 ")
        got = ask(proxy, "berta")
        assert got.startswith(b"HTTP/1.1 503 ")
        assert b"no provider takes requests now" in got
        assert 50 < int(re.findall(rb"Retry-After: (\d+)", got)[0]) <= 60
    assert len(first.received) == 1
    assert {(call.status, call.tries) for call in recorded(store)} == {(429, 1), (503, None)}


def test_a_client_that_leaves_makes_room(store: Store, two: tuple[Provider, Provider]) -> None:
    first, _ = two
    asked, over = threading.Event(), threading.Event()

    def silent(connection: socket.socket, request: Received) -> None:
        asked.set()
        over.wait(120)

    first.answer = silent
    settings = replace(routed(store, listed(first)), limits=Limits(requests=1))
    with ProxyThread(settings) as proxy:
        with socket.create_connection(("127.0.0.1", proxy.port)) as client:
            client.sendall(post(CHAT, b"{}"))
            assert asked.wait(240)
        until(lambda: proxy.proxy.open == 0)
        first.answer = OK
        assert ask(proxy).startswith(b"HTTP/1.1 200 ")
    over.set()


def test_a_file_lists_providers_and_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgrpo.trust.trusted_folders.require", lambda *_: None)
    monkeypatch.setenv("A_KEY", "sk-a")
    file = tmp_path / "proxy.toml"
    file.write_text(
        "retries = 3\n[timeouts]\nconnect = 5\nfirst_byte = 60\ntotal = 600\n"
        '[[providers]]\nurl = "https://a.example/v1"\nkey_env = "A_KEY"\nweight = 3\n'
        '[[providers]]\nurl = "https://b.example"\napi = "anthropic"\nmodels = ["m"]\n'
        '[[providers]]\nurl = "https://c.example/v1"\nweight = 0\nmodels = { m = "n" }\n'
    )
    found = read_file(file)
    first, second, third = found["providers"]
    assert (first.weight, first.upstream.key, first.models) == (3.0, "sk-a", None)
    assert (second.upstream.api, second.models) == ("anthropic", {"m": "m"})
    assert (third.weight, third.models) == (0.0, {"m": "n"})
    assert found["anthropic"] == second.upstream
    assert (found["retries"], found["timeouts"]) == (3, Timeouts(60, 600))
    assert found["limits"].connect == 5
    for text, why in (
        ('upstream = "http://a"\n[[providers]]\nurl = "http://a/v1"\n', "take the place"),
        ("retries = -1\n", "retries"),
        ("[timeouts]\ntotal = 0\n", "seconds"),
        ("[timeouts]\nothers = 1\n", "others"),
        ('[[providers]]\nurl = "http://a"\nweight = -1\n', "weight"),
        ('[[providers]]\nurl = "http://a"\napi = "x"\n', "api is no"),
    ):
        file.write_text(text)
        with pytest.raises(SettingsError, match=why):
            read_file(file)


def test_providers_in_a_file_need_trust(tmp_path: Path) -> None:
    from tfgrpo.trust.permissions import of_proxy

    tables = {"providers": [{"url": "https://evil.example/v1", "key_env": "OPENAI_API_KEY"}]}
    needed = {one.key: one.value for one in of_proxy(tmp_path / "proxy.toml", tables).needed}
    assert needed["providers.0.url"] == "https://evil.example/v1"
    assert needed["providers.0.key_env"] == "OPENAI_API_KEY"
