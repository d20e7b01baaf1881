"""`tfgrpo fsck`."""

from __future__ import annotations

import os
import tempfile
import traceback

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.start_context import App, pass_app
from tfgrpo.store.errors import StoreError, TfgrpoError


def explained(app: App | None, error: Exception) -> TfgrpoError:
    """An unexpected error as damage of the open store, else as a bug. A file keeps the
    traceback."""
    from tfgrpo.store import fsck as checks

    store = None if app is None else app.opened
    problems = () if store is None else checks.fsck(store).problems
    where = f"the traceback is in {_keep_traceback(error)}"
    for problem in problems:
        if not problem.derived:
            return StoreError(
                f"the store is damaged: {problem.where} {problem.what}",
                hint="`tfgrpo fsck` lists everything; restore a backup, and keep this file; "
                + where,
            )
    return TfgrpoError(
        f"this is a bug of tfgrpo: {type(error).__name__}: {error}",
        hint=f"{where}: please report it",
    )


def _keep_traceback(error: Exception) -> str:
    handle, path = tempfile.mkstemp(prefix="tfgrpo-traceback-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(traceback.format_exception(error))
    return path


@click.command()
@flag("--repair", "Rebuild snapshots, indexes and triggers.")
@JSON
@pass_app
def fsck(app: App, repair: bool, as_json: bool) -> None:
    """Check the whole store: every seal, digest, replay, snapshot, name and record.

    Lists everything that is wrong, most important first, and exits with 1. --repair rebuilds
    derived data and touches nothing else.

    \b
    Examples:
      tfgrpo fsck
      tfgrpo fsck --repair
    """
    from tfgrpo.store import fsck as checks

    app.unchecked = True  # it is told, and changes nothing unasked
    checked = checks.fsck(app.store)
    dropped = None
    if repair and any(problem.derived for problem in checked.problems):
        dropped = checks.repair(app.store)
        checked = checks.fsck(app.store)
    if as_json:
        printing.emit_json(
            {
                "versions": checked.versions,
                "events": checked.events,
                "problems": [problem._asdict() for problem in checked.problems],
                "dropped_snapshots": dropped,
            }
        )
    else:
        if dropped is not None:
            snapshots = printing.plural(dropped, "snapshot")
            printing.echo(f"rebuilt indexes and triggers, and dropped {snapshots}")
        for problem in checked.problems:
            printing.echo(f"{printing.style(problem.where, fg='red', bold=True)} {problem.what}")
        verdict = (
            printing.plural(len(checked.problems), "problem") if checked.problems else "no problems"
        )
        versions = printing.plural(checked.versions, "version")
        printing.echo(f"{versions}, {printing.plural(checked.events, 'event')}: {verdict}")
    if checked.problems:
        click.get_current_context().exit(1)
