"""The history: every version with its names, drawn as a graph and scrolled in windows; or those
that a filter asks for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from tfgrpo.display.graph_layout import DrawnRow
from tfgrpo.display.version_rows import StandingNames, change_counts, scores
from tfgrpo.runs.run_versions import gate_of
from tfgrpo.store.history import log_filter
from tfgrpo.store.history.log_filter import parse_time, shortened, subject
from tfgrpo.store.records import OPS, Version
from tfgrpo.store.store import Store
from tfgrpo.ui.page_visit import BadForm, Route, Visit

WINDOW = 100
"""Versions in a window; `static/history.js` asks for one at a time."""
PATIENCE = 0.5
"""Seconds for which a filter looks further before it shows what it has."""
READ = 200
FILTERS = ("in", "run", "experience", "op", "q", "author", "since", "until")


class ShownVersion(NamedTuple):
    """A version's row. `excerpt` is the text of what it changed first, where its subject does not
    say it; `drawn` is None in a filtered list."""

    version: Version
    subject: str
    excerpt: str
    counts: dict[str, int]
    names: list[str]
    scores: list[str]
    gate: str | None
    drawn: DrawnRow | None


def show(visit: Visit) -> Response:
    """Answers with a window of the whole history, or what fits a filter."""
    if any(visit.query(name) for name in FILTERS):
        return _filtered(visit)
    newest = visit.store.port.last_version()
    at = visit.store.resolve(visit.query("at")).number if visit.query("at") else None
    default = newest if at is None else min(newest, at + 10)
    start = visit.number("from", default, most=newest)
    shown = _window(visit, start)
    context: dict[str, Any] = {
        "rows": shown,
        "newest": newest,
        "start": start,
        "at": at,
        "window": WINDOW,
    }
    if visit.is_fragment:
        return visit.render("history_rows.html", **context)
    return visit.render("history.html", title="History", filtered=False, **context, **_form(visit))


def _window(visit: Visit, start: int) -> list[ShownVersion]:
    store = visit.store
    drawn = {row.number: row for row in visit.site.layout.rows(store, start, WINDOW)}
    names = StandingNames(store)
    versions = store.port.versions_at(drawn)[::-1]
    excerpts = _excerpts(store, versions)
    return [_shown(visit, one, names, (excerpts, drawn[one.number])) for one in versions]


def _excerpts(store: Store, versions: Sequence[Version]) -> dict[int, str]:
    """Returns the number of each version that changed something → the text of what it changed
    first, as it was then or, of what was confirmed or deleted, before."""
    events = store.events_at(one.position - one.events + 1 for one in versions if one.events)
    before = store.texts_before([event for event in events.values() if event.text is None])
    texts = {event.version: event.text or before.get(row) for row, event in events.items()}
    return {number: text for number, text in texts.items() if text}


def _shown(
    visit: Visit,
    version: Version,
    names: StandingNames,
    beside: tuple[dict[int, str], DrawnRow | None],
) -> ShownVersion:
    (texts, drawn), gate = beside, gate_of(version)
    words, excerpt = subject(visit.store, version), texts.get(version.number, "")
    return ShownVersion(
        version,
        words,
        "" if shortened(excerpt) in words else excerpt,
        change_counts(visit.store, version),
        names[version.number],
        scores(visit.store, version),
        None if gate is None else "accepted" if gate.is_accepted else "rejected",
        drawn,
    )


def _form(visit: Visit) -> dict[str, Any]:
    return {
        "query": {name: visit.query(name) for name in FILTERS},
        "branches": list(visit.store.branches()),
        "runs": [run.name for run in visit.store.runs.listed()][-200:],
    }


def _filtered(visit: Visit) -> Response:
    """Answers with the versions that fit, as many as are found in time, and where to go on."""
    store, now = visit.store, time.time_ns() // 1000
    op = visit.query("op").upper()
    if op and op not in OPS:
        raise BadForm(f"there is no operation {op[:20]!r}", hint=", ".join(OPS))
    since, until = visit.query("since"), visit.query("until")
    experience = visit.query("experience")
    filter = log_filter.Filter(
        run=visit.query("run") or None,
        experience=store.experience_id(experience) if experience else None,
        words=visit.query("q") or None,
        author=visit.query("author") or None,
        ops=frozenset(name for name in OPS if name == op),
        since=parse_time(since, now=now) if since else None,
        until=parse_time(until, now=now, end=True) if until else None,
    )
    newest = store.port.last_version()
    start = visit.number("from", newest, most=newest)
    names, fitting, last = StandingNames(store), list[Version](), start + 1
    deadline = time.monotonic() + PATIENCE
    reached_end = True
    for version, fits in log_filter.marked(store, _downwards(visit, start), filter):
        last = version.number
        if fits:
            fitting.append(version)
        if len(fitting) == WINDOW or time.monotonic() > deadline:
            reached_end = False
            break
    excerpts = _excerpts(store, fitting)
    return visit.render(
        "history.html",
        title="History",
        filtered=True,
        rows=[_shown(visit, one, names, (excerpts, None)) for one in fitting],
        newest=newest,
        start=start,
        at=None,
        window=WINDOW,
        further=None if reached_end or last <= 0 else visit.address(**{"from": last - 1}),
        last=last,
        **_form(visit),
    )


def _downwards(visit: Visit, start: int) -> Iterator[Version]:
    """Yields versions from a number down, of the history of the revision asked for."""
    store, revision = visit.store, visit.query("in")
    inside = None
    if revision:
        top = store.resolve(revision)
        start = min(start, top.number)
        inside = visit.site.layout.ancestors(store, top)
    for high in range(start, -1, -READ):
        for version in reversed(store.port.versions_at(range(max(0, high - READ + 1), high + 1))):
            if inside is None or inside[version.number]:
                yield version


ROUTES = (Route("/history", show),)
