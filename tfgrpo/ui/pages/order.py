"""Another order of a library: arranged with buttons that need no script, then recorded at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from tfgrpo.hand_edits import arrange_library
from tfgrpo.store.errors import StaleVersion
from tfgrpo.store.history.library_order import ids_of, moved
from tfgrpo.store.records import Experience, Library
from tfgrpo.ui.page_visit import BadForm, Route, Visit, as_number

ROWS = 200
"""Experiences on a page."""
STEPS = ("up", "down", "first", "last")


class Row(NamedTuple):
    """An experience as it is listed here: with its label in the library, whether it moves, and
    whether it is the first or the last of all."""

    experience: Experience
    label: str
    is_moved: bool
    is_first: bool
    is_last: bool


def show(visit: Visit) -> Response:
    """Answers with a branch's library in the order that the address has, in which one may have
    stepped, or been moved to a place. An order is written as places in the library at the version
    `onto`, those that follow each other as a range: `2.0-1.3`."""
    store, branch = visit.store, visit.query("branch") or visit.store.head.branch or ""
    library = store.library(store.resolve(visit.query("onto") or store.tip(branch).name))
    order = _whole_order(visit.query("order"), library)
    for step in STEPS:
        if visit.query(step):
            id = _placed(visit.query(step), library)
            return _page(visit, branch, library, _stepped(order, id, step), at=(step, id))
    if visit.query("move"):
        to = visit.number("to", 0)
        return _moved_to(visit, branch, library, order, (visit.query("move"), to))
    return _page(visit, branch, library, order)


def _moved_to(
    visit: Visit, branch: str, library: Library, order: Sequence[str], move: tuple[str, int]
) -> Response:
    name, to = move
    id = visit.store.experience_id(name, library.version)
    if id not in library.by_id:
        raise BadForm(f"the library has no {name[:20]!r}")
    rest = [other for other in order if other != id]
    rest.insert(to, id)
    return _page(visit, branch, library, rest, at=("move", id))


def arrange(visit: Visit) -> Response:
    """Records the order that is shown. One that another has recorded meanwhile is said, and
    nothing is lost. Where a move was typed and not made, it is made, and nothing is recorded: Enter
    sends the form so."""
    store, branch = visit.store, visit.required("branch", "the branch")
    library = store.library(store.resolve(visit.required("onto", "the version")))
    order = _whole_order(visit.field("order"), library)
    if visit.field("move"):
        to = as_number("to", visit.field("to"), 0)
        return _moved_to(visit, branch, library, order, (visit.field("move"), to))
    reason = visit.required("reason", "why")
    try:
        version = arrange_library(store, branch, order, onto=library.version, reason=reason)
    except StaleVersion:
        now = store.library(store.tip(branch))
        still_there = [id for id in order if id in now.by_id]
        whole = list(dict.fromkeys([*still_there, *ids_of(now)]))
        return _page(visit, branch, now, whole, status=409)
    return visit.recorded(branch, version, nothing="nothing was moved")


def _whole_order(places: str, library: Library) -> list[str]:
    """Returns the order that an address or a form has, of all that is in the library. Raises
    BadForm."""
    order: list[str] = []
    for part in places.split("."):
        low, between, high = part.partition("-")
        if part:
            first = _placed(low, library)
            last = _placed(high, library) if between else first
            ids = [library.labels[f"G{n}"] for n in range(int(low), int(high or low) + 1)]
            if not ids or len(order) > len(library) or (ids[0], ids[-1]) != (first, last):
                raise BadForm(f"{part[:40]!r} is no place", hint="load the page anew")
            order += ids
    return list(dict.fromkeys([*order, *ids_of(library)]))


def _written(places: Sequence[int]) -> str:
    ranges: list[list[int]] = []
    for place in places:
        if ranges and place == ranges[-1][1] + 1:
            ranges[-1][1] = place
        else:
            ranges.append([place, place])
    return ".".join(f"{low}-{high}" if low < high else f"{low}" for low, high in ranges)


def _placed(place: str, library: Library) -> str:
    id = library.labels.get(f"G{place}")
    if id is None:
        raise BadForm(f"the library has no place {place[:20]!r}", hint="load the page anew")
    return id


def _stepped(order: Sequence[str], id: str, step: str) -> list[str]:
    at = order.index(id)
    rest = [other for other in order if other != id]
    places = {"up": max(0, at - 1), "down": at + 1, "first": 0, "last": len(rest)}
    rest.insert(places[step], id)
    return rest


def _page(
    visit: Visit,
    branch: str,
    library: Library,
    order: Sequence[str],
    *,
    at: tuple[str, str] | None = None,
    status: int = 200,
) -> Response:
    moves = set(moved(ids_of(library), order))
    near = order.index(at[1]) if at else visit.number("from", 0, most=max(0, len(order) - 1))
    start = near // ROWS * ROWS
    rows = [
        Row(library.by_id[id], library.label_of[id], id in moves, n == 0, n == len(order) - 1)
        for n, id in enumerate(order[start : start + ROWS], start)
    ]
    written = _written([int(library.label_of[id][1:]) for id in order])

    def address(first: int) -> str:
        query = {"branch": branch, "onto": library.version.name, "order": written, "from": first}
        if visit.query("reason"):
            query["reason"] = visit.query("reason")
        return f"/library/order?{urlencode(query)}"

    return visit.render(
        "order.html",
        status,
        title=f"Order of {branch}",
        branch=branch,
        version=library.version,
        rows=rows,
        order=written,
        start=start,
        size=len(order),
        before=address(start - ROWS) if start else None,
        after=address(start + ROWS) if start + ROWS < len(order) else None,
        moves=len(moves),
        reason=visit.field("reason") or visit.query("reason"),
        at=at,
        moved_on=status == 409,
    )


ROUTES = (Route("/library/order", show), Route("/library/order", arrange, "POST"))
