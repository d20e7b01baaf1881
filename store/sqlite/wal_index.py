"""Whether anybody has committed, read where SQLite itself looks: in the shared index of the log.

`pragma data_version` answers the same question, but takes and gives back a lock in the file
system, which costs several system calls. The first 48 bytes of the file `-shm` are what every
commit rewrites and every reader compares (https://sqlite.org/walformat.html, "WAL-index header");
mapped into memory they cost less than a microsecond to look at.

The file is opened once and not closed as long as it is there: a process that closes a file loses
every lock that it holds on it, SQLite's included (https://sqlite.org/howtocorrupt.html, section
2.2). The last connection to go deletes it.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable
    from pathlib import Path

HEADER = 48
FORMAT = 3007000
"""The only version of the index that there is; SQLite refuses any other."""

SEVERAL = 6
"""How often a connection asks before it maps the index: a short command is done by then."""

_mapped: dict[tuple[int, int], tuple[str, int, mmap.mmap]] = {}
_lock = threading.Lock()

T = TypeVar("T")


def header_of(path: Path | str) -> mmap.mmap | None:
    """Returns the index of the store at `path`, mapped; its first 48 bytes are the header.

    None where it cannot be had: the store is in another journal mode, or the system maps no
    files. Call it with a connection open that has read from the store: that keeps the file in
    use.
    """
    if os.name != "posix":
        return None
    import mmap  # which a short command has no use for

    name = f"{os.path.realpath(path)}-shm"
    with _lock:
        try:
            file = os.stat(name)
            key = (file.st_dev, file.st_ino)
            if key not in _mapped:
                _drop_deleted()
                number = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
                index = mmap.mmap(number, HEADER, access=mmap.ACCESS_READ)
                _mapped[key] = name, number, index
        except (OSError, ValueError):
            return None
        index = _mapped[key][2]
    version = int.from_bytes(index[:4], "little"), int.from_bytes(index[:4], "big")
    return index if FORMAT in version and index[12] == 1 else None


def _drop_deleted() -> None:
    """Closes the indexes of stores that nobody has open any more."""
    for key, (name, number, _) in list(_mapped.items()):
        try:
            file = os.stat(name)
            there = (file.st_dev, file.st_ino) == key
        except OSError:
            there = False
        if not there:
            del _mapped[key]  # whoever looks into it still has it: the last one unmaps it
            os.close(number)


class UntilCommit(Generic[T]):
    """Something that is read from a store, kept until somebody commits, oneself included."""

    def __init__(self, connection: sqlite3.Connection, path: Path | str | None) -> None:
        """`path` is the store's file, None for a store in memory."""
        self._connection, self._path = connection, path
        self._marks = 0
        self._index: mmap.mmap | None = None
        self._last: tuple[object, T] | None = None  # as of which mark, what

    def value(self, read: Callable[[], T]) -> T:
        """Returns it as it stands now; raises what reading it raises."""
        if self._connection.in_transaction:  # which nobody else may ever see
            return read()
        now = self._mark()
        if self._last is None or self._last[0] != now:
            self._last = now, read()
        return self._last[1]

    def _mark(self) -> object:
        """Returns what is something else after every commit; something new where it cannot be
        told: whoever reads then is told why."""
        if self._index is not None:
            return self._index[:HEADER]
        self._marks += 1
        if self._marks == SEVERAL and self._path is not None:
            self._index = header_of(self._path)
        try:
            (others,) = self._connection.execute("pragma data_version").fetchone()
        except sqlite3.Error:
            return object()
        return others, self._connection.total_changes
