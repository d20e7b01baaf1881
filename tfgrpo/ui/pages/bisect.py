"""The search for the first bad version, as a strip: the same search as `tfgrpo bisect`, which
lies beside the store, so that it goes on in the page or in a terminal."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import cast

from starlette.responses import Response

from tfgrpo.display.bisect_strip import bisect_strip
from tfgrpo.display.event_lines import events_of
from tfgrpo.evaluation.bisect_judges import forget, materialise
from tfgrpo.redaction import trial_folder
from tfgrpo.store import canonical
from tfgrpo.store.history import bisect as searches
from tfgrpo.store.history.bisect import BISECT_VERDICTS, BisectSearch, BisectVerdict
from tfgrpo.store.history.log_filter import subject
from tfgrpo.ui.page_visit import DIGITS, BadForm, Route, Visit
from tfgrpo.ui.pages.experience import attempts_of
from tfgrpo.ui.shown_project import places
from tfgrpo.ui.visitor_sessions import Act

NO_SEARCH = "0"
"""What a form was made from where no search was on."""
EVENTS = 30
"""Events of the version under test that are shown; its own page has all."""


def show(visit: Visit, *, moved_on: bool = False) -> Response:
    """Answers with the search that is on, or the form that begins one."""
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
        return page(seen=NO_SEARCH, search=None, bad=visit.query("bad", "HEAD") or "HEAD")
    search = searches.load(store)
    strip = bisect_strip(store, search)
    number = strip.progress.first_bad
    number = strip.progress.next if number is None else number
    version = None if number is None else store.version(number)
    events = [] if version is None else list(islice(events_of(store, version), EVENTS + 1))
    return page(
        seen=_digest(search),
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


def _has_moved_on(visit: Visit) -> bool:
    """Returns whether somebody marked a version, or began or ended the search, since the form was
    made."""
    seen = visit.required("seen", "what the form was made from")
    is_on = searches.file(visit.store).exists()
    return seen != (_digest(searches.load(visit.store)) if is_on else NO_SEARCH)


def _digest(search: BisectSearch) -> str:
    return canonical.digest([list(mark) for mark in search.marks]).hex()[:DIGITS]


def start(visit: Visit) -> Response:
    """Begins a search between a bad version and good ones in its history."""
    if _has_moved_on(visit):
        return show(visit, moved_on=True)
    store = visit.store
    bad = store.resolve(visit.required("bad", "the bad version"))
    names = visit.required("good", "a good version").split()
    search = searches.start(store, bad, [store.resolve(name) for name in names])
    undo = Act("/bisect/end", (("seen", _digest(search)),))
    return _onward(visit, search, f"the search is on, from {bad.name} back", undo)


def mark(visit: Visit) -> Response:
    """Records what somebody found out about a version, under their name. Where others went on with
    the search meanwhile nothing is recorded, and what they marked is shown."""
    if _has_moved_on(visit):
        return show(visit, moved_on=True)
    store = visit.store
    version = store.resolve(visit.required("version", "the version"))
    verdict = cast("BisectVerdict", visit.field("verdict"))
    if verdict not in BISECT_VERDICTS:
        raise BadForm(f"a version cannot be {verdict[:40]!r}", hint=", ".join(BISECT_VERDICTS))
    seen = " ".join(visit.field("why").split())
    why = f"{seen} ({visit.who})" if seen else f"by hand, {visit.who}"
    search = searches.mark(store, version, verdict, why)
    words = "cannot be judged" if verdict == "skip" else f"is {verdict}"
    undo = Act("/bisect/undo", (("seen", _digest(search)),))
    return _onward(visit, search, f"{version.name} {words}", undo)


def end(visit: Visit) -> Response:
    """Ends the search; its marks are deleted, but for who ended it and wants them back."""
    if _has_moved_on(visit):
        return show(visit, moved_on=True)
    is_on = searches.file(visit.store).exists()
    if is_on:
        visit.session.set_aside("bisect", searches.load(visit.store))
    searches.reset(visit.store)
    forget(trial_folder(visit.store))
    if not is_on:
        return visit.done("/bisect", "no search was on")
    return visit.done("/bisect", "the search is over", Act("/bisect/undo", (("seen", NO_SEARCH),)))


def undo(visit: Visit) -> Response:
    """Takes the last mark back, or the end of the search."""
    if _has_moved_on(visit):
        return show(visit, moved_on=True)
    if searches.file(visit.store).exists():
        return _onward(visit, searches.unmark(visit.store), "the last mark is taken back")
    ended = visit.session.away.pop("bisect", None)
    if not isinstance(ended, BisectSearch):
        return visit.done("/bisect", "you ended no search", is_refusal=True)
    undo = Act("/bisect/end", (("seen", _digest(ended)),))
    return _onward(visit, searches.restore(visit.store, ended), "the search is on again", undo)


def _onward(visit: Visit, search: BisectSearch, notice: str, undo: Act | None = None) -> Response:
    """Lays out the library that is to be tested, as `tfgrpo bisect` does, and shows the strip."""
    store = visit.store
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
