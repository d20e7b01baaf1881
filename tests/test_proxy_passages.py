"""What the proxy passes on without a look inside: WebSockets, and its own way out by a proxy."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from providers import Provider, ProxyThread, Received, post
from proxy_fixtures import answer, provider, settings, store
from test_proxy import ASK, CHAT
from test_proxy_clients import PYTHON, needs, ran
from test_traffic import recorded, run
from tls_front import AUTHORITY, Front, TlsFront, both_ways
from waiting import until

from tfgrpo.proxy.proxy_settings import ProxySettings, outbound_proxy, parse_upstream, with_key
from tfgrpo.store import Store
from tfgrpo.store.errors import SettingsError

__all__ = ["provider", "settings", "store"]  # fixtures

PATH = "/v1/realtime?model=gpt-realtime"
ASKED = (
    b"GET %b HTTP/1.1\r\nHost: localhost\r\n"
    b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: eA==\r\nX-Tfgrpo-Tags: a=b\r\n%b\r\n"
)
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"


def opened(proxy: ProxyThread, *headers: bytes, more: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", proxy.port), timeout=60)
    lines = b"".join(header + b"\r\n" for header in headers)
    connection.sendall(ASKED % (PATH.encode(), lines) + more)
    return connection


def head_of(connection: socket.socket) -> bytes:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = connection.recv(1)
        assert piece, head
        head += piece
    return head


def echo(connection: socket.socket, request: Received) -> None:
    """Takes the upgrade, and sends back whatever comes."""
    connection.sendall(SWITCHED)
    while data := connection.recv(1 << 16):
        connection.sendall(data)


class Unbuffered(Provider):
    """A provider that takes nothing from a socket beyond the head of the request."""

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            line, *lines = head_of(connection)[:-4].split(b"\r\n")
            pairs = [tuple(one.split(b": ", 1)) for one in lines]
            request = Received(line, [(pair[0], pair[1]) for pair in pairs], b"")
            self.received.append(request)
            echo(connection, request)


# WebSockets:


def test_a_socket_is_passed_through_byte_by_byte_both_ways(
    settings: ProxySettings, store: Store
) -> None:
    frames = os.urandom(3 << 20)
    with (
        Unbuffered() as provider,
        ProxyThread(replace(settings, openai=parse_upstream(provider.url))) as proxy,
    ):
        connection = opened(proxy, b"Authorization: Bearer sk-1", more=b"at once")
        head = head_of(connection)
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\nX-Tfgrpo-Call: call-")
        assert head.partition(b"\r\n")[2].partition(b"\r\n")[2] == SWITCHED.partition(b"\r\n")[2]
        threading.Thread(target=connection.sendall, args=(frames,), daemon=True).start()
        wanted, got = b"at once" + frames, b""
        while len(got) < len(wanted):
            got += connection.recv(1 << 20)
        assert got == wanted
        assert proxy.proxy.open == 1
        assert proxy.proxy.passed == {"/v1/realtime": 1}, "it is shown that no library went in"
        connection.close()
        until(lambda: proxy.proxy.open == 0)
    (sent,) = provider.received
    assert sent.line == b"GET %b HTTP/1.1" % PATH.encode()
    assert (sent.header(b"upgrade"), sent.header(b"connection")) == (b"websocket", b"Upgrade")
    assert sent.header(b"sec-websocket-key") == b"eA=="
    assert sent.header(b"authorization") == b"Bearer sk-1"
    assert sent.header(b"x-tfgrpo-tags") is None
    (call,) = recorded(store)
    assert (call.status, call.route, call.model) == (101, "/v1/realtime", "gpt-realtime")
    assert call.library is None


def test_a_socket_that_the_provider_ends_or_refuses_ends_for_the_client(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    def last_words(connection: socket.socket, request: Received) -> None:
        theirs = b"\r\nX-TFGRPO-Call: theirs\r\nUpgrade:"
        connection.sendall(SWITCHED.replace(b"\r\nUpgrade:", theirs) + b"bye")
        connection.shutdown(socket.SHUT_RDWR)

    def refusing(connection: socket.socket, request: Received) -> None:
        connection.sendall(b"HTTP/1.1 401 No\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno")
        connection.shutdown(socket.SHUT_RDWR)

    def silent(connection: socket.socket, request: Received) -> None:
        connection.shutdown(socket.SHUT_RDWR)

    with ProxyThread(settings) as proxy:
        for answer, start, end in (
            (last_words, b"HTTP/1.1 101 ", b"bye"),
            (refusing, b"HTTP/1.1 401 ", b"no"),
            (silent, b"HTTP/1.1 502 ", b"}"),
        ):
            provider.answer = answer
            with opened(proxy) as connection:
                got = b""
                while piece := connection.recv(4096):
                    got += piece
            assert got.startswith(start), got
            assert got.endswith(end), got
            assert b"theirs" not in got
    assert [call.status for call in recorded(store)] == [502, 401, 101]


def test_a_provider_that_cannot_be_reached_is_502(settings: ProxySettings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    away = parse_upstream(f"http://127.0.0.1:{port}/v1")
    with ProxyThread(replace(settings, openai=away)) as proxy, opened(proxy) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 502 ")


@pytest.mark.parametrize("asked", ["POST /v1/files", "GET /v1/realtime"])
def test_a_host_whose_name_cannot_be_is_an_answer_too(settings: ProxySettings, asked: str) -> None:
    away = parse_upstream(f"http://{'a' * 64}.example.com/v1")
    more = b"Connection: Upgrade\r\nUpgrade: websocket\r\n" if asked.startswith("GET") else b""
    head = asked.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n%b\r\n" % more
    with (
        ProxyThread(replace(settings, openai=away)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection,
    ):
        connection.sendall(head)
        assert connection.recv(4096)[:12] in (b"HTTP/1.1 500", b"HTTP/1.1 502")


def test_what_is_answered_before_it_was_sent_whole_leaves_no_connection_to_others(
    settings: ProxySettings,
) -> None:
    """What would be missing of a body is the beginning of the next request there, key and all."""
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    upload = b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"

    class Hasty(Provider):
        """Answers at the end of a head, and reads on."""

        def _serve(self, connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError, AssertionError):
                while head_of(connection):
                    connection.sendall(refusal)

    with (
        Hasty() as hasty,
        ProxyThread(replace(settings, openai=parse_upstream(hasty.url))) as proxy,
    ):
        address = ("127.0.0.1", proxy.port)
        with (
            socket.create_connection(address, timeout=60) as first,
            socket.create_connection(address, timeout=60) as second,
        ):
            first.sendall(upload % (1000, b"a" * 10))
            assert b" 401 " in first.recv(4096)
            second.sendall(upload % (3, b"bbb"))
            assert b" 401 " in second.recv(4096)
        assert hasty.connections == 2


def test_a_client_that_leaves_closes_the_providers_side(
    settings: ProxySettings, provider: Provider
) -> None:
    ended = threading.Event()

    def listening(connection: socket.socket, request: Received) -> None:
        connection.sendall(SWITCHED)
        while connection.recv(4096):
            pass
        ended.set()

    provider.answer = listening
    with ProxyThread(settings) as proxy:
        connection = opened(proxy)
        head_of(connection)
        connection.close()
        assert ended.wait(240)


def test_a_client_that_reads_slowly_holds_the_provider_up(
    settings: ProxySettings, provider: Provider
) -> None:
    sent = [0]

    def flood(connection: socket.socket, request: Received) -> None:
        connection.sendall(SWITCHED)
        for _ in range(64):
            connection.sendall(bytes(1 << 20))
            sent[0] += 1

    provider.answer = flood
    with ProxyThread(settings) as proxy, opened(proxy) as connection:
        head_of(connection)
        until(lambda: sent[0] > 2)
        before = -1
        while sent[0] != before:  # until nothing moves any more
            before = sent[0]
            threading.Event().wait(0.3)
        assert sent[0] < 40
        got = 0
        while got < 64 << 20:
            got += len(connection.recv(1 << 20))


def test_the_end_of_the_proxy_ends_a_socket_after_its_time(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    provider.answer = echo
    with ProxyThread(settings) as proxy:
        connection = opened(proxy)
        head_of(connection)
    assert connection.recv(4096) == b""
    (call,) = recorded(store)
    assert call.status == 599
    assert "told to end" in (call.error or "")


def test_keys_and_tokens_hold_for_sockets_too(
    settings: ProxySettings, provider: Provider, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.answer = echo
    monkeypatch.setenv("OWN", "sk-own")
    keyed = replace(settings, openai=with_key(settings.openai, "OWN"), require_key=True)
    shut = run(store, "key", "new", "shut").split()[-1].encode()
    free = run(store, "key", "new", "free", "--path", "/v1/realtime").split()[-1].encode()
    with ProxyThread(keyed) as proxy:
        for header, status in (
            (b"X-A: b", b"401"),
            (b"Authorization: Bearer " + shut, b"403"),
            (b"Authorization: Bearer " + free, b"101"),
        ):
            with opened(proxy, header) as connection:
                assert connection.recv(4096).startswith(b"HTTP/1.1 " + status)
    (sent,) = provider.received
    assert sent.header(b"authorization") == b"Bearer sk-own"
    provider.answer = answer(b'{"wrong": "sk-own"}', status=b"401 No")
    with ProxyThread(keyed) as proxy, opened(proxy, b"Authorization: Bearer " + free) as connection:
        refused = b"".join(iter(lambda: connection.recv(4096), b""))
    assert refused.startswith(b"HTTP/1.1 502 ")
    assert b"sk-own" not in refused, "what it quotes is nothing for a caller with a key of ours"
    assert b"answered 401" in refused
    provider.answer = echo
    monkeypatch.setenv("OWN", "sk-the-providers-own")
    keyed = replace(keyed, openai=with_key(settings.openai, "OWN"))
    packed = b"Sec-WebSocket-Extensions: permessage-deflate"
    with (
        ProxyThread(keyed) as proxy,
        opened(proxy, b"Authorization: Bearer " + free, packed) as connection,
    ):
        head_of(connection)
        connection.sendall(b"a sk-the-prov")
        until(lambda: connection.recv(1 << 16, socket.MSG_PEEK).startswith(b"a "))
        connection.sendall(b"iders-own b")
        got = b""
        while not got.endswith(b" b"):
            got += connection.recv(1 << 16)
    assert len(got) == len(b"a sk-the-providers-own b")
    assert b"own" not in got
    assert provider.received[-1].header(b"sec-websocket-extensions") is None
    with ProxyThread(replace(settings, token="s3cret-token")) as proxy:
        with opened(proxy) as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 401 ")
        with opened(proxy, b"X-Tfgrpo-Token: s3cret-token") as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 101 ")


def test_another_protocol_is_refused(settings: ProxySettings) -> None:
    with ProxyThread(settings) as proxy:
        for request in (
            b"GET /v1/realtime HTTP/1.1\r\n%bUpgrade: h2c\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\n%bUpgrade: websocket\r\n\r\n",
            b"POST /v1/realtime HTTP/1.1\r\n%bUpgrade: websocket\r\nContent-Length: 2\r\n\r\n{}",
        ):
            asked = request % b"Host: localhost\r\nConnection: Upgrade\r\n"
            assert proxy.ask(asked).startswith(b"HTTP/1.1 501 "), request


SERVER = """
import sys
from websockets.sync.server import serve
def take(socket):
    for message in socket:
        if message == "end":
            socket.close(4001, "as asked")
            return
        event = {"type": "session.created", "event_id": "e", "session": {"type": "realtime"}}
        import json
        sent = json.loads(message)
        event["session"]["instructions"] = sent["session"]["instructions"]
        socket.send(json.dumps(event))
        socket.send(bytes(1 << 20))
        return
with serve(take, "127.0.0.1", 0) as server:
    print(server.socket.getsockname()[1], flush=True)
    server.serve_forever()
"""
CLIENT = """
import asyncio
from openai import AsyncOpenAI
async def main():
    client = AsyncOpenAI(api_key="sk-1", base_url=URL, websocket_base_url=URL.replace("http", "ws"))
    async with client.realtime.connect(model="gpt-realtime") as connection:
        await connection.session.update(session={"type": "realtime", "instructions": "Be brief."})
        event = await connection.recv()
        print(event.type, event.session.instructions)
        print(len(await connection.recv_bytes()))
asyncio.run(main())
"""


def test_openais_own_client_speaks_over_a_socket(settings: ProxySettings, store: Store) -> None:
    needs("websockets", "openai[realtime]")
    needs("openai", "openai")
    server = subprocess.Popen([PYTHON, "-P", "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        openai = parse_upstream(f"http://127.0.0.1:{port}/v1")
        with ProxyThread(replace(settings, openai=openai)) as proxy:
            program = f'URL = "http://127.0.0.1:{proxy.port}/v1"\n{CLIENT}'
            lines = ran([PYTHON, "-P", "-c", program], store.path.parent)
    finally:
        server.kill()
        server.wait()
    assert lines == ["session.created Be brief.", str(1 << 20)]
    (call,) = recorded(store)
    assert (call.status, call.model) == (101, "gpt-realtime")


# the way out:


class CompanyProxy(Front):
    """What stands before the internet: it takes CONNECT alone, and notes who wants where."""

    def __init__(self, target: int, status: bytes = b"200 OK") -> None:
        super().__init__(target)
        self.heads: list[bytes] = []
        self._status = status

    def serve(self, connection: socket.socket) -> None:
        self.heads.append(head_of(connection))
        connection.sendall(b"HTTP/1.1 " + self._status + b"\r\nX-A: b\r\n\r\n")
        if self._status.startswith(b"200"):
            both_ways(connection, socket.create_connection(("127.0.0.1", self.target)))
            connection.close()


@contextlib.contextmanager
def behind_company(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompanyProxy]:
    """Has a provider that is reached over TLS and the company's proxy alone."""
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    with TlsFront(provider.port) as front, CompanyProxy(front.port) as company:
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:s%20t@127.0.0.1:{company.port}")
        yield company


URL = "https://models.example.com/v1"


def test_a_provider_is_reached_through_the_companys_proxy(
    settings: ProxySettings, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    with behind_company(provider, monkeypatch) as company:
        made = replace(settings, openai=parse_upstream(URL))
        assert "s t" not in repr(made)
        with ProxyThread(made) as proxy:
            for _ in range(3):
                assert proxy.ask(post(CHAT, ASK)).startswith(b"HTTP/1.1 200 ")
    (head,) = company.heads  # one connection, which is kept
    assert head.startswith(b"CONNECT models.example.com:443 HTTP/1.1\r\n")
    assert b"Basic " + base64.b64encode(b"me:s t") in head
    for sent in provider.received:
        assert sent.header(b"host") == b"models.example.com"
        assert sent.header(b"proxy-authorization") is None
        assert b"Count both days." in sent.body


def test_a_socket_goes_through_it_too(
    settings: ProxySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Unbuffered() as provider, behind_company(provider, monkeypatch) as company:
        made = replace(settings, openai=parse_upstream(URL))
        with ProxyThread(made) as proxy, opened(proxy, more=b"hello") as connection:
            assert head_of(connection).startswith(b"HTTP/1.1 101 ")
            assert connection.recv(5, socket.MSG_WAITALL) == b"hello"
    assert len(company.heads) == 1


@pytest.mark.parametrize("status", [b"407 Who are you", b"403 No", b"502 Away"])
def test_a_proxy_that_refuses_is_told_to_the_client(
    status: bytes,
    settings: ProxySettings,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with CompanyProxy(provider.port, status) as company:
        monkeypatch.setenv("https_proxy", f"me:secret-word@127.0.0.1:{company.port}")
        with ProxyThread(replace(settings, openai=parse_upstream("https://a.example/v1"))) as proxy:
            got = proxy.ask(post(CHAT, ASK))
    assert got.startswith(b"HTTP/1.1 502 ")
    assert b"the outbound proxy 127.0.0.1:" in got
    assert status[:3] in got
    assert b"secret-word" not in got
    assert provider.received == []


def test_what_no_proxy_lists_and_what_is_not_over_tls_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", "inside.example,10.0.0.5")
    assert parse_upstream("https://a.inside.example/v1").through is None
    assert parse_upstream("https://10.0.0.5/v1").through is None
    assert parse_upstream("http://api.example/v1").through is None
    assert parse_upstream("https://api.example/v1").through is not None
    monkeypatch.setenv("NO_PROXY", "*")
    assert parse_upstream("https://api.example/v1").through is None
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("HTTPS_PROXY")
    monkeypatch.setenv("ALL_PROXY", "http://[::1]:8080")
    found: Any = outbound_proxy("api.example")
    assert (found.host, found.port) == ("::1", 8080)


@pytest.mark.parametrize("url", ["socks5://secret@127.0.0.1:1", "https://secret@a:1", "http://a:b"])
def test_a_proxy_that_cannot_be_spoken_to_is_an_error_that_shows_no_secret(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", url)
    with pytest.raises(SettingsError, match="HTTPS_PROXY") as raised:
        parse_upstream("https://api.example/v1")
    assert "secret" not in str(raised.value) + (raised.value.hint or "")
