"""Writers take turns in the order in which they came.

SQLite lets one connection write at a time and tells the others to try again; whoever tries at
the right instant wins, and a writer that has just committed is always there first. So before a
writer asks SQLite, it queues on a file beside the store, with locks on single bytes of it:

1. its *ticket* is the time at which it came: it locks the byte at that offset for itself;
2. it then asks to share every byte before its own. That is granted when nobody who came earlier
   holds a ticket any more, and keeps out who read the clock earlier and locks later.

The file stays empty: locks may lie beyond the end of a file. Nothing is written or synced, and
a ticket is gone when its process is, however it ends, so a killed writer holds up nobody. (Only a
child forked in the middle of a turn shares the open file, and the turn, with its parent.) The wait
sleeps in the system, and a signal handler that raises ends it.

The queue makes waits fair, and SQLite's own lock keeps writes apart. Where there is no such
queue (another system, a file system without locks, a folder that cannot be written), writers
compete as SQLite lets them.
"""

from __future__ import annotations

import os
import struct
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


class WriterQueue:
    """One writer's place in the queue of a store. Belongs to one thread, like a connection."""

    def __init__(self, path: Path | str) -> None:
        """`path` is the store's file. Nothing is made before the first turn."""
        self._path = path
        self._file: int | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until everybody who came before has had a turn, or has died."""
        queued = self._queue()
        try:
            yield
        finally:
            if queued and self._file is not None:  # not closed meanwhile
                self._lock(fcntl.F_UNLCK, 0, 0)  # 0 bytes: to the end

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _queue(self) -> bool:
        if fcntl is None:
            return False
        try:
            if self._file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                mode = (
                    os.stat(self._path).st_mode & 0o666
                )  # whoever may write the one may the other
                self._file = os.open(f"{self._path}{SUFFIX}", flags, mode)
            ticket = time.monotonic_ns()
            self._lock(fcntl.F_WRLCK, ticket, 1)
            self._lock(fcntl.F_RDLCK, 0, ticket)
        except OSError:  # no queue here: SQLite says who is next, and what is wrong if nothing is
            self.close()
            return False
        except BaseException:  # interrupted while waiting
            self.close()
            raise
        return True

    def _lock(self, kind: int, start: int, length: int) -> None:
        """Locks or unlocks bytes, waiting for as long as it takes."""
        assert self._file is not None
        # Locks of the open file, where there are any: those of the process would not tell two
        # threads apart.
        command = getattr(fcntl, "F_OFD_SETLKW", None)
        if command is None:
            how = {fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_RDLCK: fcntl.LOCK_SH}
            fcntl.lockf(self._file, how.get(kind, fcntl.LOCK_UN), length, start)
        else:  # struct flock, with 64-bit offsets
            flock = struct.pack("@hhqqi0q", kind, os.SEEK_SET, start, length, 0)
            fcntl.fcntl(self._file, command, flock)
