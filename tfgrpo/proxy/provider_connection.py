"""Connections to providers: kept open, parsed strictly, passed on as they arrive."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeVar, cast

import httptools

from tfgrpo.proxy.http_message import Headers
from tfgrpo.proxy.proxy_settings import OutboundProxy, Upstream

if TYPE_CHECKING:
    from tfgrpo.proxy.exchange import Exchange

Each = TypeVar("Each", bound=asyncio.Protocol)
IDLE = 30.0
"""Seconds after which a connection that nobody used is closed."""
COPIED = 64 << 10
"""Bytes of a body from which on it is not copied once more, to be sent with its head as one."""
END, LONGEST = b"\r\n\r\n", 64 << 10
"""The end of a head, and its bytes at most; of a trailer too, and of all hints before an answer."""
TOO_LONG = "its head or its trailer is too long"
SIZED = (b"content-length", b"transfer-encoding")
SIZES = frozenset(map(len, SIZED))
"""The headers that say where an answer ends, and their lengths, which rule most others out."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to a provider: one request at a time."""

    def __init__(self, pool: Pool, upstream: Upstream) -> None:
        self._pool = pool
        self._upstream = upstream
        self.transport: asyncio.Transport | None = None
        self.asker: Exchange | None = None
        self.idle_since = 0.0
        self.is_sent = True
        self._used = 0
        self._parser = httptools.HttpResponseParser(self)

    def ask(self, asker: Exchange, head: bytes, body: bytes, *, headless: bool = False) -> None:
        """Sends a request, or the beginning of one: `is_sent` says whether that is all of it, as
        the next request would be read as what is missing. `headless`: no body follows the
        answer."""
        assert self.transport is not None
        self.is_sent = True
        self.asker = asker
        self.headless = headless
        self._headers: Headers = []
        self._reason = b""
        self._done = self._informal = self._sized = self._lasting = self.begun = False
        self._used += 1
        self._around = 0
        """Bytes of heads, of the lines around chunks or of a trailer since there was something
        else."""
        if len(body) < COPIED:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))

    def leave(self) -> None:
        """Closes the connection: whoever asked is gone."""
        self.asker = None
        if self.transport is not None:
            self.transport.abort()

    # asyncio:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of another family

    def data_received(self, data: bytes) -> None:
        asker = self.asker
        if asker is None:  # nothing was asked
            self.leave()
            return
        self._around += len(data)
        try:
            self._parser.feed_data(data)
            if self._around > LONGEST and not self._done:
                raise httptools.HttpParserError(TOO_LONG)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.leave()
            asker.failed(f"the provider's answer is not HTTP: {error}", untouched=False)
            return
        if not self._done:
            asker.flush()
        else:
            self.asker = None
            if self._lasting and self.is_sent:
                self._pool.keep(self._upstream, self)
            elif self.transport is not None:
                self.transport.close()
            asker.ended()

    def connection_lost(self, error: Exception | None) -> None:
        self._pool.forget(self._upstream, self)
        asker, self.asker = self.asker, None
        if asker is None:
            return
        if error is None and self.begun and not self._sized and not self._informal:
            asker.ended()  # a body that goes on until the connection is closed
            return
        untouched = error is None and not self.begun and self._used > 1
        asker.failed(str(error or "the provider closed the connection"), untouched=untouched)

    def pause_writing(self) -> None:
        if self.asker is not None:
            self.asker.hold(True)

    def resume_writing(self) -> None:
        if self.asker is not None:
            self.asker.hold(False)

    # httptools:

    def on_message_begin(self) -> None:
        if self._done:
            raise ValueError("something follows the answer")
        self._headers, self._reason = [], b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.begun or self._informal:
            self._headers.append((name, value))
            if len(name) in SIZES and name.lower() in SIZED:
                self._sized = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._informal = 100 <= status < 200
        if self._informal:
            if status == 101:
                raise ValueError("the protocol would change")
            self._sized = False
            return
        if sum(len(name) + len(value) + 4 for name, value in self._headers) > LONGEST:
            raise ValueError(TOO_LONG)
        self.begun, self._around = True, 0
        if status in (204, 304) or self.headless:
            self._sized = True
            self._done = self.headless
        assert self.asker is not None
        self.asker.answered(status, self._reason, self._headers)

    def on_body(self, data: bytes) -> None:
        assert self.asker is not None
        self._around = 0
        self.asker.body(data)

    def on_message_complete(self) -> None:
        if not self._informal:
            self._done = True
            self._lasting = not self.headless and self._parser.should_keep_alive()


class Pool:
    """The open connections to providers that nobody uses at the moment, the last used first."""

    def __init__(self, timeout: float) -> None:
        self._idle: dict[Upstream, list[UpstreamConnection]] = {}
        self._timeout = timeout
        self._context: ssl.SSLContext | None = None

    def idle(self, upstream: Upstream) -> UpstreamConnection | None:
        """Returns a connection that is open already, if there is one."""
        connections = self._idle.get(upstream)
        while connections:
            connection = connections.pop()
            if connection.transport is not None and not connection.transport.is_closing():
                return connection
        return None

    async def connect(self, upstream: Upstream) -> UpstreamConnection:
        """Returns a new connection. Raises OSError."""
        return await self.open(upstream, lambda: UpstreamConnection(self, upstream))

    async def open(self, upstream: Upstream, protocol_for: Callable[[], Each]) -> Each:
        """Returns the protocol that is made for a new connection. Raises OSError."""
        context = None
        if upstream.tls:
            context = self._context = self._context or ssl.create_default_context()
        loop, host = asyncio.get_running_loop(), upstream.host
        async with asyncio.timeout(self._timeout):
            if upstream.through is None or context is None:
                port = upstream.port
                _, plain = await loop.create_connection(protocol_for, host, port, ssl=context)
                return plain
            transport = await tunnel(upstream.through, host, upstream.port)
            protocol = protocol_for()
            try:
                secured = await loop.start_tls(transport, protocol, context, server_hostname=host)
            except BaseException:
                transport.abort()
                raise
            assert secured is not None
            protocol.connection_made(secured)
            return protocol

    def keep(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Takes a connection back."""
        connection.idle_since = monotonic()
        self._idle.setdefault(upstream, []).append(connection)

    def forget(self, upstream: Upstream, connection: UpstreamConnection) -> None:
        """Lets go of a connection that was closed."""
        with suppress(KeyError, ValueError):
            self._idle[upstream].remove(connection)

    def sweep(self, everything: bool = False) -> None:
        """Closes the connections that have been idle for long; all of them with `everything`."""
        oldest = monotonic() - IDLE
        for connections in self._idle.values():
            for connection in list(connections):
                if everything or connection.idle_since < oldest:
                    connections.remove(connection)
                    if connection.transport is not None:
                        connection.transport.close()


async def tunnel(proxy: OutboundProxy, host: str, port: int) -> asyncio.Transport:
    """Returns a connection to a host through a proxy. Raises OSError."""
    where = f"the outbound proxy {proxy.host}:{proxy.port}"
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LONGEST)
    try:
        transport, _ = await loop.create_connection(
            lambda: asyncio.StreamReaderProtocol(reader), proxy.host, proxy.port
        )
    except OSError as error:
        raise OSError(f"{where}: {error}") from None
    authority = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()
    transport.write(
        b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, proxy.credentials)
    )
    status = ""
    try:
        with suppress(asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            status = (await reader.readuntil(END))[9:12].decode("latin-1")
        if status != "200":
            raise OSError(f"{where} answers {status or 'nothing'}")
    except BaseException:
        transport.abort()
        raise
    return transport
