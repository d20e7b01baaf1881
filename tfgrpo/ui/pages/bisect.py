"""The search for the first bad version, as a strip: the same search as `tfgrpo bisect`, which
lies beside the store, so that it goes on in the page or in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import cast

from starlette.responses import Response

from tfgrpo.display.bisect_strip import bisect_strip
from tfgrpo.display.event_lines import events_of
from tfgrpo.evaluation.bisect_judges import forget, materialise
from tfgrpo.redaction import trial_folder
from tfgrpo.store.errors import StaleVersion
from tfgrpo.store.history import bisect as searches
from tfgrpo.store.history.bisect import (
    BISECT_VERDICTS,
    BisectError,
    BisectSearch,
    BisectVerdict,
)
from tfgrpo.store.history.log_filter import subject
from tfgrpo.ui.page_visit import BadForm, Route, Visit
from tfgrpo.ui.pages.experience import attempts_of
from tfgrpo.ui.shown_project import places
from tfgrpo.ui.visitor_sessions import Act

EVENTS = 30
"""Events of the version under test that are shown; its own page has all."""


def show(visit: Visit, *, moved_on: bool = False) -> Response:
    store = visit.store
    page = partial(
        visit.render,
        "bisect.html",
        409 if moved_on else 200,
        moved_on=moved_on,
        title="Bisect",
        places=places(store),
    )
    if not searches.file(store).exists():
        return page(seen=searches.NO_SEARCH, search=None, bad=visit.query("bad", "HEAD") or "HEAD")
    search = searches.load(store)
    strip = bisect_strip(store, search)
    number = strip.progress.first_bad
    number = strip.progress.next if number is None else number
    version = None if number is None else store.version(number)
    events = [] if version is None else list(islice(events_of(store, version), EVENTS + 1))
    return page(
        seen=searches.state(search),
        search=search,
        strip=strip,
        progress=strip.progress,
        version=version,
        good=max((n for n in search.good if version and n < version.number), default=None),
        subject=None if version is None else subject(store, version),
        events=[(one, attempts_of(one)) for one in events[:EVENTS]],
        more=len(events) > EVENTS,
        bad="HEAD",
    )


def _unless_moved_on(act: Callable[[Visit], Response]) -> Callable[[Visit], Response]:
    """Returns an act that shows the search where somebody marked a version, or began or ended the
    search, since its form was made."""

    def acted(visit: Visit) -> Response:
        try:
            return act(visit)
        except StaleVersion:
            return show(visit, moved_on=True)

    return acted


def _seen(visit: Visit) -> str:
    return visit.required("seen", "what the form was made from")


@_unless_moved_on
def start(visit: Visit) -> Response:
    store, seen = visit.store, _seen(visit)
    bad = store.resolve(visit.required("bad", "the bad version"))
    names = visit.required("good", "a good version").split()
    search = searches.start(store, bad, [store.resolve(name) for name in names], seen=seen)
    return _onward(visit, search, f"the search is on, from {bad.name} back", "end")


@_unless_moved_on
def mark(visit: Visit) -> Response:
    """Records what somebody found out about a version, under their name. Where others went on with
    the search meanwhile nothing is recorded, and what they marked is shown."""
    store, seen = visit.store, _seen(visit)
    version = store.resolve(visit.required("version", "the version"))
    verdict = cast("BisectVerdict", visit.field("verdict"))
    if verdict not in BISECT_VERDICTS:
        raise BadForm(f"a version cannot be {verdict[:40]!r}", hint=", ".join(BISECT_VERDICTS))
    words = " ".join(visit.field("why").split())
    why = f"{words} ({visit.who})" if words else f"by hand, {visit.who}"
    search = searches.mark(store, version, verdict, why, seen=seen)
    words = "cannot be judged" if verdict == "skip" else f"is {verdict}"
    return _onward(visit, search, f"{version.name} {words}", "undo")


@_unless_moved_on
def end(visit: Visit) -> Response:
    seen = _seen(visit)
    is_on = searches.end(visit.store, seen=seen)
    forget(trial_folder(visit.store))
    if not is_on:
        return visit.done("/bisect", "no search was on")
    return visit.done("/bisect", "the search is over", Act("/bisect/undo", (("ended", seen),)))


@_unless_moved_on
def undo(visit: Visit) -> Response:
    try:
        if ended := visit.field("ended"):
            search = searches.go_on(visit.store, ended)
            return _onward(visit, search, "the search is on again", "end")
        search = searches.unmark(visit.store, seen=_seen(visit))
    except BisectError as refusal:
        return visit.done("/bisect", str(refusal), is_refusal=True)
    return _onward(visit, search, "the last mark is taken back")


def _onward(visit: Visit, search: BisectSearch, notice: str, back: str = "") -> Response:
    """Lays out the library that is to be tested, as `tfgrpo bisect` does, and shows the strip;
    `back` is the act that takes back what was done."""
    store = visit.store
    undo = Act(f"/bisect/{back}", (("seen", searches.state(search)),)) if back else None
    number = searches.progress(store, search).next
    if number is not None:
        materialise(store, store.version(number), trial_folder(store))
    return visit.done("/bisect", notice, undo)


ROUTES = (
    Route("/bisect", show),
    Route("/bisect/start", start, "POST"),
    Route("/bisect/mark", mark, "POST"),
    Route("/bisect/end", end, "POST"),
    Route("/bisect/undo", undo, "POST"),
)
