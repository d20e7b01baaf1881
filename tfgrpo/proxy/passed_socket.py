"""A WebSocket, such as that of OpenAI's realtime API: passed through, byte by byte, both ways.

Nothing of it is read but the head of the provider's answer, which gets the id of the call, and, for
a caller with a virtual key, whether the provider quotes its own. No library goes in.
"""

from __future__ import annotations

import asyncio
import re
from time import perf_counter
from typing import cast
from urllib.parse import parse_qs

from tfgrpo.proxy.exchange import ENDING, VANISHED, Exchange
from tfgrpo.proxy.forwarded_headers import OURS, request_head
from tfgrpo.proxy.http_message import BadRequest, Request, pause
from tfgrpo.proxy.recorded_call import CUT
from tfgrpo.proxy.withheld_keys import KeyFilter

UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
LONGEST_HEAD = 64 << 10
"""Bytes in which the head of a provider's answer has to end."""
_ours = re.compile(rb"\r\n%b[^\r\n]*" % OURS, re.IGNORECASE)


def is_socket(request: Request) -> bool:
    """Returns whether a request asks for a WebSocket."""
    upgrade = request.index.get(b"upgrade", b"").lower()
    return request.method == b"GET" and upgrade == b"websocket" and not request.has_body


class PassedSocket(Exchange, asyncio.Protocol):
    """One of a client's; it is the protocol of its connection to the provider too."""

    def start(self, body: bytes | None) -> None:
        """Connects to the provider."""
        call, request = self.call, self.request
        self._provider: asyncio.Transport | None = None
        self._beginning = b""
        query = parse_qs(request.target.partition(b"?")[2].decode("latin-1"))
        call.model = next(iter(query.get("model", ())), None)
        try:
            self._admit()
            if self.proxy.desk is not None:
                self.proxy.desk.check(call, request)
        except BadRequest as refusal:
            request.keep_alive = False
            self._refuse(refusal.status, str(refusal), refusal.after)
            return
        self.proxy.note_passed(request)
        self.proxy.begin(call)
        self._wire = request_head(request, self.upstream, None)[:-2] + UPGRADE
        self.client.hold(True)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        try:
            await self.proxy.pool.open(self.upstream, lambda: self)
        except OSError as error:
            self.request.keep_alive = False
            self._unreached(error)
        except Exception:  # such as a name that no host can have
            self.request.keep_alive = False
            self._fail()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The provider is reached: it gets the request, and what the client has sent since."""
        provider = cast(asyncio.Transport, transport)
        if self._over:
            provider.abort()
            return
        self._provider = provider
        call = self.call
        call.sent, call.provider, call.tries = perf_counter(), self.upstream.name, 1
        provider.write(self._wire)
        self._wire = b""
        self.client.hold(False)

    def feed(self, data: bytes) -> None:
        """Hands on what the client sends."""
        if self._provider is not None:
            self._provider.write(data)
        elif not self._over:
            self._wire += data

    def data_received(self, data: bytes) -> None:
        """Hands on what the provider sends."""
        call = self.call
        if not call.first:
            self._beginning += data
            head, end, rest = self._beginning.partition(b"\r\n\r\n")
            if not end and len(head) < LONGEST_HEAD:
                return
            line, *headers = head.partition(b"\r\n")
            call.first, self._beginning = perf_counter(), b""
            status = line[9:12]
            call.status = int(status) if status.isdigit() else CUT
            if call.key is not None and call.status >= 400:  # it may quote the provider's key
                self.request.keep_alive = False
                self._leave()
                self._refuse(502, f"{self.upstream} answered {call.status}")
                return
            if call.key is not None and self.proxy.withheld.keys:
                self._filter = KeyFilter(self.proxy.withheld, streamed=False)
            others = _ours.sub(b"", b"".join(headers))
            data = b"%b\r\nX-Tfgrpo-Call: %b%b%b%b" % (line, call.id.encode(), others, end, rest)
        self.client.write(data if self._filter is None else self._filter.passed(data))

    def connection_lost(self, error: Exception | None) -> None:
        """The provider has closed its side."""
        self._provider = None
        if self._over:
            return
        if not self.call.first:
            self.request.keep_alive = False
            self._refuse(502, f"{self.upstream}: {error or 'it closed the connection'}")
            return
        if self._filter is not None:
            self.client.write(self._filter.rest())
        self._finish()
        self.request.keep_alive = False
        self.client.finished(self.request)

    def slow(self, paused: bool) -> None:
        """The client takes no more for the moment, or does so again."""
        pause(self._provider, paused)

    def abandoned(self) -> None:
        """The client has closed it, or is gone."""
        self._end(self.call.status or VANISHED)

    def cut_short(self) -> None:
        """The proxy ends."""
        self._end(CUT, ENDING)

    def _end(self, status: int, why: str | None = None) -> None:
        if not self._over:
            self.call.status, self.call.error = status, why
            self._leave()
            self._finish()

    def _leave(self) -> None:
        super()._leave()
        provider, self._provider = self._provider, None
        if provider is not None:
            provider.close()

    def pause_writing(self) -> None:
        self.client.hold(True)

    def resume_writing(self) -> None:
        self.client.hold(False)
