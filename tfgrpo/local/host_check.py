"""The door of a local model: whoever knocks has to call it by a name of this machine.

A page's own name can lead to 127.0.0.1 (DNS rebinding), but its requests name the page's host. So
the engine listens on a socket in a folder, and what comes by TCP is handed on when its first
request's `Host` is this machine's.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

NAMES = (b"127.0.0.1", b"localhost", b"[::1]")
LONGEST_HEAD = 1 << 16
HEAD_SECONDS = 30.0
REFUSAL = (
    b"HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain\r\nContent-Length: 39\r\n"
    b"Connection: close\r\n\r\nthis server answers to its address only"
)


def names_this_machine(head: bytes) -> bool:
    """Whether the head of a request has one `Host`, and that is this machine's."""
    lines = head.split(b"\r\n")[1:]
    hosts = [
        value.strip().lower()
        for name, _, value in (line.partition(b":") for line in lines)
        if name.strip().lower() == b"host"
    ]
    if len(hosts) != 1:
        return False
    name, _, port = hosts[0].rpartition(b":")
    return hosts[0] in NAMES or (name in NAMES and port.isdigit())


async def guard(listener: socket.socket, engine: str) -> None:
    """Hands connections on to the engine's socket at a path, until it is cancelled."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            try:
                await _forward(reader, writer, engine)
            finally:
                writer.close()

    server = await asyncio.start_server(handle, sock=listener, limit=LONGEST_HEAD)
    async with server:
        await server.serve_forever()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: str) -> None:
    async with asyncio.timeout(HEAD_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    if not names_this_machine(head):
        writer.write(REFUSAL)
        await writer.drain()
        return
    answers, requests = await asyncio.open_unix_connection(engine)
    try:
        requests.write(head)
        ways = [
            asyncio.create_task(_copy(reader, requests)),
            asyncio.create_task(_copy(answers, writer)),
        ]
        # Whoever ends first ends both: a client that is gone needs no answer any more.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    finally:
        requests.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()
