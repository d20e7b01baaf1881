"""One process at a time works on a model's files. Whoever holds the lock file removes it; who
waited on it goes on with a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tfgrpo.local.local_errors import LocalModelError
from tfgrpo.store.process_lock import held

_POLL_SECONDS = 0.1


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` for the block. Meanwhile call `waiting` ten times a second, or
    raise LocalModelError without it. Raises StoreError where there can be no file."""
    while True:
        with held(path, patience=0 if waiting is None else _POLL_SECONDS) as free:
            if free:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        if waiting is None:
            raise LocalModelError(
                f"another process is working on {path.with_suffix('').name}",
                hint="wait for it to finish, or stop it, then try again",
            )
        waiting()
