"""A version and what it changed, and what is different between any two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from starlette.responses import Response

from tfgrpo.display.event_lines import events_of
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
from tfgrpo.store.history.library_order import Move, moves
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.history.revisions import resolve_range
from tfgrpo.store.records import Change, Version
from tfgrpo.store.store import Store
from tfgrpo.ui.page_visit import DIGITS, Route, Visit
from tfgrpo.ui.pages.experience import attempts_of
from tfgrpo.ui.shown_project import places

EVENTS = 200
CHANGES = 200


def show(visit: Visit) -> Response:
    """Answers with a version, its events and their evidence."""
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
    """Returns what changed from the version that a form was made from to another."""
    changes = tuple(store.diff(before, after))
    return Meanwhile(before, after, changes, shown_moves(store, after, moves(store, before, after)))


def diff(visit: Visit) -> Response:
    """Answers with what changed from one revision to another, word by word."""
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
    Route("/version/{revision:path}", show),
    Route("/diff", diff),
)
