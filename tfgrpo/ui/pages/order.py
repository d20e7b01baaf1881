"""Another order of a library: arranged with buttons that need no script, then recorded at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfgrpo.editing import arrange_library
from tfgrpo.store.errors import StaleVersion
from tfgrpo.store.records import Experience
from tfgrpo.store.reorder import ids_of, moved
from tfgrpo.ui.route import Route
from tfgrpo.ui.visit import BadForm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.responses import Response

    from tfgrpo.store.records import Library
    from tfgrpo.ui.visit import Visit

MOST = 500
"""Experiences of the largest library that is arranged here: a larger one is edited as a text."""
STEPS = ("up", "down", "first", "last")


class Row(NamedTuple):
    """An experience as it is listed here: with its label in the library, and whether it moves."""

    experience: Experience
    label: str
    is_moved: bool


def show(visit: Visit) -> Response:
    """Answers with a branch's library in the order that the address has, in which one may have
    stepped. An order is written as places in the library at the version `onto`: `2.0.1`."""
    store, branch = visit.store, visit.query("branch") or visit.store.head.branch or ""
    library = store.library(store.resolve(visit.query("onto") or store.tip(branch).name))
    order = _whole_order(visit.query("order"), library)
    for step in STEPS:
        if visit.query(step):
            id = _placed(visit.query(step), library)
            return _page(visit, branch, library, _stepped(order, id, step), at=(step, id))
    return _page(visit, branch, library, order)


def arrange(visit: Visit) -> Response:
    """Records the order that is shown. One that another has recorded meanwhile is said, and
    nothing is lost."""
    store, branch = visit.store, visit.required("branch", "the branch")
    library = store.library(store.resolve(visit.required("onto", "the version")))
    order = _whole_order(visit.field("order"), library)
    reason = visit.required("reason", "why")
    try:
        version = arrange_library(store, branch, order, onto=library.version, reason=reason)
    except StaleVersion:
        now = store.library(store.tip(branch))
        still_there = [id for id in order if id in now.by_id]
        whole = list(dict.fromkeys([*still_there, *ids_of(now)]))
        return _page(visit, branch, now, whole, status=409)
    notice = "nothing was moved" if version is None else f"{version.name}: {version.message}"
    return visit.done(f"/library?at={quote(branch)}", notice)


def _whole_order(places: str, library: Library) -> list[str]:
    """Returns the order that an address or a form has, of all that is in the library."""
    order = [_placed(place, library) for place in places.split(".") if place]
    return list(dict.fromkeys([*order, *ids_of(library)]))


def _placed(place: str, library: Library) -> str:
    """Returns the experience at a place in a library. Raises BadForm."""
    id = library.labels.get(f"G{place}")
    if id is None:
        raise BadForm(f"the library has no place {place[:20]!r}", hint="load the page anew")
    return id


def _stepped(order: Sequence[str], id: str, step: str) -> list[str]:
    """Returns an order with one experience a place further up or down, first or last."""
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
    if len(order) > MOST:
        raise BadForm(
            f"{len(order)} experiences are too many to be moved one by one",
            hint=f"edit the whole library, and move its lines; this page has up to {MOST}",
        )
    moves = set(moved(ids_of(library), order))
    rows = [Row(library.by_id[id], library.label_of[id], id in moves) for id in order]
    return visit.render(
        "order.html",
        status,
        title=f"Order of {branch}",
        branch=branch,
        version=library.version,
        rows=rows,
        order=".".join(row.label[1:] for row in rows),
        moves=len(moves),
        reason=visit.field("reason"),
        at=at,
        moved_on=status == 409,
    )


ROUTES = (Route("/library/order", show), Route("/library/order", arrange, "POST"))
