"""`tfgrpo train`."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import checkout, heldout, options, text
from tfgrpo.cli.context import BRANCH, RUN, App, author, force_option, pass_app

if TYPE_CHECKING:
    from tfgrpo.store.records import Version
    from tfgrpo.store.runs import Run
    from tfgrpo.store.store import Store

PROMPTS = (
    *("rollout", "summary", "comparison", "controller", "strategies", "prune", "single", "direct"),
    *("rejected", "credit"),
)


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
    _need_store(app, estimate)
    started = time.monotonic()
    if resume is not None:
        if estimate:
            raise click.UsageError("--estimate is for a run that is not begun")
        run, resumed = app.store.runs.get(resume), True
    else:
        given = _credited(options.flags(values))
        run, resumed = _begin(app, data, name, new, config, given, budget, estimate, as_json)
    try:
        _work(app, run, resumed, config, budget)
    except KeyboardInterrupt:
        done = text.plural(_steps_done(app.store, run), "step")
        calls = sum(spent.usage.calls for spent in app.store.runs.spent(run))
        kept = f"keeps {text.plural(calls, 'answer')}"
        click.echo(f"interrupted; run {run.name} has {done} behind it and {kept}")
        click.echo(f"`tfgrpo train --resume {run.name}` goes on from there")
        click.get_current_context().exit(130)
    _tell(app, run, time.monotonic() - started)


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
        app.adopt(Store.init(app.new_path, author=author()))
        click.echo(f"made an empty library at {app.new_path}")


def _begin(
    app: App,
    data: str | None,
    name: str | None,
    new: bool,
    config: Path | None,
    given: Any,
    budget: str | None,
    estimate: bool,
    as_json: bool,
) -> tuple[Run, bool]:
    """Checks everything that can be checked, then makes the run, or finds the one to go on with."""
    from tfgrpo import connect
    from tfgrpo.cli import cost
    from tfgrpo.data import leakage, problems
    from tfgrpo.settings import SettingsError, TrainSettings, build
    from tfgrpo.store.errors import InvalidOperation
    from tfgrpo.training.loop import begin

    tables = options.from_file(app, config)
    given = {"data": data, **given}
    stem = tables.get("train", {}).pop("run", None)
    tools = options.tools(app, tables, given)
    layers = [given, tables.get("train", {}), tables.get("model", {}), tools]
    found = next((layer["domain"] for layer in layers if layer.get("domain")), None)
    domain = options.domain(app, found)
    asked = build(TrainSettings, *layers, {"data": "", "branch": app.store.head.branch})
    if not asked.data:
        raise SettingsError(
            "no problems are named", hint="tfgrpo train DATA, or data in tfgrpo.toml's [train]"
        )
    if asked.branch == "main" and app.store.head.branch is None and "branch" not in given:
        raise InvalidOperation(
            "HEAD is detached: training needs a branch to grow",
            hint="`tfgrpo checkout main` goes onto one; --branch NAME names or makes one",
        )
    dataset, skipped = options.verifiable(
        domain.problems(asked.data, asked.fields), asked.data, domain, skip=asked.skip_unverifiable
    )
    options.tell_sandbox(asked)
    options.warn(leakage.describe_duplicates(dataset, asked.data))
    others, left_out = heldout.checked(app, asked, domain, dataset)
    for prompt in PROMPTS:
        domain.template(prompt, Path(asked.prompts) if asked.prompts else None)
    of_embeddings = cost.embedding_price(app, config, asked.models)
    known = None not in (*cost.prices(app, config, asked.models), of_embeddings)
    cost.budget(app, config, budget, None, known)
    if estimate:
        cost.print_estimate(app, asked, domain, dataset, others, config, as_json)
        click.get_current_context().exit()
    connect.check(asked.models, os.environ)
    kept: dict[str, Any] = {
        "data_digest": problems.digest(dataset),
        "domain": options.kept_domain(app, asked.domain),
        **heldout.digests(others),
        "skipped": ({"data": skipped} if skipped else {}) | left_out,
    }
    for key in options.PATHS:
        if getattr(asked, key):
            kept[key] = options.kept_path(app, getattr(asked, key))
    return begin(app.store, asked.model_copy(update=kept), name=name, stem=stem, new=new)


def _work(app: App, run: Run, resumed: bool, config: Path | None, given: str | None) -> None:
    """Runs what is left of a run, and the comparison at its end."""
    import asyncio

    from tfgrpo.cli import cost, live
    from tfgrpo.connect import opened
    from tfgrpo.data import problems
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.settings import TrainSettings
    from tfgrpo.store import lock
    from tfgrpo.store.errors import InvalidOperation
    from tfgrpo.store.journal import Journal
    from tfgrpo.training.loop import Training, plan_steps

    settings = TrainSettings(**run.config)
    if settings.prompts:  # records hold paths as seen from the store's folder
        prompts = str(options.opened_path(app, settings.prompts))
        settings = settings.model_copy(update={"prompts": prompts})
    if resumed:
        options.tell_sandbox(settings)
    domain = options.domain(app, settings.domain)
    path = options.opened_data(app, settings.data)
    dataset = domain.problems(path, settings.fields)
    dataset = problems.without(dataset, settings.skipped.get("data", ()))
    if problems.digest(dataset) != settings.data_digest:
        raise problems.DatasetError(
            f"{path} has changed since run {run.name} began",
            hint="put the file back to go on with it, or begin another run with --new",
        )
    gate = heldout.opened(app, run, settings, domain, "gate")
    prices = cost.prices(app, config, settings.models)
    of_embeddings = cost.embedding_price(app, config, settings.models)
    budget = cost.budget(app, config, given, run, None not in (*prices, of_embeddings))
    with lock.held(app.store.runs.lock_path(run)) as free:
        if not free:
            raise InvalidOperation(
                f"run {run.name} is running in another process", hint="`tfgrpo status` shows it"
            )
        steps = plan_steps(dataset, settings)
        click.echo(
            f"run {run.name}{' goes on' if resumed else ''}: "
            f"{text.plural(len(dataset), 'problem')}, {text.plural(len(steps), 'step')} of up to "
            f"{settings.batch_size} × {settings.group_size} attempts, {settings.models.model}"
        )
        with live.Fetch() as bar, opened(settings, os.environ, bar.update) as endpoints:
            bar.close()
            journal = Journal(app.store.port.writer())
            try:
                with Verifier() as verifier:
                    training = Training(
                        app.store,
                        run,
                        dataset,
                        endpoints,
                        verifier,
                        journal,
                        domain=domain,
                        prompts=Path(settings.prompts) if settings.prompts else None,
                        price=prices[0],
                        reflection_price=prices[1],
                        embedding_price=of_embeddings,
                        budget=budget,
                        gate=gate,
                    )
                    with live.training(training.progress) as shown:
                        training.watch = lambda version: shown.say(_line(app.store, version))
                        asyncio.run(training.run(finish=False))
                    final = app.store.resolve(f"{run.name}/step_{_steps_done(app.store, run)}")
                    what = (app, run, final, settings, domain, endpoints, verifier, journal)
                    heldout.compare_at_end(*what, prices, budget)
                    app.store.runs.note(run, "finished")
            finally:
                journal.close()


def _line(store: Store, version: Version) -> str:
    counts = " ".join(word.text for word in text.counts(store.counts(version)))
    return f"{version.name}  {counts}{'  ' if counts else ''}{version.message}"


def _steps_done(store: Store, run: Run) -> int:
    prefix = f"{run.name}/step_"
    steps = [tag for tag in store.tags() if tag.startswith(prefix)]
    return len(steps) - 1


def _tell(app: App, run: Run, seconds: float) -> None:
    """Says what came of a run, and writes the library for inference."""
    from tfgrpo.cli import runs
    from tfgrpo.cli.live import span
    from tfgrpo.training.run_report import report

    store = app.store
    done = _steps_done(store, run)
    wrong = runs.issue_counts(report(store, run))
    if wrong:
        click.echo(f"{wrong}; `tfgrpo runs {run.name}` lists them")
    first, last = f"{run.name}/step_0", f"{run.name}/step_{done}"
    added = sum(change.op == "ADD" for change in store.diff(first, last))
    told = f"learned {text.plural(added, 'experience')} in {text.plural(done, 'version')}"
    if store.head.branch == run.branch and store.head.version.number == store.tags()[last]:
        path = checkout.materialise(app)
        click.echo(f"{told}; step_{done} is checked out ({span(seconds)})")
        click.echo(f"wrote {path}")
    else:
        click.echo(f"{told}, on branch {run.branch} ({span(seconds)})")
        click.echo(f"`tfgrpo checkout {run.branch}` goes there")
