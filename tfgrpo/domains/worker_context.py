"""Worker processes that leave the program's main module alone.

A spawned process runs the main module of its parent again, so a script that calls
`tfgrpo.train_sync(...)` without an `if __name__ == "__main__"` would begin another training in
every worker. What workers of ours run is importable, so theirs is not needed.
"""

from __future__ import annotations

import threading
from multiprocessing import context, spawn
from typing import Any

_starting = threading.local()
_prepare = spawn.get_preparation_data


def _preparation_data(name: str) -> dict[str, Any]:
    """Returns what a child is told at its start, without the main module for those of ours."""
    data: dict[str, Any] = _prepare(name)
    if getattr(_starting, "worker", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


spawn.get_preparation_data = _preparation_data


class WorkerProcess(context.SpawnProcess):
    """A spawned process that does not run the program's main module."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        _starting.worker = True
        try:
            return context.SpawnProcess._Popen(process_obj)
        finally:
            _starting.worker = False


class WorkerContext(context.SpawnContext):
    """The context of such processes."""

    Process = WorkerProcess
