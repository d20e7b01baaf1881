"""Who may ask for what: virtual keys, their limits, and budgets that stop.

A request with a virtual key is sent on with the provider's own, which stays here. Such a key
reaches the routes that get a library and the list of models, and nothing else of the provider's
unless it says so. Rates hold for all workers.

What calls come to in dollars is added up by the process that records them, a tenth of a second
after they are over, so calls that are under way may go over a budget. It is put down with them
before it goes into the ledger, under the name of their batch: so it is added once, whatever is
killed between the two files. A call whose price is not
known costs nothing here, and the log names its model once. A budget is told of at four fifths and
when it is spent, once in its period: in the log, and at the webhook where one is set.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from threading import Thread
from typing import Any, NamedTuple

from tfgrpo.costs.accounts import Dollars
from tfgrpo.production.webhook import post_webhook
from tfgrpo.proxy.forwarded_headers import sent_key, virtual_key
from tfgrpo.proxy.http_message import BadRequest, Request
from tfgrpo.proxy.library_choice import NONE
from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.proxy.recorded_call import Call
from tfgrpo.rendering.request_placement import place_of
from tfgrpo.store.activity.key_ledger import (
    Budget,
    Owed,
    Spent,
    VirtualKey,
    allows,
    key_digest,
    spent_of,
    today,
)
from tfgrpo.store.activity.traffic import CallRecord
from tfgrpo.store.errors import StoreError
from tfgrpo.store.opening import open_ledger

OPEN_PATHS = ("/v1/models", "/v1/models/*", "/models", "/models/*", "/v1beta/models*")
"""What any virtual key may ask for with GET, beside the routes that get a library."""
_plain = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9_.:-]+)+/?").fullmatch
"""A path that means one thing to everybody: no dots to go up by, nothing encoded."""
SLOT = struct.Struct("dd")
"""What is known of a key's rate: how many requests it has left, and as of when."""
log = logging.getLogger("tfgrpo.proxy")
LEVELS = (0.8, 1.0)
"""Parts of a budget that are told of."""
LEAVE, AGAIN = 6.0, 30.0
"""Seconds that a webhook has at the end, and after which one that could not be reached is tried
again."""


class Desk:
    """The keys and what was spent, as they are on record now. Belongs to the event loop."""

    def __init__(self, settings: ProxySettings, path: str) -> None:
        """Raises StoreError."""
        self._settings = settings
        self._ledger = open_ledger(path, create=True)
        self._rates = Rates(f"{path}-rates")
        self._keys: Mapping[bytes, VirtualKey] = {}
        self._spent: Spent = {}
        self._seen: object = None
        self._trouble: str | None = None

    def close(self) -> None:
        """Closes the files."""
        self._ledger.close()
        self._rates.close()

    def holds(self, index: Mapping[bytes, bytes]) -> bool:
        """Returns whether a request has a virtual key that is in force."""
        try:
            return self._key(index) is not None
        except BadRequest:
            return False

    def admit(self, call: Call, request: Request) -> None:
        """Takes a request's key, as far as its head says what it asks for. Raises BadRequest."""
        key = self._key(request.index)
        if key is None:
            if self._settings.require_key:
                raise BadRequest(401, "this proxy asks for a key of its own (`tfgrpo key new`)")
            return
        call.key = key.name
        limits = key.limits
        if not _plain(request.path):
            raise BadRequest(403, f"the key {key.name} reaches only plain paths")
        if place_of(request.method, request.path) is None:
            reading = request.method in (b"GET", b"HEAD") and allows(OPEN_PATHS, request.path)
            if not reading and not allows(limits.paths, request.path):
                raise BadRequest(403, f"the key {key.name} does not reach {request.path}")
        self._check_budget(f"key:{key.name}", limits.budget)
        if limits.rate is not None:
            wait = self._rates.wait(key.number, limits.rate)
            if wait:
                per_minute = f"{limits.rate} requests a minute"
                raise BadRequest(429, f"the key {key.name} has {per_minute}", after=wait)

    def check(self, call: Call, request: Request) -> None:
        """Takes a request as its body was read, with the library that it gets. Raises
        BadRequest."""
        library = NONE if call.chosen is None else call.chosen.name
        whole = library.partition("@")[0] or self._settings.default.partition("@")[0]
        for budget in self._settings.budgets:
            if budget.stop and budget.library in (None, whole):
                self._check_budget(budget.scope, budget.budget)
        if call.key is None or place_of(request.method, request.path) is None:
            return
        limits = self._keys[key_digest(virtual_key(sent_key(request.index)) or b"")].limits
        if limits.models is not None and not allows(limits.models, call.model or ""):
            model = call.model or "in a body that cannot be read"
            raise BadRequest(403, f"the key {call.key} may not ask {model}")
        if not allows(limits.libraries, library) and not allows(limits.libraries, whole):
            raise BadRequest(403, f"the key {call.key} may not use the library {library}")

    def _key(self, index: Mapping[bytes, bytes]) -> VirtualKey | None:
        """Returns the virtual key of a request; None where it has none. Raises BadRequest."""
        sent = virtual_key(sent_key(index))
        if sent is None:
            return None
        self._refresh()
        key = self._keys.get(key_digest(sent))
        if key is None or key.revoked is not None:
            raise BadRequest(401, "this key is not in force")
        if key.limits.expires is not None and key.limits.expires <= time.time_ns() // 1000:
            raise BadRequest(401, f"the key {key.name} has expired")
        return key

    def _check_budget(self, scope: str, budget: Budget | None) -> None:
        if budget is None:
            return
        self._refresh()
        spent = spent_of(scope, budget, self._spent)
        if spent >= budget.dollars:
            raise BadRequest(402, f"the budget of {scope} is spent: ${spent:.4g} of {budget}")

    def _refresh(self) -> None:
        """Reads anew what somebody has changed. What cannot be read leaves what was known."""
        try:
            seen = self._ledger.changes(), today()
            if seen == self._seen:
                return
            self._keys = {key.digest: key for key in self._ledger.virtual_keys()}
            self._spent = self._ledger.spent("")
            self._seen, self._trouble = seen, None
        except StoreError as error:
            if str(error) != self._trouble:
                log.warning("keys and budgets are those of before: %s", error)
            self._trouble = str(error)


class Rates:
    """How many requests each key has left this minute, in a file that all workers share: a bucket
    that holds a minute's requests and fills steadily."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._file)

    def wait(self, number: int, rate: int) -> float:
        """Takes one request of a key that has `rate` a minute; returns after how many seconds there
        will be one, where none is left."""
        at = number * SLOT.size
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            slot = os.pread(self._file, SLOT.size, at)
            left, then = SLOT.unpack(slot.ljust(SLOT.size, b"\0"))
            now = time.time()
            if not then or then > now:  # a new key, or the clock was set
                left, then = float(rate), now
            left = min(float(rate), left + (now - then) * rate / 60)
            wait = 0.0 if left >= 1 else (1 - left) * 60 / rate
            os.pwrite(self._file, SLOT.pack(left if wait else left - 1, now), at)
            return wait
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


class SpendingSettings(NamedTuple):
    """Where the ledger lies, the table of prices, (scope, dollars, period) of each budget, and what
    is told of them."""

    ledger: str
    prices: Mapping[str, Any]
    budgets: list[tuple[str, float, str]]
    webhook: str | None
    home: str
    """The library that a revision alone is of."""


USAGE = "a stream says them where the client asks for stream_options.include_usage"


class Spending:
    """Adds calls up. `tell` is called with a line for the log."""

    def __init__(self, settings: SpendingSettings, tell: Callable[[str], None]) -> None:
        self._settings = settings
        self._tell = tell
        self._dollars = Dollars(settings.prices)
        self._owed: Owed = {}
        """What is on record and not in the ledger, as far as that is known."""
        self._batch: str | None = None
        """The name of the last of these, to which more is added until it is in the ledger."""
        self._unknown: set[str] = set()
        self._trouble = False
        self._again = 0.0
        self._watching: Thread | None = None
        self._due = False
        """Whether something was spent since budgets were looked at."""

    def owed(self, calls: Sequence[CallRecord]) -> Owed:
        """Returns what is owed to the ledger once these calls are on record."""
        amounts = defaultdict[tuple[str, str], float](float, self._owed.get(self._batch or "", {}))
        for call in calls:
            dollars = self._dollars.of(call)
            if dollars is None:
                self._tell_unknown(call)
                continue
            day = time.strftime("%Y-%m-%d", time.gmtime(call.time / 1e6))
            library = (call.library or "none").partition("@")[0] or self._settings.home
            of_key = [] if call.key is None else [f"key:{call.key}"]
            for scope in ("all", f"library:{library}", *of_key):
                amounts[scope, day] += dollars
        if not amounts:
            return self._owed
        self._batch = self._batch or calls[0].id
        return {**self._owed, self._batch: amounts}

    def _tell_unknown(self, call: CallRecord) -> None:
        if call.model is None:  # such as a list of models or a file
            return
        model = f"{call.model} at {call.provider}"
        why = f"the price of {model} is not known: no budget counts it"
        if call.prompt_tokens is None:
            why = f"a call of {model} reports no tokens: no budget counts it ({USAGE})"
        if why not in self._unknown:
            self._unknown.add(why)
            self._tell(why)

    def settle(self, worker: str, owed: Owed) -> None:
        """Takes what this worker's calls owe, which is on record, into the ledger, or later."""
        done = self.spend(worker, owed)
        self._owed, self._batch = ({}, None) if done else (owed, self._batch)

    def spend(self, worker: str, owed: Owed) -> bool:
        """Takes what a worker's calls owe into the ledger; returns whether that could be done."""
        if not owed:
            return True
        try:
            with closing(open_ledger(self._settings.ledger, create=True)) as ledger:
                ledger.spend(worker, owed)
        except StoreError as error:
            if not self._trouble:
                self._tell(f"what was spent is not recorded: {error}")
            self._trouble = True
            return False
        self._trouble, self._due = False, True
        busy = self._watching is not None and self._watching.is_alive()
        if not busy and time.monotonic() >= self._again:
            self._watching = Thread(target=self._watch, daemon=True)
            self._watching.start()
        return True

    def close(self) -> None:
        """Gives what is being told a moment to be."""
        if self._watching is not None:
            self._watching.join(LEAVE)

    def _watch(self) -> None:
        """Tells of budgets, in a thread of its own: the record waits for no webhook."""
        try:
            while self._due and time.monotonic() >= self._again:
                self._due = False
                self._tell_of_budgets()
        except (OSError, StoreError) as error:
            self._tell(f"budgets are not watched: {error}")

    def _tell_of_budgets(self) -> None:
        private = partial(os.open, mode=0o600)
        with (
            open(f"{self._settings.ledger}-telling", "ab", opener=private) as turn,
            closing(open_ledger(self._settings.ledger, create=True)) as ledger,
        ):
            fcntl.flock(turn, fcntl.LOCK_EX)  # other workers would tell of the same budget
            budgets = [(s, Budget(dollars, per)) for s, dollars, per in self._settings.budgets]
            for key in ledger.virtual_keys():
                if key.revoked is None and key.limits.budget is not None:
                    budgets.append((f"key:{key.name}", key.limits.budget))
            notes, spent = ledger.notes(), ledger.spent("")
            for scope, budget in budgets:
                began = budget.began(today())
                dollars = spent_of(scope, budget, spent)
                for level in LEVELS:
                    note = f"{scope} {budget} {began} {level}"
                    if dollars >= level * budget.dollars and note not in notes:
                        if not self._announce(scope, budget, dollars):
                            return
                        ledger.note(note)

    def _announce(self, scope: str, budget: Budget, spent: float) -> bool:
        """Tells of a budget; returns whether that could be done."""
        text = f"budget of {scope}: ${spent:.4g} of {budget} spent"
        self._tell(text)
        if self._settings.webhook is None:
            return True
        event = {"event": "budget", "scope": scope, "spent": spent, "budget": budget.dollars}
        why = post_webhook(self._settings.webhook, {**event, "per": budget.per, "text": text})
        if why is not None:
            self._tell(f"the webhook was not told: {why}")
            self._again = time.monotonic() + AGAIN
        return why is None
