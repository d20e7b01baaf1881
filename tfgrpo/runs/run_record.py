"""A run as its record has it, for the terminal, JSON and pages alike: its sealed problems, its
candidates and what became of each, and the whole of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from tfgrpo.runs.run_issues import RunReport, report, request_notes
from tfgrpo.runs.run_versions import Gain, gain_record, pool_branch, recorded_gain, versions_of
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Evaluation, Run, RunState, Usage
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.records import Measured, Version, evidence_of
from tfgrpo.store.store import Store
from tfgrpo.wording import iso

UNSEALED = "unsealed"


@dataclass(frozen=True, slots=True)
class Seal:
    """A run's sealed problems: when `opened` (microseconds since 1970), and how many libraries but
    the empty one were scored on them `before` it began and `during` it."""

    dataset: str
    digest: str
    opened: int | None
    before: int
    during: int

    @property
    def intact(self) -> bool:
        """Whether nothing was scored on them from the run's beginning until it opened them."""
        return self.during == 0


def looks(store: Store, digest: str) -> list[Evaluation]:
    """The evaluations of libraries, the empty one apart, on problems of that digest."""
    return [
        evaluation
        for evaluation in store.runs.all_evaluations()
        if evaluation.version != 0 and evaluation.config.get("dataset") == digest
    ]


def unseal(store: Store, run: Run) -> None:
    """Notes that a run turns to its sealed problems, unless it has before."""
    if _opened(store, run) is None:
        store.runs.note(run, UNSEALED)


def seal(store: Store, run: Run) -> Seal | None:
    """What is known of a run's sealed problems; None where it has none."""
    settings = TrainSettings(**run.config)
    if settings.sealed is None:
        return None
    opened = _opened(store, run)
    times = [look.time for look in looks(store, settings.sealed_digest)]
    return Seal(
        dataset=settings.sealed,
        digest=settings.sealed_digest,
        opened=opened,
        before=sum(time < run.time for time in times),
        during=sum(run.time <= time and (opened is None or time < opened) for time in times),
    )


def _opened(store: Store, run: Run) -> int | None:
    times = (state.time for state in store.runs.states(run) if state.state == UNSEALED)
    return next(times, None)


class ListedRun(NamedTuple):
    """A run in a list: how many versions it has made."""

    run: Run
    state: str
    versions: int

    @property
    def model(self) -> str:
        """The model that makes its attempts."""
        return str(self.run.config["models"]["model"])


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What is on record of a run: also how models had to be `asked`, `sealed` problems if any, and
    the `gain` at its own problems."""

    run: Run
    state: str
    versions: tuple[Version, ...]
    report: RunReport
    asked: tuple[str, ...]
    sealed: Seal | None
    usage: dict[str, Usage]
    states: tuple[RunState, ...]
    gain: Gain | None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that say something, those of the models first."""
        config = dict(self.run.config)
        models = {key: value for key, value in config.pop("models").items() if value is not None}
        return {k: v for k, v in (models | config).items() if v not in (None, "", {})}

    def object(self) -> dict[str, Any]:
        """The record as JSON for programs."""
        run = self.run
        return {
            "name": run.name,
            "state": self.state,
            "branch": run.branch,
            "base": f"v{run.base}",
            "author": run.author,
            "time": iso(run.time),
            "config": run.config,
            "steps": [version.name for version in self.versions],
            "sealed": self._seal_object(),
            "gain": None if self.gain is None else gain_record(self.gain),
            "issues": [m._asdict() | {"version": m.version.name} for m in self.report.issues],
            "repaired": self.report.repaired,
            "asked": list(self.asked),
            "usage": {stage: usage._asdict() for stage, usage in self.usage.items()},
            "states": [state._asdict() | {"time": iso(state.time)} for state in self.states],
        }

    def _seal_object(self) -> dict[str, Any] | None:
        if self.sealed is None:
            return None
        opened = None if self.sealed.opened is None else iso(self.sealed.opened)
        return {**asdict(self.sealed), "opened": opened, "intact": self.sealed.intact}


def run_record(store: Store, run: Run) -> RunRecord:
    """What is on record of a run. A read-only operation."""
    return RunRecord(
        run,
        store.runs.state(run),
        tuple(versions_of(store, run)),
        report(store, run),
        tuple(request_notes(store, run)),
        seal(store, run),
        store.runs.usage(run),
        tuple(store.runs.states(run)),
        recorded_gain(store, run),
    )


def listed_runs(store: Store, *, removed: bool = False) -> list[ListedRun]:
    """The runs, oldest first; with `removed`, those that are hidden too."""
    runs = store.runs.all() if removed else store.runs.listed()
    return [ListedRun(one, store.runs.state(one), len(versions_of(store, one))) for one in runs]


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
