"""`tfgrpo train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.author import default_author
from tfgrpo.cli import checkout, options, text
from tfgrpo.cli.context import BRANCH, RUN, App, force_option, pass_app

if TYPE_CHECKING:
    from tfgrpo.project import Project
    from tfgrpo.store.runs import Run
    from tfgrpo.store.store import Store
    from tfgrpo.training.run import TrainResult
    from tfgrpo.training.setup import ReadyRun


@click.command()
@click.argument("data", required=False)
@click.option("--run", "name", help="The run's name; else run in [train], else after the data.")
@click.option(
    "--resume", type=RUN, metavar="RUN", help="Go on with this run, with the settings it has."
)
@click.option("--new", is_flag=True, help="A new run, even where one like it is unfinished.")
@click.option("--branch", type=BRANCH, help="The branch that learns; else HEAD's.")
@click.option("--epochs", type=int, help="Passes over the data.  [3]")
@click.option("--batch-size", type=int, help="Problems in a step.  [100]")
@click.option("--group-size", type=int, help="Attempts at a problem in a step.  [5]")
@click.option(
    "--reward",
    type=click.Choice(["verifier", "majority"]),
    help="Judge by the ground truth, or by a group's most frequent answer.  [verifier]",
)
@click.option("--direct", type=int, help="Have this many experiences written without rollouts.")
@click.option(
    "--rollouts",
    type=click.Choice(["fixed", "adaptive", "branch"]),
    help="Groups of one size, of as many attempts as it takes to mix them, or with branches of "
    "an agent's attempts.  [fixed]",
)
@click.option(
    "--quorum", type=float, help="Go on when this share of a step's attempts is in.  [1.0]"
)
@click.option(
    "--hints",
    type=int,
    help="Attempts under proposed strategies at a problem that nothing solved.  [0]",
)
@click.option(
    "--dropout",
    type=float,
    help="Leave this share of the library out of each attempt, to see what helps.  [0]",
)
@click.option("--credit", metavar="dropout=RATE", help="The same, by its purpose.")
@click.option(
    "--controller-sees-credit",
    is_flag=True,
    default=None,
    help="Tell the controller what each experience did to the reward.",
)
@click.option("--reflection-model", help="Summarises, compares and controls; else --model.")
@click.option("--reflection-base-url", help="Its endpoint; else --base-url.")
@click.option("--reflection-api-key-env", help="Its key's variable; else --api-key-env.")
@click.option("--reflection-temperature", type=float, help="Of reflection.  [0.2]")
@click.option("--learning-objective", help="What should be learned, in your words.")
@click.option("--max-words", type=int, help="The most words of an experience.  [32]")
@click.option(
    "--library-tokens",
    type=int,
    help="The most tokens of the library; at the cap it is merged and pruned.  [no cap]",
)
@click.option(
    "--summarise-over",
    type=int,
    help="Shorter attempts are compared as they are, in characters.  [0]",
)
@click.option(
    "--ground-truth/--no-ground-truth",
    default=None,
    help="Whether comparisons see the right answer.  [yes]",
)
@click.option("--heldout", help="Problems to compare on at the end, against the empty library.")
@click.option("--heldout-samples", type=int, help="Attempts at each of them.  [2]")
@click.option("--heldout-problems", type=int, help="How many of them, from the top; else all.")
@click.option("--gate", help="Problems on which a library must not be worse to be the next one.")
@click.option("--gate-samples", type=int, help="Attempts at each of them.  [4]")
@click.option("--gate-problems", type=int, help="How many of them, from the top; else all.")
@click.option("--sealed", help="Problems to compare on once, when all is done; on record.")
@click.option("--estimate", is_flag=True, help="Say what it would take, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="With --estimate: JSON for programs.")
@click.option("--budget", help="Stop before this is spent: 5.00 in dollars, or 200000tok.")
@force_option
@options.shared
@pass_app
def train(
    app: App,
    /,
    data: str | None,
    name: str | None,
    resume: str | None,
    new: bool,
    estimate: bool,
    as_json: bool,
    budget: str | None,
    config: Path | None,
    **values: Any,
) -> None:
    """Learn a library from the problems in DATA, a JSONL file of problem and answer.

    Each step rolls out a group of attempts for every problem of a batch, scores them, asks why
    the right ones of a mixed group beat the wrong ones, and appends what was learned as one
    version, tagged RUN/step_N. The same command goes on with a run that was cut off, and asks
    for nothing that was answered before.

    Defaults in brackets are the paper's. All of it can stand in tfgrpo.toml, in the tables
    [model] and [train]. Without --model an embedded model is fetched and used.

    \b
    Examples:
      tfgrpo train problems.jsonl --epochs 1 --batch-size 8
      tfgrpo train problems.jsonl --base-url http://127.0.0.1:8000/v1 --model my-model
    """
    if as_json and not estimate:
        raise click.UsageError("--json is for --estimate; `tfgrpo runs --json` has what was done")
    if resume is not None and estimate:
        raise click.UsageError("--estimate is for a run that is not begun")
    from tfgrpo.cli import cost
    from tfgrpo.training.setup import RunChoice, plan_run, ready_run, run_budget

    _need_store(app, estimate)
    project = options.open_project(app, config)
    given = {"data": data, **_credited(options.read_flags(values))}
    if estimate:
        plan = plan_run(app.store, project, given)
        text.warn(plan.warnings)
        run_budget(app.store, project, budget, plan.prices)
        cost.print_estimate(app, plan, as_json)
        return
    ready = ready_run(app.store, project, given, RunChoice(name, resume, new, budget))
    _work(app, project, ready)


def _credited(given: dict[str, Any]) -> dict[str, Any]:
    """Returns flags with --credit as the setting that it is."""
    credit = given.pop("credit", None)
    if credit is None:
        return given
    name, _, rate = credit.partition("=")
    try:
        dropout = float(rate)
    except ValueError:
        dropout = -1.0
    if name != "dropout" or not 0 < dropout < 1:
        raise click.BadParameter(f"{credit!r} is not dropout=0.2", param_hint="--credit")
    return {**given, "dropout": dropout}


def _need_store(app: App, estimate: bool) -> None:
    """Makes a store where there is none, and says so; for an estimate one that does not stay."""
    from tfgrpo.store.errors import StoreError
    from tfgrpo.store.store import Store

    try:
        there = app.path.exists()
    except StoreError:
        there = False
    if not there and estimate:
        app.pretend()
    elif not there:
        app.adopt(Store.init(app.new_path, author=default_author()))
        click.echo(f"made an empty library at {app.new_path}")


def _work(app: App, project: Project, ready: ReadyRun) -> None:
    """Does what is left of a run, showing how it goes and what came of it."""
    import asyncio

    from tfgrpo.cli import live
    from tfgrpo.training.run import run_to_end

    run = ready.run
    with live.Reporter(app.store) as report:
        try:
            result = asyncio.run(run_to_end(app.store, project, ready, on_progress=report))
        except KeyboardInterrupt:
            report.close()
            done = text.plural(_steps_done(app.store, run), "step")
            calls = sum(spent.usage.calls for spent in app.store.runs.spent(run))
            kept = f"keeps {text.plural(calls, 'answer')}"
            click.echo(f"interrupted; run {run.name} has {done} behind it and {kept}")
            click.echo(f"`tfgrpo train --resume {run.name}` goes on from there")
            click.get_current_context().exit(130)
    _tell(app, result)


def _steps_done(store: Store, run: Run) -> int:
    prefix = f"{run.name}/step_"
    steps = [tag for tag in store.tags() if tag.startswith(prefix)]
    return len(steps) - 1


def _tell(app: App, result: TrainResult) -> None:
    """Says what came of a run, and writes the library for inference."""
    from tfgrpo.cli import runs
    from tfgrpo.cli.live import span

    store, run = app.store, result.run
    done = _steps_done(store, run)
    issues = runs.issue_counts(result.report)
    if issues:
        click.echo(f"{issues}; `tfgrpo runs {run.name}` lists them")
    first, last = f"{run.name}/step_0", f"{run.name}/step_{done}"
    added = sum(change.op == "ADD" for change in store.diff(first, last))
    learned = f"learned {text.plural(added, 'experience')} in {text.plural(done, 'version')}"
    if store.head.branch == run.branch and store.head.version.number == store.tags()[last]:
        path = checkout.materialise(app)
        click.echo(f"{learned}; step_{done} is checked out ({span(result.seconds)})")
        click.echo(f"wrote {path}")
    else:
        click.echo(f"{learned}, on branch {run.branch} ({span(result.seconds)})")
        click.echo(f"`tfgrpo checkout {run.branch}` goes there")
