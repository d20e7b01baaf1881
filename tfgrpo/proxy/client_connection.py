"""A client's connection: requests are parsed strictly and answered one after the other."""

from __future__ import annotations

import asyncio
import select
from collections import deque
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, cast

import httptools

from tfgrpo.proxy.exchange import Exchange
from tfgrpo.proxy.http_message import (
    BadRequest,
    Headers,
    KnownHead,
    Request,
    error_body,
    own_answer,
    pause,
)
from tfgrpo.proxy.own_routes import OWN, OwnExchange
from tfgrpo.proxy.passed_socket import PassedSocket, is_socket
from tfgrpo.rendering.request_placement import place_of

if TYPE_CHECKING:
    from tfgrpo.proxy.server import Proxy

LOOK, LONGEST = 0.01, 5.0
"""Seconds until a client that sends no more is looked at: whether it still reads; each time after
twice as many, up to so many."""
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
TOO_LONG = "the head or the trailer of the request is too long"


class ClientConnection(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | OwnExchange | None = None
        self.touched = monotonic()
        self.arriving = False
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[tuple[Request, bytes]] = deque()
        self._target = b""
        self._headers: Headers = []
        self._around = 0
        """Bytes of a head, of the lines around chunks or of a trailer since there was something
        else."""
        self._request: Request | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._streamed: Exchange | None = None
        self._closing = False
        self._known: KnownHead | None = None
        self._head = b""
        self._missing = 0
        self._held = False
        self._kind: type[Exchange | OwnExchange] | None = None
        """What is made of the request where it changes the protocol."""
        self._half_closed = False
        """Whether the client has closed its side: it asks no more, and may still read."""

    # asyncio:

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is of another family
        self.transport.set_write_buffer_limits(high=1 << 20)
        if len(self.proxy.connections) >= self.proxy.settings.limits.connections:
            self._refuse(503, "too many connections")
            return
        self.proxy.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            if isinstance(self.exchange, PassedSocket):
                self.exchange.feed(data)
            return
        self.touched = monotonic()
        if self._missing:
            data = self._more(data)
            if not data:
                return
        elif self.exchange is None and not self.arriving:
            begun = None if self._known is None else self._known.again(data)
            if begun is None:
                self._head = data
            else:
                data = self._again(*begun, data)
                if not data:
                    return
        self._around += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:  # what follows the head is no longer HTTP
            self._closing = True
            if isinstance(self.exchange, PassedSocket):
                self.exchange.feed(data[error.args[0] :])
        except httptools.HttpParserError as error:
            reason = error.__context__
            if isinstance(reason, BadRequest):
                self._refuse(reason.status, str(reason))
            else:
                self._refuse(400, "the request is not HTTP/1.1")
        else:
            if self._around > self.proxy.settings.limits.head:
                self._refuse(431, TOO_LONG)

    def _again(self, request: Request, at: int, data: bytes) -> bytes:
        """Takes a request whose head is known, and the beginning of its body; returns what follows
        it, for the parser."""
        assert request.length is not None
        if request.length > self.proxy.settings.limits.body:
            return data
        end = at + request.length
        self._around = 0
        if len(data) >= end:
            self._begin(request, data[at:end])
            return data[end:]
        self.arriving = True
        self._request = request
        self._body = [data[at:]]
        self._missing = end - len(data)
        return b""

    def _more(self, data: bytes) -> bytes:
        """Takes more of the body of a request whose head is known; returns what follows it."""
        rest = data[self._missing :]
        self._body.append(data[: self._missing] if rest else data)
        self._missing -= min(self._missing, len(data))
        if not self._missing:
            request, self._request = self._request, None
            self.arriving = False
            body, self._body = b"".join(self._body), []
            assert request is not None
            self._begin(request, body)
        return rest

    def eof_received(self) -> bool:
        """The client sends no more: it is gone, or it waits for its answers (RFC 9112, section
        9.6). Returns whether the connection is kept for these: what can be sent before an answer is
        sent, and the system of a client that is gone refuses it. In the middle of an answer and to
        HTTP/1.0 nothing can be, and it is taken for gone."""
        exchange, transport = self.exchange, self.transport
        if self._half_closed:
            return True  # it is told again where reading goes on
        if exchange is None or self.arriving or self._streamed is not None or transport is None:
            return False
        if exchange.begun or not exchange.request.modern:
            return False
        transport.write(INTERIM)
        self._half_closed = True
        self._look(LOOK)
        return True

    def _look(self, seconds: float) -> None:
        """Looks again and again whether a client that sends no more still reads: the loop does not
        tell of a connection that is not read from."""
        if self.transport is None:
            return
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), 0)
        if poll.poll(0):  # it was reset
            self.transport.abort()
        else:
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, self._look, min(2 * seconds, LONGEST))

    def connection_lost(self, error: Exception | None) -> None:
        self.proxy.connections.discard(self)
        self.transport = None
        exchange, self.exchange = self.exchange, None
        self._waiting.clear()
        if exchange is not None:
            exchange.abandoned()

    def pause_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.slow(True)

    def resume_writing(self) -> None:
        if self.exchange is not None:
            self.exchange.slow(False)

    # httptools:

    def on_message_begin(self) -> None:
        self._target, self._headers = b"", []
        self.arriving = True

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._request is None:  # and not one that follows the body
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser = self._parser
        request = Request(
            parser.get_method(),
            self._target,
            self._headers,
            modern=parser.get_http_version() == "1.1",
            keep_alive=parser.should_keep_alive(),
        )
        if sum(len(name) + len(value) + 4 for name, value in self._headers) > (
            self.proxy.settings.limits.head - len(self._target)
        ):
            raise BadRequest(431, TOO_LONG)
        if parser.should_upgrade():
            if not is_socket(request) or self.exchange is not None or request.path in OWN:
                raise BadRequest(501, "the proxy does not change to this protocol")
            self._kind = PassedSocket
        self._request, self._around = request, 0
        self._body, self._body_bytes = [], 0
        self.proxy.admit(request)
        if request.has_body:
            if b"expect" in request.index and self.exchange is None and self.transport:
                self.transport.write(INTERIM)
            whole = self.exchange is not None or place_of(request.method, request.path)
            if not whole and request.path not in OWN:
                request.began = perf_counter()
                self.exchange = self._streamed = self.proxy.exchange(self.proxy, self, request)
                self._streamed.start(None)

    def on_body(self, data: bytes) -> None:
        self._around = 0
        if self._streamed is not None:
            self._streamed.feed(data)
            return
        self._body.append(data)
        self._body_bytes += len(data)
        if self._body_bytes > self.proxy.settings.limits.body:
            raise BadRequest(413, "the body is too long")

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        self.arriving, self._around = False, 0
        head, self._head = self._head, b""
        assert request is not None
        if self._streamed is not None:
            streamed, self._streamed = self._streamed, None
            streamed.feed_end()
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._body = []
        if head:
            self._known = KnownHead.of(head, request) or self._known
        if self.exchange is not None:
            self._waiting.append((request, body))
            self.hold(True)
            return
        self._begin(request, body)

    # what an exchange asks for:

    def _begin(self, request: Request, body: bytes) -> None:
        request.began = perf_counter()
        kind = self._kind or (OwnExchange if request.path in OWN else self.proxy.exchange)
        self.exchange = kind(self.proxy, self, request)
        self.exchange.start(body)

    def write(self, data: bytes) -> None:
        """Sends what is ready of an answer."""
        if self.transport is not None:
            self.transport.write(data)

    def hold(self, paused: bool) -> None:
        """Takes no more from the client for the moment, or does so again."""
        if paused != self._held and self.transport is not None and not self.transport.is_closing():
            self._held = paused
            pause(self.transport, paused)

    def finished(self, request: Request) -> None:
        """An answer was sent whole: goes on to the next request."""
        self.touched = monotonic()
        going_on = request.keep_alive and self._streamed is None and not self.proxy.stopping
        if self._waiting and going_on:  # which may be refused at once, and so end in its beginning
            asyncio.get_running_loop().call_soon(self._begin_next)
            return
        self.exchange = None
        if self.transport is None:
            return
        if not going_on or self._half_closed:
            self.transport.close()
        else:
            self.hold(False)

    def _begin_next(self) -> None:
        if self._waiting:
            self._begin(*self._waiting.popleft())

    def cut(self) -> None:
        """Breaks the connection: the answer that was begun cannot be ended."""
        self.exchange = None
        if self.transport is not None:
            self.transport.abort()

    def end(self) -> None:
        """Ends it with the proxy: what is under way is told so, as far as that can be done."""
        self._waiting.clear()
        if isinstance(self.exchange, Exchange):
            self.exchange.cut_short()
        if self.transport is not None:
            self.transport.close()

    def sweep(self, now: float) -> None:
        """Closes the connection when it has been idle, or a request arriving, for too long."""
        limits = self.proxy.settings.limits
        if self.exchange is not None or self.transport is None:
            return
        if self.arriving and now - self.touched > limits.arrive:
            self._refuse(408, "the request did not arrive in time")
        elif now - self.touched > limits.idle:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        self._closing = True
        if self._streamed is not None and self.exchange is not None:
            exchange, self.exchange = self.exchange, None
            exchange.abandoned()
            if exchange.begun:
                self.cut()
        if self.transport is not None and self.exchange is None:
            self.transport.write(own_answer(status, error_body(message), closing=True))
        if self.transport is not None:
            self.transport.close()
