"""What a library does in production: by version, in experiments, call by call; and the way back."""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlencode

from starlette.responses import Response

from tfgrpo.hand_edits import write_library
from tfgrpo.improvement import collection
from tfgrpo.improvement.proposal_candidates import start_trial
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.production.by_day import (
    NEARLY,
    Bounds,
    DayFigures,
    ProductionReport,
    Rollout,
    bounds,
    budget_alert,
    crossed,
    month_began,
    month_spending,
    production_report,
    rollouts,
    set_bounds,
)
from tfgrpo.production.experiment import (
    GUARDS,
    MEASURES,
    RUNNING,
    UNITS,
    Experiment,
    ExperimentPlan,
    change_share,
    experiment,
    experiments,
    paused_in_words,
    promote,
    roll_back,
    stop,
)
from tfgrpo.production.experiment_evidence import Evidence, evidence
from tfgrpo.production.promotions import losses_in_words, losses_of
from tfgrpo.production.rollback import (
    DecidedMove,
    before_that,
    decided_move,
    in_force_since,
    rollback,
)
from tfgrpo.store.activity.decisions import Decision, decisions
from tfgrpo.store.activity.traffic import NONE, CallFilter, ListedCall, traffic_path
from tfgrpo.store.activity.traffic_figures import NO_LIBRARY, LiveFigures
from tfgrpo.store.errors import StaleVersion, TfgrpoError, UnknownRevision
from tfgrpo.store.history.library_order import moves
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.store.records import Json
from tfgrpo.ui.charts import Chart, CurvePoint, chart, short, with_events
from tfgrpo.ui.page_visit import BadForm, Route, Visit, status_of
from tfgrpo.ui.pages.history import Meanwhile, meanwhile, shown_moves
from tfgrpo.ui.pages.review import seen_in
from tfgrpo.ui.shown_project import (
    branches_of_people,
    has_traffic,
    number_in,
    project_of,
    traffic_of,
)
from tfgrpo.ui.sortable_tables import Column, table
from tfgrpo.ui.visitor_sessions import Act
from tfgrpo.wording import percent, plural, typed

METRICS = ("score", *MEASURES)
SINCE = "7d"
CALLS = 10
ENDED = 10
DECISIONS = 20
REMEMBERED = 10.0
"""Seconds for which figures of all calls are shown as they were."""
ROLLOUTS = 12
SMALL = 16 << 20
"""Bytes of a record of traffic that is added up at once."""
DRAWN = 60
"""Days that are drawn."""
ALERTS = 2
"""The last days that are held against the bounds."""

T = TypeVar("T")
Words: TypeAlias = Callable[[float], str]
VERSIONS: tuple[Column[LiveFigures], ...] = (
    Column("name", "Library and version", lambda one: one.name, False),
    Column("calls", "Calls", lambda one: one.calls),
    Column("failed", "Failed", lambda one: one.errors),
    Column("prompt_tokens", "Tokens in", lambda one: one.prompt_tokens),
    Column("completion_tokens", "out", lambda one: one.completion_tokens),
    Column("median", "Median", lambda one: one.p50),
    Column("p95", "95 %", lambda one: one.p95),
    Column("added", "Added by the proxy", lambda one: one.added),
    Column("score", "Score", lambda one: one.score),
    Column("dollars", "Cost", lambda one: one.cost),
)
DAYS: tuple[Column[DayFigures], ...] = (
    Column("day", "Day (UTC)", lambda one: f"{one.day}", False),
    Column("version", "Library and version", lambda one: one.figures.name, False),
    Column("calls", "Calls", lambda one: one.figures.calls),
    Column("failed", "Failed", lambda one: one.figures.errors),
    Column("p95", "95 %", lambda one: one.figures.p95),
    Column("score", "Score", lambda one: one.figures.score),
    Column("dollars", "Cost", lambda one: one.figures.cost),
)


class Measure(NamedTuple):
    """What is drawn of calls: a figure, how it is said, and the bound of a day that it has, with
    what is beyond that."""

    title: str
    pick: Callable[[LiveFigures], float | None]
    words: Words
    bound: str = ""
    beyond: str = "above"


RATES = (
    Measure("Mean score a day", lambda one: one.score, lambda v: f"{v:.2f}", "score", "below"),
    Measure("Failed calls a day", lambda one: one.failed, lambda v: f"{v:.1%}", "errors"),
    Measure("95 % of calls took up to, ms", lambda one: one.p95 / 1000, short, "latency"),
)
"""What can be compared whatever the number of calls."""
BY_DAY = (
    *RATES,
    Measure("Dollars a day", lambda one: one.cost, short, "dollars"),
    Measure("Calls a day", lambda one: float(one.calls), short),
)
BY_VERSION = (
    *(one._replace(title=f"{one.title.removesuffix(' a day')}, by version") for one in RATES),
    Measure(
        "Dollars for 1,000 calls, by version",
        lambda one: None if one.cost is None else 1000 * one.cost / one.calls,
        short,
    ),
)


def show(
    visit: Visit, refusal: TfgrpoError | None = None, about: Experiment | None = None
) -> Response:
    """Answers with the figures of versions, experiments, decisions and calls; above them why a form
    was refused, `about` an experiment or the bounds, whose form has what was written."""
    visit.at = "/production"
    since, now = visit.query("since").strip() or SINCE, time.time_ns() // 1000
    start = parse_time(since, now=now)
    report: ProductionReport | None = None
    calls, lost = list[ListedCall](), 0
    with traffic_of(visit) as traffic:
        if traffic is not None:
            report = report_of(visit, since, start)
            calls, lost = traffic.calls(CallFilter(since=start), CALLS), traffic.lost()
    branches = branches_of_people(visit)
    moves = rollouts(visit.store, branches, start)
    limits, seen = bounds(visit.store)
    alerts = {f"{one.day}": crossed(one, limits) for one in report.days[:ALERTS]} if report else {}
    spent = None
    if report is not None and limits.month is not None:
        began = month_began(now)
        spent = _summed(visit, ("month", began), month_spending, began)
        alerts = {spent.month: budget_alert(spent, limits.month)} | alerts
    return visit.render(
        "production.html",
        200 if refusal is None else status_of(refusal),
        title="Production",
        refusal=refusal,
        refused=None if refusal is None else visit.request.url.path,
        wrote=visit.field("why") if about is not None and about.state != RUNNING else "",
        since=since,
        report=report,
        versions=None if report is None else table(visit, report.versions, VERSIONS, "versions"),
        days=None if report is None else table(visit, report.by_day, DAYS, "days"),
        charts=[] if report is None else day_charts(report.days, moves, limits),
        compared=[] if report is None else version_charts(report.versions, moves, limits),
        rollouts=moves[-ROLLOUTS:][::-1],
        alerts=alerts,
        limits=limits,
        spent=spent,
        nearly=NEARLY,
        calls_of=calls_of,
        seen=seen,
        calls=calls,
        lost=lost,
        experiments=_experiments(visit),
        decisions=_decisions(visit),
        branches=[
            (name, visit.store.version(n), in_force_since(visit.store, name))
            for name, n in branches.items()
        ],
    )


def report_of(visit: Visit, since: str, start: int) -> ProductionReport:
    """Returns the figures of calls since then, some seconds old at most, unless nobody asked."""
    return _summed(visit, ("production", since), production_report, start)


def _summed(
    visit: Visit, key: tuple[str, Hashable], add_up: Callable[[str, int, Json], T], start: int
) -> T:
    path, prices = traffic_path(visit.store.file), project_of(visit).table("prices")
    return visit.site.memory.fresh(key, REMEMBERED, lambda: add_up(path, start, prices))


def is_ready(visit: Visit) -> bool:
    """Returns whether the usual figures of calls are there at once: added up before, or quickly."""
    is_small = not has_traffic(visit) or os.path.getsize(traffic_path(visit.store.file)) < SMALL
    return is_small or visit.site.memory.has(("production", SINCE))


def day_charts(days: Sequence[DayFigures], moves: Sequence[Rollout], limits: Bounds) -> list[Chart]:
    """Returns quality, errors, latency, dollars and calls by day, with their bounds and with what
    was rolled out."""
    oldest_first = list(reversed(days))[-DRAWN:]
    dates = [one.day for one in oldest_first]
    at = [
        (bisect_left(dates, move.day), _label(move))
        for move in moves
        if dates and dates[0] <= move.day <= dates[-1]
    ]  # a day without calls is not drawn: what was rolled out on it is seen on the next
    return _charts(BY_DAY, [(f"{one.day}", one.figures) for one in oldest_first], at, limits)


def version_charts(
    versions: Sequence[LiveFigures], moves: Sequence[Rollout], limits: Bounds
) -> list[Chart]:
    """Returns quality, errors, latency and dollars by version, in the order of versions, each with
    when branches were put there; none where there is nothing to compare."""
    by_number = sorted(versions, key=lambda one: _library_and_number(one.name))[-DRAWN:]
    at = [
        (place, _label(move))
        for place, one in enumerate(by_number)
        for move in moves
        if one.name.split(" ")[-1] == move.version
    ]
    points = [(one.name, one) for one in by_number]
    return _charts(BY_VERSION, points, at, limits) if len(points) > 1 else []


def _label(move: Rollout) -> str:
    return f"{move.day}: {move.branch} → {move.version}"


def _library_and_number(name: str) -> tuple[str, int]:
    library, _, version = name.rpartition(" ")
    return library, int(version[1:]) if version[1:].isdecimal() else -1


def calls_of(name: str, since: str) -> str:
    """Returns the address of the calls that the figures of a library and version count."""
    library, _, version = name.rpartition(" ")
    which = {"library": library, "version": version}
    if name == NO_LIBRARY:
        which = {"library": NONE}
    return f"/calls?{urlencode({'since': since, **which})}"


def _charts(
    measures: Sequence[Measure],
    points: Sequence[tuple[str, LiveFigures]],
    at: Sequence[tuple[int, str]],
    limits: Bounds,
) -> list[Chart]:
    drawn = []
    for title, pick, words, bound, beyond in measures:
        most = getattr(limits, bound) if bound else None
        limit = None if most is None else (most, beyond)
        curve = [CurvePoint(name, pick(one)) for name, one in points]
        drawn.append(with_events(chart(title, curve, words, limit=limit), at, len(points)))
    return [one for one in drawn if one is not None]


def bound(visit: Visit) -> Response:
    before = bounds(visit.store)[0]
    try:
        values = {name: number_in(visit.field(name).strip()) for name in Bounds._fields}
        if values["errors"] is not None:
            values["errors"] /= 100
        seen = seen_in(visit)
        set_bounds(visit.store, Bounds(**values), seen=seen)
    except TfgrpoError as refusal:
        return show(visit, refusal)
    were = before._asdict().items()
    fields = [(name, typed(value, 100 if name == "errors" else 1)) for name, value in were]
    undo = Act("/production/bounds", (("seen", str(seen + 1)), *fields))
    return visit.done("/production#alerts", "The bounds are set", undo)


def _decisions(visit: Visit) -> list[tuple[Decision, DecidedMove]]:
    newest = [one for one in decisions(visit.store) if one.kind != "proposal"][-DECISIONS:][::-1]
    return [(one, decided_move(visit.store, one)) for one in newest]


def _experiments(visit: Visit) -> list[tuple[Experiment, Evidence | None, str]]:
    """Returns experiments with what they have found; None where no traffic is on record. Then why
    each is paused, if it is."""
    newest_first, has_calls = experiments(visit.store)[::-1], has_traffic(visit)
    chosen = [one for one in newest_first if one.state == RUNNING]
    chosen += [one for one in newest_first if one.state != RUNNING][:ENDED]

    def evidence_of(one: Experiment) -> Evidence:
        key = ("evidence", one.id)
        return visit.site.memory.get(key, REMEMBERED, lambda: evidence(visit.store, one))

    return [
        (one, evidence_of(one) if has_calls else None, paused_in_words(visit.store, one))
        for one in chosen
    ]


def way_back(visit: Visit, since: Meanwhile | None = None) -> Response:
    store, branch = visit.store, visit.field("branch") or visit.query("branch")
    tip, revision = store.tip(branch), visit.field("to") or visit.query("to")
    to, refusal = None, ""
    try:
        to = store.resolve(revision) if revision else before_that(store, branch)
    except UnknownRevision as nowhere:
        refusal = str(nowhere) if revision else f"{branch} has stood at no other version before"
    return visit.render(
        "rollback.html",
        200 if since is None else 409,
        title=f"Roll back {branch}",
        branch=branch,
        tip=tip,
        to=to,
        refusal=refusal,
        why=visit.field("why"),
        meanwhile=since,
        changes=() if to is None else store.diff(tip, to),
        moves=() if to is None else shown_moves(store, to, moves(store, tip, to)),
    )


def go_back(visit: Visit) -> Response:
    """Rolls a branch back, for a reason. Where others moved it since that was looked at, nothing is
    recorded and what they did is shown."""
    store, branch = visit.store, visit.required("branch", "the branch")
    onto = store.resolve(visit.required("onto", "what the form was made from"))
    to, why = visit.required("to", "where to"), visit.required("why", "why")
    resumed = visit.field("resumed") or None
    try:
        done = rollback(store, branch, why=why, to=to, expected=onto, resumed=resumed)
    except StaleVersion:
        return way_back(visit, meanwhile(store, onto, store.tip(branch)))
    write_library(store)
    words = f"{branch} is back at {done.after.name}, was at {done.before.name}"
    if done.experiment:
        words += f"; experiment {done.experiment} was stopped, and goes on if this is undone"
    if resumed:
        words += f"; experiment {resumed} goes on"
    fields = [("branch", branch), ("onto", done.after.name), ("to", done.before.name)]
    fields.append(("why", f"the rollback to {done.after.name} is taken back"))
    if done.experiment:
        fields.append(("resumed", done.experiment))
    return visit.done("/production", words, Act("/rollback", tuple(fields)))


def collect(visit: Visit) -> Response:
    """Turns calls that went wrong into problems to train on, as `tfgrpo collect` does."""
    start = parse_time(visit.field("since").strip() or SINCE, now=time.time_ns() // 1000)
    request = collection.CollectRequest((), CallFilter(start))
    project = project_of(visit)
    collected = collection.collect(visit.store, project, request)
    file = collection.output_path(project, request).name
    return visit.done(
        "/production",
        f"Wrote {plural(len(collected.rows), 'problem')} to {file}. "
        f"{plural(len(collected.left_out), 'call')} did not become a problem.",
    )


def new(visit: Visit, refusal: TfgrpoError | None = None) -> Response:
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
        return show(visit, refusal, experiment(store, name))
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
    Route("/production", show),
    Route("/production/bounds", bound, "POST"),
    Route("/production/collect", collect, "POST"),
    Route("/rollback", way_back),
    Route("/rollback", go_back, "POST"),
    Route("/experiment/new", new),
    Route("/experiment/new", begin, "POST"),
    Route("/experiment/{name}", decide, "POST"),
)
