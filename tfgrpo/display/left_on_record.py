"""What an undo or a redo leaves as it is: it moves names, and a decision stays on record."""

from __future__ import annotations

import re

from tfgrpo.production.experiment import (
    KIND,
    PROMOTED,
    ROLLED_BACK,
    RUNNING,
    STOPPED,
    Experiment,
    experiments,
    running_on,
)
from tfgrpo.production.rollback import ROLLBACK
from tfgrpo.store.activity.decisions import by_subject
from tfgrpo.store.store import Store

OF_PROPOSAL = re.compile(r"(accept|review|reject|reopen) proposal ([^\s:]+)")
OF_BRANCH = re.compile(rf"{ROLLBACK} (\S+) to v\d+: (.*)", re.DOTALL)
OF_EXPERIMENT = re.compile(r"(promote|rollback|start experiment) ([^\s:]+)(?=:|\Z)")
OF_NEW_BRANCH = re.compile(r"branch (\S+)")
OF_IMPROVEMENT = re.compile(r"begin (\S+)|(\S+): [a-z ]+")
IMPROVEMENT = "improvement"
_REDO = "`tfgrpo redo` moves the names to fit that"


def left_on_record(store: Store, action: str, *, undone: bool) -> str | None:
    """What to say after the names that an operation moved were moved back (`undone`) or forth: the
    decision that it also recorded, which does not fit them now, and what makes both fit. None where
    it recorded none, or they fit."""
    if match := OF_PROPOSAL.match(action):
        return _of_proposal(match[1], match[2]) if undone else None
    if match := OF_BRANCH.match(action):
        return _of_branch(store, match[1], match[2]) if undone else None
    if match := OF_EXPERIMENT.match(action):
        named = (one for one in experiments(store) if one.name == match[2])
        return _of_experiment(match[1], next(named, None), undone)
    if match := OF_NEW_BRANCH.fullmatch(action):
        running = running_on(store, match[1]) if undone else None
        paused = running and f"experiment {running.name} is paused, as it has no branch {match[1]}"
        return f"{paused} any more; {_REDO}" if paused else None
    match = OF_IMPROVEMENT.fullmatch(action)
    listed = match and undone and by_subject(store, IMPROVEMENT).get(match[1] or match[2])
    if not listed:
        return None
    state = listed[-1].content["state"]
    return f"improvement {listed[-1].subject} stays on record as {state}; {_REDO}"


def _of_proposal(verb: str, id: str) -> str:
    if verb == "reopen":
        return f"proposal {id} still waits for a decision; {_REDO}"
    reopen = f"`tfgrpo proposal reopen {id}` takes that back too"
    return f"what was decided of proposal {id} stays on record; {reopen}"


def _of_branch(store: Store, branch: str, why: str) -> str:
    stopped = [
        one.name
        for one in experiments(store)
        if one.control.revision == branch and one.state == STOPPED
        if by_subject(store, KIND)[one.name][-1].why == f"{branch} was rolled back: {why}"
    ]
    also = f", and experiment {stopped[-1]} stays stopped" if stopped else ""
    return f"the rollback of {branch} stays on record{also}; {_REDO}"


def _of_experiment(verb: str, one: Experiment | None, undone: bool) -> str | None:
    if verb == "start experiment":
        if one is None or one.state != RUNNING or not undone:
            return None
        ends = f"`tfgrpo experiment stop {one.name}` ends it"
        return f"experiment {one.name} goes on with its candidate; {ends}"
    if one is None or undone == (one.state != (PROMOTED if verb == "promote" else ROLLED_BACK)):
        return None
    stays = f"experiment {one.name} stays on record as {one.state}"
    if verb == "promote" and undone:
        return f"{stays}; `tfgrpo experiment rollback {one.name}` takes that back too"
    return f"{stays}; {_REDO if undone else '`tfgrpo undo` moves the names to fit that'}"
