"""The process that writes the calls of one worker to the record, and tells collectors of them.

It gets them through a pipe (`Call.packed`), as they end, and writes a tenth of a second of them at
once. What a batch costs, SQLite, JSON and histograms, some 0.05 ms a call, requests would wait for
in a thread, for Python's threads take turns: that was the slowest hundredth of them. It ends when
the pipe does: so a worker that is killed loses nothing of what it had handed over. One that takes
the place of another gets first what that one may have written already.

How many calls a worker has begun stands in a file that outlives it. The process that records holds
it too: while either is alive, its lock is held. What was begun and is not on record once both are
gone is lost, and counted by whoever sees that first: that process at its end, or whoever opens the
record next.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from glob import glob
from marshal import loads
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from tfgrpo.model.response import CountedTokens
from tfgrpo.proxy.recorded_call import LENGTH, RECORDED, SeenCall
from tfgrpo.proxy.telemetry import Labels, Telemetry, sums_of
from tfgrpo.proxy.withheld_words import Finder, without_identities, without_secrets
from tfgrpo.store.activity.traffic import (
    CUT_OFF,
    CallContent,
    CallRecord,
    Traffic,
    UnknownCall,
    keyed,
)
from tfgrpo.store.errors import StoreError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import REDACTED

if TYPE_CHECKING:
    from tfgrpo.proxy.keys_and_limits import Spending

UNRECORDED, RECORDED_AGAIN = "calls are not recorded", "calls are recorded again"
"""What is told when the file cannot be written, before the reason, and when it can be again."""
PAUSE, SLICES = 0.1, 5
"""Seconds between batches, and how often in them the pipe is emptied."""
PRUNE = 30.0
"""Seconds between two looks for calls that are too old."""
BATCH = 250
"""Calls that are written at once, at most. The pipe is emptied between batches: what waits here
outlives the worker."""
WAITING, MOST = 5000, 16 << 20
"""Bytes that wait here, others in the pipe; and calls too while the file cannot be written: later
ones are lost, and counted."""
PIECE = 256 << 10
NICE = 10
"""By how much requests come first (nice(1)) where there are too few processors for both."""
SIZE = 8
"""Bytes of a count."""
UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What reading an answer of another shape than any that is known may come to."""


class WriterSettings(NamedTuple):
    """What is recorded where: the file, the worker whose calls these are, the open file in which
    it counts them, how many of the first may be on record already, whether words are kept, for how
    many seconds, what is taken out of them, and what is counted in dollars."""

    path: str
    worker: str
    counter: int
    again: int
    content: bool
    keep: float | None
    redact: list[str]
    spending: list[Any] | None = None
    personal: list[str] | None = None


class RecordWriter:
    """Writes until the pipe ends. `tell` is called with a line that is for the log."""

    def __init__(self, settings: WriterSettings, tell: Callable[[str], None]) -> None:
        self._settings = settings
        self._tell = tell
        self._patterns = Finder(tuple(settings.redact), settings.personal)
        self._labels = Labels()
        """Those of the file that is open."""
        self._buffer = bytearray()
        self._waiting: list[SeenCall] = []
        self._sizes: deque[int] = deque()
        self._bytes = 0
        self._settled = 0
        """Calls that are written or given up."""
        self._again = settings.again
        """Calls, the first of those that wait, that may be on record already."""
        self._traffic: Traffic | None = None
        self._node: tuple[int, int] | None = None
        self._secret = b""
        self._trouble = False
        self._pruned = 0.0
        self._telemetry = Telemetry.of_environment(tell)
        self._spending: Spending | None = None
        if settings.spending is not None:
            from tfgrpo.proxy.keys_and_limits import Spending, SpendingSettings  # 20 MB of prices

            self._spending = Spending(SpendingSettings(*settings.spending), tell)

    def run(self, pipe: int) -> None:
        """Reads and writes until the pipe ends."""
        os.set_blocking(pipe, False)
        ended = caught_up = False
        ending = select.poll()
        ending.register(pipe, 0)  # which is told of its end alone
        self._write()  # which counts what was lost before
        while not ended or (self._waiting and not self._trouble):
            patience = PAUSE if self._trouble else PRUNE
            idle = self._trouble or not self._waiting
            if idle and select.select([pipe], [], [], patience)[0]:
                for _ in range(SLICES):  # so that one batch has what comes meanwhile
                    if ending.poll(PAUSE / SLICES * 1000):
                        break
                    self._read(pipe)
            ended = self._read(pipe) or ended
            self._write()
            if not caught_up and not self._waiting:
                caught_up = True  # before that, what comes is lost where the worker is killed
                os.nice(NICE)
        if self._spending is not None:
            self._spending.close()
        if self._telemetry is not None:
            self._telemetry.close()
        if self._traffic is not None:
            settings = self._settings
            with suppress(StoreError):
                settle(self._traffic, settings.path, settings.worker, settings.counter)
            self._traffic.close()

    def _read(self, pipe: int) -> bool:
        """Reads what is in the pipe; returns whether it has ended."""
        buffer = self._buffer
        while self._trouble or self._bytes < MOST:
            try:
                data = os.read(pipe, PIECE)
            except BlockingIOError:
                return False
            if not data:
                return True
            buffer += data
            at = 0
            while (begin := at + LENGTH) <= len(buffer):
                end = begin + int.from_bytes(buffer[at:begin], "little")
                if end > len(buffer):
                    break
                if self._trouble and (len(self._waiting) >= WAITING or self._bytes >= MOST):
                    self._settled += 1
                else:
                    record, *rest = loads(buffer[begin:end])
                    self._waiting.append(SeenCall(CallRecord._make(record), *rest))
                    self._sizes.append(end - at)
                    self._bytes += end - at
                at = end
            del buffer[:at]
        return False

    def _write(self) -> None:
        """Writes what waits, deletes what is too old, and tells the collector."""
        settings = self._settings
        rows: list[CallRecord] = []
        batch = self._waiting[:BATCH]
        try:
            if self._traffic is not None and self._node != _node_of(settings.path):
                self._tell(f"{settings.path} was deleted or replaced; another is written")
                self._traffic.close()
                self._traffic = None
            if self._traffic is None:
                self._traffic = open_traffic(settings.path, create=True)
                self._node = _node_of(settings.path)
                self._secret = self._traffic.secret()
                self._labels = Labels(self._traffic.totals())
                if self._spending is not None:  # what recorded before may have been killed
                    owed = self._traffic.recorded(settings.worker).owed
                    self._spending.settle(settings.worker, owed)
                count_lost(self._traffic, settings.path, self._spending)
            if batch:
                rows = self._record(self._traffic, self._unrecorded(batch, self._traffic))
            if settings.keep is not None and time.monotonic() - self._pruned > PRUNE:
                self._traffic.delete_before(int((time.time() - settings.keep) * 1e6))
                self._pruned = time.monotonic()
        except StoreError as error:
            if not self._trouble:
                self._tell(f"{UNRECORDED}: {error}")
            self._trouble = True
            self._again = max(self._again, len(batch))  # some may be written
            if self._traffic is not None:
                with suppress(StoreError):
                    self._traffic.close()
            self._traffic = None
            return
        if self._trouble:
            self._tell(RECORDED_AGAIN)
        self._trouble = False
        if batch:
            self._settled += len(batch)
            self._again = max(0, self._again - len(batch))
            self._tell(str(self._settled))
        del self._waiting[: len(batch)]
        self._bytes -= sum(self._sizes.popleft() for _ in batch)
        if self._telemetry is not None:
            self._telemetry.send_calls(rows)

    def _unrecorded(self, calls: list[SeenCall], traffic: Traffic) -> list[SeenCall]:
        """Returns those, the first that wait, that are not on record. Raises StoreError."""
        new = calls[self._again :]
        for call in calls[: self._again]:
            try:
                traffic.call(call.record.id)
            except UnknownCall:
                new.append(call)
        return new

    def _record(self, traffic: Traffic, calls: list[SeenCall]) -> list[CallRecord]:
        """Writes calls, and returns their rows. One that cannot be written by itself is lost, and
        keeps no other back. Raises StoreError."""
        try:
            rows = self._rows(calls)
            contents = [self._words(call) for call in calls if call.request is not None]
            owed = {} if self._spending is None else self._spending.owed(rows)
            traffic.add(rows, contents, sums_of(rows, self._labels), owed)
        except UNREADABLE as error:
            if len(calls) > 1:
                return [row for call in calls for row in self._record(traffic, [call])]
            self._tell(f"{calls[0].record.id} is not recorded: {error}")
            return []
        if self._spending is not None:
            self._spending.settle(self._settings.worker, owed)
        return rows

    def _rows(self, calls: list[SeenCall]) -> list[CallRecord]:
        callers: dict[bytes, bytes] = {}  # for this batch: no key is kept for longer
        finders: dict[tuple[bytes, ...], tuple[Finder, Finder]] = {}
        rows = []
        for call in calls:
            row, key, ids = call.record, call.key, call.experiences
            tokens, unread = call.tokens()
            if row.prompt_tokens is not None:  # known already: the call asked no model
                tokens = CountedTokens(row.prompt_tokens, row.cached_tokens, row.completion_tokens)
            status, error = call.outcome()
            if call.keys not in finders:
                finder = self._patterns.beside(call.keys)
                finders[call.keys] = finder, finder.of_names()
            withheld, withheld_in_names = finders[call.keys]
            caller = callers.get(key) if key else None
            if key and caller is None:
                caller = callers[key] = keyed(self._secret, key)
            row = row._replace(
                worker=self._settings.worker,
                experiences=None if ids is None else json.dumps(ids),
                subject=self._identity(row.subject) if row.subject else None,
                model=_clean(row.model, withheld_in_names),
                route=withheld.sub(REDACTED, row.route),
                status=status,
                caller=caller,
                error=_clean(error or unread, withheld),
                trace=call.trace(),
                tags=_tags(call, withheld),
                **tokens._asdict(),
            )
            rows.append(row)
        return rows

    def _identity(self, value: str) -> str:
        return keyed(self._secret, value.encode(errors="surrogatepass")).hex()

    def _words(self, call: SeenCall) -> CallContent:
        keys, withheld = Finder.of(call.keys), self._patterns.beside(call.keys)
        request, (answer, whole, streamed) = (call.request or b""), call.answer()
        own = without_identities(request.decode(errors="replace"), self._identity)
        text = answer.decode(errors="replace")
        own = own if len(request) < RECORDED else keys.without_half(own)
        text = text if whole else keys.without_half(text)
        if not streamed:  # some answers repeat whom they are for
            text = without_identities(text, self._identity)
        return CallContent(
            call.record.id,
            keys.sub(REDACTED, without_secrets(own, withheld)),
            keys.sub(REDACTED, without_secrets(text, withheld)) + ("" if whole else CUT_OFF),
        )


def _node_of(path: str) -> tuple[int, int] | None:
    """Returns which file it is that has this name; None for none."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _tags(call: SeenCall, withheld: Finder) -> str | None:
    """Returns the tags of a call as they stand on record, less what is taken out of words."""
    if not call.labels and not call.metadata:
        return None
    tags = sorted(call.tags().items())
    return json.dumps({_clean(name, withheld): _clean(value, withheld) for name, value in tags})


def _clean(text: str | None, withheld: Finder) -> str | None:
    """Returns a text less what is taken out of words, as SQLite takes it: half of a surrogate pair,
    which JSON can name, is none."""
    if text is None:
        return None
    return withheld.sub(REDACTED, text.encode(errors="replace").decode())


def main() -> None:
    """Writes what comes in on standard input, behind a first message with the settings: what is for
    the log goes to standard output, and a line with a number after each batch says how many calls
    were written so far."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # calls under way are still to be recorded

    def tell(line: str) -> None:
        with suppress(OSError):  # the worker is gone
            os.write(1, " ".join(line.split()).encode() + b"\n")

    settings = _read_whole(0, int.from_bytes(_read_whole(0, LENGTH), "little"))
    RecordWriter(WriterSettings(*json.loads(settings)), tell).run(0)


def _read_whole(pipe: int, length: int) -> bytes:
    """Returns the next bytes of a pipe. Ends this process where the worker is gone before them: it
    has handed nothing over."""
    data = b""
    while len(data) < length:
        piece = os.read(pipe, length - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data


class Counter:
    """A number in a file, which this process alone changes."""

    def __init__(self, path: str) -> None:
        self._file = _locked(path)
        self._value = 0
        self._write()

    @property
    def descriptor(self) -> int:
        """The open file, for the process that records: it shares the lock."""
        return self._file.fileno()

    def increase(self) -> None:
        """Counts one more."""
        self._value += 1
        self._write()

    def _write(self) -> None:
        os.pwrite(self.descriptor, self._value.to_bytes(SIZE, sys.byteorder), 0)

    def close(self) -> None:
        """Lets go of the file, which stays."""
        self._file.close()


def _locked(path: str) -> IO[bytes]:
    """Returns a new file whose lock is held. Whoever looks for workers that are gone may see it
    first, before it is locked, and take it away: then another is made."""
    while True:
        file: IO[bytes] = open(path, "w+b", opener=partial(os.open, mode=0o600))  # noqa: SIM115
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_there(path, file):
            return file
        file.close()


def _is_there(path: str, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def counter_path(traffic: str, worker: str) -> str:
    """Returns where the calls of a worker are counted."""
    return f"{traffic}-worker-{worker}"


def settle(traffic: Traffic, path: str, worker: str, descriptor: int) -> None:
    """Counts as lost what a worker has begun and is not on record, and takes its file away; its
    lock is held. Raises StoreError, and leaves the file then."""
    begun = int.from_bytes(os.pread(descriptor, SIZE, 0), sys.byteorder)
    traffic.count_lost(worker, begun)
    with suppress(OSError):
        os.unlink(counter_path(path, worker))


def count_lost(traffic: Traffic, path: str, spending: Spending | None = None) -> None:
    """Adds what workers lost that are gone to the record, and what their calls owe to the ledger.
    Raises StoreError."""
    for name in glob(f"{path}-worker-*"):
        with suppress(OSError), open(name, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # it is alive
            if not _is_there(name, file):
                continue  # somebody else has counted it meanwhile
            worker = name.rpartition("-")[2]
            if spending is None or spending.spend(worker, traffic.recorded(worker).owed):
                settle(traffic, path, worker, file.fileno())
