"""`tfgrpo rollback`: a branch goes back, in an incident."""

from __future__ import annotations

import click

from tfgrpo.cli import checkout, text
from tfgrpo.cli.context import BRANCH, REVISION, App, force_option, pass_app


@click.command()
@click.argument("branch", type=BRANCH)
@click.option("--to", type=REVISION, help="Where to go back to.  [where the branch stood before]")
@click.option("--why", required=True, help="The reason, for the record.")
@force_option
@pass_app
def rollback(app: App, branch: str, to: str | None, why: str) -> None:
    """Move BRANCH back to where it stood, on record. The next request has that library.

    It is one move of a name: nothing is deleted, and `tfgrpo undo` takes it back. A second
    rollback goes further back. An experiment on the branch is stopped. Who rolled back, when and
    why is in `tfgrpo log --decisions` and `tfgrpo reflog`.

    \b
    Examples:
      tfgrpo rollback prod --why "answers in the wrong unit"
      tfgrpo rollback prod --to v1 --why "incident 214"
    """
    from tfgrpo.production.rollback import rollback as roll_back

    store = app.store
    done = roll_back(store, branch, why=why, to=to)
    if store.head.branch == branch:
        checkout.materialise(app)
    text.echo(f"{branch} is at {done.after.name} again (was {done.before.name})")
    if done.experiment is not None:
        text.echo(f"experiment {done.experiment} was stopped")
