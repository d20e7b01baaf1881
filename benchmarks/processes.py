"""Commands as forks of this process, and what processor time and memory whole trees of processes
have had. Linux alone: it reads /proc."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")


class Session(NamedTuple):
    """A command at work in a folder, where `out.txt` has what it prints."""

    pid: int
    folder: Path

    def status(self) -> int:
        """Waits for its end; returns its exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def ended(self) -> bool:
        """Whether it has ended; it can be waited for once more."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def said(self) -> str:
        """Returns the last of what it has printed."""
        return (self.folder / "out.txt").read_text()[-2000:]


class Sessions:
    """Starts commands as forks of this process, which has imported all that they take: what is
    measured is their work, and not Python's start. Whatever is left is ended with it."""

    def __init__(self) -> None:
        sys.path.insert(0, str(ROOT / "tests"))
        import forked
        import workers

        self._server = workers.WorkerServer()
        workers.use(self._server.address)
        forked.preload()
        self._running: list[Session] = []

    @property
    def server(self) -> int:
        """The process from which judges are forked."""
        return self._server._process.pid

    def start(self, folder: Path, *arguments: str, clock: float = 0.0) -> Session:
        """Starts `tfgrpo` with those arguments in a folder, which is made. Its wall clock is off
        by `clock` seconds."""
        import forked

        from tfgrpo.cli.main import main

        folder.mkdir(parents=True, exist_ok=True)
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            out = os.open("out.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            null = os.open(os.devnull, os.O_RDONLY)
            for target, source in ((0, null), (1, out), (2, out)):
                os.dup2(source, target)
            sys.argv = ["tfgrpo", *arguments]
            _shift(clock)
            forked.finish(main, cleans_up=False)
        session = Session(pid, folder)
        self._running.append(session)
        return session

    def end(self, session: Session, number: int = signal.SIGTERM) -> int:
        """Tells a command to end, and returns how it did."""
        self._running.remove(session)
        os.kill(session.pid, number)
        return session.status()

    def wait(self, session: Session, seconds: float) -> None:
        """Waits until a command has ended well. Raises AssertionError."""
        wait_until(session.ended, seconds, session.said)
        self._running.remove(session)
        assert session.status() == 0, session.said()

    def close(self) -> None:
        """Ends all that is left."""
        for session in self._running:
            os.kill(session.pid, signal.SIGKILL)
            session.status()
        self._running = []
        self._server.__exit__()


def _shift(seconds: float) -> None:
    """Has this process's clock be off by so much."""
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + seconds
    time.time_ns = lambda: right_ns() + int(seconds * 1e9)


@contextmanager
def sessions() -> Iterator[Sessions]:
    """Yields what starts commands."""
    running = Sessions()
    try:
        yield running
    finally:
        running.close()


def measured_apart(module: str, *arguments: object) -> dict[str, Any]:
    """Runs a module of these with such arguments in a process of its own; returns what it prints,
    as JSON, of what it measured."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def wait_until(done: Callable[[], bool], seconds: float, said: Callable[[], object] = str) -> None:
    """Waits until something is so. Raises AssertionError after so many seconds."""
    until = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < until, said()
        time.sleep(0.02)


def tree(*roots: int) -> list[int]:
    """Returns those processes and all that descend from them."""
    children: dict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            fields = _stat(int(path.name))
            if fields:
                children[int(fields[1])].append(int(path.name))
    found = list(roots)
    for one in found:
        found += children[one]
    return found


def cpu(*roots: int) -> float:
    """Returns the seconds of processor time that trees of processes have had, with those of theirs
    that have ended and were waited for."""
    return sum(sum(map(int, _stat(one)[11:15])) for one in tree(*roots) if _stat(one)) / TICKS


def waited(*roots: int) -> float:
    """Returns the seconds that the processes of trees were ready to run while others ran."""
    total = 0.0
    for one in tree(*roots):
        for task in Path(f"/proc/{one}/task").glob("*/schedstat"):
            with suppress(OSError):
                total += int(task.read_text().split()[1]) / 1e9
    return total


def memory(pid: int) -> float:
    """Returns the megabytes of a process that no other shares; 0 where it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    rows = [line.split() for line in text.splitlines() if line.startswith("Private_")]
    return sum(int(row[1]) for row in rows) / 1024


def _stat(pid: int) -> list[str]:
    """Returns a process's fields after its name, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []
