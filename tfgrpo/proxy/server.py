"""The proxy as a whole: who may ask, its own routes, its loop, its workers."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import socket
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from tfgrpo.proxy.client_connection import ClientConnection
from tfgrpo.proxy.exchange import Exchange
from tfgrpo.proxy.http_message import BadRequest, Request
from tfgrpo.proxy.keys_and_limits import Desk, SpendingSettings
from tfgrpo.proxy.library_choice import Chooser, fields_of
from tfgrpo.proxy.own_routes import OPEN, OWN
from tfgrpo.proxy.provider_connection import Pool
from tfgrpo.proxy.proxy_settings import LOOPBACK, ProxySettings, listening
from tfgrpo.proxy.record_writer import RECORDED_AGAIN, UNRECORDED
from tfgrpo.proxy.recorder import Recorder
from tfgrpo.proxy.running_experiments import Decider
from tfgrpo.proxy.telemetry import AccessLog
from tfgrpo.proxy.withheld_keys import WithheldKeys
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.rendering.request_placement import KEYS, looks_like_chat
from tfgrpo.store.activity.key_ledger import ledger_path
from tfgrpo.store.activity.traffic import make_traffic_folder, traffic_path
from tfgrpo.store.address import located
from tfgrpo.store.errors import StoreError
from tfgrpo.store.records import REDACTED

if TYPE_CHECKING:
    from tfgrpo.proxy.provider_routing import Member
    from tfgrpo.proxy.recorded_call import Call

SWEEP = 5.0
"""Seconds between two looks for connections that have been idle for too long."""
TOKEN = b"x-tfgrpo-token"
RECORD = b"x-tfgrpo-record"
"""A request with it is kept without its words (`counts`), or not at all (`off`)."""
NOT_LOCAL = (
    "without TFGRPO_PROXY_TOKEN the proxy answers only requests that name this machine as their "
    "host and that no web page sends"
)
SAME = (b"none", b"same-origin")
"""What a browser says of where a request comes from that no other page had it send."""
MOST_PATHS, OTHER_PATHS = 100, "other paths"
"""Paths that are counted each for itself, and what the others are counted as."""
log = logging.getLogger("tfgrpo.proxy")


class Proxy:
    """One worker of a proxy: use `start`, and `close` at the end, on one event loop."""

    def __init__(self, settings: ProxySettings) -> None:
        self.settings = settings
        self.chooser = Chooser(settings)
        self.keys = KEYS | fields_of(settings.rules)
        self.pool = Pool(settings.limits.connect)
        self.upstreams = settings.upstreams
        self.own_keys: tuple[bytes, ...] = ()
        """The keys of providers, also of those before a reload: calls with them may go on."""
        self._route()
        self._ledger_path: str | None = None
        self.desk: Desk | None = None
        if settings.has_keys or settings.budgets:
            self.desk = Desk(settings, self._ledger())
        self.connections: set[ClientConnection] = set()
        self.open = 0
        self.stopping = False
        self.calls = 0
        self.recorders: dict[str, Recorder] = {}
        """The records of traffic, by the names of libraries."""
        self._random, self._used = "", 0
        self._unrecorded: dict[str, str] = {}
        """Why a library's calls cannot be recorded, by its name; tried again at each sweep."""
        self._server: asyncio.Server | None = None
        self._sweeping: asyncio.Task[None] | None = None
        self._troubles: dict[str, str] = {}
        self._decider: Decider | None = None
        self.pattern = Finder(settings.redact, settings.personal)
        """What is taken out of what is told of requests."""
        self.access: AccessLog | None = None
        if settings.access_log:
            self.access = AccessLog(settings.access_log, self.pattern)
        self.passed: dict[str, int] = {}
        """Path → how many requests that looked like chats got no library there."""

    def _route(self) -> None:
        """Has requests go by the providers that the settings list; without a list no step is
        added. Their keys are to be known in what they answer."""
        self.own_keys = tuple({*self.own_keys, *self.settings.keys})
        self.withheld = WithheldKeys(self.own_keys)
        self.members: list[Member] = []
        self.exchange: type[Exchange] = Exchange
        if self.settings.providers:
            from tfgrpo.proxy.provider_routing import Member, RoutedExchange

            most, self.exchange = self.settings.limits.requests, RoutedExchange
            self.members = [Member(one, most) for one in self.settings.providers]

    def _ledger(self) -> str:
        """Returns where keys and spending are, for as long as this process lives: beside the store
        of the library that was the default at its start, or of the first where that was none."""
        if self._ledger_path is None:
            named = self.settings.default.partition("@")[0]
            libraries = self.settings.libraries
            library = libraries.get(named) or next(iter(libraries.values()))
            self._ledger_path = ledger_path(located(library.store))
        return self._ledger_path

    async def start(self, listener: socket.socket | None = None) -> int:
        """Begins to answer, on a socket that listens already or on one of its own; returns the
        port. Raises SettingsError where there is none to be had."""
        loop = asyncio.get_running_loop()
        if listener is None:
            listener = listening(self.settings.host, self.settings.port)
        accept = partial(ClientConnection, self)
        self._server = await loop.create_server(accept, sock=listener, backlog=2048)
        self._sweeping = loop.create_task(self._sweep())
        self._decider = Decider(self.chooser, self.settings.webhook)
        if self.settings.record != "off":
            for name in self.chooser.sources:
                self._recorder(name)
        return int(listener.getsockname()[1])

    def reload(self, settings: ProxySettings) -> list[str]:
        """Goes on with the libraries, rules and providers of other settings from the next request
        on; returns the names of what else in them waits for a restart. Raises SettingsError,
        StoreError or UnknownRevision, and nothing is changed then."""
        settings, waiting = self.settings.reloaded(settings)
        chooser, before = Chooser(settings), self.chooser
        self.settings, self.chooser = settings, chooser
        self.upstreams = settings.upstreams
        self._route()
        self.keys = KEYS | fields_of(settings.rules)
        # A name may be another store's by now: records are found by their paths again.
        self.recorders = {f"\0{one.path}": one for one in self.recorders.values()}
        self._unrecorded.clear()
        self._troubles.clear()
        if self._decider is not None:
            self._decider.chooser = chooser
        before.close()
        return waiting

    async def close(self, patience: float | None = None) -> None:
        """Takes no more requests, waits some seconds for those under way (as the settings say,
        unless told otherwise), and ends. Those that are left are told that it ended."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
        deadline = monotonic() + (self.settings.drain if patience is None else patience)
        while self.open and monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self._sweeping is not None:
            self._sweeping.cancel()
        for connection in list(self.connections):
            connection.end()
        self.pool.sweep(everything=True)
        await asyncio.sleep(0)
        for recorder in set(self.recorders.values()):
            recorder.close()
        if self._decider is not None:
            self._decider.close()
        if self.access is not None:
            self.access.close()
        self.chooser.close()
        if self.desk is not None:
            self.desk.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            now = monotonic()
            for connection in list(self.connections):
                connection.sweep(now)
            self.pool.sweep()
            for name in list(self._unrecorded):
                self._recorder(name)
            self.tell_troubles()

    # requests:

    def admit(self, request: Request) -> None:
        """Raises BadRequest for a request that is not to be answered."""
        if request.index.get(RECORD, b"off") not in (b"counts", b"off"):
            raise BadRequest(400, "the header x-tfgrpo-record is counts or off")
        token = self.settings.token
        if (
            self.desk is not None
            and request.path not in OWN
            and (self.settings.require_key or self.desk.holds(request.index))
        ):
            return  # the key decides
        if token is None:
            if not _is_local(request):
                raise BadRequest(403, NOT_LOCAL)
        elif request.path not in OPEN:
            given = request.index.get(TOKEN, b"")
            if not hmac.compare_digest(given, token.encode()):
                raise BadRequest(401, "the header x-tfgrpo-token does not have the proxy's token")

    def note_passed(self, request: Request) -> None:
        """Counts a request that gets no library, if it looks as if it should; the log names each
        path once."""
        if not looks_like_chat(request.method, request.path):
            return
        path = self.pattern.sub(REDACTED, request.path)
        if path not in self.passed and len(self.passed) >= MOST_PATHS:
            path = OTHER_PATHS
        if path not in self.passed:
            log.warning("%s looks like a chat, and gets no library", path)
        self.passed[path] = self.passed.get(path, 0) + 1

    def call_id(self) -> str:
        """Returns an id that nobody can guess. The system is asked for many at a time."""
        at = self._used
        if at == len(self._random):
            self._random, at = os.urandom(16 * 256).hex(), 0
        self._used = at + 32
        return "call-" + self._random[at : at + 32]

    def keeps_words(self, call: Call) -> bool:
        """Returns whether the words of a call are kept: where that is asked for, of the share of
        calls that is sampled, and where the request does not say otherwise."""
        wanted = self.settings.record == "content" and call.request.index.get(RECORD) is None
        return wanted and int(call.id[5:13], 16) < self.settings.sample * 2**32

    def begin(self, call: Call) -> None:
        """Counts a call that is about to be made."""
        if recorder := self._recorder_of(call):
            recorder.begin(call)

    def record(self, call: Call) -> None:
        """Records a call that is over."""
        self.calls += 1
        if self.access is not None:
            self.access.add(call)
        if recorder := call.recorder or self._recorder_of(call):
            recorder.add(call, self.own_keys)
        chosen = call.chosen
        if chosen is not None and chosen.trouble != self._troubles.get(chosen.name):
            self.tell_troubles()

    def _recorder_of(self, call: Call) -> Recorder | None:
        if call.request.index.get(RECORD) == b"off" or self.settings.record == "off":
            return None
        name = self.settings.default if call.chosen is None else call.chosen.name
        recorder = self.recorders.get(name)
        return recorder or (None if name in self._unrecorded else self._recorder(name))

    def _recorder(self, name: str) -> Recorder | None:
        """Returns the record of a library's calls, opened; calls under none go to the default's."""
        source = self.chooser.sources.get(name)
        stores = [choice.store for choice in self.settings.libraries.values()]
        store = str(located(stores[0])) if source is None else source.live.path
        path = traffic_path(store)
        recorder = next((one for one in self.recorders.values() if one.path == path), None)
        try:
            if recorder is None:
                make_traffic_folder(store)
                recorder = Recorder(path, self.settings, self._spending())
        except (StoreError, OSError) as error:
            if name not in self._unrecorded:
                log.warning("%s: %s", UNRECORDED, error)
            self._unrecorded[name] = str(error)
            return None
        if self._unrecorded.pop(name, None) is not None:
            log.warning(RECORDED_AGAIN)
        self.recorders[name] = recorder
        return recorder

    def _spending(self) -> SpendingSettings | None:
        """Returns what is counted in dollars as it is recorded; None for nothing."""
        settings = self.settings
        if self.desk is None:
            return None
        budgets = [(one.scope, one.budget.dollars, one.budget.per) for one in settings.budgets]
        home = settings.default.partition("@")[0]
        return SpendingSettings(self._ledger(), settings.prices, budgets, settings.webhook, home)

    def why_unrecorded(self, name: str) -> str | None:
        """Returns why a library's calls cannot be recorded; None where they can, or need not."""
        recorder = self.recorders.get(name)
        return self._unrecorded.get(name) if recorder is None else recorder.trouble

    def tell_troubles(self) -> None:
        """Says in the log, once each, which libraries cannot be read, and which can be again."""
        for name, source in self.chooser.sources.items():
            trouble = source.live.trouble
            if trouble is not None and trouble != self._troubles.get(name):
                self._troubles[name] = trouble
                version = source.live.library.version.name
                log.warning("%s: %s; %s goes on", name, trouble, version)
            # /healthz looks in a thread too
            if trouble is None and self._troubles.pop(name, None) is not None:
                log.warning("%s: the library is read again", name)


def _is_local(request: Request) -> bool:
    """Returns whether a request was meant for this machine: a name that a web page made lead here
    is not one of its names, and what some clients give as its origin is the address itself."""
    host = request.index.get(b"host", b"").decode("latin-1").lower()
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name not in LOOPBACK or request.index.get(b"sec-fetch-site", SAME[0]) not in SAME:
        return False
    origin = request.index.get(b"origin")
    return origin is None or origin.decode("latin-1").lower().partition("://")[2] == host
