"""Writers take turns in the order in which they came: SQLite alone gives the file to whoever tries
at the right instant, who is mostly the one that has just committed.

A writer queues with locks on single bytes of a file beside the store:

1. its *ticket* is the time at which it came: it locks the byte at that offset for itself; 2. it
then asks to share every byte before its own. That is granted when nobody who came earlier holds a
ticket, and keeps out who read the clock earlier and locks later.

The file stays empty, and a ticket is gone when its process is. Where there is no such queue
(another system or file system), writers compete as SQLite lets them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - not a POSIX system
    fcntl = None  # type: ignore[assignment]

SUFFIX = "-queue"
OPEN_FILE_LOCKS = hasattr(fcntl, "F_OFD_SETLKW")
"""Whether locks can be an open file's: those of a process would not tell two threads apart."""
FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
PATIENCE = 60.0
"""Seconds to wait for a turn. Then the writer competes as SQLite lets it, from then on."""


class WriterQueue:
    """One writer's place in the queue of a store. Belongs to one thread, like a connection."""

    def __init__(self, path: Path | str | None) -> None:
        """`path` is the store's file, None for one in memory, which has no other writer. Nothing
        is made before the first turn."""
        self._path = path
        self._file: int | None = None
        self._given_up = path is None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until everybody who came before has had a turn, or has died."""
        queued = self.take()
        try:
            yield
        finally:
            self.give_back(queued)

    def give_back(self, queued: bool) -> None:
        """Ends a turn; `queued` is what `take` returned."""
        if queued and self._file is not None:  # not closed meanwhile
            _lock(self._file, fcntl.F_UNLCK, 0, 0, wait=True)  # 0 bytes: to the end

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def take(self) -> bool:
        """Waits for a turn, which `give_back` ends; returns whether there is a queue at all."""
        if fcntl is None or self._given_up:
            return False
        try:
            if self._file is None:
                self._file = os.open(f"{self._path}{SUFFIX}", FLAGS, self._mode())
            ticket = time.monotonic_ns()
            if not (self._wait(fcntl.F_WRLCK, ticket, 1) and self._wait(fcntl.F_RDLCK, 0, ticket)):
                self._given_up = True
                self.close()
                return False
        except OSError:  # no queue here: SQLite says who is next, and what is wrong if nothing is
            self.close()
            return False
        except BaseException:  # interrupted while waiting
            self.close()
            raise
        return True

    def _mode(self) -> int:
        """Who may open the queue: whoever may write the store. A reader could hold it."""
        assert self._path is not None
        writers = os.stat(self._path).st_mode & 0o222
        return writers | writers << 1

    def _wait(self, kind: int, start: int, length: int) -> bool:
        """Locks bytes; returns whether they were given within `PATIENCE` seconds."""
        assert self._file is not None
        if _lock(self._file, kind, start, length, wait=not OPEN_FILE_LOCKS):
            return True
        import threading  # fcntl knows no timeout of its own

        given = threading.Event()
        same = os.dup(self._file)  # locks are the open file's, whichever of its numbers asks

        def wait() -> None:
            try:
                _lock(same, kind, start, length, wait=True)
                given.set()
            finally:
                os.close(same)

        threading.Thread(target=wait, daemon=True).start()
        return given.wait(PATIENCE)


def _lock(file: int, kind: int, start: int, length: int, *, wait: bool) -> bool:
    """Locks or unlocks bytes; returns False where that would have to wait and may not."""
    try:
        if OPEN_FILE_LOCKS:  # struct flock, with 64-bit offsets
            command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
            import struct  # which who only reads needs not

            flock = struct.pack("@hhqqi0q", kind, os.SEEK_SET, start, length, 0)
            fcntl.fcntl(file, command, flock)
        else:
            how = {fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_RDLCK: fcntl.LOCK_SH}
            operation = how.get(kind, fcntl.LOCK_UN) | (0 if wait else fcntl.LOCK_NB)
            fcntl.lockf(file, operation, length, start)
    except (BlockingIOError, PermissionError):
        if wait:
            raise
        return False
    return True


def holder(path: Path | str) -> str:
    """Who has a store open beside us, for a message: `process 123`, where that is told."""
    target, here = os.path.realpath(path), str(os.getpid())
    processes = []
    for process in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            files = os.listdir(f"/proc/{process}/fd") if process.isdigit() else []
            names = {os.readlink(f"/proc/{process}/fd/{file}") for file in files}
        except OSError:  # it has ended, or is another user's
            continue
        if target in names and process != here:
            processes.append(process)
    return "process " + " or ".join(processes) if processes else "another process"
