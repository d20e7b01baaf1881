"""One store in one process: takes requests as lines of JSON, times them, answers in kind.

A process each, because DoltLite takes the place of SQLite in the process that loads it, because
memory is measured by the process, and because strace can follow one. What is timed is the call
alone: no start of a process, no passing of messages.
"""

from __future__ import annotations

import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers.peer import Peer

PEERS = {
    "tfgrpo": ("ours", "Ours"),
    "sqlite3": ("raw", "Raw"),
    "eventsourcing": ("events", "EventSourcing"),
    "DoltLite": ("doltlite", "DoltLite"),
    "git": ("git", "Git"),
}


class Timed(NamedTuple):
    """What a call took and gave. `value` is None where the store cannot do it."""

    seconds: float
    cpu: float
    value: Any


class Worker:
    """A store in a process of its own, seen from the benchmark."""

    def __init__(self, name: str, folder: Path, *, trace: Path | None = None) -> None:
        folder.mkdir(parents=True)
        self.name = name
        strace = ["strace", "-f", "-e", "trace=fdatasync,fsync", "-o", str(trace)]
        self._process = subprocess.Popen(
            [*(strace if trace else []), sys.executable, "-m", "benchmarks.worker", name, folder],
            cwd=Path(__file__).parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, method: str, *arguments: Any) -> Timed:
        """Calls a method of the store. Raises RuntimeError when the process has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.name}: {method} failed, see above")
        return Timed(*json.loads(answer))

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(name: str, folder: Path) -> None:
    """Answers requests until there are no more."""
    module, kind = PEERS[name]
    peer: Peer = getattr(importlib.import_module(f"benchmarks.peers.{module}"), kind)(folder)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        print(json.dumps(answer(peer, method, arguments)), flush=True)


def answer(peer: Peer, method: str, arguments: Sequence[Any]) -> Timed:
    """Runs one request."""
    if method == "peak":  # MB of memory that this process has had at most
        return Timed(0, 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if method == "append":
        from benchmarks.workload import Change

        arguments = [peer.prepared([Change(*each) for each in arguments[0]])]
    call = getattr(peer, method)
    cpu, start = cpu_seconds(), time.perf_counter()
    try:
        value = call(*arguments)
    except NotImplementedError:
        return Timed(0, 0, None)
    seconds = time.perf_counter() - start
    return Timed(seconds, cpu_seconds() - cpu, True if value is None else value)


def cpu_seconds() -> float:
    """Returns what this process and those it has waited for have used."""
    waited = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + waited.ru_utime + waited.ru_stime


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
