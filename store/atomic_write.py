"""Files that are written whole or not at all, wherever they lie.

What is written goes to a new file beside the one it takes the place of, under a name that nobody
can foretell: a folder that somebody else prepared holds no link there to follow, and a reader
sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE, SHARED = 0o600, 0o666
"""Modes of files: for the owner alone, as a store's are; for whoever the user's umask lets."""


@contextmanager
def replacing(
    path: Path | str, *, mode: int = PRIVATE, durable: bool = False
) -> Iterator[IO[bytes]]:
    """Opens a new file that takes the place of `path` when the block ends well, and is gone when
    it does not.

    A link at `path` is replaced, not followed. With `durable` the content is on the disk before
    it takes its place, and its place before this returns. Raises OSError.
    """
    folder, name = os.path.split(os.fspath(path))
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = os.path.join(folder, f".{name[:100]}.{os.urandom(8).hex()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(temporary, flags, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(folder or ".")


def write(
    path: Path | str, content: str | bytes, *, mode: int = PRIVATE, durable: bool = False
) -> None:
    """Writes a file whole or not at all; text as UTF-8. As `replacing` does."""
    with replacing(path, mode=mode, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def sync_folder(folder: Path | str) -> None:
    """Puts the names in a folder on the disk, where the system has a way to."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
