"""Calls on their way to the record: counted at once, written from a thread in batches.

A worker that is killed loses what it had not written yet, a tenth of a second of calls. How many
it had begun stands in a file that it maps into memory, which outlives it; whoever opens the
record next adds the difference to the calls that were lost.
"""

from __future__ import annotations

import fcntl
import json
import logging
import mmap
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from glob import glob
from typing import IO, TYPE_CHECKING

from tfgrpo.proxy.metrics import Labels, sums_of
from tfgrpo.proxy.telemetry import Telemetry
from tfgrpo.store.default import open_traffic
from tfgrpo.store.errors import StoreError
from tfgrpo.store.records import REDACTED
from tfgrpo.store.traffic import CallContent, CallRecord, Traffic, keyed

if TYPE_CHECKING:
    from tfgrpo.proxy.calls import Call

PAUSE = 0.1
"""Seconds between batches."""
WAITING = 5000
"""Calls that may wait to be written; where the file cannot be, later ones are lost, and counted."""
PRUNE = 600.0
"""Seconds between two looks for calls that are too old."""
PATTERNS = (
    r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b",
    r"\b(?:sk|pk|rk|ghp|gho|xox[abp]|AKIA|AIza)[-_A-Za-z0-9]{12,}",
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
    r"\b\d(?:[ -]?\d){12,18}\b",
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2}"
    r"(?: ?[A-Z0-9]{3}|(?: ?[A-Z0-9]{4})+(?: ?[A-Z0-9]{1,3})?)\b",
)
"""What is taken out of words before they are kept: addresses of mail, keys, tokens, numbers of
cards and of accounts."""
log = logging.getLogger("tfgrpo.proxy")


class Recorder:
    """The record of one worker, in one file."""

    def __init__(
        self, path: str, *, content: bool = False, keep: float | None = None, redact: str = ""
    ) -> None:
        self.path = path
        self._content = content
        self._keep = keep
        self._patterns = re.compile("|".join(filter(None, (*PATTERNS, redact))))
        self._waiting: list[Call] = []
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._flushing = threading.Lock()
        self._trouble = False
        self._labels = Labels()
        self.telemetry = Telemetry.of_environment()
        self._unsent: list[CallRecord] = []
        traffic = open_traffic(path, create=True)
        self.secret = traffic.secret()
        count_lost(traffic, path)
        traffic.close()
        self.worker = secrets.token_hex(8)
        self._counter = _Counter(f"{path}-worker-{self.worker}")
        self._thread = threading.Thread(target=self._run, name="tfgrpo-traffic", daemon=True)
        self._thread.start()

    @property
    def keeps_content(self) -> bool:
        """Whether the words of calls are kept."""
        return self._content

    def begin(self, call: Call) -> None:
        """Counts a call that is about to be made: it is lost if this worker is killed in it."""
        self._counter.increase()
        call.counted = True

    def add(self, call: Call) -> None:
        """Records a call that is over, soon. Costs about a microsecond."""
        if not call.counted:
            self.begin(call)
        if len(self._waiting) < WAITING:
            self._waiting.append(call)
            if len(self._waiting) > WAITING // 8:
                self._wake.set()

    def close(self) -> None:
        """Writes what waits, and ends."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def flush(self) -> None:
        """Writes what waits, now. For another thread than the loop's."""
        traffic = open_traffic(self.path, create=True)
        try:
            self._write(traffic)
        finally:
            traffic.close()

    def _run(self) -> None:
        traffic: Traffic | None = None
        pruned = 0.0
        while True:
            stopping = self._stop.is_set()
            try:
                traffic = traffic or open_traffic(self.path, create=True)
                self._write(traffic)
                self._send(last=stopping)
                if self._keep is not None and time.monotonic() - pruned > PRUNE:
                    traffic.delete_before(int((time.time() - self._keep) * 1e6))
                    pruned = time.monotonic()
                if self._trouble:
                    log.warning("calls are recorded again")
                self._trouble = False
            except StoreError as error:
                if not self._trouble:
                    log.warning("calls are not recorded: %s", error)
                self._trouble = True
                with suppress(StoreError):
                    if traffic is not None:
                        traffic.close()
                traffic = None
            if stopping:
                break
            self._wake.wait(PAUSE)
            self._wake.clear()
        if traffic is not None:
            whole = traffic.recorded(self.worker) == self._counter.value
            traffic.close()
            self._counter.close(remove=whole)
        else:
            self._counter.close(remove=False)

    def _write(self, traffic: Traffic) -> None:
        with self._flushing:
            calls = self._waiting[:WAITING]
            if not calls:
                return
            contents = [self._words(call) for call in calls] if self._content else []
            callers: dict[bytes, bytes] = {}  # for this batch: no key is kept for longer
            rows = [self._row(call, callers) for call in calls]
            traffic.add(rows, [c for c in contents if c], sums_of(rows, self._labels))
            del self._waiting[: len(calls)]
        if self.telemetry is not None:
            self._unsent += rows[: max(0, WAITING - len(self._unsent))]

    def _send(self, *, last: bool = False) -> None:
        """Sends what was written to the collector, from this thread alone: it may take seconds."""
        unsent, self._unsent = self._unsent, []
        if self.telemetry is None:
            return
        if unsent:
            self.telemetry.send_calls(unsent)
        self.telemetry.send_metrics(now=last)

    def _row(self, call: Call, callers: dict[bytes, bytes]) -> CallRecord:
        chosen, tokens = call.chosen, call.tokens()
        ids = None if chosen is None else chosen.experiences
        first, subject = call.first_byte, call.subject
        key = sent_key(call.request.index)
        caller = callers.get(key) if key else None
        if key and caller is None:
            caller = callers[key] = keyed(self.secret, key)
        return CallRecord(
            call.id,
            call.time,
            self.worker,
            None if chosen is None else chosen.name,
            None if chosen is None else chosen.version,
            None if chosen is None else chosen.digest,
            None if ids is None else json.dumps(ids),
            keyed(self.secret, subject.encode()).hex() if subject else None,
            None if chosen is None else chosen.arm,
            call.model,
            call.path,
            call.status,
            int(call.streamed),
            *tokens,
            round(call.latency * 1e6),
            None if first is None else round(first * 1e6),
            round(call.added * 1e6),
            int(bool(chosen and chosen.trouble)),
            caller,
            call.error,
        )

    def _words(self, call: Call) -> CallContent | None:
        if call.asked is None:
            return None
        answer = call.answer()
        return CallContent(
            call.id,
            without_secrets(call.asked.decode(errors="replace"), self._patterns),
            without_secrets(answer.decode(errors="replace"), self._patterns),
        )


def without_secrets(text: str, pattern: re.Pattern[str]) -> str:
    """Returns a body without what a pattern finds. JSON stays JSON: where a long number would
    leave none, a float stays as it is (a speed that a server measured has as many digits as a
    card), and a whole number becomes a string."""
    cleaned = pattern.sub(REDACTED, text)
    if cleaned == text or not _is_json(text) or _is_json(cleaned):
        return cleaned

    def clean(value: object) -> object:
        if isinstance(value, str):
            return pattern.sub(REDACTED, value)
        if isinstance(value, int) and not isinstance(value, bool):
            return REDACTED if pattern.search(str(value)) else value
        if isinstance(value, list):
            return [clean(one) for one in value]
        if isinstance(value, dict):
            return {pattern.sub(REDACTED, name): clean(one) for name, one in value.items()}
        return value

    try:
        return json.dumps(clean(json.loads(text)), ensure_ascii=False)
    except RecursionError:
        return cleaned


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def sent_key(index: Mapping[bytes, bytes]) -> bytes | None:
    """Returns the key in a request's headers; None where there is none."""
    return index.get(b"authorization") or index.get(b"x-api-key") or index.get(b"api-key")


def caller(secret: bytes, index: Mapping[bytes, bytes]) -> bytes | None:
    """Returns the digest of the key in a request's headers; None where there is none."""
    key = sent_key(index)
    return keyed(secret, key) if key else None


def count_lost(traffic: Traffic, path: str) -> int:
    """Adds what workers lost that are gone to the record; returns how many calls that were."""
    lost = 0
    for name in glob(f"{path}-worker-*"):
        with suppress(OSError), open(name, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # it is alive
            begun = int.from_bytes(file.read(8), "little")
            os.unlink(name)
            worker = name.rpartition("-")[2]
            missing = max(0, begun - traffic.recorded(worker))
            if missing:
                traffic.count_lost(missing)
                lost += missing
    return lost


class _Counter:
    """A number in a file that outlives its process: whoever holds its lock is alive."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: IO[bytes] = open(  # noqa: SIM115
            path, "w+b", opener=lambda name, flags: os.open(name, flags, 0o600)
        )
        self._file.write(bytes(8))
        self._file.flush()
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._map = mmap.mmap(self._file.fileno(), 8)
        self.value = 0

    def increase(self) -> None:
        self.value += 1
        self._map[:8] = self.value.to_bytes(8, "little")

    def close(self, *, remove: bool) -> None:
        if remove:
            with suppress(OSError):
                os.unlink(self._path)
        self._map.close()
        self._file.close()
