"""The record of look-ups over MCP: each is a call like those through the proxy."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from tfgrpo.proxy.telemetry import Labels, sums_of, take_feedback
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.store.activity.traffic import (
    CallContent,
    CallRecord,
    FeedbackRefused,
    UnknownCall,
    keyed,
    make_traffic_folder,
    traffic_path,
)
from tfgrpo.store.errors import StoreError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import REDACTED

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.activity.traffic import Traffic
    from tfgrpo.store.records import Library

ROUTE = "/mcp/experiences"
LIBRARY = "default"
"""The name that the proxy gives to a library which is served alone."""
log = logging.getLogger("tfgrpo.mcp")


class Lookups:
    """Where look-ups are recorded, beside a store. `content` keeps the problems too, less what a
    pattern finds. Who asks without a `token` is the store's owner; with one, feedback is for the
    calls made with it."""

    def __init__(
        self,
        store: Path | str,
        *,
        content: bool = False,
        pattern: Finder | None = None,
        token: str | None = None,
    ) -> None:
        self._store = store
        self.path = traffic_path(store)
        self._content = content
        self._pattern = pattern or Finder()
        self._token = token
        self._worker = secrets.token_hex(8)
        self._labels = Labels()
        self._trouble = False

    def add(self, library: Library, whole: bool, problem: str, began: float) -> str | None:
        """Records a look-up that found `library`, a part of what is in force unless `whole`;
        `began` is of `perf_counter`. Returns the call's id, or None, which the log tells once."""
        latency = round((time.perf_counter() - began) * 1e6)
        id = f"call-{secrets.token_hex(16)}"
        try:
            with closing(self._open()) as traffic:
                row = CallRecord(
                    id,
                    time.time_ns() // 1000,
                    self._worker,
                    LIBRARY,
                    library.version.name,
                    library.version.digest.hex()[:16],
                    None if whole else json.dumps([e.id for e in library]),
                    *(None, None, None, ROUTE, 200, 0, None, None, None),
                    latency,
                    latency,
                    *(0, 0, self._caller(traffic.secret()), None),
                )
                words = [self._words(id, problem)] if self._content and problem else []
                traffic.add([row], words, sums_of([row], self._labels))
        except (StoreError, OSError) as error:
            if not self._trouble:
                log.warning("look-ups are not recorded: %s", error)
            self._trouble = True
            return None
        self._trouble = False
        return id

    def add_feedback(self, given: Mapping[str, object]) -> str:
        """Records feedback, and returns the call's id. Raises UnknownCall (also for a call of
        somebody else's), FeedbackRefused or StoreError."""
        wanted = given.get("call")
        if not isinstance(wanted, str):
            raise FeedbackRefused("feedback is on a call", hint="give the id that experiences gave")
        with closing(self._open()) as traffic:
            call = traffic.call(wanted)
            ours = self._caller(traffic.secret()) or b""
            theirs = self._token is not None and not (
                call.route == ROUTE and hmac.compare_digest(call.caller or b"", ours)
            )
            if theirs or call.id != wanted:  # a program has the whole id
                raise UnknownCall(f"no call {wanted!r} is on record")
            take_feedback(traffic, call, given, "mcp", self._pattern)
        return call.id

    def _open(self) -> Traffic:
        make_traffic_folder(self._store)
        return open_traffic(self.path, create=True)

    def _caller(self, secret: bytes) -> bytes | None:
        return keyed(secret, self._token.encode()) if self._token else None

    def _words(self, id: str, problem: str) -> CallContent:
        request = {"messages": [{"role": "user", "content": self._pattern.sub(REDACTED, problem)}]}
        return CallContent(id, json.dumps(request, ensure_ascii=False), "")
