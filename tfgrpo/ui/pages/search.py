"""One search over what the store knows: experiences, also those that were deleted, problems of the
last runs, attempts, calls."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from tfgrpo.runs.attempts import known_run_problems
from tfgrpo.store.activity.runs import FoundAttempts, Run
from tfgrpo.store.activity.traffic import CallFilter, FoundCalls
from tfgrpo.ui.page_visit import BadForm, Route, Visit
from tfgrpo.ui.shown_project import branches_of_people, problems_of, traffic_of

MOST = 20
"""What is listed of each kind."""
RUNS = 5
"""The last runs whose problems are looked at."""
LONGEST = 200
BEFORE = 100
"""Characters that are shown before the words in a text."""
MONTH = 30 * 86_400 * 1_000_000


class Passage(NamedTuple):
    """A problem or an attempt with the words in it, and the page that shows it."""

    run: str
    problem: str
    text: str
    address: str


def show(visit: Visit) -> Response:
    wanted = visit.query("q").strip()
    if len(wanted) > LONGEST:
        raise BadForm(f"at most {LONGEST} characters are looked for")
    before = visit.number("before", 0)
    problems: list[Passage] = []
    attempts = FoundAttempts([], 0, None)
    calls = FoundCalls([], None)
    runs = visit.store.runs.listed()[::-1] if wanted and visit.content else []
    if runs:
        attempts = visit.store.runs.attempts_saying(wanted, MOST, before or None)
    if wanted and visit.content and not before:
        for run in runs[:RUNS]:
            problems += _problems(visit, run, wanted.casefold())
        with traffic_of(visit) as traffic:
            if traffic is not None:
                since = time.time_ns() // 1000 - MONTH
                calls = traffic.search(CallFilter(since=since), wanted, MOST)
    return visit.render(
        "search.html",
        title="Search",
        wanted=wanted,
        before=before,
        experiences=_experiences(visit, wanted) if wanted and not before else [],
        problems=problems[:MOST],
        attempts=_attempts(attempts, {run.id: run.name for run in runs}, wanted.casefold()),
        looked_at=attempts.looked_at,
        reached=attempts.reached,
        calls=calls.calls,
        further=f"/calls?{urlencode({'q': wanted})}",
        most=MOST,
    )


def _experiences(visit: Visit, wanted: str) -> list[tuple[str, str, list[str]]]:
    """Returns the experiences with the words in one of their texts or reasons: the id, the text,
    and the branches that have it now."""
    store = visit.store
    pattern = re.compile(re.escape(wanted), re.IGNORECASE)
    rows = store.port.redactions.events_holding(pattern)[::-1]
    standing = {
        name: store.library(store.version(number)).by_id
        for name, number in branches_of_people(visit).items()
    }
    fitting: dict[str, tuple[str, str, list[str]]] = {}
    for row, event in store.events_at(rows[: 10 * MOST]).items():
        if event.experience in fitting or event.redacted:
            continue
        if not pattern.search(f"{event.text}\n{event.reason}"):  # in what is not shown
            continue
        branches = [name for name, library in standing.items() if event.experience in library]
        text = event.text or event.reason or f"event {row}"
        fitting[event.experience] = (event.experience, text, branches)
    return list(islice(fitting.values(), MOST))


def _problems(visit: Visit, run: Run, wanted: str) -> list[Passage]:
    known, _ = problems_of(visit, run.uid, lambda project: known_run_problems(project, run))
    return [
        Passage(run.name, id, one.problem, _group(run.name, id))
        for id, one in known.items()
        if wanted in id.casefold() or wanted in one.problem.casefold()
    ][:MOST]


def _attempts(matching: FoundAttempts, names: Mapping[int, str], wanted: str) -> list[Passage]:
    fitting = []
    for row, text in matching.attempts:
        if row.run in names:
            run, at = names[row.run], max(0, text.casefold().find(wanted) - BEFORE)
            address = _group(run, row.problem, step=row.step + 1, sample=row.sample)
            excerpt = ("… " if at else "") + text[at:]
            fitting.append(Passage(run, row.problem, excerpt, address))
    return fitting


def _group(run: str, problem: str, **place: int) -> str:
    return f"/group/{run}?{urlencode({**place, 'problem': problem})}"


ROUTES = (Route("/search", show),)
