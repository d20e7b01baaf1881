"""`tfgrpo experiment` and `rollout`: two versions of a library in production at once, compared."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import FORCE, JSON, flag, many, option
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import BRANCH, REVISION, App, Given, Named, pass_app, pass_given
from tfgrpo.cli.traffic import parse_tag, scale_of
from tfgrpo.production import experiment as records
from tfgrpo.production.experiment import Experiment
from tfgrpo.production.promotions import losses_in_words, losses_of
from tfgrpo.production.rollback import named, stood_at
from tfgrpo.production.webhook import checked_webhook
from tfgrpo.store.errors import InvalidOperation, UnknownRevision
from tfgrpo.store.history.log_filter import parse_coming
from tfgrpo.store.store import Store
from tfgrpo.wording import percent

if TYPE_CHECKING:
    from tfgrpo.production.experiment_evidence import Compared, Evidence


EXPERIMENT = Named(
    "experiment", lambda store: [(one.name, one.state) for one in records.experiments(store)]
)
why_option = option("--why", "The reason, for the record.")


@click.group(cls=SuggestingGroup)
def experiment() -> None:
    """Compare two versions of a library on the calls of an application.

    The proxy gives a share of subjects (conversations, users) the candidate's library and the
    others the control's. Feedback on their calls is tested by tests that may be looked at any
    time: for harm, and for benefit. Every step is on record: `tfgrpo log --decisions`. See
    docs/production.md.

    \b
    Examples:
      tfgrpo experiment start shorter --control prod --candidate main --share 10%
      tfgrpo experiment status shorter
    """


@experiment.command()
@click.argument("name")
@option("--control", "The branch that is in production.", type=BRANCH, required=True)
@option("--candidate", "The revision or proposal to compare with it.", type=REVISION, required=True)
@option("--share", "Subjects that get the candidate.", default="10%")
@option("--metric", "What decides: score, score:LABEL, errors, latency or tokens.", default="score")
@many(
    "--guard METRIC[=BY]",
    "What must not become worse, by more than BY; repeatable, or none.  "
    "[errors, latency=20%, tokens=20%]",
    "guards",
)
@option("--unit", "What counts once.", type=click.Choice(["subject", "call"]), default="subject")
@many(
    "--scale SCORE=LOW..HIGH",
    "Range of a metric's scores, such as score=1..5; repeatable.  [as on record, or 0..1]",
    "scales",
)
@flag("--auto", "Promote or roll back when a test decides.")
@why_option
@pass_given
def start(app: App, given: Given) -> None:
    """Start an experiment. The candidate is the version that its revision names now.

    Of a proposal that is what accepting it would make now: its changes, and all that the branch
    gained meanwhile. What a promotion would take from the branch is said, and then there is none
    without --force.

    With --auto, the proxy moves the control's branch when benefit is shown and no guard is
    harmed, and ends the experiment when harm is shown, with the evidence on record.

    \b
    Examples:
      tfgrpo experiment start shorter --control prod --candidate main --share 10%
    """
    from tfgrpo.improvement.proposal_candidates import start_trial

    guards = guards_of(given.guards, given.metric)
    scales = tuple(map(scale_of, given.scales))
    plan = records.ExperimentPlan(given.metric, guards, given.unit, given.auto, scales)
    arms, share = (given.control, given.candidate), parse_share(given.share)
    started = start_trial(app.store, given.name, arms, share, plan, why=given.why)
    versions = _versions(app.store, started)
    printing.echo(
        f"experiment {given.name}: {percent(started.share)} of subjects get "
        f"{started.candidate.revision} ({versions[1]}), the others {given.control} ({versions[0]})"
    )
    _warn(app.store, started)


@experiment.command("list")
@JSON
@pass_app
def list_(app: App, as_json: bool) -> None:
    """List experiments, oldest first.

    \b
    Examples:
      tfgrpo experiment list
    """
    store = app.store
    listed, rows = records.experiments(store), []
    for one in listed:
        candidate = f"{one.candidate.revision} ({_versions(store, one)[1]})"
        arms = (one.control.revision, candidate, printing.age(one.started))
        rows.append((one.name, _state(store, one), percent(one.share), *arms))
    header = ("name", "state", "share", "control", "candidate", "started")
    none = "no experiments yet; start one with `tfgrpo experiment start`"
    lines = printing.table(rows, header=header, none=none)
    printing.answer(app, lambda: [_object(store, one) for one in listed], lines, as_json)


@experiment.command()
@click.argument("name", required=False, type=EXPERIMENT)
@many("--tag NAME=VALUE", "Only calls with this tag.", "tags")
@JSON
@pass_app
def status(app: App, name: str | None, tags: tuple[str, ...], as_json: bool) -> None:
    """Show what an experiment has found; without NAME the one that is running.

    Looking changes nothing, and may be done at any time: the tests allow for it. They do not allow
    for choosing the best of many tags: confirm what one of them shows by another experiment.

    \b
    Examples:
      tfgrpo experiment status shorter
      tfgrpo experiment status shorter --tag team=blue
    """
    from tfgrpo.production.experiment_evidence import evidence

    store = app.store
    chosen = records.experiment(store, name)
    shown = evidence(store, chosen, tuple(map(parse_tag, tags)))
    fields = _object(store, chosen) | {"evidence": shown.as_object()}
    printing.answer(app, fields, _lines(store, chosen, shown), as_json)


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@click.argument("share")
@why_option
@pass_app
def share(app: App, name: str, share: str, why: str | None) -> None:
    """Change the SHARE of subjects that get the candidate, on record.

    Some subjects change their arm then. They count in the arm that they were seen in first.

    \b
    Examples:
      tfgrpo experiment share shorter 50%
    """
    changed = records.change_share(app.store, name, parse_share(share), why=why)
    printing.echo(f"experiment {name}: {percent(changed.share)} of subjects get the candidate")


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@why_option
@FORCE
@pass_app
def promote(app: App, name: str, why: str | None) -> None:
    """Move the control's branch to the candidate's version, and end the experiment.

    The evidence as it is goes on record with it. `tfgrpo experiment rollback` takes it back. What
    the branch has and the candidate lacks would go: that needs --force.

    \b
    Examples:
      tfgrpo experiment promote shorter
    """
    from tfgrpo.production.experiment_evidence import evidence

    store = app.store
    shown = evidence(store, records.experiment(store, name))
    if shown.against is not None and not store.is_forced:
        raise InvalidOperation(shown.against, hint="--force promotes all the same")
    done = records.promote(store, name, evidence=shown.as_object(), why=why)
    app.has_moved(done.control.revision)
    if shown.verdict.kind == "none":
        printing.echo(f"nothing is shown yet: {shown.compared[0].words}")
    branch = done.control.revision
    printing.echo(f"promoted {name}: {branch} is at {_versions(store, done)[1]}")
    if lost := losses_of(store, done):
        back = f"`tfgrpo experiment rollback {name}` takes the promotion back"
        printing.echo(f"{branch} has lost {losses_in_words(lost)}; {back}")


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@why_option
@FORCE
@pass_app
def rollback(app: App, name: str, why: str | None) -> None:
    """End an experiment for the control; take a promotion back.

    \b
    Examples:
      tfgrpo experiment rollback shorter --why "answers are too short"
    """
    done, branch = _ended(app, records.roll_back, name, why)
    app.has_moved(branch)
    printing.echo(f"rolled back {name}: {_served(app.store, branch)}")
    if lost := losses_of(app.store, done) if len(done.moves) > 1 else ():
        where = f"`tfgrpo reflog {branch}` says where it is"
        printing.echo(f"{branch} has lost {losses_in_words(lost)}; {where}")


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@why_option
@pass_app
def stop(app: App, name: str, why: str | None) -> None:
    """End an experiment with nothing decided: everybody gets the control.

    \b
    Examples:
      tfgrpo experiment stop shorter --why "too few calls"
    """
    _, branch = _ended(app, records.stop, name, why)
    printing.echo(f"stopped {name}: {_served(app.store, branch)}")


def _warn(store: Store, started: Experiment) -> None:
    """Says what a promotion would take from the branch, where it would."""
    if lost := losses_of(store, started):
        printing.echo(
            f"a promotion would take {losses_in_words(lost)} from {started.control.revision}: "
            "it needs --force, and there is none automatically",
            err=True,
        )


def _ended(
    app: App, end: Callable[..., Experiment], name: str, why: str | None
) -> tuple[Experiment, str]:
    """Ends an experiment; returns it and its branch."""
    from tfgrpo.production.experiment_evidence import evidence

    shown = evidence(app.store, records.experiment(app.store, name))
    done = end(app.store, name, evidence=shown.as_object(), why=why)
    return done, done.control.revision


def _served(store: Store, branch: str) -> str:
    number = store.branches().get(branch)
    return f"{branch} is gone" if number is None else f"everybody gets {branch} (v{number})"


def parse_share(value: str) -> float:
    """A share as it is typed: 10%, 0.1, 0, 1. Raises UsageError."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)(%?)", value.strip())
    number = float(match[1]) / (100 if match[2] else 1) if match else -1.0
    if not 0 <= number <= 1:
        raise click.UsageError(f"{value!r} is no share: write 10% or 0.1")
    return number


def guards_of(given: tuple[str, ...], metric: str) -> tuple[tuple[str, float], ...]:
    """Guards as they are typed: METRIC, METRIC=BY, none; the usual ones without any."""
    if not given:
        return tuple(guard for guard in records.GUARDS if guard[0] != metric)
    parts = [] if given == ("none",) else [one.partition("=") for one in given]
    return tuple(
        (name, parse_share(by) if equals else records.TOLERANCES.get(name, 0.0))
        for name, equals, by in parts
    )


def _versions(store: Store, experiment: Experiment) -> tuple[str, str]:
    return named(store, experiment.control.digest), named(store, experiment.candidate.digest)


def _state(store: Store, experiment: Experiment) -> str:
    return "paused" if records.why_paused(store, experiment) else experiment.state


def _object(store: Store, experiment: Experiment) -> dict[str, Any]:
    control, candidate = _versions(store, experiment)
    return {
        "name": experiment.name,
        "state": _state(store, experiment),
        "paused": records.why_paused(store, experiment),
        "share": experiment.share,
        "control": {**experiment.control._asdict(), "version": control},
        "candidate": {**experiment.candidate._asdict(), "version": candidate},
        **experiment.plan._asdict(),
        **{name: dict(getattr(experiment.plan, name)) for name in ("guards", "scales")},
        "started": printing.iso(experiment.started),
        "ended": None if experiment.ended is None else printing.iso(experiment.ended),
        "shares": [{"since": printing.iso(at), "share": share} for at, share in experiment.shares],
    }


def _lines(store: Store, experiment: Experiment, shown: Evidence) -> Iterator[str]:
    control, candidate = _versions(store, experiment)
    state = _state(store, experiment)
    auto = ", --auto" if experiment.plan.auto else ""
    branch, tried = experiment.control.revision, f"{experiment.candidate.revision} ({candidate})"
    outcome = f"{percent(experiment.share)} of subjects get {tried}, the others {branch} "
    outcome += f"({control}){auto}"
    if experiment.state != records.RUNNING:
        outcome = _became(store, experiment, tried)
    name = printing.style(experiment.name, fg="yellow", bold=True)
    yield f"{name}  {state}, started {printing.age(experiment.started)}: {outcome}"
    if paused := records.paused_in_words(store, experiment, tried):
        again = f"`tfgrpo branch {branch} {control}` makes it again"
        way_out = "move the branch back" if branch in store.branches() else again
        yield f"  {paused}: stop it, or {way_out}"
    header = ("metric", "control", "candidate", "difference", "harm", "benefit", "")
    yield from printing.table([_row(one) for one in shown.compared], header=header)
    yield "  harm and benefit: evidence so far, of the evidence needed to show it"
    yield from (f"  {note}" for note in shown.notes)
    yield printing.style(shown.verdict.said, bold=True)


def _became(store: Store, ended: Experiment, tried: str) -> str:
    """What became of the branch of an experiment that is over."""
    branch, control = ended.control.revision, named(store, ended.control.digest)
    if ended.moves:
        (before, _), *back = ended.moves
        again = "".join(f", and back to {named(store, to)}" for _, to in back)
        return f"{branch} went from {named(store, before)} to {tried}{again}"
    stood = stood_at(store, branch, ended.ended or 0)
    if stood is None:
        return f"{branch} was deleted meanwhile, without {tried}"
    if stood.digest.hex() == ended.control.digest:
        return f"{branch} stayed at {control}, without {tried}"
    return f"{branch} was moved from {control} to {stood.name} meanwhile, without {tried}"


def _row(one: Compared) -> tuple[str, ...]:
    arms = (f"{arm.said(one.metric)} ({arm.size})" for arm in (one.control, one.candidate))
    weights = (one.harm, one.benefit) if one.main else (one.harm,)
    weighed = [f"{_evidence(weight)} of {one.needed:.0f}" for weight in weights]
    return (one.metric, *arms, one.difference_said, *weighed, *[""] * (not one.main), one.state)


def _evidence(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e4 else "over 10000"


@click.command()
@click.argument("candidate")
@option("--on", "The branch in production.  [the proposal's]", type=BRANCH)
@option("--share", "Subjects that get it meanwhile.", default="10%")
@option("--metric", "What decides.", default="score")
@many(
    "--guard METRIC[=BY],…",
    "What must not become worse, as of an experiment.  [errors, latency=20%, tokens=20%]",
    "guards",
)
@many("--scale SCORE=LOW..HIGH", "Range of a metric's scores.", "scales")
@option(
    "--until",
    "Stop it after this long, such as 2d, if nothing is decided by then.",
    default="decided",
)
@option("--webhook URL", "Address that is told the outcome.")
@why_option
@pass_given
def rollout(app: App, given: Given) -> None:
    """Give CANDIDATE, a proposal or a revision, to a share of subjects, and watch it.

    It is promoted when benefit is shown and nothing stands against it, and rolled back when harm is
    shown, also by a guard. After Ctrl-C the proxy goes on with it. The command fails (exit code 1)
    unless it was promoted. See `tfgrpo experiment` for each step of its own.

    \b
    Examples:
      tfgrpo rollout p1 --share 10% --guard errors,latency
      tfgrpo rollout main --on prod --until 2d
    """
    from tfgrpo.improvement.proposal_candidates import start_trial
    from tfgrpo.production.experiment_end import outcome, tell, watch

    store = app.store
    control = given.on or _target(store, given.candidate)
    listed = tuple(one for many in given.guards for one in many.split(",") if one)
    metric, scales = given.metric, tuple(map(scale_of, given.scales))
    guards = tuple(guard for guard in guards_of(listed, metric) if guard[0] != metric)
    plan = records.ExperimentPlan(metric, guards, auto=True, scales=scales)
    webhook = given.webhook and checked_webhook(given.webhook)
    until, share = _seconds(given.until), parse_share(given.share)
    name, arms, last = _free_name(store, given.candidate), (control, given.candidate), ""
    try:
        begun = start_trial(store, name, arms, share, plan, why=given.why)
        printing.echo(f"rollout {name}: {percent(begun.share)} of subjects get {given.candidate}")
        _warn(store, begun)
        for shown in watch(store, name, until):
            if shown.verdict.said != last:
                last = shown.verdict.said
                printing.echo(last)
    except KeyboardInterrupt:
        if any(one.name == name for one in records.experiments(store)):
            printing.echo(f"{name} goes on: `tfgrpo experiment status {name}`", err=True)
        raise
    ended = outcome(store, name)
    printing.echo(f"{name} was {ended.state}" + (f": {ended.why}" if ended.why else ""))
    if webhook and (why := tell(webhook, ended)) is not None:
        printing.echo(f"the webhook was not told: {why}", err=True)
    if ended.state != records.PROMOTED:
        raise click.exceptions.Exit(1)


def _target(store: Store, candidate: str) -> str:
    from tfgrpo.improvement.proposals import get_proposal

    try:
        return get_proposal(store, candidate).target
    except UnknownRevision:
        wrong = f"{candidate} is no proposal: name the branch in production with --on"
        raise click.UsageError(wrong) from None


def _free_name(store: Store, candidate: str) -> str:
    """A name that no experiment had: names are used once."""
    taken = {one.name for one in records.experiments(store)}
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", candidate)[:40]
    names = (f"rollout-{plain}" + (f"-{n}" if n > 1 else "") for n in count(1))
    return next(name for name in names if name not in taken)


def _seconds(until: str) -> float | None:
    if until == "decided":
        return None
    now = time.time_ns() // 1000
    return (parse_coming(until, now=now) - now) / 1e6
