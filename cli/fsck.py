"""`tfgrpo fsck`."""

from __future__ import annotations

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import App, pass_app
from tfgrpo.store.errors import StoreError


def blamed(app: App) -> StoreError | None:
    """Returns the error that says how the open store is damaged; None when it is sound."""
    from tfgrpo.store import fsck as checks

    problems = checks.fsck(app.opened).problems if app.opened is not None else ()
    if not problems:
        return None
    defect = f"{problems[0].where} {problems[0].what}"
    return StoreError(
        f"the store is damaged: {defect}",
        hint="`tfgrpo fsck` lists everything; restore a backup, and keep this file",
    )


@click.command()
@click.option("--repair", is_flag=True, help="Rebuild snapshots, indexes and triggers.")
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
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

    checked = checks.fsck(app.store)
    dropped = None
    if repair and any(problem.derived for problem in checked.problems):
        dropped = checks.repair(app.store)
        checked = checks.fsck(app.store)
    if as_json:
        text.emit_json(
            {
                "versions": checked.versions,
                "events": checked.events,
                "problems": [problem._asdict() for problem in checked.problems],
                "dropped_snapshots": dropped,
            }
        )
    else:
        if dropped is not None:
            snapshots = text.plural(dropped, "snapshot")
            click.echo(f"rebuilt indexes and triggers, and dropped {snapshots}")
        for problem in checked.problems:
            click.echo(f"{click.style(problem.where, fg='red', bold=True)} {problem.what}")
        verdict = (
            text.plural(len(checked.problems), "problem") if checked.problems else "no problems"
        )
        versions = text.plural(checked.versions, "version")
        click.echo(f"{versions}, {text.plural(checked.events, 'event')}: {verdict}")
    if checked.problems:
        click.get_current_context().exit(1)
