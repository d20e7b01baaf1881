"""Files that are written whole or not at all: first under an unpredictable name."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


PRIVATE, SHARED = 0o600, 0o666
"""Modes of files: for the owner alone, as a store's are; for whoever the user's umask lets."""

SCRATCH = ".clone-"
"""How the name of a folder begins in which a clone is made."""
DATABASE = b"SQLite format 3\0"
"""What a file of SQLite begins with."""

NO_NAMELESS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.EPERM}
"""What a file system says that has no files without a name, or a system without /proc."""
NO_FOLDERS = {errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EACCES}
"""What a system says where a folder cannot be synchronised, or one cannot look into it."""
NO_LINKS = {errno.EOPNOTSUPP, errno.EPERM, errno.ENOSYS, errno.EMLINK}


def check_place(path: Path | str) -> None:
    """Raises OSError where no file can be written: no folder, no permission, a folder, or a
    database, which no output replaces."""
    folder = os.path.dirname(os.fspath(path)) or "."
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if is_database(path):
        raise FileExistsError(errno.EEXIST, "A database is not overwritten", str(path))
    if not os.path.isdir(folder):
        number = errno.ENOTDIR if os.path.exists(folder) else errno.ENOENT
        raise OSError(number, os.strerror(number), folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


@contextmanager
def replacing(
    path: Path | str, *, mode: int = PRIVATE, check: Callable[[], object] | None = None
) -> Iterator[IO[bytes]]:
    """Opens a new file that takes the place of `path` when the block ends well and what it holds is
    on the disk: a loss of power leaves the old file or the new one, and the new one as soon as this
    returns. A link there is replaced, not followed. `check` is called last, and what it raises
    leaves the old file. Raises OSError."""
    check_place(path)
    folder, name = os.path.split(os.fspath(path))
    handle, temporary = _new(folder, name, mode)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if check is not None:
                check()
            os.replace(temporary, path)  # a copy that is held is nobody's leftover
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_folder(folder or ".")


def _new(folder: str, name: str, mode: int) -> tuple[int, str]:
    """Makes a file under a name that nobody can foretell, to be renamed to `name`; returns its
    descriptor and path. Those that were left behind by a kill are removed. Raises OSError."""
    clear_copies(os.path.join(folder, name))
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        temporary = os.path.join(folder, f".{name[:100]}.{os.urandom(8).hex()}")
        handle = os.open(temporary, flags, mode)
        if hold(handle, temporary):
            return handle, temporary
        os.close(handle)


def clear_copies(path: Path | str) -> None:
    """Removes unfinished copies of a file that a kill has left."""
    folder, name = os.path.split(os.fspath(path))
    begins = f".{name[:100]}."

    def is_copy(name: str) -> bool:
        ending = name[len(begins) :]
        is_ours = len(ending) == 16 and all(sign in "0123456789abcdef" for sign in ending)
        return is_ours and name.startswith(begins)

    _sweep(folder, is_copy, os.unlink)


def clear(file: Path | str) -> None:
    """Removes what a clone or redaction left beside a store when its process died."""
    folder = os.path.dirname(file)

    def remove_tree(path: str) -> None:
        import shutil

        shutil.rmtree(path)

    clear_copies(f"{file}-redacting")
    sweep(folder, SCRATCH, remove_tree)


def is_database(path: Path | str) -> bool:
    with suppress(OSError):
        status = os.lstat(path)
        if stat.S_ISREG(status.st_mode) and status.st_size >= len(DATABASE):
            with open(path, "rb") as file:
                return file.read(len(DATABASE)) == DATABASE
    return False


def write(path: Path | str, content: str | bytes, *, mode: int = PRIVATE) -> None:
    """Writes a file whole or not at all; text as UTF-8. As `replacing` does."""
    with replacing(path, mode=mode) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def create(path: Path | str, content: bytes, *, mode: int = PRIVATE) -> bool:
    """Writes a new file, whole and on the disk before it has its name; returns False, and writes
    nothing, where something has that name already: a link to nowhere too.

    Of several who try at once, one does it. On Linux the file has no name at all until it is
    whole, so nothing is left of one whose maker was killed. Raises OSError.
    """
    folder, name = os.path.split(os.fspath(path))
    folder = folder or "."
    try:
        created = _create_nameless(folder, name, content, mode)
    except OSError as error:
        if error.errno not in NO_NAMELESS:
            raise
        created = _create_named(folder, name, content, mode)
    if created:
        sync_folder(folder)
    return created


def _create_nameless(folder: str, name: str, content: bytes, mode: int) -> bool:
    if not hasattr(os, "O_TMPFILE"):
        raise OSError(errno.EOPNOTSUPP, "no files without a name here")
    handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
    try:
        _write_all(handle, content)
        # One that is given as /proc/… is followed only by the call that takes a descriptor.
        os.link(f"/proc/self/fd/{handle}", os.path.join(folder, name), src_dir_fd=handle)
    except FileExistsError:
        return False
    finally:
        os.close(handle)
    return True


def _create_named(folder: str, name: str, content: bytes, mode: int) -> bool:
    handle, temporary = _new(folder, name, mode)
    try:
        _write_all(handle, content)
        return _name(temporary, os.path.join(folder, name))
    finally:
        os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _name(temporary: str, path: str) -> bool:
    """Gives a file its name; returns False where the name is taken."""
    try:
        os.link(temporary, path)  # which replaces none
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _rename_alone(temporary, path)
    return True


def _rename_alone(temporary: str, path: str) -> bool:
    """Renames a file where a file system has no links; returns False where the name is taken."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if os.path.lexists(path):
            return False
        os.rename(temporary, path)
        return True
    finally:
        os.close(folder)


def _write_all(handle: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.fsync(handle)


def sync_folder(folder: Path | str) -> None:
    """Puts the names in a folder on the disk, where the system has a way to."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in NO_FOLDERS:
            raise


def hold(handle: int, path: str) -> bool:
    """Takes the lock on what was just made at `path`; returns False where another process took it
    for a leftover and removes it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return os.path.lexists(path)
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False


@contextmanager
def held_folder(within: Path, begins: str) -> Iterator[Path]:
    """Makes a folder under a name that nobody can foretell, which `sweep` leaves alone for as long
    as the block runs. Raises OSError."""
    while True:
        folder = within / f"{begins}{os.urandom(8).hex()}"
        folder.mkdir(mode=0o700)
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # somebody took it for a leftover
            continue
        try:
            if hold(handle, str(folder)):
                yield folder
                return
        finally:
            os.close(handle)


def sweep(folder: str, begins: str, remove: Callable[[str], object]) -> None:
    """Removes what lies in a folder under such a name and whose maker is gone, if it can be."""
    _sweep(folder, lambda name: name.startswith(begins), remove)


def _sweep(folder: str, is_named: Callable[[str], bool], remove: Callable[[str], object]) -> None:
    with suppress(OSError), os.scandir(folder or ".") as entries:
        for path in [entry.path for entry in entries if is_named(entry.name)]:
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
