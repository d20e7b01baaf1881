"""One search over what the store knows: experiences, also those that were deleted, problems and
attempts of the last runs, calls."""

from __future__ import annotations

import re
import time
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from tfgrpo.runs.attempts import known_run_problems
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.activity.traffic import CallFilter, FoundCalls
from tfgrpo.ui.page_route import Route
from tfgrpo.ui.page_visit import BadForm, Visit
from tfgrpo.ui.shown_project import branches_of_people, problems_of
from tfgrpo.ui.traffic_beside import traffic_of

MOST = 20
"""What is listed of each kind."""
RUNS = 5
"""The last runs whose problems and attempts are looked at."""
ATTEMPTS = 5_000
"""The attempts of a run that are looked at."""
LONGEST = 200
MONTH = 30 * 86_400 * 1_000_000


class FoundExperience(NamedTuple):
    """An experience with the words in one of its texts or reasons. `branches` have it now: none
    where it was deleted."""

    id: str
    text: str
    branches: list[str]


class FoundAttempt(NamedTuple):
    """A problem or an attempt with the words in it, and the page that shows it."""

    run: str
    problem: str
    text: str
    address: str


def show(visit: Visit) -> Response:
    """Answers with what has some words in it."""
    wanted = visit.query("q").strip()
    if len(wanted) > LONGEST:
        raise BadForm(f"at most {LONGEST} characters are looked for")
    problems: list[FoundAttempt] = []
    attempts: list[FoundAttempt] = []
    calls = FoundCalls([], None)
    if wanted and visit.content:
        for run in visit.store.runs.listed()[::-1][:RUNS]:
            problems += _problems(visit, run, wanted.casefold())
            attempts += _attempts(visit, run, wanted.casefold())
        with traffic_of(visit) as traffic:
            if traffic is not None:
                since = time.time_ns() // 1000 - MONTH
                calls = traffic.search(CallFilter(since=since), wanted, MOST)
    return visit.render(
        "search.html",
        title="Search",
        wanted=wanted,
        experiences=_experiences(visit, wanted) if wanted else [],
        problems=problems[:MOST],
        attempts=attempts[:MOST],
        calls=calls.calls,
        further=f"/calls?{urlencode({'q': wanted})}",
        most=MOST,
    )


def _experiences(visit: Visit, wanted: str) -> list[FoundExperience]:
    store = visit.store
    rows = store.port.redactions.events_holding(re.compile(re.escape(wanted), re.IGNORECASE))[::-1]
    standing = {
        name: store.library(store.version(number)).by_id
        for name, number in branches_of_people(visit).items()
    }
    fitting: dict[str, FoundExperience] = {}
    for row, event in store.events_at(rows[: 10 * MOST]).items():
        if event.experience in fitting or event.redacted:
            continue
        branches = [name for name, library in standing.items() if event.experience in library]
        text = event.text or event.reason or f"event {row}"
        fitting[event.experience] = FoundExperience(event.experience, text, branches)
    return list(islice(fitting.values(), MOST))


def _problems(visit: Visit, run: Run, wanted: str) -> list[FoundAttempt]:
    data = problems_of(visit, run.uid, lambda project: known_run_problems(project, run))
    return [
        FoundAttempt(run.name, id, one.problem, _group(run.name, id))
        for id, one in data.known.items()
        if wanted in id.casefold() or wanted in one.problem.casefold()
    ][:MOST]


def _attempts(visit: Visit, run: Run, wanted: str) -> list[FoundAttempt]:
    fitting = []
    for row in islice(visit.store.runs.rollouts(run), ATTEMPTS):
        words = f"{row.verdict.get('answer') or ''} {row.verdict.get('reason') or ''}"
        if wanted in words.casefold():
            address = _group(run.name, row.problem, step=row.step + 1, sample=row.sample)
            fitting.append(FoundAttempt(run.name, row.problem, words.strip(), address))
    return fitting[:MOST]


def _group(run: str, problem: str, **place: int) -> str:
    return f"/group/{run}?{urlencode({**place, 'problem': problem})}"


ROUTES = (Route("/search", show),)
