"""One process at a time works on a model's files.

An advisory lock dies with its holder, so a killed fetch never leaves the next one
waiting. The lock file is removed by whoever holds the lock; whoever then gets hold
of a file that is no longer in the folder tries again with the new one. On a platform
without fcntl there is no lock, and two fetches at once may cost one of them its work
(the digest still keeps a damaged model from ever being used).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

from tfgrpo.local.errors import LocalModelError

_POLL_SECONDS = 0.1


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` for the block.

    While another process holds it, call `waiting` ten times a second; without
    `waiting`, raise LocalModelError at once.
    """
    if fcntl is None:
        yield
        return
    while (descriptor := _try(path)) is None:
        if waiting is None:
            raise LocalModelError(
                f"another process is working on {path.with_suffix('').name}",
                hint="wait for it to finish, or stop it, then try again",
            )
        waiting()
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _try(path: Path) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise LocalModelError(f"cannot write {path}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(descriptor), os.stat(path)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
