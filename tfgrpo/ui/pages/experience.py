"""One experience: its whole life, its evidence, what it does, and what a person can do about it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote

from starlette.responses import PlainTextResponse, Response

from tfgrpo.display.event_lines import ShownEvent, life_of
from tfgrpo.display.library_figures import known_experiences
from tfgrpo.evaluation.credit import credit_history, credit_points
from tfgrpo.evaluation.measured_runs import measures
from tfgrpo.evaluation.presence_effects import Credit
from tfgrpo.redaction import redact_everywhere, remaining, work_words
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.records import Version, evidence_of
from tfgrpo.store.redact import Target
from tfgrpo.ui.charts import credit_chart
from tfgrpo.ui.page_visit import BadForm, Route, Visit
from tfgrpo.ui.pages.library import known_credits, uses_this_week
from tfgrpo.ui.shown_project import branches_of_people, remembered
from tfgrpo.wording import plural

EVENTS = 100
"""Of a long life the newest are shown, and the rest where it is asked for."""


class Standing(NamedTuple):
    """A branch whose library has the experience: its label and text there, and the effect of that
    text, where it is another one than the page is about."""

    branch: str
    version: Version
    label: str
    text: str
    credit: Credit | None = None


class Attempts(NamedTuple):
    """The attempts that taught an event: where they are, and their rewards by sample."""

    run: str
    step: int
    problem: str
    rewards: tuple[tuple[int, float | None], ...]


def show(visit: Visit) -> Response:
    store = visit.store
    id = _experience(visit)
    life = list(life_of(store, id))
    if not life:
        raise UnknownRevision(f"there is no experience {id!r}")
    start = visit.number("start", 0)
    uses = uses_this_week(visit)
    standing = _standing(visit, id)
    looked_at = _looked_at(visit, id, standing)
    text = _text(visit, id, life)
    return visit.render(
        "experience.html",
        title=f"Experience {id}",
        id=id,
        life=[(one, attempts_of(one)) for one in life[::-1][start : start + EVENTS]],
        events=len(life),
        keeps=_keeps(visit, id, looked_at),
        start=start,
        events_a_page=EVENTS,
        standing=[
            one
            if one.text == text
            else one._replace(credit=known_credits(visit, one.version).get(id))
            for one in standing
        ],
        credit=known_credits(visit, looked_at).get(id),
        measured=any(measures(run) for run in store.runs.all()),
        at=looked_at.number,
        uses=None if uses is None else uses.get(id, 0),
        text=text,
        problems=_problems(life),
    )


def _text(visit: Visit, id: str, life: list[ShownEvent]) -> str | None:
    """Returns the text at the revision that is looked at, else the last there was."""
    there = visit.store.library(visit.query("at", "HEAD")).by_id.get(id)
    if there is not None:
        return None if there.redacted else there.text
    return next((one.event.text for one in reversed(life) if one.event.text is not None), None)


def _experience(visit: Visit) -> str:
    """Returns the experience of the path: an id, the beginning of one, or a label at `at`."""
    return visit.store.experience_id(visit.path("id"), visit.query("at", "HEAD"))


def _standing(visit: Visit, id: str) -> list[Standing]:
    store, places = visit.store, []
    for branch, number in branches_of_people(visit).items():
        version = store.version(number)
        library = store.library(version)
        if id in library.by_id:
            label, text = library.label_of[id], library.by_id[id].text
            places.append(Standing(branch, version, label, text))
    return places


def attempts_of(one: ShownEvent) -> Attempts | None:
    """Returns the attempts that an event's evidence names; None where it names none."""
    run, step, problem, _, attempts, *_ = evidence_of(one.origin.event)
    if run is None or step is None or problem is None:
        return None
    return Attempts(run, step, problem, attempts)


def _keeps(visit: Visit, id: str, version: Version) -> int | None:
    """Returns how often the text at a version was confirmed, as the library there has it: what a
    gate rejected, or another branch said of other words, confirms nothing. None where the
    experience is not in that library."""
    known = known_experiences(visit.store, version, only={id}, credits={})
    return known[0].blame.keeps if known else None


def _problems(life: list[ShownEvent]) -> list[tuple[str, int, int]]:
    """Returns the evidence of a life, problem by problem: how many attempts at it were right, of
    how many that have a reward. An attempt counts once, however many
    events name it: a change that is proposed, accepted and accepted again has one evidence."""
    rewards: dict[str, dict[tuple[str, int, int], float]] = {}
    for one in life:
        attempts = attempts_of(one)
        if attempts is None:
            continue
        there = rewards.setdefault(attempts.problem, {})
        for sample, reward in attempts.rewards:
            if reward is not None:
                there[attempts.run, attempts.step, sample] = reward
    return [
        (problem, sum(r >= 1 for r in there.values()), len(there))
        for problem, there in rewards.items()
    ]


def _looked_at(visit: Visit, id: str, standing: list[Standing]) -> Version:
    """Returns the version whose history tells of an experience: that of `at`, unless only another
    branch has it now."""
    version = visit.store.resolve(visit.query("at", "HEAD") or "HEAD")
    if standing and id not in visit.store.library(version).by_id:
        return standing[0].version
    return version


def credit(visit: Visit) -> Response:
    """Answers with an experience's effect on the reward after each step that measured it. It
    reads every attempt of those, so its page asks for it once it is there."""
    store, id = visit.store, _experience(visit)
    version = store.resolve(visit.query("at", "HEAD") or "HEAD")
    key = ("credit history", version.digest)
    moments = remembered(visit, key, lambda: credit_history(store, version))
    points = credit_points(moments, id)
    return visit.render(
        "credit.html",
        title=f"Effect of {id} over time",
        id=id,
        version=version,
        chart=credit_chart(points),
        points=points,
    )


def text(visit: Visit) -> Response:
    row = visit.number("event", 0, most=1 << 62)
    event = visit.store.events_at([row]).get(row)
    if event is None or event.experience != _experience(visit):
        raise UnknownRevision(f"it has no event {row}")
    return PlainTextResponse(event.text or "")


def redaction(visit: Visit) -> Response:
    """Answers with the form that redacts. What goes elsewhere is looked for when it is sent: that
    reads the whole store, which a link must not."""
    store, id = visit.store, _experience(visit)
    events = [event for event in store.history(id) if not event.redacted]
    branches = [b for b, n in store.branches().items() if id in store.library(f"v{n}").by_id]
    return visit.render(
        "redact.html", title=f"Redact {id}", id=id, events=len(events), branches=branches
    )


def redact(visit: Visit) -> Response:
    """Redacts an experience, once it was said twice that this is meant."""
    id = _experience(visit)
    reason = visit.required("reason", "why")
    if visit.field("sure") != id:
        raise BadForm("nothing was redacted", hint=f"type {id} to show that you mean it")
    done = redact_everywhere(visit.store, Target(id), reason=reason)
    work = f"redacted {plural(len(done.store.plan.events), 'event')}"
    if done.around.traffic:
        work += f" and {plural(done.around.traffic, 'row')} of the record of traffic"
    if done.around.ledger:
        work += f" and {plural(done.around.ledger, 'row')} of the ledger of keys"
    work = "; ".join([work, *work_words(done.around)])
    places = remaining(done)
    if not places and done.store.finished:
        return visit.done(f"/experience/{quote(id)}", work)
    complete = done.store.finished and not done.around.left and not done.store.plan.kept
    return visit.render(
        "redacted.html",
        200 if complete else 400,
        title=f"Redacted {id}",
        id=id,
        work=work,
        places=places,
        finished=done.store.finished,
    )


ROUTES = (
    Route("/experience/{id}", show),
    Route("/experience/{id}/text", text),
    Route("/experience/{id}/credit", credit),
    Route("/experience/{id}/redact", redaction),
    Route("/experience/{id}/redact", redact, "POST"),
)
