"""A provider on loopback that answers as it is told and keeps what it was sent, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from listening import Listener

from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.proxy.server import Proxy
from tfgrpo.proxy.worker_processes import run_loop


@dataclass
class Received:
    """One request as it arrived."""

    line: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def header(self, name: bytes) -> bytes | None:
        return next((v for n, v in self.headers if n.lower() == name), None)


Answer: TypeAlias = "bytes | Callable[[socket.socket, Received], None]"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


@dataclass
class Provider:
    """Answers each request with `answer`: bytes, or a function that writes to the socket."""

    answer: Answer = OK
    received: list[Received] = field(default_factory=list)

    def __enter__(self) -> Provider:
        self.connections = 0
        self._listener = Listener(self._count)
        self.port = self._listener.port
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def _count(self, connection: socket.socket) -> None:
        self.connections += 1
        self._serve(connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError):
            file = connection.makefile("rb")
            while line := file.readline().strip():
                headers = []
                while raw := file.readline().rstrip(b"\r\n"):
                    name, _, value = raw.partition(b": ")
                    headers.append((name, value))
                index = {name.lower(): value for name, value in headers}
                if b"transfer-encoding" in index:
                    body = b""
                    while size := int(file.readline(), 16):
                        body += file.read(size)
                        file.readline()
                    file.readline()
                else:
                    body = file.read(int(index.get(b"content-length", b"0")))
                request = Received(line, headers, body)
                self.received.append(request)
                if callable(self.answer):
                    self.answer(connection, request)
                else:
                    connection.sendall(self.answer)


class ProxyThread:
    """A proxy with these settings, in a thread of its own."""

    def __init__(self, settings: ProxySettings) -> None:
        self.settings = settings
        self._ready = threading.Event()
        self._error: BaseException | None = None

    def __enter__(self) -> ProxyThread:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(120)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(120)

    def _run(self) -> None:
        import asyncio

        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._stop = asyncio.Event()
            try:
                self.proxy = Proxy(self.settings)
                self.port = await self.proxy.start()
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._ready.set()
            await self._stop.wait()
            await self.proxy.close(patience=0.2)

        with contextlib.suppress(Exception):
            run_loop(main())

    def ask(self, request: bytes, *, timeout: float = 20) -> bytes:
        """Sends bytes, and returns all that comes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
            return answer


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    """Returns a request whose connection is closed after it."""
    lines = [
        b"POST %b HTTP/1.1" % path.encode(),
        b"Host: localhost",
        b"Content-Type: application/json",
        b"Connection: close",
        *headers,
        b"Content-Length: %d" % len(body),
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
