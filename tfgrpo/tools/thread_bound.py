"""How many threads sandboxed code may have: bounded by a cgroup (cgroups(7), `pids`) where one can
be made, else by `RLIMIT_NPROC` (`confine.py`), which does not hold root, else counted."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tfgrpo.tools.confine import MOST_THREADS

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
        try:
            for one in descendants(pid):
                (self.path / "cgroup.procs").write_text(str(one))
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


def descendants(pid: int) -> Iterator[int]:
    """Yields a process and all that it has started, in order. Raises OSError."""
    yield pid
    for task in os.listdir(f"/proc/{pid}/task"):
        for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
            yield from descendants(int(child))


def too_many_threads(pid: int) -> str | None:
    """What is wrong where a process and what it has started have too many threads."""
    count = 0
    with suppress(OSError):  # one has ended meanwhile
        for one in descendants(pid):
            count += len(os.listdir(f"/proc/{one}/task"))
    return f"more than {MOST_THREADS} threads" if count > MOST_THREADS else None
