"""Files that several processes may write anew: one does so at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tfgrpo.store import process_lock
from tfgrpo.store.canonical import digest
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.store import Store

WAIT = 60.0
"""Seconds to wait for another process."""


@contextmanager
def alone(store: Store, path: Path) -> Iterator[None]:
    """Waits until no other process of a store writes a file. Raises SettingsError after `WAIT`."""
    with process_lock.held(lock_of(store, str(path.resolve())), patience=WAIT) as free:
        if not free:
            raise SettingsError(
                f"another process has been writing {path} for {WAIT:.0f} s",
                hint="run the same command again",
            )
        yield


def lock_of(store: Store, what: str) -> Path:
    """The lock of what one process of a store does at a time."""
    return Path(store.path).parent / "locks" / f"alone-{digest([what]).hex()[:16]}.lock"
