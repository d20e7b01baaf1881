"""Whether anybody has committed, read where SQLite itself looks: in the shared index of the log.

`pragma data_version` answers the same question, but takes and gives back a lock in the file
system, which costs several system calls. The first 48 bytes of the file `-shm` are what every
commit rewrites and every reader compares (https://sqlite.org/walformat.html, "WAL-index header");
mapped into memory they cost less than a microsecond to look at.

The file is opened once and never closed: a process that closes a file loses every lock that it
holds on it, SQLite's included (https://sqlite.org/howtocorrupt.html, section 2.2).
"""

from __future__ import annotations

import mmap
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEADER = 48
FORMAT = 3007000
"""The only version of the index that there is; SQLite refuses any other."""

_mapped: dict[tuple[int, int], tuple[int, mmap.mmap]] = {}
_lock = threading.Lock()


def header_of(path: Path | str) -> mmap.mmap | None:
    """Returns the index of the store at `path`, mapped; its first 48 bytes are the header.

    None where it cannot be had: the store is in another journal mode, or the system maps no
    files. Call it with a connection open that has read from the store: that keeps the file in
    use.
    """
    if os.name != "posix":
        return None
    name = f"{os.path.realpath(path)}-shm"
    with _lock:
        try:
            file = os.stat(name)
            key = (file.st_dev, file.st_ino)
            if key not in _mapped:
                number = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
                _mapped[key] = number, mmap.mmap(number, HEADER, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        index = _mapped[key][1]
    version = int.from_bytes(index[:4], "little"), int.from_bytes(index[:4], "big")
    return index if FORMAT in version and index[12] == 1 else None
