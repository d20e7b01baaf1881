"""What was being made when its maker was killed: known by a lock that nobody holds, and removed by
the next who makes the same.

Whoever makes a file or folder under a temporary name holds a lock on it for as long as it lives.
Where a file system or a system has no such locks, nothing is removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def hold(handle: int, path: str) -> bool:
    """Takes the lock on what was just made at `path`; returns False where somebody took it for a
    leftover before, and removed it."""
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return os.path.lexists(path)
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


def sweep(folder: str, begins: str, remove: Callable[[str], object]) -> None:
    """Removes what lies in a folder under a name that begins so and whose maker is gone. What
    cannot be removed stays."""
    if fcntl is None:
        return
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for path in [entry.path for entry in entries if entry.name.startswith(begins)]:
            with suppress(OSError):
                _remove(path, remove)


def _remove(path: str, remove: Callable[[str], object]) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if os.fstat(handle).st_uid == os.geteuid():
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
    finally:
        os.close(handle)
