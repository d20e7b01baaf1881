"""`tfgrpo runs`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tfgrpo.cli import printing as text
from tfgrpo.cli.flags import JSON, flag, option
from tfgrpo.cli.show import issue_lines
from tfgrpo.cli.start_context import RUN, App, pass_app
from tfgrpo.evaluation.sealed_problems import Seal
from tfgrpo.runs.own_estimate import gain_words
from tfgrpo.runs.run_issues import issue_counts
from tfgrpo.runs.run_record import RunRecord, listed_runs, run_record
from tfgrpo.store.store import Store


@click.command()
@click.argument("names", metavar="[RUN]", nargs=-1, type=RUN)
@option("-r, --reason", "With rm: why, for the record.")
@flag("-a, --all", "List removed runs too.", name="everything")
@JSON
@pass_app
def runs(
    app: App, names: tuple[str, ...], reason: str | None, everything: bool, as_json: bool
) -> None:
    """List training runs, or show one: its settings, steps and cost.

    `tfgrpo runs rm RUN …` hides unfinished runs from every list. That is on record and takes
    nothing away: what they cost stays counted, and `tfgrpo train --resume RUN` brings one back. A
    run is on record from its first answer on, so a start that fails needs no rm.

    \b
    Examples:
      tfgrpo runs
      tfgrpo runs --json
    """
    store = app.store
    if len(names) > 1:
        _remove(store, names, reason)
        return
    name = names[0] if names else None
    if name is not None:
        record = run_record(store, store.runs.get(name))
        if as_json:
            text.emit_json(record.object())
        else:
            text.emit(app, _lines(store, record))
        return
    listed = listed_runs(store, removed=everything)
    if as_json:
        text.emit_json([run_record(store, one.run).object() for one in listed])
    elif not listed:
        text.echo("no runs yet; start one with `tfgrpo train DATA`")
    else:
        rows = [
            (one.run.name, one.state, str(one.versions), text.when(one.run.time), one.model)
            for one in listed
        ]
        text.emit(app, text.table(rows, header=("run", "state", "steps", "started", "model")))


def _remove(store: Store, names: tuple[str, ...], reason: str | None) -> None:
    """Hides runs: all that are named, or none. Raises InvalidOperation."""
    from tfgrpo.learn.run_setup import remove_run

    verb, *others = names
    if verb != "rm":
        raise click.UsageError("one run is shown at a time; `tfgrpo runs rm RUN …` hides some")
    listed = [store.runs.get(name) for name in others]
    with store.port.transaction():
        for run in listed:
            remove_run(store, run, reason)
    for run in listed:
        text.echo(f"removed run {run.name}; `tfgrpo train --resume {run.name}` brings it back")


def _lines(store: Store, record: RunRecord) -> Iterator[str]:
    run = record.run
    yield f"{text.style('run ' + run.name, bold=True)}: {record.state}, " + (
        f"on branch {run.branch}, from v{run.base}, started {text.when(run.time)} by {run.author}"
    )
    for key, value in record.settings.items():
        yield from text.wrapped(str(value), first=f"  {key}: ", indent=4)
    for note in record.asked:
        yield from text.wrapped(text.shown(note), first="  asked ", indent=4)
    if record.sealed is not None:
        yield from _seal_lines(record.sealed)
    yield ""
    for version in record.versions:
        words = [text.Word(version.name, fg="yellow"), *text.counts(store.counts(version))]
        yield from text.wrap([*words, *text.words(version.message)], indent=4)
    if record.gain is not None:
        yield ""
        yield from text.wrapped(gain_words(record.gain), indent=4)
    if issue_counts(record.report):
        yield ""
        yield issue_counts(record.report)
    for issue in record.report.issues:
        first = text.style(issue.version.name, fg="yellow") + " "
        yield from issue_lines(issue, first=first)
    if record.usage:
        yield ""
        rows = [
            (stage, f"{u.calls:,}", f"{u.prompt_tokens:,}", f"{u.completion_tokens:,}")
            for stage, u in record.usage.items()
        ]
        yield from text.table(rows, header=("stage", "calls", "tokens in", "tokens out"))
    for state in record.states:
        detail = f": {state.words}" if state.detail else ""
        yield text.style(f"{text.when(state.time)} {state.state}{detail}", dim=True)


def _seal_lines(seal: Seal) -> Iterator[str]:
    when = "not opened yet" if seal.opened is None else f"opened {text.when(seal.opened)}"
    state = (
        "nothing was scored on it before that since the run began"
        if seal.intact
        else f"broken: {text.plural(seal.during, 'score')} made while the run went on"
    )
    earlier = f"; {text.plural(seal.before, 'score')} made before the run" if seal.before else ""
    words = f"{seal.dataset}, digest {seal.digest[:16]}: {when}; {state}{earlier}"
    yield from text.wrapped(words, first="  sealed ", indent=4)
