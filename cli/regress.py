"""`tfgrpo regress`."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import COUNT, JSON, option
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.start_context import BRANCH, REVISION, App, pass_app
from tfgrpo.cli.traffic import opened
from tfgrpo.notices import OnProgress, ignore

if TYPE_CHECKING:
    from tfgrpo.improvement.regression import Regression


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "eval", own=("temperature",))
@click.argument("data", required=False)
@option("--library", "What is asked.", default="HEAD", type=REVISION)
@option("--samples", "Attempts per problem, library and side.", type=click.IntRange(2), default=4)
@option("--problems", "Use only the first N problems.", type=COUNT)
@option(
    "--unused",
    "Instead, name the experiences that were in no prompt for this long, such as 28d.",
    metavar="TIME",
)
@option(
    "--propose",
    "Propose to delete what no longer helps from this branch.",
    name="target",
    type=BRANCH,
    metavar="BRANCH",
)
@option("--budget", "Most to spend on each side: 5.00 (US dollars) or 200000tok.")
@options.estimate
@JSON
@options.CONFIG
@pass_app
def regress(
    app: App,
    /,
    data: str | None,
    library: str,
    samples: int,
    problems: int | None,
    unused: str | None,
    target: str | None,
    budget: str | None,
    estimate: bool,
    details: bool,
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """See whether a library still helps: on another model, or on the same one by now.

    The library and the empty one attempt the problems in DATA under the model of its run and under
    --model, and what the library adds is compared by problem. What each experience adds is
    measured on both sides, and those that stopped helping, or hurt, are named. Without --model,
    the same model is asked afresh and compared with the scores on record. Nothing is deleted:
    --propose makes a proposal.

    \b
    Examples:
      tfgrpo regress heldout.jsonl --model m --samples 2
      tfgrpo regress --unused 28d
    """
    from tfgrpo.cli import cost, interrupts
    from tfgrpo.improvement.regression import RegressRequest, estimate_regression, regression_object
    from tfgrpo.improvement.regression import regress as compare_sides

    if unused is not None:
        _unused(app, unused, library, target, as_json)
        return
    given = options.read_flags({**values, "budget": budget, "problems": problems})
    project = options.open_project(app, config)
    request = RegressRequest(library, data, samples, given, target)
    if estimate:
        figures = estimate_regression(app.store, project, request)
        cost.print_figures(figures, details=details, as_json=as_json)
        return

    def work(report: OnProgress) -> Coroutine[Any, Any, Regression]:
        watching = ignore if as_json else report
        return compare_sides(app.store, project, request, on_progress=watching)

    again = "the same command goes on where it was"
    regression = interrupts.watched(app.store, work, again)
    if as_json:
        printing.emit_json(regression_object(regression))
    else:
        _tell(regression)


def _tell(regression: Regression) -> None:
    view = regression.view()
    printing.echo(printing.style(printing.shown(view.title), bold=True))
    printing.echo_each(printing.table(view.rows, header=view.header))
    for note in view.notes:
        printing.echo_each(printing.wrapped(printing.shown(note), indent=5))


def _unused(app: App, unused: str, library: str, target: str | None, as_json: bool) -> None:
    """Names the experiences that nobody uses, and proposes to delete them where that is asked."""
    from tfgrpo.improvement.unused_experiences import propose_expiry, unused_experiences
    from tfgrpo.store.history.log_filter import parse_time

    store = app.store
    branch = target or (library if library in store.branches() else store.head.branch or "main")
    since = parse_time(unused, now=time.time_ns() // 1000)
    with opened(app) as traffic:
        expired = unused_experiences(store, traffic, branch, since)
    label = store.library(store.tip(branch)).label_of
    proposal = propose_expiry(store, branch, expired, unused) if expired and target else None
    if as_json:
        rows = [{"label": label[e.id], "experience": e.id, "text": e.text} for e in expired]
        printing.emit_json({"unused": rows, "proposal": proposal and proposal.id})
        return
    for one in expired:
        printing.echo(printing.shown(f"[{label[one.id]}] in no prompt since {unused}: {one.text}"))
    if not expired:
        printing.echo(f"no experience of {branch} is known to be unused since {unused}")
    if proposal is not None:
        printing.echo(f"proposal {proposal.id} deletes them")
