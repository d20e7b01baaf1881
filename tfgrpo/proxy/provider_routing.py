"""Which of several providers a request is sent to, and to which again where one fails.

Each provider has the gate of training's client (`model/rate_limits.py`): a limit halves what is in
flight, a Retry-After closes it, for a minute at most, one that does not answer is tried with one
request at a time. The order of providers is drawn by their weights from whom a request is for
(rendezvous hashing): a conversation stays with one, whose cache knows it, and goes on to the same
next one where that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING

from tfgrpo.model.endpoint import Transient
from tfgrpo.model.rate_limits import Throttle, turn_of
from tfgrpo.model.response import wait_of
from tfgrpo.model.retried_errors import LIMITS, TRANSIENT
from tfgrpo.proxy.exchange import Exchange, packed, unpacked
from tfgrpo.proxy.http_message import BadRequest, Headers, Request
from tfgrpo.rendering.json_splice import NotJson, RepeatedKey, document, edited, escaped

if TYPE_CHECKING:
    from tfgrpo.proxy.client_connection import ClientConnection
    from tfgrpo.proxy.proxy_settings import Provider
    from tfgrpo.proxy.server import Proxy

PATIENCE = 60.0
"""Seconds that a request waits at most for a provider that takes it, where no total is set, and
that one is closed at most, whatever it asks for: it may have meant one caller alone."""
READ = 4 << 10
"""Bytes of an error that are read for how long to wait."""


class Member:
    """One of the providers, and its gate."""

    def __init__(self, provider: Provider, most: int) -> None:
        self.provider = provider
        self.throttle = Throttle(most, alone=False)

    def troubled(self, entered: float, trouble: Transient) -> None:
        """Takes note of a request that failed. After a pause that was cut short, one request at a
        time sees whether it answers."""
        if trouble.kind == "limit" and (trouble.after or 0.0) > PATIENCE:
            trouble.after = PATIENCE
            self.throttle.shut(entered)
        self.throttle.troubled(entered, trouble)


def in_order(members: Iterable[Member], api: str, model: str | None, coin: str) -> list[Member]:
    """Returns the providers that a request may be sent to, in its order. Raises BadRequest."""
    of_api = (one for one in members if one.provider.upstream.api == api)
    serving = [one for one in of_api if one.provider.serves(model)]
    if not serving:
        raise BadRequest(404, f"no provider here has the model {model}")
    who = coin.encode(errors="surrogatepass")

    def turn(member: Member) -> float:
        return turn_of(member.provider.upstream.name, who, member.provider.weight)

    return sorted(serving, key=turn)


class RoutedExchange(Exchange):
    """A request that several providers may answer, or one with time-outs and retries."""

    def __init__(self, proxy: Proxy, client: ClientConnection, request: Request) -> None:
        super().__init__(proxy, client, request)
        self._order: list[Member] = []
        self._left = proxy.settings.retries + 1
        self._held: Member | None = None
        self._entered = 0.0
        self._swallowing = False
        self._status, self._error, self._waits = 0, b"", dict[str, str]()
        self._first: asyncio.TimerHandle | None = None
        self._plain: bytes | None = b""
        total = proxy.settings.timeouts.total
        loop = asyncio.get_running_loop()
        self._total = loop.call_later(total, self._expire) if total else None

    # the way there:

    def _aim(self, body: bytes | None) -> None:
        """Chooses the order of providers; the head is written for each as its turn comes."""
        call, members = self.call, self.proxy.members
        self._order = in_order(members, self.request.api, call.model, call.subject or call.id)
        self._plain = body
        if body is None:
            self.upstream = self._order[0].provider.upstream
            super()._aim(None)

    def _send(self) -> None:
        self._left -= 1
        self._connecting = asyncio.get_running_loop().create_task(self._try(0.0))

    async def _try(self, pause: float) -> None:
        try:
            await self._attempt(pause)
        except Exception:
            self._connecting = None
            self._fail()

    async def _attempt(self, pause: float) -> None:
        if pause:
            await asyncio.sleep(pause)
        member = self._next()
        try:
            async with asyncio.timeout(self.proxy.settings.timeouts.total or PATIENCE):
                self._entered = await member.throttle.enter(again=self._tried > 0)
        except TimeoutError:
            self._connecting = None
            self._turn_away()
            return
        self._held = member
        self._tried += 1
        self.upstream = member.provider.upstream
        if self._plain is not None:
            self._body = self._named(self._plain, member.provider)
            super()._aim(self._body)
        connection = self.proxy.pool.idle(self.upstream)
        try:
            if connection is None:
                connection = await self.proxy.pool.connect(self.upstream)
        except OSError as error:
            self._connecting = None
            self._trouble(Transient(str(error), kind="away"))
            if not self._again():
                self._unreached(error)
            return
        self._connecting = None
        first = self.proxy.settings.timeouts.first_byte
        if first:
            self._first = asyncio.get_running_loop().call_later(first, self._be_late)
        self._sent(connection)

    def _next(self) -> Member:
        """Returns whose turn it is: the first that takes requests, of those that were not asked
        yet; where none does, the one that will first."""
        start = self._tried % len(self._order)
        turn = [*self._order[start:], *self._order[:start]]
        taking = (member for member in turn if member.throttle.takes)
        return next(taking, None) or min(turn, key=lambda one: one.throttle.closed_until)

    def _named(self, body: bytes, provider: Provider) -> bytes:
        model = self.call.model
        name = provider.models.get(model or "") if provider.models else None
        if model is None or name is None or name == model:
            return body
        encoding = self.request.index.get(b"content-encoding", b"identity").lower()
        plain = unpacked(body, encoding, self.proxy.settings.limits.body * 2)
        try:
            text = plain.decode()
            member = document(text, {"model"})["model"]
        except (NotJson, RepeatedKey, KeyError, UnicodeDecodeError):
            return body
        changed = edited(plain, text, [(member.start + 1, member.end - 1, escaped(name))])
        return packed(changed, encoding)

    # what comes of it:

    def answered(self, status: int, reason: bytes, headers: Headers) -> None:
        self._stop_timer()
        failed = status in TRANSIENT or status >= 500
        if failed and self._left > 0 and not self._streaming:
            self._swallowing, self._status, self._error = True, status, b""
            self._waits = _waits(headers)
            return
        if failed:
            self._trouble(_transient(status, _waits(headers), ""))
        elif self._held is not None:
            self._held.throttle.answered(self._entered)
        super().answered(status, reason, headers)

    def body(self, data: bytes) -> None:
        if not self._swallowing:
            super().body(data)
        elif len(self._error) < READ:
            self._error += data

    def ended(self) -> None:
        if not self._swallowing:
            super().ended()
            return
        self._connection = None
        self._refused()

    def failed(self, why: str, *, untouched: bool) -> None:
        self._stop_timer()
        if self._over or self.begun:
            super().failed(why, untouched=False)
            return
        self._connection = None
        if self._swallowing:
            self._refused()
            return
        self._trouble(Transient(why))
        if not (self.request.repeatable and self._again()):
            super().failed(why, untouched=False)

    def _refused(self) -> None:
        """Goes on after an answer that is none: it was read to its end, and said how long to
        wait."""
        self._swallowing = False
        text = self._error.decode("utf-8", "replace")
        self._trouble(_transient(self._status, self._waits, text))
        if not self._over and not self._again():
            self._refuse(self._status, f"{self.upstream} answered {self._status}")

    def _again(self) -> bool:
        if self._left <= 0 or self._streaming or self._over:
            return False
        self._left -= 1
        member = self._next()
        pause = member.throttle.pause(self._tried) if self._tried >= len(self._order) else 0.0
        self._connecting = asyncio.get_running_loop().create_task(self._try(pause))
        return True

    def _trouble(self, trouble: Transient) -> None:
        member, self._held = self._held, None
        if member is not None:
            member.troubled(self._entered, trouble)
            member.throttle.leave()

    # time:

    def _be_late(self) -> None:
        """The provider has not begun to answer in time. It may have read the request."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.leave()
        self._trouble(Transient("no answer in time", kind="late"))
        if not self._over and not (self.request.repeatable and self._again()):
            self._refuse(504, f"{self.upstream} did not begin to answer in time")

    def _expire(self) -> None:
        if self._order and self._held is None and not self._over:
            self._leave()
            self._turn_away()
        else:
            self._end_early(504, "the answer took longer than it may")

    def _turn_away(self) -> None:
        """No provider was sent it in its time: they are closed, or others wait."""
        opening = min(one.throttle.closed_until for one in self._order)
        self._refuse(503, "no provider takes requests now", max(1.0, opening - monotonic()))

    def _stop_timer(self) -> None:
        timer, self._first = self._first, None
        if timer is not None:
            timer.cancel()

    def _finish(self) -> None:
        self._stop_timer()
        if self._total is not None:
            self._total.cancel()
        if self._held is not None:
            self._held.throttle.leave()
            self._held = None
        super()._finish()


def _transient(status: int, waits: dict[str, str], text: str) -> Transient:
    after = wait_of(waits, text)
    return Transient(f"status {status}", after, "limit" if status in LIMITS else "trouble")


def _waits(headers: Headers) -> dict[str, str]:
    pairs = ((name.lower().decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return {name: value for name, value in pairs if name in ("retry-after", "retry-after-ms")}
