"""How many calls a worker has begun, in a file that outlives it.

The process that records the calls holds the file too: while either is alive, its lock is held.
What was begun and is not on record once both are gone is lost, and counted by whoever sees that
first: the process that records, at its end, or whoever opens the record next.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
from contextlib import suppress
from glob import glob
from typing import IO

from tfgrpo.store.activity.traffic import Traffic

SIZE = 8


class Counter:
    """A number in a file, which this process alone changes."""

    def __init__(self, path: str) -> None:
        self._file = _locked(path)
        self._file.write(bytes(SIZE))
        self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), SIZE)
        self._cell = memoryview(self._map).cast("Q")
        self._value = 0

    @property
    def descriptor(self) -> int:
        """The open file, for the process that records: it shares the lock."""
        return self._file.fileno()

    def increase(self) -> None:
        """Counts one more."""
        self._cell[0] = self._value = self._value + 1

    def close(self) -> None:
        """Lets go of the file, which stays."""
        self._cell.release()
        self._map.close()
        self._file.close()


def _locked(path: str) -> IO[bytes]:
    """Returns a new file whose lock is held. Whoever looks for workers that are gone may see it
    first, before it is locked, and take it away: then another is made."""
    while True:
        file: IO[bytes] = open(  # noqa: SIM115
            path, "w+b", opener=lambda name, flags: os.open(name, flags, 0o600)
        )
        fcntl.flock(file, fcntl.LOCK_EX)
        if _is_there(path, file):
            return file
        file.close()


def _is_there(path: str, file: IO[bytes]) -> bool:
    """Returns whether a file that was opened by this name still has it."""
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
    missing = max(0, begun - traffic.recorded(worker))
    if missing:
        traffic.count_lost(missing)
    with suppress(OSError):
        os.unlink(counter_path(path, worker))


def count_lost(traffic: Traffic, path: str) -> None:
    """Adds what workers lost that are gone to the record. Raises StoreError."""
    for name in glob(f"{path}-worker-*"):
        with suppress(OSError), open(name, "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # it is alive
            if not _is_there(name, file):
                continue  # somebody else has counted it meanwhile
            settle(traffic, path, name.rpartition("-")[2], file.fileno())
