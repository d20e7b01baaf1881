"""Looks at experiments that may decide by themselves, every few seconds, beside the requests.

The sums over all calls are done in a process of their own, for Python's threads take turns. Of
several workers one looks: the one that holds the lock; when it is killed, another takes it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from subprocess import DEVNULL, PIPE, Popen, SubprocessError
from typing import IO

from tfgrpo.production.webhook import WEBHOOK
from tfgrpo.proxy.experiment_arms import RunningExperiment
from tfgrpo.proxy.library_choice import Chooser
from tfgrpo.store import child_processes
from tfgrpo.store.activity.traffic import traffic_path

LOOK = 5.0
"""Seconds between two looks."""
REST = 20.0
"""A look that took long is followed by a pause of this many times as long."""
LONGEST = 600.0
"""Seconds that a look may take."""
SETTLE = "import sys; from tfgrpo.production.experiment_end import main; main(sys.argv[1])"
log = logging.getLogger("tfgrpo.proxy")


class Decider:
    """Looks until it is closed."""

    def __init__(self, chooser: Chooser, webhook: str | None = None) -> None:
        self.chooser = chooser
        self._webhook = {} if webhook is None else {WEBHOOK: webhook}
        self._stop = threading.Event()
        self._locks: dict[str, IO[bytes]] = {}
        self._seen: dict[str, object] = {}
        self._process: Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name="tfgrpo-decider", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends it."""
        self._stop.set()
        process = self._process
        if process is not None:
            process.kill()
        self._thread.join()
        for lock in self._locks.values():
            lock.close()

    def _run(self) -> None:
        pause = LOOK
        while not self._stop.wait(pause):
            began = time.monotonic()
            for path in self._due():
                try:
                    self._look(path)
                except (OSError, SubprocessError) as error:
                    log.warning("experiments are not looked at: %s", error)
            pause = max(LOOK, REST * (time.monotonic() - began))

    def _due(self) -> set[str]:
        """Returns the stores that have an experiment to be looked at."""
        due = set()
        for source in list(self.chooser.sources.values()):
            running = source.live.in_force[1]
            if isinstance(running, RunningExperiment) and running.auto:
                due.add(source.live.path)
        return due

    def _look(self, path: str) -> None:
        traffic = traffic_path(path)
        state = [_state(traffic + end) for end in ("", "-wal")]
        if self._seen.get(path) == state or not self._locked(traffic):
            return
        command = child_processes.python("-c", SETTLE, path)
        families = (*child_processes.DATABASE, *child_processes.NETWORK)
        environment = child_processes.without_keys(*families) | self._webhook
        process = child_processes.start(command, environment, stdin=DEVNULL, stderr=PIPE, text=True)
        self._process = process
        if self._stop.is_set():  # `close` may have looked for it before it was there
            process.kill()
        try:
            _, errors = process.communicate(timeout=LONGEST)
        finally:
            self._process = None
            if process.poll() is None:
                process.kill()
                process.wait()
        if self._stop.is_set():
            return
        for line in errors.splitlines()[-5:]:
            log.warning("%s", line)
        if process.returncode == 0:
            self._seen[path] = state

    def _locked(self, traffic: str) -> bool:
        """Returns whether it is this worker that looks."""
        if traffic in self._locks:
            return True
        lock = open(  # noqa: SIM115
            f"{traffic}-decider", "ab", opener=lambda name, flags: os.open(name, flags, 0o600)
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._locks[traffic] = lock
        return True


def _state(path: str) -> tuple[int, int] | None:
    """Returns what is something else after a file was written."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
