"""What bounds a session of untrusted code from outside: its folder and its threads.

The folder that it writes to is made, measured and removed. What lies in it is hostile: nothing here
follows a link, walks by path, or calls itself. All of that blocks, and belongs in a thread. Threads
are counted where `RLIMIT_NPROC` (`confine.py`) does not bound them: it does not hold root.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL

from tfgrpo.store import child_processes
from tfgrpo.tools.confine import MOST_THREADS
from tfgrpo.tools.process_table import AGE, descendants

DEEPEST = 100
FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
DELETED = re.compile(rb"^(\w+)-(\w+) \S+ \S+ (\S+ \d+) .* \(deleted\)$", re.MULTILINE)


def make_scratch() -> Path:
    """A new folder that nobody else can look into, under its real path."""
    return Path(tempfile.mkdtemp(prefix="tfgrpo-python-")).resolve()


def excess(folder: Path, process: int, *, size: int, entries: int) -> str | None:
    """By what a folder is over its limits of bytes and of files and folders, or None. Files that
    were deleted count as long as `process`, or one that it started, holds them."""
    total = 0
    for count, (depth, status) in enumerate(_walk(folder), 1):
        if status is None:
            return "folders that cannot be read"
        total += status.st_blocks * 512
        if count > entries:
            return f"more than {entries} files and folders"
        if depth > DEEPEST:
            return f"folders nested more than {DEEPEST} deep"
        if total > size:
            break
    else:
        total += sum(_deleted_files(folder, process).values())
    return f"more than {size >> 20} MiB of files" if total > size else None


def _walk(folder: Path) -> Iterator[tuple[int, os.stat_result | None]]:
    """Yields how deep each file and folder lies, and what it is; None for what cannot be read."""
    open_folders: list[tuple[int, Iterator[os.DirEntry[str]]]] = []

    def enter(name: str | Path, within: int | None) -> None:
        handle = os.open(name, FOLDER, dir_fd=within)
        open_folders.append((handle, os.scandir(handle)))

    try:
        enter(folder, None)
        while open_folders:
            handle, remaining = open_folders[-1]
            entry = next(remaining, None)
            if entry is None:
                os.close(handle)
                open_folders.pop()
                continue
            try:
                status = entry.stat(follow_symlinks=False)
                yield len(open_folders), status
                if stat.S_ISDIR(status.st_mode):
                    enter(entry.name, handle)
            except PermissionError:
                yield len(open_folders), None
            except OSError:
                continue  # it is gone by now, or another
    except FileNotFoundError:
        return
    finally:
        for handle, _ in open_folders:
            os.close(handle)


def _deleted_files(folder: Path, process: int) -> dict[object, int]:
    """The bytes of each deleted file of the folder's disk that is open or mapped."""
    sizes: dict[object, int] = {}
    try:
        disk = folder.lstat().st_dev
    except OSError:
        return sizes
    for member in descendants(process, AGE):
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{member}/fd"):
                with suppress(OSError):
                    status = os.stat(entry.path)
                    if (
                        stat.S_ISREG(status.st_mode)
                        and not status.st_nlink
                        and status.st_dev == disk
                    ):
                        sizes[status.st_ino] = status.st_blocks * 512
        with suppress(OSError):
            for mapped in DELETED.finditer(Path(f"/proc/{member}/maps").read_bytes()):
                if os.fsencode(folder) in mapped[0]:
                    inode = int(mapped[3].split()[1])
                    length = int(mapped[2], 16) - int(mapped[1], 16)
                    sizes[inode] = max(sizes.get(inode, 0), length)
    return sizes


def remove_scratch(folder: Path) -> None:
    """Removes a folder and all in it that can be, however deep. Follows no link."""
    if folder.is_symlink() or not folder.exists():
        return
    for command in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        with suppress(OSError):
            environment = child_processes.without_keys()
            streams = {"stdout": DEVNULL, "stderr": DEVNULL}
            child_processes.start([*command, "--", str(folder)], environment, **streams).wait()


def too_many_threads(pid: int) -> str | None:
    """What is wrong where a process and what it has started have too many threads."""
    count = 0
    for one in descendants(pid, AGE):
        with suppress(OSError):  # it has ended meanwhile
            count += len(os.listdir(f"/proc/{one}/task"))
    return f"more than {MOST_THREADS} threads" if count > MOST_THREADS else None
