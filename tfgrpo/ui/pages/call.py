"""One call: what was asked and answered, and what people say of it, which can be taken back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from tfgrpo.proxy.metrics import sums_of_feedback
from tfgrpo.proxy.patterns import clean_feedback
from tfgrpo.store.decisions import decide
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.traffic import UNIT, Feedback, FeedbackRefused, checked_feedback
from tfgrpo.ui.calls import number_in, traffic_of
from tfgrpo.ui.route import Route
from tfgrpo.ui.visit import BadForm

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.store.errors import TfgrpoError
    from tfgrpo.ui.visit import Visit

WORDS = ("label", "comment", "correct")


class ShownScale(NamedTuple):
    """A metric and its scale, in words."""

    name: str
    ends: str


def show(visit: Visit) -> Response:
    """Answers with one call: what was asked and answered, where that was kept, and its feedback."""
    return _page(visit)


def _page(visit: Visit, refusal: TfgrpoError | None = None) -> Response:
    if not visit.content:
        raise UnknownRevision("what was asked and said is not shown here")
    with traffic_of(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        record = traffic.call(visit.path("id"))
        content, feedback = traffic.content(record.id), traffic.feedback(record.id)
        scales = {"": UNIT, **traffic.scales()}
    here = visit.store.port.versions_by_digest(record.digest, 2) if record.digest else []
    return visit.render(
        "call.html",
        200 if refusal is None else 400,
        title=f"Call {record.id[:17]}",
        call=record,
        version=here[0] if len(here) == 1 else None,
        content=content,
        feedback=feedback,
        refusal=refusal,
        scales=[ShownScale(name or "without a label", f"{ends}") for name, ends in scales.items()],
    )


def add_feedback(visit: Visit) -> Response:
    """Records what somebody says of a call. What is refused is still in the form."""
    given: dict[str, object] = {name: visit.field(name) for name in WORDS if visit.field(name)}
    with traffic_of(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        about = traffic.call(visit.path("id"))
        try:
            if visit.field("score"):
                given["score"] = number_in(visit.field("score"))
            now, scales = time.time_ns() // 1000, traffic.scales()
            feedback = clean_feedback(
                checked_feedback(about.id, given, author=visit.who, time=now, scales=scales)
            )
        except (BadForm, FeedbackRefused) as refusal:
            return _page(visit, refusal)
        traffic.add_feedback(feedback, sums_of_feedback(feedback, about))
    return visit.done(f"/call/{quote(about.id)}", "Your feedback is recorded")


def withdraw(visit: Visit) -> Response:
    """Takes one feedback back, on record with what it said."""
    with traffic_of(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        about = traffic.call(visit.path("id"))
        given = [one for one in traffic.feedback(about.id) if _key(one) == visit.field("which")]
        if not given:
            notice = "This feedback was taken back before"
            return visit.done(f"/call/{quote(about.id)}", notice)
        feedback = given[0]
        sums = {key: -value for key, value in sums_of_feedback(feedback, about).items()}
        if traffic.withdraw_feedback(feedback, sums):
            content = {"action": "take back", "by": feedback.author, "score": feedback.score}
            decide(visit.store, "feedback", about.id, content, why=visit.field("why") or None)
    return visit.done(f"/call/{quote(about.id)}", "The feedback is taken back")


def _key(feedback: Feedback) -> str:
    """Returns what tells a feedback from the others on a call."""
    return f"{feedback.time}/{feedback.author}"


ROUTES = (
    Route("/call/{id}", show),
    Route("/call/{id}", add_feedback, "POST"),
    Route("/call/{id}/withdraw", withdraw, "POST"),
)
