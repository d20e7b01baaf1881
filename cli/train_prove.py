"""`tfgrpo train` and `prove`: a library learned from problems, and each of its lessons tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tfgrpo.cli import options, printing
from tfgrpo.cli.cost import print_figures
from tfgrpo.cli.flags import FORCE, JSON, flag, option
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.start_context import RUN, App, Given, pass_given
from tfgrpo.store.errors import StoreError
from tfgrpo.wording import span
from tfgrpo.workers.queue import queue_address

if TYPE_CHECKING:
    from tfgrpo.learn.prove import Proof, Wanted
    from tfgrpo.learn.run import TrainResult
    from tfgrpo.learn.run_setup import ReadyRun, RunPlan
    from tfgrpo.project import Project
    from tfgrpo.store.activity.runs import Run
    from tfgrpo.store.store import Store


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "train")
@click.argument("data", required=False)
@option("--run", "Name of the run; by default run in [train], or the name of DATA.", name="name")
@option(
    "--resume RUN",
    "Resume this run, with its recorded settings; --concurrency, --patience and --verify-timeout "
    "may be others.",
    type=RUN,
)
@flag("--new", "Start a new run even if one like it exists.")
@flag("--keep-going", "Go on even if the first attempts are all right, or all wrong.")
@flag(
    "--workers",
    "Have the workers of a shared store make the groups; without any, this process does.",
)
@option(
    "--preset",
    "Defaults that fit the data and the model, or the published method with its own.  [fit]",
    type=click.Choice(["fit", "paper"]),
)
@options.estimate
@flag("--json", "With --estimate: output JSON.", name="as_json")
@options.BUDGET
@FORCE
@options.CONFIG
@pass_given
def train(app: App, given: Given) -> None:
    """Learn a library from the problems in DATA, a JSONL file of problems and answers.

    Each step rolls out a group of attempts for every problem in a batch, scores them, asks the
    model which rule the right answers follow, tries the proposed rules on part of the attempts to
    come, and appends those that are measured to help as one version, tagged RUN/step_N. Running the
    same command again resumes an interrupted run and repeats no completed call.

    Defaults in brackets hold where nothing fits the data and the model better; --preset paper takes
    the published method's. Every option can also be set in tfgrpo.toml, in the tables
    [model] and [train]. Without --model, a local model is downloaded and used.

    \b
    Examples:
      tfgrpo train problems.jsonl --epochs 1 --batch-size 8
      tfgrpo train problems.jsonl --model mine --base-url http://127.0.0.1:8000/v1
    """
    if given.as_json and not given.estimate:
        raise click.UsageError(
            "--json needs --estimate; `tfgrpo runs --json` prints a finished run"
        )
    if given.workers:
        queue_address(app.location)  # which a file has none of
    from tfgrpo.learn.run_estimate import estimate_run
    from tfgrpo.learn.run_setup import RunChoice, plan_choice, ready_run
    from tfgrpo.model.budget import open_budget

    there = _has_store(app)
    if not there:
        app.pretend()
    project = app.project(given.config)
    settings = options.read_flags(_named(given))
    choice = RunChoice(given.name, given.resume, given.new, given.budget, given.keep_going)
    if given.estimate:
        plan, run = plan_choice(app.store, project, settings, choice)
        printing.warn(plan.warnings)
        if plan.chosen:
            printing.echo(plan.chosen, err=True)
        open_budget(given.budget, plan.prices)
        print_figures(estimate_run(app.store, plan, run), given)
        return
    make = None if there else app.make_store
    ready = ready_run(app.store, project, settings, choice, new_store=make)
    if not there:
        printing.echo(f"made an empty library at {app.location}")
    _work(app, project, ready, workers=given.workers)


def _named(given: Given) -> Mapping[str, Any]:
    """The settings that the command has. Beside --resume those of the environment stay out, as
    those of the settings file do: they are of new runs."""
    named = {"data": given.data, **given.settings}
    if given.resume is None:
        return named
    source = click.get_current_context().get_parameter_source
    return {k: v for k, v in named.items() if source(k) is not ParameterSource.ENVIRONMENT}


def _has_store(app: App) -> bool:
    from tfgrpo.store.opening import is_there

    if app.is_shared:  # whose errors are worth a line of their own
        return is_there(app.path)
    try:
        return app.path.exists()
    except StoreError:
        return False


def _work(app: App, project: Project, ready: ReadyRun, *, workers: bool) -> None:
    from tfgrpo.cli import live_display
    from tfgrpo.learn.run import run_to_end
    from tfgrpo.workers.hand_out import run_with_workers

    run = ready.run
    if app.store.runs.state(run) == "finished":
        printing.echo(f"run {run.name} is finished; --new begins another")
    begin = run_with_workers if workers else run_to_end
    result = live_display.watched(
        app.store,
        lambda report: begin(app.store, project, ready, on_progress=report),
        lambda: _left(app.store, ready),
    )
    _tell(app, result)


def _left(store: Store, ready: ReadyRun) -> str:
    """What is left of a run that was interrupted, and how to go on."""
    from tfgrpo.learn.loop import plan_steps

    run, plan = ready.run, ready.plan
    if not store.runs.is_on_record(run):
        return f"run {run.name}: there was no answer yet, so nothing is on record"
    steps = printing.plural(len(plan_steps(plan.problems.train, plan.settings)), "step")
    calls = sum(spent.usage.calls for spent in store.runs.spent(run))
    done = f"{_steps_done(store, run)} of {steps} done, {printing.plural(calls, 'answer')} saved"
    return f"run {run.name}: {done}\nresume with `tfgrpo train --resume {run.name}`"


def _steps_done(store: Store, run: Run) -> int:
    prefix = f"{run.name}/step_"
    steps = [tag for tag in store.tags() if tag.startswith(prefix)]
    return max(0, len(steps) - 1)


def _tell(app: App, result: TrainResult) -> None:
    from tfgrpo.learn.best_version import best_tag, final_version
    from tfgrpo.learn.run import next_steps
    from tfgrpo.runs.run_issues import issue_counts

    store, run = app.store, result.run
    done = _steps_done(store, run)
    if result.nothing_learned is not None:
        printing.echo(f"learned nothing: {result.nothing_learned}")
    if result.chosen is not None:  # first of all: it may be worse than none
        printing.echo(str(result.chosen))
    if result.gain is not None and result.gain.is_doubtful:
        printing.echo(str(result.gain))
    issues = issue_counts(result.report)
    if issues:
        printing.echo(f"{issues}; `tfgrpo runs {run.name}` lists them")
    final = final_version(store, run)
    name = "best" if best_tag(run) in store.tags() else f"step_{done}"
    added = sum(change.op == "ADD" for change in store.diff(f"{run.name}/step_0", final.name))
    versions = printing.plural(done, "version")
    learned = f"learned {printing.plural(added, 'experience')} in {versions}"
    if result.nothing_learned is not None:
        learned = f"the library is unchanged, after {versions}"
    if store.head.branch == run.branch and store.head.version.number == final.number:
        path = app.write_library()
        printing.echo(f"{learned}; {name} is checked out ({span(result.seconds)})")
        printing.echo(f"wrote {path}")
    else:
        printing.echo(f"{learned}, on branch {run.branch} ({span(result.seconds)})")
        printing.echo(f"switch to it with `tfgrpo checkout {run.branch}`")
    if result.gain is not None and not result.gain.is_doubtful:
        printing.echo(str(result.gain))
    for step in next_steps(result):
        printing.echo_each(printing.wrapped(step, first="next: ", indent=6))


@click.command(cls=SectionedCommand)
@options.from_settings("shared", also=("data", "epochs", "batch_size", "group_size"))
@click.argument("what", metavar="FILE | REVISION")
@option("--data", "Problems to prove it on; by default data in [train].")
@option("--epochs", "Passes over the data, at most.  [12]", type=int)
@option("--batch-size", "Problems attempted between two checks of the verdicts.  [8]", type=int)
@option("--group-size", "Attempts per problem and pass, an even number.  [2]", type=int)
@options.BUDGET
@flag("--new", "Start a new proof even if one like it exists.")
@options.estimate
@JSON
@options.CONFIG
@pass_given
def prove(app: App, given: Given) -> None:
    """Test each experience of a library on your model and your problems, and keep what helps.

    The library is that of a REVISION here, or of a FILE that `import` reads. Each experience is
    shown to one of two attempts at the same problem, by a coin. After every batch it is asked
    whether the pairs so far decide it: it helps, it harms, or it is too small to matter for what
    may still be spent. The proof stops when all is decided. Of experiences that do nothing at most
    2.5 % are said to help, however often you look. Intervals are 95 %; the fewer problems there
    are, or the more these differ, the wider.

    What helps becomes the library of a new branch, proved/NAME, with its figures as evidence.
    Running the same command again resumes it, or shows the result.

    \b
    Examples:
      tfgrpo prove library.md --data problems.jsonl --model mine
      tfgrpo prove HEAD --data problems.jsonl --estimate
    """
    from tfgrpo.cli import export_import
    from tfgrpo.learn.prove import estimate_trial, offered, plan_trial, wanted_of

    store, project = app.store, app.project(given.config)
    wanted = wanted_of(store, given.what, given.budget, new=given.new)
    document = wanted.document
    plan = plan_trial(store, project, options.read_flags(given.settings), wanted)
    printing.warn(plan.warnings)
    if document and not given.as_json:
        export_import.say_who_signed(app, document)
    if given.estimate:
        library = offered(document) if document else store.library(wanted.versions[0])
        print_figures(estimate_trial(store, plan, library), given)
        return
    proof = run_trial(app, project, plan, wanted, quiet=given.as_json)
    if given.as_json:
        signed = export_import.signature_object(app, document) if document else {}
        printing.emit_json({**proof_object(proof), **signed})
    else:
        show(app, proof)


def run_trial(
    app: App, project: Project, plan: RunPlan, wanted: Wanted, *, quiet: bool = False
) -> Proof:
    """Does a trial, showing how it goes unless `quiet`."""
    from tfgrpo.cli import live_display
    from tfgrpo.learn.prove import do_trial, ready_trial
    from tfgrpo.learn.run_setup import WITHOUT_NEW
    from tfgrpo.notices import ignore

    ready = ready_trial(app.store, project, plan, wanted)
    again = f"every answer is saved, {WITHOUT_NEW} goes on" if wanted.new else live_display.RESUMES
    return live_display.watched(
        app.store,
        lambda report: do_trial(app.store, project, ready, ignore if quiet else report),
        lambda: again,
    )


def proof_object(proof: Proof) -> dict[str, object]:
    """What a proof came to, for programs."""
    from tfgrpo.learn.prove import tried_object

    run, cost = proof.run, proof.cost
    return {
        "run": run.name,
        "branch": run.branch,
        "version": proof.version.name if proof.version else None,
        "experiences": [tried_object(one) for one in proof.tried],
        "calls": cost.usage.calls,
        "dollars": cost.dollars,
    }


def show(app: App, proof: Proof) -> None:
    """Prints what a proof came to, and where it is."""
    view = proof.view()
    printing.emit(app, printing.table(view.rows, header=view.header))
    printing.echo_each([view.title, *view.notes])
