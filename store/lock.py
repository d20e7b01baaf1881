"""A lock that a process holds for as long as it lives, kill -9 included."""

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
except ImportError:  # pragma: no cover - not on Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Tries to take the lock at `path`; yields whether it was taken. Waits for no longer
    than those take who only ask.

    The operating system gives the lock back when the process ends, however it ends. Where there
    is no `fcntl` it yields True and protects nothing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _taken(handle)
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Returns whether some process holds the lock at `path`."""
    if not path.exists():
        return False
    if fcntl is None:
        return False
    handle = os.open(path, os.O_RDONLY)
    try:  # shared, so that two who ask do not see each other
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _taken(handle: int) -> bool:
    if fcntl is None:
        return True
    for _ in range(20):  # somebody who only asks holds it for an instant
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005)
        else:
            return True
    return False
