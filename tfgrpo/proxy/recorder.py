"""Calls on their way to the record: counted at once, and handed to a process that writes them.

What a worker hands over (`record_writer.py`) outlives it. It loses only calls that were under way
when it is killed; the process that writes loses what it had not written, a tenth of a second of
calls, and another takes its place. How many were begun stands in a file that is mapped into memory
(`counter.py`), so that what was lost is counted.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import secrets
import select
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from tfgrpo.proxy.calls import sent_key
from tfgrpo.proxy.counter import Counter, counter_path
from tfgrpo.proxy.telemetry import Telemetry
from tfgrpo.store.default import open_traffic
from tfgrpo.store.traffic import keyed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tfgrpo.proxy.calls import Call

WAITING = 32 << 20
"""Bytes of calls that may wait for the process that writes them; where the file cannot be written,
later ones are lost, and counted."""
PIPE = 1 << 20
"""Bytes that the system holds between the two, where it can be told so."""
AGAIN = 1.0
"""Seconds between two starts of the process, at least."""
FLUSH = 5.0
LEAVE = 60.0
"""Seconds that feedback waits for its call, and that the end waits for the last ones."""
COMMAND = "from tfgrpo.proxy.record_writer import main; main()"
log = logging.getLogger("tfgrpo.proxy")


class Recorder:
    """The record of one worker, in one file. Belongs to the running event loop."""

    def __init__(
        self, path: str, *, content: bool = False, keep: float | None = None, redact: str = ""
    ) -> None:
        self.path = path
        self._settings = content, keep, redact
        self.telemetry = Telemetry.of_environment(log.warning)
        """Where feedback is sent; of calls the other process tells."""
        traffic = open_traffic(path, create=True)
        try:
            self.secret = traffic.secret()
        finally:
            traffic.close()
        self._loop = asyncio.get_running_loop()
        self._ended: list[Call] = []
        self._pending: deque[tuple[bytes, int]] = deque()
        """What the pipe had no room for, and how many calls each is."""
        self._bytes = 0
        self._full = False
        self._added = 0
        self._settled = threading.Condition()
        self._base = self._written = 0
        self._handed = self._dropped = 0
        self._counter = self._new_counter(0)
        self.process: subprocess.Popen[bytes] | None = None
        self._pipe = self._lines = -1
        self._unread = b""
        self._watching = self._closing = False
        self._cut = False
        """Whether the first of what is pending was sent in part."""
        self._started = 0.0
        self._again: asyncio.TimerHandle | None = None
        self._start()

    def begin(self, call: Call) -> None:
        """Counts a call that is about to be made: it is lost if this worker is killed in it."""
        self._counter.increase()
        call.counted = True

    def add(self, call: Call) -> None:
        """Records a call that is over, soon: as soon as its answer was sent."""
        if not call.counted:
            self.begin(call)
        self._added += 1
        self._ended.append(call)
        if len(self._ended) == 1:
            self._loop.call_soon(self._hand_over)

    def flush(self) -> None:
        """Waits until what is over by now is on record, if it can be. For another thread than the
        loop's."""
        wanted = self._added
        with self._settled:
            self._settled.wait_for(lambda: self._written >= wanted, FLUSH)

    def close(self) -> None:
        """Has everything written, and ends."""
        self._closing = True
        if self._again is not None:
            self._again.cancel()
        self._hand_over()
        self._watch(False)
        process = self.process
        if process is None:
            self._counter.close()
            return
        self._loop.remove_reader(self._lines)
        deadline = time.monotonic() + LEAVE
        while self._pending and time.monotonic() < deadline:
            if select.select([], [self._pipe], [], 1.0)[1] and not self._send():
                break
        self.process = None
        os.close(self._pipe)
        try:
            rest, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
            self._hear(rest)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            log.warning("the last calls were not recorded: that took too long")
        self._counter.close()

    # the process that writes:

    def _new_counter(self, value: int) -> Counter:
        self._worker = secrets.token_hex(8)
        return Counter(counter_path(self.path, self._worker), value)

    def _start(self) -> None:
        self._again = None
        self._started = time.monotonic()
        descriptor = self._counter.descriptor
        settings = json.dumps((self.path, self._worker, descriptor, *self._settings))
        reading, self._pipe = os.pipe()
        try:
            with suppress(OSError, AttributeError):
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE)
            os.set_blocking(self._pipe, False)
            self.process = process = subprocess.Popen(
                [sys.executable, "-P", "-c", COMMAND, settings],
                stdin=reading,
                stdout=subprocess.PIPE,
                pass_fds=[descriptor],
            )
        except OSError as error:
            log.warning("calls are not recorded: %s", error)
            os.close(self._pipe)
            self._again = self._loop.call_later(AGAIN, self._start)
            return
        finally:
            os.close(reading)
        assert process.stdout is not None
        self._lines = process.stdout.fileno()
        os.set_blocking(self._lines, False)
        self._loop.add_reader(self._lines, self._listen)
        self._send()

    def _listen(self) -> None:
        """Reads what the process says; at the end of it, it has died."""
        try:
            data = os.read(self._lines, 65536)
        except BlockingIOError:
            return
        if data:
            self._hear(data)
        elif not self._closing:
            self._replace()

    def _hear(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            if line.isdigit():
                with self._settled:
                    self._written = self._base + int(line)
                    self._settled.notify_all()
            else:
                log.warning("%s", line.decode(errors="replace"))

    def _replace(self) -> None:
        """Starts another process: the calls that the last one had and did not write are lost, and
        counted by the next; those under way, and those that it did not get, are the next one's."""
        process, self.process = self.process, None
        assert process is not None
        self._loop.remove_reader(self._lines)
        self._watch(False)
        os.close(self._pipe)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._unread = b""
        if self._pending and self._cut:
            _, calls = self._pending.popleft()  # the half of it that was sent is gone
            self._handed += calls
        self._cut = False
        self._bytes = sum(len(data) for data, _ in self._pending)
        counter, gone = self._counter, self._handed + self._dropped
        self._counter = self._new_counter(counter.value - gone)
        counter.set(gone)
        counter.close()
        self._base += self._handed
        self._handed = self._dropped = 0
        log.warning(
            "the process that records calls ended (%s); starting another", process.returncode
        )
        pause = max(0.0, AGAIN - (time.monotonic() - self._started))
        self._again = self._loop.call_later(pause, self._start)

    # what goes to it:

    def _hand_over(self) -> None:
        calls, self._ended = self._ended, []
        if not calls:
            return
        if self._bytes > WAITING:
            self._dropped += len(calls)
            self._base += len(calls)
            if not self._full:
                log.warning("calls are not recorded: too many wait for it")
            self._full = True
            return
        self._full = False
        data = b"".join([call.packed() for call in calls])
        self._pending.append((data, len(calls)))
        self._bytes += len(data)
        if len(self._pending) == 1 and self.process is not None:
            self._send()

    def _send(self) -> bool:
        """Sends what the pipe has room for; returns whether there is anybody to read it."""
        pending = self._pending
        while pending:
            data, calls = pending[0]
            try:
                sent = os.write(self._pipe, data)
            except BlockingIOError:
                break
            except OSError:  # it has died, which `_listen` sees
                self._watch(False)
                return False
            self._bytes -= sent
            if sent < len(data):
                pending[0] = data[sent:], calls
                self._cut = True
                break
            self._cut = False
            pending.popleft()
            self._handed += calls
        self._watch(bool(pending) and not self._closing)
        return True

    def _watch(self, wanted: bool) -> None:
        """Has the loop say when the pipe has room again, or no longer."""
        if wanted and not self._watching:
            self._loop.add_writer(self._pipe, self._send)
        elif self._watching and not wanted:
            self._loop.remove_writer(self._pipe)
        self._watching = wanted


def caller(secret: bytes, index: Mapping[bytes, bytes]) -> bytes | None:
    """Returns the digest of the key in a request's headers; None where there is none."""
    key = sent_key(index)
    return keyed(secret, key) if key else None
