"""`tfgrpo runs`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import RUN, App, pass_app
from tfgrpo.cli.show import issue_lines
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store
from tfgrpo.training.run_report import RunReport, report, request_notes, versions_of


@click.command()
@click.argument("names", metavar="[RUN]", nargs=-1, type=RUN)
@click.option("-r", "--reason", help="With rm: why, for the record.")
@click.option("-a", "--all", "everything", is_flag=True, help="List removed runs too.")
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
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
    listed = store.runs.all() if everything else store.runs.listed()
    if name is not None:
        run = store.runs.get(name)
        if as_json:
            text.emit_json(_object(store, run))
        else:
            text.emit(app, _lines(store, run))
    elif as_json:
        text.emit_json([_object(store, run) for run in listed])
    elif not listed:
        text.echo("no runs yet; start one with `tfgrpo train DATA`")
    else:
        rows = [
            (
                run.name,
                store.runs.state(run),
                str(len(versions_of(store, run))),
                text.when(run.time),
                str(run.config["models"]["model"]),
            )
            for run in listed
        ]
        text.emit(app, text.table(rows, header=("run", "state", "steps", "started", "model")))


def _remove(store: Store, names: tuple[str, ...], reason: str | None) -> None:
    """Hides runs: all that are named, or none. Raises InvalidOperation."""
    from tfgrpo.training.setup import remove_run

    verb, *others = names
    if verb != "rm":
        raise click.UsageError("one run is shown at a time; `tfgrpo runs rm RUN …` hides some")
    found = [store.runs.get(name) for name in others]
    with store.port.transaction():
        for run in found:
            remove_run(store, run, reason)
    for run in found:
        text.echo(f"removed run {run.name}; `tfgrpo train --resume {run.name}` brings it back")


def issue_counts(found: RunReport) -> str:
    """Returns what went wrong in a run, in one line; nothing where nothing did."""
    parts = [
        text.plural(count, noun) + end
        for count, noun, end in (
            (found.refused, "lesson", " refused"),
            (found.failed, "answer", " failed"),
            (found.repaired, "answer", " repaired"),
        )
        if count
    ]
    return ", ".join(parts)


def _lines(store: Store, run: Run) -> Iterator[str]:
    yield f"{text.style('run ' + run.name, bold=True)}: {store.runs.state(run)}, " + (
        f"on branch {run.branch}, from v{run.base}, started {text.when(run.time)} by {run.author}"
    )
    config = dict(run.config)
    models = {k: v for k, v in config.pop("models").items() if v is not None}
    for key, value in (models | config).items():
        if value not in (None, "", {}):
            yield from text.wrap(text.words(str(value)), first=f"  {key}: ", indent=4)
    for note in request_notes(store, run):
        yield from text.wrap(text.words(text.shown(note)), first="  asked ", indent=4)
    yield from _seal_lines(store, run)
    yield ""
    for version in versions_of(store, run):
        words = [text.Word(version.name, fg="yellow"), *text.counts(store.counts(version))]
        yield from text.wrap([*words, *text.words(version.message)], indent=4)
    found = report(store, run)
    if issue_counts(found):
        yield ""
        yield issue_counts(found)
    for issue in found.issues:
        first = text.style(issue.version.name, fg="yellow") + " "
        yield from issue_lines(issue, first=first)
    usage = store.runs.usage(run)
    if usage:
        yield ""
        rows = [
            (stage, f"{u.calls:,}", f"{u.prompt_tokens:,}", f"{u.completion_tokens:,}")
            for stage, u in usage.items()
        ]
        yield from text.table(rows, header=("stage", "calls", "tokens in", "tokens out"))
    for state in store.runs.states(run):
        detail = f": {state.detail}" if state.detail else ""
        yield text.style(f"{text.when(state.time)} {state.state}{detail}", dim=True)


def _seal_lines(store: Store, run: Run) -> Iterator[str]:
    """Yields what is known of a run's sealed problems."""
    from tfgrpo.evaluation.sealed import seal

    found = seal(store, run)
    if found is None:
        return
    when = "not opened yet" if found.opened is None else f"opened {text.when(found.opened)}"
    state = (
        "nothing was scored on it before that since the run began"
        if found.intact
        else f"broken: {text.plural(found.during, 'score')} made while the run went on"
    )
    earlier = f"; {text.plural(found.before, 'score')} made before the run" if found.before else ""
    told = f"{found.dataset}, digest {found.digest[:16]}: {when}; {state}{earlier}"
    yield from text.wrap(text.words(told), first="  sealed ", indent=4)


def _object(store: Store, run: Run) -> dict[str, Any]:
    found = report(store, run)
    return {
        "name": run.name,
        "state": store.runs.state(run),
        "branch": run.branch,
        "base": f"v{run.base}",
        "author": run.author,
        "time": text.iso(run.time),
        "config": run.config,
        "steps": [version.name for version in versions_of(store, run)],
        "sealed": _seal(store, run),
        "issues": [m._asdict() | {"version": m.version.name} for m in found.issues],
        "repaired": found.repaired,
        "asked": request_notes(store, run),
        "usage": {stage: u._asdict() for stage, u in store.runs.usage(run).items()},
        "states": [
            state._asdict() | {"time": text.iso(state.time)} for state in store.runs.states(run)
        ],
    }


def _seal(store: Store, run: Run) -> dict[str, Any] | None:
    from tfgrpo.evaluation.sealed import seal

    found = seal(store, run)
    if found is None:
        return None
    opened = None if found.opened is None else text.iso(found.opened)
    return {**asdict(found), "opened": opened, "intact": found.intact}
