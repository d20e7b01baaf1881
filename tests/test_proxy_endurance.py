"""What the proxy withstands: a thousand streams, providers that drip or break off, clients that
vanish, and kills at random (`benchmarks/proxy_kills.py --kills 200` is the long form)."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import ROOT, TFGRPO, environment
from providers import OK, Provider, ProxyThread, Received, post
from proxy_fixtures import prod_settings as settings
from proxy_fixtures import prod_store as store
from proxy_fixtures import provider
from test_proxy import ASK, CHAT, text_of
from waiting import until

from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.store import Store

__all__ = ["provider", "settings", "store"]  # fixtures

STREAMS = 1000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(number: int) -> bytes:
    return b'data: {"choices":[{"delta":{"content":"%d"}}]}\n\n' % number


class StreamingProvider:
    """Begins a stream for everybody, and ends them all once it is told to."""

    def __enter__(self) -> StreamingProvider:
        self._loop = asyncio.new_event_loop()
        ready = threading.Event()
        threading.Thread(target=self._run, args=(ready,), daemon=True).start()
        assert ready.wait(120)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _run(self, ready: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self.release = asyncio.Event()
        server = self._loop.run_until_complete(
            asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=2048)
        )
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"content-length: (\d+)", head.lower())
        assert found
        body = await reader.readexactly(int(found[1]))
        asked = re.search(rb'"user": ?"(\d+)"', body)
        assert asked
        writer.write(HEAD + chunk(event(int(asked[1]))))
        await self.release.wait()
        writer.write(chunk(b"data: [DONE]\n\n") + chunk(b""))
        await writer.drain()
        writer.close()

    def end_all(self) -> None:
        self._loop.call_soon_threadsafe(self.release.set)


def test_a_thousand_streams_are_open_at_once_and_each_gets_its_own(
    store: Store, tmp_path: Path
) -> None:
    with StreamingProvider() as provider:
        process = subprocess.Popen(
            [
                *(TFGRPO, "proxy", "--port", "0", "--library", "prod"),
                *("--upstream", f"http://127.0.0.1:{provider.port}/v1"),
            ],
            cwd=tmp_path,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
            # as most shells have it: a stream needs two files, so the proxy has to ask for more
            preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            ),
        )
        assert process.stderr is not None
        found = re.search(r":(\d+)/v1, asking", process.stderr.readline())
        assert found
        port = int(found[1])

        async def stream(number: int, begun: asyncio.Semaphore) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = b'{"stream":true,"user":"%d","messages":[]}' % number
            writer.write(post(CHAT, body))
            answer = await reader.readuntil(b"\n\n")
            begun.release()
            answer += await reader.read()
            writer.close()
            return answer

        async def all_of_them() -> list[bytes]:
            begun = asyncio.Semaphore(0)
            streams = [asyncio.create_task(stream(n, begun)) for n in range(STREAMS)]
            for _ in streams:
                await begun.acquire()
            provider.end_all()
            return await asyncio.gather(*streams)

        try:
            answers = asyncio.run(asyncio.wait_for(all_of_them(), 120))
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            process.terminate()
            process.communicate()
    for number, answer in enumerate(answers):
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(chunk(event(number)) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    peak = re.search(r"VmHWM:\s+(\d+)", status)
    assert peak
    assert int(peak[1]) < 150 << 10, "kilobytes with a thousand streams open"


def test_a_provider_that_drips_byte_by_byte(settings: ProxySettings, provider: Provider) -> None:
    whole = HEAD + chunk(event(1)) + chunk(event(2)) + b"0\r\n\r\n"

    def drip(connection: socket.socket, request: Received) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(whole)):
            connection.sendall(whole[at : at + 1])

    provider.answer = drip
    with ProxyThread(settings) as proxy:
        answer = proxy.ask(post(CHAT, ASK))
    body = answer.partition(b"\r\n\r\n")[2]
    said = b"".join(re.findall(rb"[0-9a-f]+\r\n(.*?)\r\n(?=[0-9a-f]+\r\n)", body, re.S))
    assert said == event(1) + event(2)


BROKEN = {
    "a chunk without a length": HEAD + chunk(event(1)) + b"zz\r\nx",
    "a chunk cut off": HEAD + chunk(event(1)) + b"ff\r\nhalf",
    "an event cut off": HEAD + chunk(event(1)) + chunk(event(2)[:10]),
    "a length that lies": b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + event(1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_stream_that_breaks_breaks_off_here_too_and_the_next_is_whole(
    name: str, settings: ProxySettings, provider: Provider
) -> None:
    def broken(connection: socket.socket, request: Received) -> None:
        connection.sendall(BROKEN[name])
        connection.shutdown(socket.SHUT_RDWR)

    with ProxyThread(settings) as proxy:
        provider.answer = broken
        try:
            answer = proxy.ask(post(CHAT, ASK))
        except ConnectionResetError:
            answer = b""
        assert not answer.endswith(b"0\r\n\r\n"), "what was broken off does not look whole"
        provider.answer = OK
        assert proxy.ask(post(CHAT, ASK)).endswith(b"\r\n\r\n{}")
        until(lambda: proxy.proxy.open == 0)


def test_events_that_are_no_json_go_through_and_are_counted(
    settings: ProxySettings, provider: Provider
) -> None:
    odd = b'data: {"usage": {"prompt_tokens":\n\ndata: \xff\xfe{]\n\n: comment\n\n' + event(1)
    provider.answer = HEAD + chunk(odd) + b"0\r\n\r\n"
    with ProxyThread(settings) as proxy:
        answer = proxy.ask(post(CHAT, ASK))
        assert odd in answer
        assert answer.endswith(b"0\r\n\r\n")
        until(lambda: proxy.proxy.calls == 1)


@pytest.mark.parametrize("at", [20, 90, 150], ids=["in the head", "in the body", "after it"])
def test_clients_that_vanish_at_any_moment(
    at: int, settings: ProxySettings, provider: Provider
) -> None:
    request = post(CHAT, ASK)
    assert len(request) > 90 + 40

    def later(connection: socket.socket, request: Received) -> None:
        time.sleep(0.05)
        connection.sendall(OK)

    provider.answer = later
    with ProxyThread(settings) as proxy:
        for _ in range(20):
            client = socket.create_connection(("127.0.0.1", proxy.port))
            client.sendall(request[: at if at < 150 else None])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        provider.answer = OK
        assert proxy.ask(request).startswith(b"HTTP/1.1 200 ")
        assert "Count both days." in text_of(provider)
        until(lambda: proxy.proxy.open == 0)
        until(lambda: not proxy.proxy.connections)


def test_what_kills_at_random_may_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.proxy_kills import trial

    found = trial(6, 3)
    assert found["answered"] > 0
    assert found["rules"] > 1
