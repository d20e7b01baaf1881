"""`tfgrpo experiment`: two versions of a library in production at once, compared."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import checkout
from tfgrpo.cli import printing as text
from tfgrpo.cli.flags import JSON, flag, option
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import BRANCH, REVISION, App, Named, force_option, pass_app
from tfgrpo.cli.traffic import parse_tag
from tfgrpo.production import experiment as records
from tfgrpo.production.experiment import Experiment
from tfgrpo.store.errors import InvalidOperation, TfgrpoError, UnknownRevision

if TYPE_CHECKING:
    from tfgrpo.production.experiment_evidence import Compared, Evidence
    from tfgrpo.store.store import Store


def _names(store: Store) -> list[tuple[str, str]]:
    return [(one.name, one.state) for one in records.experiments(store)]


EXPERIMENT = Named("experiment", _names)
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
@option(
    "--guard",
    "What must not become worse, by more than BY; repeatable, or none.  "
    "[errors, latency=20%, tokens=20%]",
    name="guards",
    multiple=True,
    metavar="METRIC[=BY]",
)
@option("--unit", "What counts once.", type=click.Choice(["subject", "call"]), default="subject")
@option(
    "--scale",
    "Between what scores lie, such as score=1..5; repeatable.  [as on record, or 0..1]",
    name="scales",
    multiple=True,
    metavar="SCORE=LOW..HIGH",
)
@flag("--auto", "Promote or roll back when a test decides.")
@why_option
@pass_app
def start(
    app: App, /, name: str, control: str, candidate: str, share: str, why: str | None, **flags: Any
) -> None:
    """Start an experiment. The candidate is the version that its revision names now.

    With --auto, the proxy moves the control's branch when benefit is shown and no guard is
    harmed, and ends the experiment when harm is shown, with the evidence on record.

    \b
    Examples:
      tfgrpo experiment start shorter --control prod --candidate main --share 10%
      tfgrpo experiment start units --control main --candidate v1 --auto
    """
    plan = records.ExperimentPlan(
        flags["metric"],
        guards_of(flags["guards"], flags["metric"]),
        flags["unit"],
        flags["auto"],
        tuple(map(scale_of, flags["scales"])),
    )
    candidate = candidate_of(app.store, candidate)
    started = records.start(
        app.store, name, (control, candidate), parse_share(share), plan, why=why
    )
    versions = _versions(app.store, started)
    text.echo(
        f"experiment {name}: {_percent(started.share)} of subjects get {candidate} "
        f"({versions[1]}), the others {control} ({versions[0]})"
    )


@experiment.command("list")
@JSON
@pass_app
def list_(app: App, as_json: bool) -> None:
    """List experiments, oldest first.

    \b
    Examples:
      tfgrpo experiment list
      tfgrpo experiment list --json
    """
    store = app.store
    listed = records.experiments(store)
    if as_json:
        text.emit_json([_object(store, one) for one in listed])
        return
    if not listed:
        text.echo("no experiments yet; start one with `tfgrpo experiment start`")
        return
    rows = [
        (
            one.name,
            _state(store, one),
            _percent(one.share),
            one.control.revision,
            f"{one.candidate.revision} ({_versions(store, one)[1]})",
            text.age(one.started),
        )
        for one in listed
    ]
    header = ("name", "state", "share", "control", "candidate", "started")
    text.emit(app, text.table(rows, header=header))


@experiment.command()
@click.argument("name", required=False, type=EXPERIMENT)
@option("--tag", "Only calls with this tag.", name="tags", multiple=True, metavar="NAME=VALUE")
@JSON
@pass_app
def status(app: App, name: str | None, tags: tuple[str, ...], as_json: bool) -> None:
    """Show what an experiment has found; without NAME the one that is running.

    Looking changes nothing, and may be done any time: the tests are made for it. They are not
    made for choosing the best of many tags: what one shows is for another experiment to confirm.

    \b
    Examples:
      tfgrpo experiment status shorter
      tfgrpo experiment status shorter --tag team=blue
      tfgrpo experiment status shorter --json
    """
    from tfgrpo.production.experiment_evidence import evidence

    store = app.store
    chosen = records.experiment(store, name)
    shown = evidence(store, chosen, tuple(map(parse_tag, tags)))
    fields = _object(store, chosen) | {"evidence": shown.as_object()}
    text.answer(app, fields, _lines(store, chosen, shown), as_json)


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
      tfgrpo experiment share shorter 0 --why "over the weekend"
    """
    changed = records.change_share(app.store, name, parse_share(share), why=why)
    text.echo(f"experiment {name}: {_percent(changed.share)} of subjects get the candidate")


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@why_option
@force_option
@pass_app
def promote(app: App, name: str, why: str | None) -> None:
    """Move the control's branch to the candidate's version, and end the experiment.

    The evidence as it is goes on record with it. `tfgrpo experiment rollback` takes it back.

    \b
    Examples:
      tfgrpo experiment promote shorter
      tfgrpo experiment promote shorter --why "read by both of us"
    """
    from tfgrpo.production.experiment_evidence import evidence

    store = app.store
    shown = evidence(store, records.experiment(store, name))
    against = shown.against
    if against is not None and not store.is_forced:
        raise InvalidOperation(against, hint="--force promotes all the same")
    done = records.promote(store, name, evidence=shown.as_object(), why=why)
    _moved(app, done)
    if shown.verdict.kind == "none":
        text.echo(f"nothing is shown yet: {shown.compared[0].words}")
    text.echo(f"promoted {name}: {done.control.revision} is at {_versions(store, done)[1]}")


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@why_option
@force_option
@pass_app
def rollback(app: App, name: str, why: str | None) -> None:
    """End an experiment for the control; take a promotion back.

    \b
    Examples:
      tfgrpo experiment rollback shorter --why "answers are too short"
      tfgrpo experiment rollback shorter
    """
    from tfgrpo.production.experiment_evidence import recorded

    store = app.store
    done = records.roll_back(
        store, name, evidence=recorded(store, records.experiment(store, name)), why=why
    )
    _moved(app, done)
    branch, number = done.control.revision, store.branches().get(done.control.revision)
    gone = f"{branch} is gone" if number is None else f"everybody gets {branch} (v{number})"
    text.echo(f"rolled back {name}: {gone}")


@experiment.command()
@click.argument("name", type=EXPERIMENT)
@why_option
@pass_app
def stop(app: App, name: str, why: str | None) -> None:
    """End an experiment with nothing decided: everybody gets the control.

    \b
    Examples:
      tfgrpo experiment stop shorter
      tfgrpo experiment stop shorter --why "too few calls"
    """
    from tfgrpo.production.experiment_evidence import recorded

    store = app.store
    done = records.stop(
        store, name, evidence=recorded(store, records.experiment(store, name)), why=why
    )
    text.echo(f"stopped {name}: everybody gets {done.control.revision}")


def candidate_of(store: Store, named: str) -> str:
    """The revision that a candidate is: a proposal's id stands for what it proposes."""
    from tfgrpo.improvement.proposals import get_proposal

    try:
        store.resolve(named)
    except UnknownRevision as unknown:
        try:
            proposal = get_proposal(store, named)
        except UnknownRevision:
            raise unknown from None
        tip = store.branches().get(proposal.branch)
        return proposal.branch if tip == proposal.candidate.number else proposal.candidate.name
    return named


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
    if given == ("none",):
        return ()
    guards = []
    for one in given:
        name, equals, by = one.partition("=")
        guards.append((name, parse_share(by) if equals else records.TOLERANCES.get(name, 0.0)))
    return tuple(guards)


def scale_of(given: str) -> tuple[str, tuple[float, float]]:
    """A scale as it is typed: SCORE=LOW..HIGH. Raises UsageError."""
    metric, _, ends = given.partition("=")
    try:
        low, high = map(float, ends.split(".."))
    except ValueError:
        raise click.UsageError(f"{given!r} is no scale: write score=1..5") from None
    return metric, (low, high)


def _moved(app: App, done: Experiment) -> None:
    if app.store.head.branch == done.control.revision:
        checkout.materialise(app)


def _versions(store: Store, experiment: Experiment) -> tuple[str, str]:
    names = []
    for arm in (experiment.control, experiment.candidate):
        try:
            names.append(store.resolve(arm.digest).name)
        except TfgrpoError:
            names.append(arm.digest[:12])
    return names[0], names[1]


def _state(store: Store, experiment: Experiment) -> str:
    if experiment.state != records.RUNNING:
        return experiment.state
    try:
        paused = records.at_work(store, experiment.control.revision) is None
    except UnknownRevision:
        paused = True
    return "paused" if paused else records.RUNNING


def _percent(share: float) -> str:
    return f"{100 * share:g}%"


def _object(store: Store, experiment: Experiment) -> dict[str, Any]:
    control, candidate = _versions(store, experiment)
    return {
        "name": experiment.name,
        "state": _state(store, experiment),
        "share": experiment.share,
        "control": {**experiment.control._asdict(), "version": control},
        "candidate": {**experiment.candidate._asdict(), "version": candidate},
        **experiment.plan._asdict(),
        "guards": dict(experiment.plan.guards),
        "scales": dict(experiment.plan.scales),
        "started": text.iso(experiment.started),
        "ended": None if experiment.ended is None else text.iso(experiment.ended),
        "shares": [{"since": text.iso(at), "share": share} for at, share in experiment.shares],
    }


def _lines(store: Store, experiment: Experiment, shown: Evidence) -> Iterator[str]:
    control, candidate = _versions(store, experiment)
    state = _state(store, experiment)
    auto = ", --auto" if experiment.plan.auto else ""
    yield (
        f"{text.style(experiment.name, fg='yellow', bold=True)}  {state}, started "
        f"{text.age(experiment.started)}: {_percent(experiment.share)} of subjects get "
        f"{text.shown(experiment.candidate.revision)} ({candidate}), the others "
        f"{text.shown(experiment.control.revision)} ({control}){auto}"
    )
    if state == "paused":
        yield (
            f"  {text.shown(experiment.control.revision)} was moved since it began, so everybody "
            "gets that: stop it, or move the branch back"
        )
    yield from text.table(
        [_row(one) for one in shown.compared],
        header=("metric", "control", "candidate", "difference", "harm", "benefit", ""),
    )
    for line in shown.notes:
        yield f"  {text.shown(line)}"
    yield text.style(shown.verdict.said, bold=True)


def _row(one: Compared) -> tuple[str, ...]:
    return (
        one.metric,
        f"{one.control.said(one.metric)} ({one.control.size})",
        f"{one.candidate.said(one.metric)} ({one.candidate.size})",
        one.difference_said,
        f"{_evidence(one.harm)} of {one.needed:.0f}",
        f"{_evidence(one.benefit)} of {one.needed:.0f}" if one.main else "",
        one.state,
    )


def _evidence(value: float) -> str:
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e4 else "over 10000"
