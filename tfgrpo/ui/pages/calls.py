"""Every call on record: found by words, an id, dates and what else is known of it, page by page."""

from __future__ import annotations

import time
from urllib.parse import quote

from starlette.responses import Response

from tfgrpo import wording
from tfgrpo.store.activity.traffic import (
    CallFilter,
    FoundCalls,
    ListedCall,
    Place,
    Traffic,
    UnknownCall,
)
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.ui.page_visit import BadForm, Route, Visit
from tfgrpo.ui.shown_project import number_in, traffic_of
from tfgrpo.ui.sortable_tables import Column, as_file, files

ROWS = 50
SINCE = "30d"
FILED = 100_000
"""Calls of a file: of more, none is written, as a file does not say that it is a part."""
COLUMNS: tuple[Column[ListedCall], ...] = (
    Column("id", "Call", lambda one: one.call.id, False),
    Column("time", "When", lambda one: wording.iso(one.call.time), False),
    Column("library", "Library", lambda one: one.call.library, False),
    Column("version", "Version", lambda one: one.call.version, False),
    Column("arm", "Arm", lambda one: one.call.arm, False),
    Column("model", "Model", lambda one: one.call.model, False),
    Column("status", "Status", lambda one: one.call.status),
    Column("milliseconds", "Took", lambda one: one.call.latency / 1000),
    Column("prompt_tokens", "Tokens in", lambda one: one.call.prompt_tokens),
    Column("completion_tokens", "out", lambda one: one.call.completion_tokens),
    Column("score", "Score", lambda one: one.score),
    Column("error", "Error", lambda one: one.call.error, False),
)


def show(visit: Visit) -> Response:
    """Answers with the calls that are asked for, the newest first; with the one whose id was typed
    where it is the only one."""
    words = visit.query("q").strip()
    which = filter_of(visit)
    with traffic_of(visit) as traffic:
        page = FoundCalls([], None)
        if traffic is not None:
            if words and visit.content and (id := _only(traffic, words)):
                return visit.done(f"/call/{quote(id)}")
            most = FILED if visit.query("as") else ROWS
            page = _page_of(visit, traffic, which, words, most)
            if visit.query("as") and page.reached is not None:
                reached = wording.iso(page.reached.time)
                raise BadForm(f"these calls are too many for a file: it would end at {reached}")
            as_file(visit, page.calls, COLUMNS, "calls")
    last = page.reached
    return visit.render(
        "calls.html",
        title="Calls",
        wanted=words,
        since=visit.query("since").strip() or SINCE,
        until=visit.query("until"),
        which=which,
        below=visit.query("below"),
        has_traffic=traffic is not None,
        calls=page.calls,
        reached=None if last is None else last.time,
        further=None if last is None else visit.address(after=f"{last.time}-{last.id}"),
        newest=visit.address(after=None) if which.after else None,
        files=files(visit, "calls", after=None),
    )


def filter_of(visit: Visit) -> CallFilter:
    """Returns which calls the address asks for. Raises BadForm and UnknownTime."""
    now = time.time_ns() // 1000
    after = visit.query("after")
    at, _, id = after.partition("-")
    if after and not (at.isdecimal() and at.isascii() and id):
        raise BadForm("the address names no place in the list of calls")
    until = visit.query("until")
    return CallFilter(
        since=parse_time(visit.query("since").strip() or SINCE, now=now),
        until=parse_time(until, now=now, end=True) if until else None,
        version=visit.query("version") or None,
        library=visit.query("library") or None,
        model=visit.query("model") or None,
        arm=visit.query("arm") or None,
        failed=bool(visit.query("failed")),
        with_feedback=bool(visit.query("feedback")),
        below=number_in(visit.query("below")),
        after=Place(int(at[:18]), id) if after else None,
    )


def _page_of(
    visit: Visit, traffic: Traffic, which: CallFilter, words: str, most: int
) -> FoundCalls:
    if words and visit.content:
        page = traffic.search(which, words, most)
        while visit.query("as") and page.reached and len(page.calls) < most:
            onward = which._replace(after=page.reached)
            more = traffic.search(onward, words, most - len(page.calls))
            page = FoundCalls([*page.calls, *more.calls], more.reached)
        return page
    if words:
        raise BadForm("what was asked and said is not shown here, and not searched")
    calls = traffic.calls(which, most + 1)
    if len(calls) <= most:
        return FoundCalls(calls, None)
    last = calls[most - 1].call
    return FoundCalls(calls[:most], Place(last.time, last.id))


def _only(traffic: Traffic, words: str) -> str | None:
    """Returns the only call whose id begins with what was typed; None for words."""
    try:
        return traffic.call(words).id
    except UnknownCall:
        return None


ROUTES = (Route("/calls", show),)
