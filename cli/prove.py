"""`tfgrpo prove`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.cost import dollars, print_figures
from tfgrpo.cli.flags import JSON, flag, option
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.start_context import App, Given, pass_given
from tfgrpo.wording import with_bounds

if TYPE_CHECKING:
    from tfgrpo.learn.prove import Proof, Wanted
    from tfgrpo.learn.run_setup import RunPlan
    from tfgrpo.project import Project


@click.command(cls=SectionedCommand)
@options.from_settings("shared", also=("data", "epochs", "batch_size", "group_size"))
@click.argument("what", metavar="FILE | REVISION")
@option("--data", "Problems to prove it on; by default data in [train].")
@option("--epochs", "Passes over the data, at most.  [12]", type=int)
@option("--batch-size", "Problems between two looks.  [8]", type=int)
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
    may still be spent. The proof stops when all is decided. Intervals are 95 % however often one
    looks, and of things that do nothing at most 2.5 % are said to help.

    What helps becomes the library of a new branch, proved/NAME, with its figures as evidence.
    Running the same command again goes on, or shows what came of it.

    \b
    Examples:
      tfgrpo prove library.md --data problems.jsonl --model mine
      tfgrpo prove HEAD --data problems.jsonl --estimate
    """
    from tfgrpo import interchange
    from tfgrpo.cli import export_import
    from tfgrpo.learn.prove import Wanted, bring_in, estimate_trial, offered, plan_trial, stem_of

    store, project, what = app.store, app.project(given.config), given.what
    document = interchange.read(Path(what)) if os.path.isfile(what) else None
    stem = stem_of(Path(what).stem if document else what)
    versions = () if document else (store.resolve(what),)
    wanted = Wanted(versions, stem, store.version(0), given.budget, given.new)
    plan = plan_trial(store, project, options.read_flags(given.settings), wanted)
    printing.warn(plan.warnings)
    if document and not given.as_json:
        export_import.say_who_signed(app, document)
    if given.estimate:
        library = offered(document) if document else store.library(wanted.versions[0])
        print_figures(estimate_trial(store, plan, library), given)
        return
    if given.details:
        raise click.UsageError("--details needs --estimate")
    if document:
        wanted = wanted._replace(versions=(bring_in(store, document, stem),))
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
    from tfgrpo.notices import ignore

    ready = ready_trial(app.store, project, plan, wanted)
    return live_display.watched(
        app.store, lambda report: do_trial(app.store, project, ready, ignore if quiet else report)
    )


def proof_object(proof: Proof) -> dict[str, object]:
    """What a proof came to, for programs."""
    from tfgrpo.learn.prove import tried_object

    return {
        "run": proof.run.name,
        "branch": proof.run.branch,
        "version": proof.version.name if proof.version else None,
        "experiences": [tried_object(one) for one in proof.tried],
        "calls": proof.cost.usage.calls,
        "dollars": None if proof.cost.unknown else proof.cost.dollars,
    }


def show(app: App, proof: Proof) -> None:
    """Prints what a proof came to, and where it is."""
    from tfgrpo.learn.prove import sorted_results

    helps = [one for one in proof.tried if one.judged.verdict == "helps"]
    rows = [
        (one.judged.verdict, with_bounds(*one.judged[1:4]), str(one.judged.pairs), one.text)
        for one in sorted_results(proof.tried)
    ]
    printing.emit(app, printing.table(rows, header=("verdict", "effect", "pairs", "experience")))
    calls = printing.plural(proof.cost.usage.calls, "call")
    printing.echo(f"run {proof.run.name}: {calls}, {dollars(proof.cost)}")
    if helps:
        printing.echo(f"{printing.plural(len(helps), 'experience')} on branch {proof.run.branch}")
        printing.echo(
            f"next: `tfgrpo diff HEAD {proof.run.branch}`, then `tfgrpo merge {proof.run.branch}` "
            "where your library lacks some of it"
        )
    else:
        printing.echo("nothing was shown to help")
