"""Worker processes that leave the program's main module alone, and see no key that is not theirs.

A spawned process runs the main module of its parent again, so a script that calls
`tfgrpo.train_sync(...)` without an `if __name__ == "__main__"` would begin another training in
every worker. What workers of ours run is importable, so theirs is not needed.

What `multiprocessing` starts are interpreters with the working folder first on their path. All of
this process, its tracker of resources too, are started with `-P` from here on.

Ctrl-C goes to a whole group of processes. Workers are started with it blocked, as one that is still
loading its modules would else print a traceback; the parent ends them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing import context, spawn, util
from typing import Any

from tfgrpo.store import child_processes

_starting = threading.local()
_prepare = spawn.get_preparation_data
_flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
_spawn = util.spawnv_passfds


def _preparation_data(name: str) -> dict[str, Any]:
    """Returns what a child is told at its start, without the main module for those of ours."""
    data: dict[str, Any] = _prepare(name)
    if getattr(_starting, "worker", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


def _safe_flags() -> list[str]:
    """Returns the flags of a child's interpreter: this one's, and no folder on its path."""
    flags: list[str] = _flags()
    return ["-P", *(flag for flag in flags if flag != "-P")]


def _pass_descriptors(path: bytes | str, args: Sequence[Any], fds: Iterable[int]) -> int:
    """Starts a child as `multiprocessing` does, with the environment of a worker for ours."""
    environment = getattr(_starting, "environment", None)
    if environment is None:
        return int(_spawn(path, args, fds))  # type: ignore[arg-type]
    command = [os.fsdecode(path), *map(os.fsdecode, args[1:])]
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process = child_processes.start(command, environment, pass_fds=tuple(fds))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    process.returncode = 0  # it is `multiprocessing` that waits for it
    return process.pid


spawn.get_preparation_data = _preparation_data
util._args_from_interpreter_flags = _safe_flags  # type: ignore[attr-defined]
if sys.platform != "win32":
    util.spawnv_passfds = _pass_descriptors  # type: ignore[assignment]


class WorkerProcess(context.SpawnProcess):
    """A spawned process that does not run the program's main module."""

    keys = False
    """Whether it has the whole environment: what it runs is then the user's own code."""
    _ended = False

    @classmethod
    def _Popen(cls, process_obj: Any) -> Any:
        _starting.worker = True
        _starting.environment = None if cls.keys else child_processes.without_keys()
        try:
            return context.SpawnProcess._Popen(process_obj)
        finally:
            _starting.worker, _starting.environment = False, None

    def join(self, timeout: float | None = None) -> None:
        """Waits for its end, and ends with it what it has forked, which is of its group."""
        super().join(timeout)
        if self.exitcode is not None and self.pid and not self._ended and hasattr(os, "killpg"):
            self._ended = True  # its number may be another's soon
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class WorkerProcessWithKeys(WorkerProcess):
    """Such a process for a verifier of the user's, which may ask a service of theirs."""

    keys = True


class WorkerContext(context.SpawnContext):
    """The context of such processes."""

    Process = WorkerProcess


class WorkerContextWithKeys(context.SpawnContext):
    """The context of those with keys."""

    Process = WorkerProcessWithKeys
