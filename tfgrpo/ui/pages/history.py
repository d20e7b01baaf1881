"""The history: every version, drawn as a graph and scrolled in windows, or those that a filter asks
for; a version and what it changed, and what is different between any two."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from starlette.responses import Response

from tfgrpo.display.event_lines import events_of
from tfgrpo.display.graph_layout import DrawnRow
from tfgrpo.display.measured_merge import measured_lines
from tfgrpo.display.version_rows import (
    StandingNames,
    change_counts,
    left_in_place,
    moves_of,
    scores,
    signature_lines,
    signed,
)
from tfgrpo.runs.run_issues import issues
from tfgrpo.runs.run_versions import gate_of
from tfgrpo.store.history import log_filter
from tfgrpo.store.history.library_order import Move, moves
from tfgrpo.store.history.log_filter import parse_time, shortened, subject
from tfgrpo.store.history.revisions import resolve_range
from tfgrpo.store.records import OPS, Change, Version
from tfgrpo.store.store import Store
from tfgrpo.ui.page_visit import DIGITS, BadForm, Route, Visit
from tfgrpo.ui.pages.experience import attempts_of
from tfgrpo.ui.shown_project import places

WINDOW = 100
"""Versions in a window; `static/history.js` asks for one at a time."""
PATIENCE = 0.5
"""Seconds for which a filter looks further before it shows what it has."""
READ = 200
EVENTS = 200
CHANGES = 200
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
    if any(visit.query(name) for name in FILTERS):
        return _filtered(visit)
    newest = visit.store.port.last_version()
    at = visit.store.resolve(visit.query("at")).number if visit.query("at") else None
    default = newest if at is None else min(newest, at + 10)
    start = visit.number("from", default, most=newest)
    drawn = {row.number: row for row in visit.site.layout.rows(visit.store, start, WINDOW)}
    context: dict[str, Any] = {
        "rows": _rows(visit, visit.store.port.versions_at(drawn)[::-1], drawn),
        "newest": newest,
        "start": start,
        "at": at,
        "window": WINDOW,
    }
    if visit.is_fragment:
        return visit.render("history_rows.html", **context)
    return visit.render("history.html", title="History", filtered=False, **context, **_form(visit))


def _excerpts(store: Store, versions: Sequence[Version]) -> dict[int, str]:
    """Returns the number of each version that changed something → the text of what it changed
    first, as it was then or, of what was confirmed or deleted, before."""
    events = store.events_at(one.position - one.events + 1 for one in versions if one.events)
    before = store.texts_before([event for event in events.values() if event.text is None])
    texts = {event.version: event.text or before.get(row) for row, event in events.items()}
    return {number: text for number, text in texts.items() if text}


def _rows(
    visit: Visit, versions: Sequence[Version], drawn: Mapping[int, DrawnRow]
) -> list[ShownVersion]:
    store, rows = visit.store, []
    names, excerpts = StandingNames(store), _excerpts(store, versions)
    for one in versions:
        words, excerpt, gate = subject(store, one), excerpts.get(one.number, ""), gate_of(one)
        rows.append(
            ShownVersion(
                one,
                words,
                "" if shortened(excerpt) in words else excerpt,
                change_counts(store, one),
                names[one.number],
                scores(store, one),
                None if gate is None else "accepted" if gate.is_accepted else "rejected",
                drawn.get(one.number),
            )
        )
    return rows


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
    fitting, last = list[Version](), start + 1
    deadline = time.monotonic() + PATIENCE
    reached_end = True
    for version, fits in log_filter.marked(store, _downwards(visit, start), filter):
        last = version.number
        if fits:
            fitting.append(version)
        if len(fitting) == WINDOW or time.monotonic() > deadline:
            reached_end = False
            break
    return visit.render(
        "history.html",
        title="History",
        filtered=True,
        rows=_rows(visit, fitting, {}),
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


def show_version(visit: Visit) -> Response:
    store = visit.store
    version = store.resolve(visit.path("revision"))
    events = list(events_of(store, version))
    start = visit.number("start", 0)
    return visit.render(
        "version.html",
        title=f"Version {version.name}",
        version=version,
        signed=signed(store, version),
        signatures=signature_lines(store, version),
        subject=subject(store, version),
        names=StandingNames(store)[version.number],
        counts=change_counts(store, version),
        events=[(one, attempts_of(one)) for one in events[start : start + EVENTS]],
        found=len(events),
        start=start,
        events_a_page=EVENTS,
        scores=scores(store, version),
        moves=shown_moves(store, version, moves_of(store, version)),
        left_in_place=left_in_place(version),
        measured=measured_lines(store, version),
        issues=issues(version),
        size=len(store.library(version)),
        newest=store.port.last_version(),
    )


def shown_moves(store: Store, version: Version, moves: Sequence[Move]) -> list[tuple[Move, str]]:
    """Returns moves with their texts, as many as a page has."""
    if not moves:
        return []
    texts = store.library(version).by_id
    return [(one, texts[one.experience].text) for one in moves[:CHANGES]]


class Meanwhile(NamedTuple):
    """What others did between the version that a form was made from and where the branch stands."""

    before: Version
    after: Version
    changes: Sequence[Change]
    moves: Sequence[tuple[Move, str]]


def meanwhile(store: Store, before: Version, after: Version) -> Meanwhile:
    changes = tuple(store.diff(before, after))
    return Meanwhile(before, after, changes, shown_moves(store, after, moves(store, before, after)))


def diff(visit: Visit) -> Response:
    store = visit.store
    a, b = visit.query("a"), visit.query("b", "HEAD") or "HEAD"
    if ".." in a:
        low, after = resolve_range(store, a)
        before = low or after
    else:
        after = store.resolve(b)
        parent = after if after.parent is None else store.version(after.parent)
        before = store.resolve(a) if a else parent
    changes, moved = store.diff(before, after), moves(store, before, after)
    start = visit.number("start", 0)
    return visit.render(
        "diff.html",
        title=f"{before.name} → {after.name}",
        a=a or before.name,
        b=b if ".." not in a else after.name,
        before=before,
        after=after,
        changes=changes[start : start + CHANGES],
        found=len(changes),
        start=start,
        changes_a_page=CHANGES,
        stays=visit.address(a=before.digest.hex()[:DIGITS], b=after.digest.hex()[:DIGITS]),
        counts=Counter([*(change.op for change in changes), *("MOVE" for _ in moved)]),
        moves=shown_moves(store, after, moved),
        places=places(store),
    )


ROUTES = (
    Route("/history", show),
    Route("/version/{revision:path}", show_version),
    Route("/diff", diff),
)
