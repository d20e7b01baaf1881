"""The experiment on a library, as a request meets it: which arm a subject gets, and its library.

It is read together with the library, from the same state of the store, whenever anybody has
committed there. So its beginning, a change of its share and its end are seen at the next request
in every worker.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tfgrpo.domains.live_library import UNREADABLE
from tfgrpo.domains.prompt_library import PromptLibrary, prompt_library
from tfgrpo.production.arm_of_subject import CANDIDATE, arm_name, arm_of
from tfgrpo.production.experiment import Experiment, at_work, version_of
from tfgrpo.store.store import Store

log = logging.getLogger("tfgrpo.proxy")


class RunningExperiment(NamedTuple):
    """An experiment that is at work, with the candidate's library."""

    name: str
    id: str
    share: float
    auto: bool
    candidate: PromptLibrary

    def arm(self, subject: str) -> tuple[str, PromptLibrary | None]:
        """Returns the arm of a subject, and its library; None for the control's."""
        arm = arm_of(self.id, subject, self.share)
        return arm_name(self.name, arm), self.candidate if arm == CANDIDATE else None


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
        running = None
        if branch is not None and branch in store.branches():
            running = at_work(store, branch)
        self._trouble = None
        if running is None:
            self._known = None
            return None
        library = self._library(store, running)
        return RunningExperiment(
            running.name, running.id, running.share, running.plan.auto, library
        )

    def _library(self, store: Store, experiment: Experiment) -> PromptLibrary:
        """Returns the candidate's library: the same object where it is the same library."""
        redactions, known = store.port.redactions.last(), self._known
        if (
            known is None
            or known.version.digest.hex() != experiment.candidate.digest
            or redactions != self._redactions
        ):
            known = prompt_library(store, version_of(store, experiment.candidate))
        self._known, self._redactions = known, redactions
        return known
