"""`tfgrpo eval`."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.cost import print_figures
from tfgrpo.cli.flags import COUNT, JSON, option
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.start_context import REVISION, App, pass_app
from tfgrpo.notices import Notice, OnProgress, ScoresReady

if TYPE_CHECKING:
    from tfgrpo.evaluation.eval_setup import EvalPlan
    from tfgrpo.evaluation.scores import Scores
    from tfgrpo.store.records import Version


@click.command("eval", cls=SectionedCommand)
@options.from_settings("shared", "eval")
@click.argument("data", nargs=-1, metavar="[DATA]")
@option("--library", "Library to score.", default="HEAD", type=REVISION)
@option("--against", "Library to compare it with; v0 is the empty one.", type=REVISION)
@option("--problems", "Use only the first N problems.", type=COUNT)
@options.BUDGET
@options.estimate
@JSON
@options.CONFIG
@pass_app
def eval_(
    app: App,
    /,
    data: tuple[str, ...],
    library: str,
    against: str | None,
    estimate: bool,
    details: bool,
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Score a library on the problems in DATA: mean@k, pass@k and maj@k.

    Intervals are 95 %, with problems as the unit. Scores are stored with the version and shown by
    log and show; running the same command again reads them, or resumes an interrupted evaluation.
    Two libraries are compared problem by problem; the fair control is v0, the empty library in the
    same prompt. Model and prompt default to those of the run that made the library.

    \b
    Examples:
      tfgrpo eval heldout.jsonl --library HEAD --samples 4
      tfgrpo eval heldout.jsonl --library HEAD --against v0 --samples 4
    """
    from tfgrpo.evaluation.scores import scores_object
    from tfgrpo.learn.run_estimate import estimate_attempts, missing_attempts

    options.refuse_revisions(app, "eval", data)
    if len(data) > 1:
        raise click.UsageError(f"eval takes one DATA: {', '.join(data)}; compare takes several")
    revisions = [library] if against is None else [library, against]
    versions = [app.store.resolve(revision) for revision in revisions]
    given = {"data": next(iter(data), None), **values}
    if estimate:
        plan = _planned(app, config, versions, given, versions[:1])
        figures = estimate_attempts(app.store, plan, missing_attempts(app.store, plan))
        print_figures(figures, details=details, as_json=as_json)
        return
    scores = run_evaluation(app, config, versions, given, versions[:1], quiet=as_json)
    if as_json:
        printing.emit_json(scores_object(scores))


def _planned(
    app: App,
    config: Path | None,
    versions: Sequence[Version],
    given: dict[str, Any],
    trained: Sequence[Version],
) -> EvalPlan:
    from tfgrpo.evaluation.eval_setup import plan_evaluation

    project = options.open_project(app, config)
    return plan_evaluation(app.store, project, versions, options.read_flags(given), trained=trained)


def run_evaluation(
    app: App,
    config: Path | None,
    versions: Sequence[Version],
    given: dict[str, Any],
    trained: Sequence[Version],
    *,
    quiet: bool = False,
) -> Scores:
    """Scores versions, showing how it goes and, unless `quiet`, what came of it."""
    from tfgrpo.cli import interrupts
    from tfgrpo.evaluation.eval_setup import score

    plan = _planned(app, config, versions, given, trained)

    def work(report: OnProgress) -> Coroutine[Any, Any, Scores]:
        def show(notice: Notice) -> None:
            if not (quiet and isinstance(notice, ScoresReady)):
                report(notice)

        return score(app.store, plan, on_progress=show)

    return interrupts.watched(app.store, work, interrupts.RESUMES)
