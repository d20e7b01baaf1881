"""A lock that a process holds for as long as it lives, by `filelock`. The lock file stays, for its
owner alone to open, and a link in its place is refused."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfgrpo.store.errors import StoreError, advice

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 0.1
"""Seconds to try for: who only asks whether a lock is held holds it for an instant."""


@contextmanager
def held(path: Path, *, patience: float = PATIENCE) -> Iterator[bool]:
    """Tries for `patience` seconds to take a lock; yields whether it was. Raises StoreError."""
    from filelock import FileLock, Timeout

    lock = FileLock(path, mode=0o600, poll_interval=0.001)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire(timeout=patience)
    except Timeout:
        yield False
        return
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        yield True
    finally:
        lock.release()


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at `path`. Raises StoreError."""
    if not path.exists():
        return False
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error) from error
    try:  # shared, so that two who ask do not see each other
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot lock {path}: {error.strerror}", hint=advice(error))
