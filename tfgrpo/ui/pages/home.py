"""The first page: where the libraries stand, what is at work, and what waits for a person."""

from __future__ import annotations

import time

from starlette.responses import Response

from tfgrpo.display.version_rows import StandingNames, change_counts
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.production.experiment import all_running, paused_in_words
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.history.name_moves import protected
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.pages.production import SINCE, is_ready, report_of
from tfgrpo.ui.shown_project import branches_of_people, has_traffic

VERSIONS = 8
RUNS = 5
WEEK = 7 * 86_400 * 1_000_000


def show(visit: Visit) -> Response:
    store = visit.store
    protected_branches = protected(store, "branch")
    branches = []
    for name, number in branches_of_people(visit).items():
        version = store.version(number)
        branches.append((name, version, len(store.library(version)), name in protected_branches))
    branches.sort(key=lambda one: (one[0] != store.head.branch, -one[1].time))
    newest = store.port.last_version()
    names = StandingNames(store)
    since = time.time_ns() // 1000 - WEEK
    waits = visit.query("figures") != "now" and not is_ready(visit)
    return visit.render(
        "home.html",
        title="Home",
        head=store.head,
        branches=branches,
        aside=len(store.branches()) - len(branches),
        runs=_runs(visit),
        waiting=list_proposals(store, "open")[::-1],
        experiments=[(one, paused_in_words(store, one)) for one in all_running(store)],
        recent=[
            (one, subject(store, one), change_counts(store, one), names[one.number])
            for one in store.port.versions_at(range(max(0, newest - VERSIONS + 1), newest + 1))
        ][::-1],
        versions=newest + 1,
        figures=None
        if waits or not has_traffic(visit)
        else report_of(visit, SINCE, since).versions,
        waits=waits,
    )


def _runs(visit: Visit) -> list[tuple[Run, str]]:
    runs = visit.store.runs
    states = [(run, runs.state(run)) for run in runs.listed()][::-1]
    return sorted(states, key=lambda one: one[1] == "finished")[:RUNS]


ROUTES = (Route("/", show),)
