"""What a library does in production: by version, in experiments, call by call; and the way back."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfgrpo.improvement import collection
from tfgrpo.library_file import write_library
from tfgrpo.production.evidence import Evidence, evidence
from tfgrpo.production.experiment import RUNNING, Experiment, experiments
from tfgrpo.production.rollback import before_that, rollback
from tfgrpo.projections.production import live_figures
from tfgrpo.proxy.metrics import sums_of_feedback
from tfgrpo.proxy.patterns import clean_feedback
from tfgrpo.store.decisions import decisions
from tfgrpo.store.default import open_traffic
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.reorder import moves
from tfgrpo.store.time_spec import parse_time
from tfgrpo.store.traffic import (
    CallFilter,
    LiveFigures,
    Traffic,
    checked_feedback,
    traffic_path,
)
from tfgrpo.ui.pages.version import shown_moves
from tfgrpo.ui.place import branches_of_people, project_of
from tfgrpo.ui.route import Route
from tfgrpo.ui.visit import BadForm
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from starlette.responses import Response

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
        below=_number(visit.query("below")),
    )
    with _traffic(visit) as traffic:
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
        decisions=[one for one in decisions(visit.store) if one.kind != "proposal"][-DECISIONS:][
            ::-1
        ],
        branches=[(name, visit.store.version(n)) for name, n in branches_of_people(visit).items()],
    )


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


def call(visit: Visit) -> Response:
    """Answers with one call: what was asked and answered, where that was kept, and its feedback."""
    if not visit.content:
        raise UnknownRevision("what was asked and said is not shown here")
    with _traffic(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        record = traffic.call(visit.path("id"))
        content, feedback = traffic.content(record.id), traffic.feedback(record.id)
    here = visit.store.port.versions_by_digest(record.digest, 2) if record.digest else []
    return visit.render(
        "call.html",
        title=f"Call {record.id[:17]}",
        call=record,
        version=here[0] if len(here) == 1 else None,
        content=content,
        feedback=feedback,
    )


def add_feedback(visit: Visit) -> Response:
    """Records what somebody says of a call."""
    given: dict[str, object] = {
        name: visit.field(name) for name in ("label", "comment", "correct") if visit.field(name)
    }
    score = visit.field("score")
    if score:
        given["score"] = _number(score)
    with _traffic(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        about = traffic.call(visit.path("id"))
        now = time.time_ns() // 1000
        feedback = clean_feedback(checked_feedback(about.id, given, author=visit.who, time=now))
        traffic.add_feedback(feedback, sums_of_feedback(feedback, about))
    return visit.done(f"/call/{quote(about.id)}", "recorded your feedback")


def way_back(visit: Visit) -> Response:
    """Answers with where a branch would go back to, and what that changes."""
    store, branch = visit.store, visit.query("branch")
    tip = store.tip(branch)
    try:
        to = store.resolve(visit.query("to")) if visit.query("to") else before_that(store, branch)
    except UnknownRevision as nowhere:  # it never stood elsewhere, or there is no such revision
        return visit.render(
            "rollback.html",
            title=f"Roll back {branch}",
            branch=branch,
            tip=tip,
            to=None,
            said=str(nowhere),
            changes=(),
        )
    return visit.render(
        "rollback.html",
        title=f"Roll back {branch}",
        branch=branch,
        tip=tip,
        to=to,
        said="",
        changes=store.diff(tip, to),
        moves=shown_moves(store, to, moves(store, tip, to)),
    )


def go_back(visit: Visit) -> Response:
    """Rolls a branch back, for a reason."""
    branch = visit.required("branch", "the branch")
    done = rollback(
        visit.store, branch, why=visit.required("why", "why"), to=visit.required("to", "where to")
    )
    write_library(visit.store)
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
        f"wrote {plural(len(collected.rows), 'problem')} to {file}; "
        f"left out {plural(len(collected.left_out), 'call')}",
    )


@contextmanager
def _traffic(visit: Visit) -> Iterator[Traffic | None]:
    path = traffic_path(visit.store.file)
    if not os.path.isfile(path):
        yield None
        return
    traffic = open_traffic(path)
    try:
        yield traffic
    finally:
        traffic.close()


def _number(value: str) -> float | None:
    if not value:
        return None
    if value.lower() in ("true", "false"):
        return float(value.lower() == "true")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadForm(f"{value[:40]!r} is no score", hint="true, false or a number")
    return number


ROUTES = (
    Route("/production", show),
    Route("/production/collect", collect, "POST"),
    Route("/call/{id}", call),
    Route("/call/{id}", add_feedback, "POST"),
    Route("/rollback", way_back),
    Route("/rollback", go_back, "POST"),
)
