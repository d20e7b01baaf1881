"""Calls on their way to the record: counted at once, and handed to a process that writes them.

What a worker hands over (`record_writer.py`) outlives it, and a call is handed over before the last
of its answer is sent: where a worker is killed, it loses only calls that were under way. What it
has handed over it holds until that is written, a tenth of a second: so where the process that
writes is killed, another takes its place and gets it again. If both are, what was lost is counted.
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
import threading
import time
from collections import deque
from contextlib import suppress

from tfgrpo.proxy.keys_and_limits import SpendingSettings
from tfgrpo.proxy.proxy_settings import ProxySettings
from tfgrpo.proxy.record_writer import RECORDED_AGAIN, UNRECORDED, Counter, counter_path
from tfgrpo.proxy.recorded_call import Call, message
from tfgrpo.proxy.telemetry import Telemetry
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.store import child_processes
from tfgrpo.store.opening import open_traffic

WAITING = 32 << 20
"""Bytes of calls that may wait for the process that writes them; where the file cannot be written,
later ones are lost, and counted. What the pipe has no room for is in memory twice."""
PIPE = 1 << 20
"""Bytes that the system holds between the two, where it can be told so."""
AT_ONCE, SOON, AGAIN = 0.0, 0.03, 1.0
"""Seconds after which a process is replaced that died before it had written anything, the more the
more of them did; up to so many. Another is replaced at once."""
TRIES = 3
"""Processes that are given the last calls, at the end, where each is killed."""
FLUSH = 5.0
HELD = 1000
"""Calls that may be sent and not written yet, before that process is given time."""
BEHIND, STUCK = 0.05, 1.0
"""Seconds that it is given at a call; and after which it is again, where that was in vain."""
LEAVE = 60.0
"""Seconds that feedback waits for its call, and that the end waits for the last ones."""
COMMAND = "from tfgrpo.proxy.record_writer import main; main()"
log = logging.getLogger("tfgrpo.proxy")


class Recorder:
    """The record of one worker, in one file. Belongs to the running event loop."""

    def __init__(
        self, path: str, settings: ProxySettings, spending: SpendingSettings | None
    ) -> None:
        self.path, self.pattern = path, Finder(settings.redact, settings.personal)
        content = settings.record == "content"
        self._settings = content, settings.keep, settings.redact, spending, settings.personal
        self.telemetry = Telemetry.of_environment(log.warning)
        """Where feedback is sent; of calls the other process tells."""
        open_traffic(path, create=True).close()
        self._loop = asyncio.get_running_loop()
        self._held: deque[bytes] = deque()
        """Calls that are not written yet."""
        self._bytes = 0
        """Bytes of these."""
        self._out = bytearray()
        """What the pipe had no room for yet: the end of these, and before all of them the rest of
        the settings, which no list of processes is to show."""
        self._full = False
        self._stuck_until = 0.0
        self._trouble: str | None = None
        self._added = 0
        self._settled = threading.Condition()
        self._written = self._reported = 0
        """Calls that are written or given up, and those by the process that runs now."""
        self._worker = secrets.token_hex(8)
        self._counter = Counter(counter_path(path, self._worker))
        self.process: subprocess.Popen[bytes] | None = None
        self._pipe = self._lines = -1
        self._unread = b""
        self._watching = self._closing = False
        self._failed = 0
        """Processes in a row that died before anything was written."""
        self._again: asyncio.TimerHandle | None = None
        self._start()

    @property
    def trouble(self) -> str | None:
        """Why calls cannot be recorded at the moment; None where they can."""
        return self._trouble or ("too many wait for it" if self._bytes > WAITING else None)

    def begin(self, call: Call) -> None:
        """Counts a call that is about to be made: it is lost if this worker is killed in it."""
        self._counter.increase()
        call.recorder = self

    def add(self, call: Call, own_keys: tuple[bytes, ...]) -> None:
        """Hands a call over that is over: before the last of its answer is sent, so that no answer
        is without its record if this worker is killed. `own_keys` are those of providers."""
        if call.recorder is None:
            self.begin(call)
        self._added += 1
        if self._bytes > WAITING:
            self._settle(1)
            if not self._full:
                log.warning("%s: too many wait for it", UNRECORDED)
            self._full = True
            return
        self._full = False
        data = call.packed(own_keys)
        self._held.append(data)
        self._bytes += len(data)
        if self.process is None:
            return
        self._out += data
        self._send()
        if (self._out or len(self._held) > HELD) and self._reported:
            self._let_catch_up()

    def _let_catch_up(self) -> None:
        """Gives the process that writes a moment, which gets too little of a processor without
        that: what it has not written yet fits into the pipe to the next one if it is killed."""
        if time.monotonic() < self._stuck_until:
            return
        full = bool(self._out)
        room = select.select([], [self._pipe], [], BEHIND)[1] if full else []
        if room:
            self._send()
        elif not full and select.select([self._lines], [], [], BEHIND)[0]:
            self._listen()
        else:
            self._stuck_until = time.monotonic() + STUCK

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
        deadline = time.monotonic() + LEAVE
        for _ in range(TRIES):
            if self.process is None and self._held:
                self._start()
            if self.process is None or self._end(self.process, deadline):
                break
        else:
            log.warning("the last calls were not recorded: %d processes died over them", TRIES)
        self._counter.close()
        if self.telemetry is not None:
            self.telemetry.close()

    # the process that writes:

    def _start(self) -> None:
        self._again = None
        descriptor = self._counter.descriptor
        settings = (self.path, self._worker, descriptor, len(self._held), *self._settings)
        self._out = bytearray(message(json.dumps(settings).encode()) + b"".join(self._held))
        reading, self._pipe = os.pipe()
        try:
            with suppress(OSError, AttributeError):
                fcntl.fcntl(self._pipe, fcntl.F_SETPIPE_SZ, PIPE)
            os.set_blocking(self._pipe, False)
            self.process = process = child_processes.start(
                child_processes.python("-c", COMMAND),
                child_processes.without_keys("OTEL_", *child_processes.NETWORK),
                stdin=reading,
                stdout=subprocess.PIPE,
                pass_fds=[descriptor],
            )
        except OSError as error:
            log.warning("%s: %s", UNRECORDED, error)
            self._trouble = str(error)
            os.close(self._pipe)
            self._again = self._loop.call_later(AGAIN, self._start)
            return
        finally:
            os.close(reading)
        self._trouble = None  # it says so where the file still cannot be written
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
                self._free(int(line) - self._reported)
                continue
            log.warning("%s", text := line.decode(errors="replace"))
            what, _, why = text.partition(": ")
            if what in (UNRECORDED, RECORDED_AGAIN):
                self._trouble = why or None

    def _free(self, calls: int) -> None:
        """Lets go of so many more calls: they are written."""
        self._reported += calls
        self._bytes -= sum(len(self._held.popleft()) for _ in range(min(calls, len(self._held))))
        self._settle(calls)

    def _settle(self, calls: int) -> None:
        with self._settled:
            self._written += calls
            self._settled.notify_all()

    def _replace(self) -> None:
        """Has another process started, which gets what the last one may not have written."""
        process, self.process = self.process, None
        assert process is not None
        self._loop.remove_reader(self._lines)
        self._watch(False)
        os.close(self._pipe)
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        self._failed = 0 if self._reported else self._failed + 1
        self._note_end(process.returncode)
        pause = min(AGAIN, AT_ONCE + SOON * self._failed**2)
        self._again = self._loop.call_later(pause, self._start)

    def _end(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Lets the process write everything, and end. Returns False where it died instead, and
        another has to."""
        self._watch(False)
        self._loop.remove_reader(self._lines)
        while self._out and time.monotonic() < deadline:
            if select.select([], [self._pipe], [], 1.0)[1] and not self._send():
                break
        self.process = None
        os.close(self._pipe)
        try:
            rest, _ = process.communicate(timeout=max(1.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            log.warning("the last calls were not recorded: that took too long")
            return True
        self._hear(rest)
        if process.returncode:
            self._note_end(process.returncode)
        return not process.returncode

    def _note_end(self, status: int) -> None:
        """Takes note of a process that died: another gets what it may not have written."""
        self._unread, self._reported = b"", 0
        log.warning("the process that records calls ended with %s; starting another", status)

    # what goes to it:

    def _send(self) -> bool:
        """Sends what the pipe has room for; returns whether there is anybody to read it."""
        try:
            while self._out:
                del self._out[: os.write(self._pipe, self._out)]
        except BlockingIOError:
            pass
        except OSError:  # it has died, which `_listen` sees
            self._watch(False)
            return False
        self._watch(bool(self._out) and not self._closing)
        return True

    def _watch(self, wanted: bool) -> None:
        """Has the loop say when the pipe has room again, or no longer."""
        if wanted and not self._watching:
            self._loop.add_writer(self._pipe, self._send)
        elif self._watching and not wanted:
            self._loop.remove_writer(self._pipe)
        self._watching = wanted
