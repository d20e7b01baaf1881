"""Every call on record, found by words, an id, dates and what else is known of it; and one call
with what people say of it, which can be taken back."""

from __future__ import annotations

import time
from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import Response

from tfgrpo import wording
from tfgrpo.proxy.proxy_file import withheld_beside
from tfgrpo.proxy.telemetry import take_feedback
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.activity.traffic import (
    CUT_OFF,
    UNIT,
    CallContent,
    CallFilter,
    CallRecord,
    Feedback,
    FeedbackRefused,
    FoundCalls,
    ListedCall,
    Place,
    Traffic,
    UnknownCall,
)
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.store.records import Library
from tfgrpo.ui.call_conversation import (
    SentTurn,
    answer_turns,
    parsed,
    sent_turns,
    turns_of,
    with_library,
)
from tfgrpo.ui.page_visit import BadForm, Route, Visit
from tfgrpo.ui.shown_project import number_in, recorded_traffic, traffic_of
from tfgrpo.ui.sortable_tables import Column, as_file, files
from tfgrpo.ui.visitor_sessions import Act

WORDS = ("label", "comment", "correct")
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


def show_call(visit: Visit, refusal: TfgrpoError | None = None) -> Response:
    visit.require_content()
    with recorded_traffic(visit) as traffic:
        record = traffic.call(visit.path("id"))
        content, feedback = traffic.content(record.id), traffic.feedback(record.id)
        scales = {"": UNIT, **traffic.scales()}
    here = visit.store.port.versions_by_digest(record.digest, 2) if record.digest else []
    version = here[0] if len(here) == 1 else None
    library = None if version is None else visit.store.library(version)
    prompt = None if content is None else _prompt(record, content, library)
    return visit.render(
        "call.html",
        200 if refusal is None else 400,
        title=f"Call {record.id[:17]}",
        call=record,
        version=version,
        prompt=prompt,
        answer=None if content is None else answer_turns(content.answer),
        cut_off=content is not None and content.answer.endswith(CUT_OFF),
        content=content,
        feedback=feedback,
        refusal=refusal,
        scales=[(name or "without a label", f"{ends}") for name, ends in scales.items()],
    )


class ShownPrompt(NamedTuple):
    """The prompt of a call: its turns, with the library in them where that is `whole`, and else
    those that the application sent. `tokens` are those that the library added; `is_partial` says
    whether only some of its experiences were in it."""

    turns: list[SentTurn]
    whole: bool
    tokens: int
    is_partial: bool


def _prompt(
    record: CallRecord, content: CallContent, library: Library | None
) -> ShownPrompt | None:
    """Returns the prompt of a call; None where its body is of no known shape."""
    own = turns_of(parsed(content.request))
    if own is None:
        return None
    is_partial = record.experiences is not None
    if record.digest is None:  # no library was placed
        return ShownPrompt(sent_turns(own, own, None), True, 0, False)
    body = None if library is None else with_library(record, content, library)
    sent = None if body is None else turns_of(parsed(body))
    if sent is None or library is None:
        return ShownPrompt(sent_turns(own, own, None), False, 0, is_partial)
    turns = sent_turns(own, sent, library)
    added = "".join(part.text for turn in turns for part, is_added in turn.parts if is_added)
    return ShownPrompt(turns, True, count_tokens(added), is_partial)


def add_feedback(visit: Visit) -> Response:
    """Records what somebody says of a call. What is refused is still in the form."""
    given: dict[str, object] = {name: visit.field(name) for name in WORDS if visit.field(name)}
    with recorded_traffic(visit) as traffic:
        about = traffic.call(visit.path("id"))
        try:
            if visit.field("score"):
                given["score"] = number_in(visit.field("score"))
            pattern = withheld_beside(project_root(visit.site.settings.store))
            feedback = take_feedback(traffic, about, given, visit.who, pattern)
        except (BadForm, FeedbackRefused) as refusal:
            return show_call(visit, refusal)
    return _recorded(visit, feedback, "Your feedback is recorded")


def withdraw(visit: Visit) -> Response:
    path, feedback = f"/call/{quote(visit.path('id'))}", _turned(visit, "take back")
    if feedback is None:
        return visit.done(path, "This feedback was taken back before")
    undo = Act(f"{path}/again", (("which", feedback.key),))
    return visit.done(path, "The feedback is taken back", undo)


def put_back(visit: Visit) -> Response:
    """Puts a feedback that was taken back where it was, on record too."""
    feedback = _turned(visit, "put back")
    if feedback is None:
        path, words = f"/call/{quote(visit.path('id'))}", "There is nothing to put back"
        return visit.done(path, words, is_refusal=True)
    return _recorded(visit, feedback, "The feedback is there again")


def _turned(visit: Visit, action: str) -> Feedback | None:
    """Takes one feedback back, or puts it back; returns it, None where that was done before."""
    with recorded_traffic(visit) as traffic:
        about, which = traffic.call(visit.path("id")), visit.field("which")
        feedback = traffic.withdraw_feedback(about.id, which, back=action == "put back")
    if feedback is not None:
        content = {"action": action, "by": feedback.author, "score": feedback.score}
        decide(visit.store, "feedback", about.id, content, why=visit.field("why") or None)
    return feedback


def _recorded(visit: Visit, feedback: Feedback, words: str) -> Response:
    path = f"/call/{quote(feedback.call)}"
    return visit.done(path, words, Act(f"{path}/withdraw", (("which", feedback.key),)))


ROUTES = (
    Route("/calls", show),
    Route("/call/{id}", show_call),
    Route("/call/{id}", add_feedback, "POST"),
    Route("/call/{id}/withdraw", withdraw, "POST"),
    Route("/call/{id}/again", put_back, "POST"),
)
