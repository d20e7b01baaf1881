"""The processes that run, as /proc tells: what a program has started, what it takes, and its end.

A program's family is its session, what has its mark in the environment, and all that these have
started. What was seen once stays of the family, wherever it goes. Where the system does not tell,
nothing is seen.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
OURS = b"TFGRPO_"
"""How the variables begin that mark processes."""
AGE = 0.1
"""Seconds in which the table is read once, for all that only watch."""
ROUNDS = 100
SHARE = re.compile(rb"^Pss: +(\d+) kB$", re.MULTILINE)


class Process(NamedTuple):
    """A process: when it began, in ticks of the system's clock, which tells it from a later one of
    its number; its parent, its session, and the variables that mark it."""

    began: int
    parent: int
    session: int
    marks: frozenset[bytes]


class Family:
    """A program with all that it has started. Its processes have `NAME=VALUE` in their environment,
    or are in the session of its `leader`. All of that blocks."""

    def __init__(self, mark: str, leader: int | None = None) -> None:
        self._mark, self._leader = mark.encode(), leader
        self._seen: dict[int, int] = {}

    def members(self, age: float = 0.0) -> list[int]:
        """Returns its processes, as they were at most so many seconds ago."""
        there = _table.read(age)
        own = [number for number, one in there.items() if self._is_own(number, one)]
        members = _tree(own, there)
        self._seen = {number: there[number].began for number in members}
        return sorted(members)

    def _is_own(self, number: int, one: Process) -> bool:
        known = self._seen.get(number) == one.began
        return known or one.session == self._leader or self._mark in one.marks

    def kill(self) -> None:
        """Ends all of them, and what they start meanwhile."""
        for _ in range(ROUNDS):
            left = self.members()
            if not left:
                return
            for number in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal.SIGKILL)


def descendants(number: int, age: float = 0.0) -> set[int]:
    """Returns a process and all that it has started. Blocks."""
    return _tree([number], _table.read(age))


def take_more(numbers: Collection[int], most: int) -> bool:
    """Whether processes have more bytes of memory than that, what they share counted once."""
    if sum(map(_resident, numbers)) <= most:
        return False  # their shares take the system long to count
    return sum(map(_share, numbers)) > most


def _tree(roots: Collection[int], there: Mapping[int, Process]) -> set[int]:
    started = defaultdict(list)
    for number, one in there.items():
        started[one.parent].append(number)
    members, waiting = set[int](), [number for number in roots if number in there]
    while waiting:
        number = waiting.pop()
        if number not in members:
            members.add(number)
            waiting += started[number]
    return members


class _Table:
    """The processes that run, read once for all that look at about the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read = -AGE
        self._there: dict[int, Process] = {}

    def read(self, age: float) -> Mapping[int, Process]:
        with self._lock:
            if time.monotonic() - self._read >= age:
                self._there, self._read = dict(_processes()), time.monotonic()
            return self._there


_table = _Table()


def _processes() -> Iterator[tuple[int, Process]]:
    for entry in PROC.iterdir() if PROC.is_dir() else ():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                state, parent, _, session, *more = _fields(entry / "stat")
                if state not in (b"Z", b"X"):
                    began = int(more[15])
                    yield int(entry.name), Process(began, int(parent), int(session), _marks(entry))


def _fields(path: Path) -> list[bytes]:
    """Returns what `stat` tells of a process after its name, which may be any text."""
    return path.read_bytes().rpartition(b")")[2].split()


def _marks(entry: Path) -> frozenset[bytes]:
    with suppress(OSError):  # another user's
        variables = (entry / "environ").read_bytes().split(b"\0")
        return frozenset(one for one in variables if one.startswith(OURS))
    return frozenset()


def _resident(number: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        pages = (PROC / str(number) / "statm").read_bytes().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _share(number: int) -> int:
    """Returns a process's memory with its part of each shared page; all of it where that is not
    told."""
    with suppress(OSError):
        match = SHARE.search((PROC / str(number) / "smaps_rollup").read_bytes())
        if match is not None:
            return int(match[1]) << 10
    return _resident(number)
