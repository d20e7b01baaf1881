"""Experiments from the page: starting one, changing its share, ending it."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from tfgrpo.hand_edits import write_library
from tfgrpo.improvement.proposal_candidates import start_trial
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.production.experiment import (
    GUARDS,
    MEASURES,
    UNITS,
    Experiment,
    ExperimentPlan,
    change_share,
    experiment,
    promote,
    roll_back,
    stop,
)
from tfgrpo.production.promotion_losses import losses_in_words, losses_of
from tfgrpo.store.errors import StaleVersion, TfgrpoError
from tfgrpo.ui.page_visit import BadForm, Route, Visit, status_of
from tfgrpo.ui.pages.production import show as show_production
from tfgrpo.ui.shown_project import branches_of_people, number_in, traffic_of
from tfgrpo.ui.visitor_sessions import Act
from tfgrpo.wording import percent, typed

METRICS = ("score", *MEASURES)


def new(visit: Visit, refusal: TfgrpoError | None = None) -> Response:
    """Answers with the form that starts an experiment on a branch."""
    store, branch = visit.store, visit.field("branch") or visit.query("branch")
    tip = store.tip(branch)
    offered = [
        (f"v{n}", name)
        for name, n in branches_of_people(visit).items()
        if name != branch and n != tip.number
    ]
    offered += [(one.id, f"proposed: {one.summary}") for one in list_proposals(store, "open")]
    with traffic_of(visit) as traffic:
        labels = [] if traffic is None else [label for label in traffic.score_ranges() if label]
    return visit.render(
        "experiment.html",
        200 if refusal is None else status_of(refusal),
        title=f"Try another version on {branch}",
        branch=branch,
        tip=tip,
        offered=offered,
        metrics=[*METRICS, *(f"score:{label}" for label in labels)],
        units=UNITS,
        refusal=refusal,
    )


def begin(visit: Visit) -> Response:
    """Starts an experiment. What is refused is still in the form."""
    store, branch = visit.store, visit.required("branch", "the branch")
    onto = visit.required("onto", "what the form was made from")
    try:
        name = visit.required("name", "the name")
        candidate = visit.field("other").strip() or visit.required("candidate", "the candidate")
        metric, unit = visit.field("metric", "score"), visit.field("unit", "subject")
        guards = tuple(guard for guard in GUARDS if guard[0] != metric)
        plan = ExperimentPlan(metric, guards, unit, bool(visit.field("auto")))
        why = visit.required("why", "why")
        with store.port.transaction():
            if store.tip(branch).name != onto:
                raise StaleVersion(f"{branch} has moved on from {onto} to {store.tip(branch).name}")
            begun = start_trial(store, name, (branch, candidate), _share(visit), plan, why=why)
    except TfgrpoError as refusal:
        return new(visit, refusal)
    lost, words = losses_of(store, begun), f"Experiment {name} runs"
    if lost:
        words += f". A promotion would take {losses_in_words(lost)} from {branch}"
    return visit.done("/production", words, _act(begun, "stop"))


def decide(visit: Visit) -> Response:
    """Changes the share of an experiment or ends it. Where that is refused, or somebody did since
    the page was made, nothing is recorded, and what was written is still in the form."""
    store, name = visit.store, visit.path("name")
    experiment(store, name)
    try:
        with store.port.transaction():
            answer = _decided(visit, experiment(store, name))
    except TfgrpoError as refusal:
        return show_production(visit, refusal, experiment(store, name))
    if visit.field("act") != "share":
        write_library(store)
    return answer


def _decided(visit: Visit, running: Experiment) -> Response:
    store, act = visit.store, visit.field("act")
    if visit.required("seen", "what the form was made from") != _state(running):
        raise StaleVersion(
            f"somebody has decided about {running.name} meanwhile: it is {running.state}"
        )
    acts: dict[str, Any] = {"promote": promote, "rollback": roll_back, "stop": stop}
    why = visit.required("why", "why")
    if act == "share":
        after = change_share(store, running.name, _share(visit), why=why)
        words = f"{percent(after.share)} get the candidate of {after.name}"
        return visit.done("/production", words, _act(after, "share", typed(running.share, 100)))
    if act not in acts:
        raise BadForm(f"an experiment cannot be {act[:40]!r}", hint="promote, rollback or stop")
    after = acts[act](store, running.name, why=why)
    words = f"Experiment {after.name} is {after.state}"
    if act == "promote":
        return visit.done("/production", words, _act(after, "rollback"))
    return visit.done("/production", f"{words}. That is final: another begins under a new name.")


def _act(one: Experiment, act: str, share: str = "") -> Act:
    why = "taken back"
    fields = (("seen", _state(one)), ("act", act), ("share", share), ("why", why))
    return Act(f"/experiment/{one.name}", fields)


def _state(one: Experiment) -> str:
    return f"{one.state} {one.share}"


def _share(visit: Visit) -> float:
    share = number_in(visit.field("share").strip().removesuffix("%").strip())
    if share is None or not 0 <= share <= 100:
        raise BadForm("a share is a number of percent", hint="from 0 to 100")
    return share / 100


ROUTES = (
    Route("/experiment/new", new),
    Route("/experiment/new", begin, "POST"),
    Route("/experiment/{name}", decide, "POST"),
)
