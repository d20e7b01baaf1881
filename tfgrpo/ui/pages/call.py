"""One call: what was asked and answered, and what people say of it, which can be taken back."""

from __future__ import annotations

import time
from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import Response

from tfgrpo.model.response import count_tokens
from tfgrpo.proxy.telemetry import record_feedback, sums_of_feedback
from tfgrpo.proxy.withheld_words import clean_feedback
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.activity.traffic import (
    CUT_OFF,
    UNIT,
    CallContent,
    CallRecord,
    Feedback,
    FeedbackRefused,
    checked_feedback,
)
from tfgrpo.store.errors import TfgrpoError, UnknownRevision
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
from tfgrpo.ui.shown_project import number_in, recorded_traffic
from tfgrpo.ui.visitor_sessions import Act

WORDS = ("label", "comment", "correct")


def show(visit: Visit, refusal: TfgrpoError | None = None) -> Response:
    """Answers with one call: what was asked and answered, where that was kept, and its feedback."""
    if not visit.content:
        raise UnknownRevision("what was asked and said is not shown here")
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
            now, scales = time.time_ns() // 1000, traffic.scales()
            feedback = clean_feedback(
                checked_feedback(about.id, given, author=visit.who, time=now, scales=scales)
            )
        except (BadForm, FeedbackRefused) as refusal:
            return show(visit, refusal)
        record_feedback(traffic, feedback, about)
    return _recorded(visit, feedback, "Your feedback is recorded")


def withdraw(visit: Visit) -> Response:
    """Takes one feedback back, on record with what it said."""
    with recorded_traffic(visit) as traffic:
        about = traffic.call(visit.path("id"))
        given = [one for one in traffic.feedback(about.id) if _key(one) == visit.field("which")]
        if not given:
            notice = "This feedback was taken back before"
            return visit.done(f"/call/{quote(about.id)}", notice)
        feedback = given[0]
        sums = sums_of_feedback(feedback, about, traffic.scales())
        if traffic.withdraw_feedback(feedback, {key: -value for key, value in sums.items()}):
            _decide(visit, "take back", feedback)
            visit.session.set_aside(f"{about.id} {_key(feedback)}", feedback)
    path = f"/call/{quote(about.id)}"
    undo = Act(f"{path}/again", (("which", _key(feedback)),))
    return visit.done(path, "The feedback is taken back", undo)


def put_back(visit: Visit) -> Response:
    """Puts a feedback that was taken back where it was, as it was, on record too."""
    with recorded_traffic(visit) as traffic:
        about = traffic.call(visit.path("id"))
        feedback = visit.session.away.pop(f"{about.id} {visit.field('which')}", None)
        if not isinstance(feedback, Feedback):
            path, words = f"/call/{quote(about.id)}", "There is nothing to put back"
            return visit.done(path, words, is_refusal=True)
        record_feedback(traffic, feedback, about)
        _decide(visit, "put back", feedback)
    return _recorded(visit, feedback, "The feedback is there again")


def _recorded(visit: Visit, feedback: Feedback, words: str) -> Response:
    path = f"/call/{quote(feedback.call)}"
    return visit.done(path, words, Act(f"{path}/withdraw", (("which", _key(feedback)),)))


def _decide(visit: Visit, action: str, feedback: Feedback) -> None:
    content = {"action": action, "by": feedback.author, "score": feedback.score}
    decide(visit.store, "feedback", feedback.call, content, why=visit.field("why") or None)


def _key(feedback: Feedback) -> str:
    """Returns what tells a feedback from the others on a call."""
    return f"{feedback.time}/{feedback.author}"


ROUTES = (
    Route("/call/{id}", show),
    Route("/call/{id}", add_feedback, "POST"),
    Route("/call/{id}/withdraw", withdraw, "POST"),
    Route("/call/{id}/again", put_back, "POST"),
)
