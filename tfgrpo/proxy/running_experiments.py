"""The experiment on a library, as a request meets it: which arm a subject gets, and its library.

It is read together with the library, from the same state of the store, whenever anybody has
committed there. So its beginning, a change of its share and its end are seen at the next request
in every worker.

Experiments that may decide by themselves are looked at every few seconds, beside the requests. The
sums over all calls are done in a process of their own, for Python's threads take turns. Of several
workers one looks: the one that holds the lock; when it is killed, another takes it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from subprocess import DEVNULL, PIPE, Popen, SubprocessError
from typing import IO, TYPE_CHECKING, NamedTuple

from tfgrpo.domains.prompt_library import UNREADABLE, PromptLibrary, prompt_library
from tfgrpo.production.experiment import (
    CANDIDATE,
    Experiment,
    arm_name,
    arm_of,
    at_work,
)
from tfgrpo.production.webhook import WEBHOOK
from tfgrpo.store import child_processes
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.address import with_password
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.proxy.library_choice import Chooser

LOOK, REST, LONGEST = 5.0, 20.0, 600.0
"""Seconds between two looks; one that took long is followed by a pause of so many times as long;
and seconds that one may take."""
STORE = "TFGRPO_STORE"
"""The variable with what opens the store: `ps` shows arguments, and it may have a password."""
SETTLE = (
    f"import os; from tfgrpo.production.experiment_end import main; main(os.environ[{STORE!r}])"
)
log = logging.getLogger("tfgrpo.proxy")


class RunningExperiment(NamedTuple):
    """An experiment that is at work, with the candidate's library."""

    experiment: Experiment
    candidate: PromptLibrary

    def arm(self, subject: str, call: str) -> tuple[str, PromptLibrary | None]:
        """Returns the arm of a subject's call, and its library; None for the control's. Where
        calls are counted each has an arm of its own, or those of a subject would count as many."""
        unit = call if self.experiment.plan.unit == "call" else subject
        arm = arm_of(self.experiment.id, unit, self.experiment.share)
        return arm_name(self.experiment.name, arm), self.candidate if arm == CANDIDATE else None


class Arms:
    """Reads which experiment is at work on a revision."""

    def __init__(self, revision: str) -> None:
        self._revision = revision
        self._known: PromptLibrary | None = None
        self._redactions = -1
        self._trouble: str | None = None

    def read(self, store: Store) -> RunningExperiment | None:
        """Returns the experiment at work. One that cannot be read is none: everybody gets the
        library itself, and the log says why."""
        try:
            return self._read(store)
        except UNREADABLE as error:
            if str(error) != self._trouble:
                log.warning("the experiment on %s is off: %s", self._revision, error)
            self._trouble = str(error)
            return None

    def _read(self, store: Store) -> RunningExperiment | None:
        branch: str | None = self._revision
        if branch in ("HEAD", "@"):
            branch = store.head.branch
        running = None if branch is None else at_work(store, branch)
        self._trouble = None
        if running is None:
            self._known = None
            return None
        redactions, known = store.port.redactions.last(), self._known
        is_known = known is not None and known.version.digest.hex() == running.candidate.digest
        if known is None or not is_known or redactions != self._redactions:
            known = prompt_library(store, store.resolve(running.candidate.digest))
        self._known, self._redactions = known, redactions
        return RunningExperiment(running, known)


class Decider:
    """Looks at the experiments of the libraries that are served, until it is closed."""

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
            lives = [source.live for source in list(self.chooser.sources.values())]
            read = [(live.path, live.in_force[1]) for live in lives]
            running = [(path, one) for path, one in read if isinstance(one, RunningExperiment)]
            for path in {path for path, one in running if one.experiment.plan.auto}:
                try:
                    self._look(path)
                except (OSError, SubprocessError) as error:
                    log.warning("experiments are not looked at: %s", error)
            pause = max(LOOK, REST * (time.monotonic() - began))

    def _look(self, path: str) -> None:
        traffic = traffic_path(path)
        state = [_state(traffic + end) for end in ("", "-wal")]
        if self._seen.get(path) == state or not self._locked(traffic):
            return
        command = child_processes.python("-c", SETTLE)
        families = (*child_processes.DATABASE, *child_processes.NETWORK)
        own = {STORE: with_password(path), **self._webhook}
        environment = child_processes.without_keys(*families) | own
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
