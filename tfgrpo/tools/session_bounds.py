"""What bounds a session of untrusted code from outside: its folder and its threads.

The folder that it writes to is made, measured and removed. What lies in it is hostile: nothing here
follows a link, walks by path, or calls itself. All of that blocks, and belongs in a thread. Threads
are bounded by a cgroup (cgroups(7), `pids`) where one can be made, else by `RLIMIT_NPROC`
(`confine.py`), which does not hold root, else counted.
"""

from __future__ import annotations

import os
import re
import secrets
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
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
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
    """Removes a folder and all in it that can be, however deep. Follows no link, and changes no
    file's mode: one may have another name elsewhere."""
    removal = ["rm", "-rf", "--", str(folder)]
    opening = ["find", str(folder), "-type", "d", "!", "-perm", "-700"]
    opening += ["-execdir", "chmod", "u+rwx", "{}", ";"]
    environment = child_processes.without_keys()
    folders = environment.get("PATH", os.defpath).split(os.pathsep)
    environment["PATH"] = os.pathsep.join(filter(os.path.isabs, folders))  # else find refuses
    for command in (removal, opening, removal):
        if folder.is_symlink() or not folder.exists():
            return
        with suppress(OSError):
            child_processes.start(command, environment, stdout=DEVNULL, stderr=DEVNULL).wait()


BEGINS = "tfgrpo-"
_in_use: set[Path] = set()
"""The groups of this process that are not closed."""


class ThreadGroup:
    """A cgroup with a bound on its threads. Close it when all that ran in it has ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        _in_use.add(path)

    def take(self, pid: int) -> bool:
        """Moves a process and what it has started into the group; returns whether that worked."""
        taken = set[int]()
        try:
            while left := descendants(pid) - taken:  # what they start from now on is in it
                for one in left:
                    (self.path / "cgroup.procs").write_text(str(one))
                taken |= left
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Removes the group; one that still has a process goes when the next is made."""
        _in_use.discard(self.path)
        with suppress(OSError):
            self.path.rmdir()


def open_group() -> ThreadGroup | None:
    """A new group, or None where none can be made; those that are done with are removed."""
    for parent in _parents():
        for left in parent.glob(f"{BEGINS}*"):
            maker = left.name.split("-")[1]
            is_gone = maker.isdigit() and not Path(f"/proc/{maker}").exists()
            if is_gone or (maker == str(os.getpid()) and left not in _in_use):
                with suppress(OSError):
                    left.rmdir()
        group = ThreadGroup(parent / f"{BEGINS}{os.getpid()}-{secrets.token_hex(4)}")
        try:
            group.path.mkdir()
            (group.path / "pids.max").write_text(str(MOST_THREADS))
        except OSError:
            group.close()
            continue
        return group
    return None


def _parents() -> Iterator[Path]:
    """Yields the groups in which one may be made: this process's, and the one that is in, for in
    version 2 a group with processes has no others."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2" or (kind == "cgroup" and "pids" in options.split(",")):
            root, at = before.split(" ")[3:5]
            for number, controllers, path in (group.split(":", 2) for group in groups):
                same = number == "0" if kind == "cgroup2" else "pids" in controllers.split(",")
                if same:
                    own = Path(at, os.path.relpath(path, root))
                    yield from (own, own.parent)[: 2 if own != Path(at) else 1]


def too_many_threads(pid: int) -> str | None:
    """What is wrong where a process and what it has started have too many threads."""
    count = 0
    for one in descendants(pid, AGE):
        with suppress(OSError):  # it has ended meanwhile
            count += len(os.listdir(f"/proc/{one}/task"))
    return f"more than {MOST_THREADS} threads" if count > MOST_THREADS else None
