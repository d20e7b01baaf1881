"""The candidates of a run: what each was measured to do, and what became of it."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from tfgrpo.runs.run_versions import pool_branch
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history.evidence import Measured, evidence_of

if TYPE_CHECKING:
    from tfgrpo.store.activity.runs import Run
    from tfgrpo.store.records import Version
    from tfgrpo.store.store import Store

MOST = 500
"""The last versions that are looked through."""
State: TypeAlias = Literal["on probation", "entered", "given up"]


class Candidate(NamedTuple):
    """A candidate: its experience and text, what became of it, the version that says so, and what
    was measured by then (None where that is not on record)."""

    experience: str
    text: str
    state: State
    version: Version
    measured: Measured | None


def candidates(store: Store, run: Run) -> list[Candidate]:
    """The candidates of a run, the last decided first; none of a run without any."""
    branches = store.branches()
    if pool_branch(run) not in branches:
        return []
    pool = store.version(branches[pool_branch(run)])
    now: dict[str, Candidate] = {}
    there = store.library(pool).by_id
    before = store.library(store.version(run.base)).by_id
    in_force = store.library(store.tip(run.branch)).by_id if run.branch in branches else {}
    own = takewhile(lambda version: version.number > run.base, store.log(pool))
    for version in islice(own, MOST):
        for event in store.events(version):
            id, state = event.experience, _state(event.experience, there, in_force)
            if id in before:
                continue
            known = now.get(id)
            measured = evidence_of(event).measured
            if known is None:
                now[id] = Candidate(id, event.text or "", state, version, measured)
            else:
                now[id] = known._replace(
                    text=known.text or event.text or "", measured=known.measured or measured
                )
    if run.branch in branches:
        for version in islice(store.log(store.tip(run.branch)), MOST):
            for event in store.events(version):
                evidence = evidence_of(event)
                changed = evidence.facts.get("candidate")  # whose text it took
                id = changed or event.experience
                known = now.get(id)
                measured = evidence.measured
                if known is not None and measured is not None and (changed or not known.measured):
                    known = known._replace(version=version, measured=measured)
                    now[id] = known._replace(state="entered") if changed else known
    return [one for one in now.values() if one.text]


def _state(id: str, there: Any, in_force: Any) -> State:
    if id in in_force:
        return "entered"
    return "on probation" if id in there else "given up"


def lessons(store: Store, run: Run) -> dict[str, str]:
    """Text → experience of what a run's branch has now beyond what it began with."""
    before = {e.text for e in store.library(store.version(run.base))}
    try:
        library = store.library(store.tip(run.branch))
    except UnknownRevision:  # the branch is gone
        return {}
    return {e.text: e.id for e in library.readable if e.text not in before}
