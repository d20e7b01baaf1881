"""The proxy as a whole: who may ask, its own routes, its loop, its workers."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import socket
from time import monotonic
from typing import TYPE_CHECKING

from tfgrpo.proxy.choice import Chooser, fields_of
from tfgrpo.proxy.connection import ClientConnection
from tfgrpo.proxy.message import BadRequest, Request, error_body, own_answer
from tfgrpo.proxy.placement import KEYS
from tfgrpo.proxy.settings import LOOPBACK, ProxySettings
from tfgrpo.proxy.upstream import Pool

if TYPE_CHECKING:
    from tfgrpo.proxy.calls import Call

SWEEP = 5.0
"""Seconds between two looks for connections that have been idle for too long."""
TOKEN = b"x-tfgrpo-token"
OWN = ("/healthz",)
log = logging.getLogger("tfgrpo.proxy")


class Proxy:
    """One worker of a proxy: use `start`, and `close` at the end, on one event loop."""

    def __init__(self, settings: ProxySettings) -> None:
        self.settings = settings
        self.chooser = Chooser(settings)
        self.keys = KEYS | fields_of(settings.rules)
        self.pool = Pool(settings.limits.connect)
        self.connections: set[ClientConnection] = set()
        self.open = 0
        self.stopping = False
        self.calls = 0
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._troubles: dict[str, str] = {}

    async def start(self, listener: socket.socket | None = None) -> int:
        """Begins to answer, on a socket that listens already or on one of its own; returns the
        port. Raises OSError."""
        loop = asyncio.get_running_loop()
        if listener is None:
            listener = listening(self.settings)
        self._server = await loop.create_server(
            lambda: ClientConnection(self), sock=listener, backlog=2048
        )
        self._sweeping = loop.create_task(self._sweep())
        return int(listener.getsockname()[1])

    async def close(self, patience: float = 5.0) -> None:
        """Takes no more requests, waits some seconds for those under way, and ends."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        deadline = monotonic() + patience
        while self.open and monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self.connections):
            if connection.transport is not None:
                connection.transport.abort()
        self.pool.sweep(everything=True)
        await asyncio.sleep(0)
        self.chooser.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            now = monotonic()
            for connection in list(self.connections):
                connection.sweep(now)
            self.pool.sweep()
            self._tell_troubles()

    # requests:

    def admit(self, request: Request) -> None:
        """Raises BadRequest for a request that is not to be answered."""
        token = self.settings.token
        if token is None:
            if self.is_own(request.path) and not _is_local(request):
                raise BadRequest(403, "this is answered on this machine only")
        elif request.path != "/healthz":
            given = request.index.get(TOKEN, b"")
            if not hmac.compare_digest(given, token.encode()):
                raise BadRequest(401, "the header x-tfgrpo-token does not have the proxy's token")

    def is_own(self, path: str) -> bool:
        """Returns whether the proxy answers a path itself."""
        return path in OWN

    def own(self, request: Request, body: bytes) -> bytes:
        """Returns the answer to a request for the proxy itself."""
        closing = not request.keep_alive
        if request.method != b"GET":
            return own_answer(405, error_body("use GET"), closing=closing)
        health = self.health()
        status = 200 if health["status"] == "ok" else 503
        return own_answer(status, json.dumps(health).encode() + b"\n", closing=closing)

    def health(self) -> dict[str, object]:
        """Returns how the proxy is: each library with its version, read anew, and what is wrong.

        `status` is `ok`, or `stale` while a library cannot be read and its last version goes on.
        """
        libraries: dict[str, object] = {}
        for name, source in self.chooser.sources.items():
            trouble = source.live.check()
            library = source.live.library
            libraries[name] = {
                "version": library.version.name,
                "digest": library.version.digest.hex()[:16],
                "experiences": len(library),
                "trouble": trouble,
            }
        self._tell_troubles()
        stale = any(source.live.trouble for source in self.chooser.sources.values())
        return {
            "status": "stale" if stale else "ok",
            "libraries": libraries,
            "open": self.open,
            "calls": self.calls,
        }

    def record(self, call: Call) -> None:
        """Counts a call that is over."""
        self.calls += 1
        chosen = call.chosen
        if chosen is not None and chosen.trouble != self._troubles.get(chosen.name):
            self._tell_troubles()

    def _tell_troubles(self) -> None:
        """Says in the log, once each, which libraries cannot be read, and which can be again."""
        for name, source in self.chooser.sources.items():
            trouble = source.live.trouble
            if trouble == self._troubles.get(name):
                continue
            if trouble is None:
                del self._troubles[name]
                log.warning("%s: the library is read again", name)
            else:
                self._troubles[name] = trouble
                version = source.live.library.version.name
                log.warning("%s: %s; %s goes on", name, trouble, version)


def listening(settings: ProxySettings) -> socket.socket:
    """Returns a socket that listens where the settings say. Raises OSError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _is_local(request: Request) -> bool:
    """Returns whether a request was meant for this machine: a name that a web page made lead here
    is not one of its names."""
    host = request.index.get(b"host", b"").decode("latin-1").lower()
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    origin = request.index.get(b"origin")
    return name in LOOPBACK and origin is None
