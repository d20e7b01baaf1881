"""`tfgrpo improve`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import checkout, options, printing
from tfgrpo.cli.flags import COUNT, JSON, flag, option
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.proposal import as_object
from tfgrpo.cli.start_context import BRANCH, FINITE, App, force_option, pass_app
from tfgrpo.notices import Notice, OnProgress, ScoresReady

if TYPE_CHECKING:
    from tfgrpo.cli.live_display import Reporter
    from tfgrpo.improvement.improve import Improvement


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "train", own=("temperature",))
@option("--target", "Branch to make better.", type=BRANCH, default="prod")
@option("--since", "Calls from when on: 2h, 3d.", default="7d")
@option("--library", "Only calls under this library of the proxy.")
@option("--below", "Scores below this are failures.", type=FINITE, default=0.5)
@option("--by", "Only scores by this author, such as a judge.", metavar="AUTHOR")
@option(
    "--from",
    "File that problems are collected in.  [collected.jsonl in the project]",
    name="file",
    type=click.Path(dir_okay=False, path_type=Path),
)
@option("--redact", "What else to take out of texts.", default="", metavar="REGEX")
@flag("--no-system", "Leave the application's own system text and examples out.")
@option("--least", "New problems that are worth a training.", type=COUNT, default=8)
@option("--heldout-samples", "Attempts per held-out problem.", type=COUNT, default=4)
@option("--budget", "Most to spend: 5.00 (US dollars) or 200000tok.")
@flag("--accept-better", "Accept the proposal at once if it is better on held-out problems.")
@flag("--new", "Give up one that was cut off, and begin anew.")
@options.estimate
@flag("-q, --quiet", "Print nothing unless there is a proposal.")
@JSON
@force_option
@options.CONFIG
@pass_app
def improve(
    app: App,
    /,
    target: str,
    least: int,
    heldout_samples: int,
    budget: str | None,
    accept_better: bool,
    new: bool,
    estimate: bool,
    details: bool,
    quiet: bool,
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Learn from what went wrong: collect, train on a branch, compare, propose.

    What calls came to since the last time becomes problems (see `tfgrpo collect`). With enough new
    ones, a training on a branch of its own, with a gate, learns from them, and what it learned is
    compared with the target on held-out problems. What is not worse becomes a proposal: `tfgrpo
    proposal` lists, shows, accepts and rejects it. The target does not move before, except with
    --accept-better.

    For cron: nothing to do is success, a second one beside it exits with 75, and one that was
    killed goes on the next time. Problems of earlier times are not paid for again. Gate and
    held-out sets are those in [train] of tfgrpo.toml, or parts of the new problems.

    \b
    Examples:
      tfgrpo improve --quiet
      tfgrpo improve --target support --since 1d --least 20
    """
    from tfgrpo.cli import cost, interrupts, live_display
    from tfgrpo.improvement.collection import CollectionRules, CollectRequest
    from tfgrpo.improvement.improve import ImproveRequest, estimate_improvement
    from tfgrpo.improvement.improve import improve as improve_library
    from tfgrpo.store.activity.traffic import CallFilter
    from tfgrpo.store.history.log_filter import parse_time

    start = parse_time(values.pop("since"), now=time.time_ns() // 1000)
    which = CallFilter(start, library=values.pop("library"))
    below, redact = values.pop("below"), values.pop("redact")
    rules = CollectionRules(below, redact=redact, system=not values.pop("no_system"))
    collected = CollectRequest(
        which=which, by=values.pop("by"), output=values.pop("file"), rules=rules
    )
    request = ImproveRequest(
        target,
        collected,
        least,
        heldout_samples,
        accept_better,
        new,
        budget,
        options.read_flags(values),
    )
    project = options.open_project(app, config)
    if estimate:
        figures = estimate_improvement(app.store, project, request)
        cost.print_figures(figures, details=details, as_json=as_json)
        return
    try:
        if quiet or as_json:
            done = interrupts.run(improve_library(app.store, project, request))
        else:
            with live_display.Reporter(app.store) as report:
                work = improve_library(app.store, project, request, on_progress=_without(report))
                done = interrupts.run(work)
    except interrupts.Interrupted as stop:
        if not quiet:
            printing.echo("interrupted; the same command goes on where it was", err=True)
        click.get_current_context().exit(stop.code)
    _tell(app, done, quiet=quiet, as_json=as_json)


def _without(report: Reporter) -> OnProgress:
    """A reporter that leaves out the tables of scores: the proposal has them in a line."""

    def show(notice: Notice) -> None:
        if not isinstance(notice, ScoresReady):
            report(notice)

    return show


def _tell(app: App, done: Improvement, *, quiet: bool, as_json: bool) -> None:
    proposal = done.proposal
    if as_json:
        printing.emit_json(
            {
                "outcome": done.outcome,
                "target": done.target,
                "new": done.new,
                "run": done.run,
                "effect": None if done.effect is None else done.effect._asdict(),
                "proposal": None if proposal is None else as_object(proposal),
            }
        )
    elif proposal is not None or not quiet:
        printing.emit(app, printing.shown(str(done)).split("\n"))
    if done.outcome == "accepted" and app.store.head.branch == done.target:
        checkout.materialise(app)
    if done.outcome == "proposed" and proposal is not None and not as_json:
        printing.echo(
            f"next: `tfgrpo proposal accept {proposal.id}` or "
            f"`tfgrpo proposal reject {proposal.id} --why …`"
        )
