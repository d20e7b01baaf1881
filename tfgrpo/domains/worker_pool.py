"""The pool of processes that verdicts are given in, by pebble, which is imported when one is."""

from __future__ import annotations

from pebble import ProcessPool


class WorkerPool(ProcessPool):
    """A pool whose workers end before what they share does. One that is still starting would not
    find its locks, and would print a traceback into the output of a command that is over."""

    def _stop_pool(self) -> None:
        if self._pool_manager_loop is not None:
            self._pool_manager_loop.join()  # from here on it starts none anew
        self._pool_manager.worker_manager.force_stop_workers()  # type: ignore[no-untyped-call]
        super()._stop_pool()  # type: ignore[no-untyped-call]
