"""What a library does in production: by version, in experiments, call by call; and the way back."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.improvement import collection
from tfgrpo.library_file import write_library
from tfgrpo.production.evidence import Evidence, evidence
from tfgrpo.production.experiment import RUNNING, Experiment, experiments
from tfgrpo.production.rollback import before_that, rollback
from tfgrpo.projections.production import (
    DecidedMove,
    decided_move,
    in_force_since,
    live_figures,
)
from tfgrpo.store.decisions import decisions
from tfgrpo.store.errors import StaleVersion, UnknownRevision
from tfgrpo.store.log_filter import parse_time
from tfgrpo.store.order import moves
from tfgrpo.store.traffic import (
    CallFilter,
    LiveFigures,
    traffic_path,
)
from tfgrpo.ui.calls import number_in, traffic_of
from tfgrpo.ui.pages.version import Meanwhile, meanwhile, shown_moves
from tfgrpo.ui.place import branches_of_people, project_of
from tfgrpo.ui.route import Route
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.store.decisions import Decision
    from tfgrpo.store.records import Version
    from tfgrpo.ui.visit import Visit

CALLS = 100
ENDED = 10
DECISIONS = 20
REMEMBERED = 10.0
"""Seconds for which figures of all calls are shown as they were."""


class ShownExperiment(NamedTuple):
    """An experiment with what it has found; None where no traffic is on record."""

    experiment: Experiment
    evidence: Evidence | None


class StandingBranch(NamedTuple):
    """A branch, the version that it stands at, and since when (microseconds since 1970)."""

    name: str
    version: Version
    since: int


class ShownDecision(NamedTuple):
    """A decision, and from what to what it went."""

    decision: Decision
    move: DecidedMove


def show(visit: Visit) -> Response:
    """Answers with the figures of versions, experiments, decisions and calls."""
    since = visit.query("since", "7d")
    start = parse_time(since, now=time.time_ns() // 1000)
    which = CallFilter(
        since=start,
        version=visit.query("version") or None,
        library=visit.query("library") or None,
        model=visit.query("model") or None,
        failed=bool(visit.query("failed")),
        with_feedback=bool(visit.query("feedback")),
        below=number_in(visit.query("below")),
    )
    with traffic_of(visit) as traffic:
        figures: list[LiveFigures] | None = None
        calls, lost = [], 0
        if traffic is not None:
            figures = visit.site.memory.get(
                ("versions", since), REMEMBERED, lambda: live_figures(visit.store, start)
            )
            calls, lost = traffic.calls(which, CALLS), traffic.lost()
    return visit.render(
        "production.html",
        title="Production",
        since=since,
        which=which,
        below=visit.query("below"),
        figures=figures,
        calls=calls,
        most=CALLS,
        lost=lost,
        experiments=_experiments(visit),
        decisions=_decisions(visit),
        branches=[
            StandingBranch(name, visit.store.version(n), in_force_since(visit.store, name))
            for name, n in branches_of_people(visit).items()
        ],
    )


def _decisions(visit: Visit) -> list[ShownDecision]:
    """Returns the last decisions about production, newest first."""
    newest = [one for one in decisions(visit.store) if one.kind != "proposal"][-DECISIONS:][::-1]
    return [ShownDecision(one, decided_move(visit.store, one)) for one in newest]


def _experiments(visit: Visit) -> list[ShownExperiment]:
    """Returns the experiments that run, and the last that ended, newest first."""
    newest_first = experiments(visit.store)[::-1]
    chosen = [one for one in newest_first if one.state == RUNNING]
    chosen += [one for one in newest_first if one.state != RUNNING][:ENDED]
    if not os.path.isfile(traffic_path(visit.store.file)):
        return [ShownExperiment(one, None) for one in chosen]
    return [ShownExperiment(one, _evidence(visit, one)) for one in chosen]


def _evidence(visit: Visit, one: Experiment) -> Evidence:
    key = ("evidence", one.id)
    return visit.site.memory.get(key, REMEMBERED, lambda: evidence(visit.store, one))


def way_back(visit: Visit) -> Response:
    """Answers with where a branch would go back to, and what that changes."""
    return _way_back(visit, visit.query("branch"), visit.query("to"))


def _way_back(
    visit: Visit, branch: str, revision: str, *, since: Meanwhile | None = None
) -> Response:
    store = visit.store
    tip = store.tip(branch)
    to, refusal = None, ""
    try:
        to = store.resolve(revision) if revision else before_that(store, branch)
    except UnknownRevision as nowhere:
        refusal = str(nowhere) if revision else f"{branch} has stood at no other version before"
    return visit.render(
        "rollback.html",
        200 if since is None else 409,
        title=f"Roll back {branch}",
        branch=branch,
        tip=tip,
        to=to,
        refusal=refusal,
        why=visit.field("why"),
        meanwhile=since,
        changes=() if to is None else store.diff(tip, to),
        moves=() if to is None else shown_moves(store, to, moves(store, tip, to)),
    )


def go_back(visit: Visit) -> Response:
    """Rolls a branch back, for a reason. Where others moved it since that was looked at, nothing is
    recorded and what they did is shown."""
    store, branch = visit.store, visit.required("branch", "the branch")
    onto = store.resolve(visit.required("onto", "what the form was made from"))
    to, why = visit.required("to", "where to"), visit.required("why", "why")
    try:
        done = rollback(store, branch, why=why, to=to, expected=onto)
    except StaleVersion:
        since = meanwhile(store, onto, store.tip(branch))
        return _way_back(visit, branch, to, since=since)
    write_library(store)
    ended = f"; experiment {done.experiment} was stopped" if done.experiment else ""
    return visit.done(
        "/production", f"{branch} is back at {done.after.name}, was at {done.before.name}{ended}"
    )


def collect(visit: Visit) -> Response:
    """Turns calls that went wrong into problems to train on, as `tfgrpo collect` does."""
    start = parse_time(visit.field("since", "7d"), now=time.time_ns() // 1000)
    request = collection.CollectRequest((), CallFilter(start))
    project = project_of(visit)
    collected = collection.collect(visit.store, project, request)
    file = collection.output_path(project, request).name
    return visit.done(
        "/production",
        f"Wrote {plural(len(collected.rows), 'problem')} to {file}. "
        f"{plural(len(collected.left_out), 'call')} did not become a problem.",
    )


ROUTES = (
    Route("/production", show),
    Route("/production/collect", collect, "POST"),
    Route("/rollback", way_back),
    Route("/rollback", go_back, "POST"),
)
