"""`tfgrpo branch` and `tfgrpo tag`: names for versions."""

from __future__ import annotations

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import REVISION, App, pass_app

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")


@click.command()
@click.argument("name", required=False)
@click.argument("revision", default="HEAD", type=REVISION)
@click.option("-f", "--force", is_flag=True, help="Move a branch that exists.")
@click.option("-d", "--delete", "delete_", is_flag=True, help="Forget the name; versions stay.")
@json_option
@pass_app
def branch(
    app: App, name: str | None, revision: str, force: bool, delete_: bool, as_json: bool
) -> None:
    """List branches, or make, move or delete one. A domain's library is a branch.

    Every move is kept in the ref log: after a move, NAME@{1} is where the branch stood.

    \b
    Examples:
      tfgrpo branch
      tfgrpo branch draft v1
    """
    store = app.store
    if name is None:
        head = store.head
        rows = [
            ("* " + n if n == head.branch else "  " + n, f"v{v}", store.version(v).message)
            for n, v in store.branches().items()
        ]
        if as_json:
            text.emit_json({"head": head.branch, "branches": store.branches()})
        else:
            text.emit(app, text.table(rows, header=("  branch", "at", "message")))
    elif delete_:
        version = store.delete_branch(name)
        click.echo(f"deleted branch {name}; it stood at {version.name}, which stays")
    elif force and name in store.branches():
        was = store.tip(name)
        version = store.move_branch(name, revision)
        click.echo(f"moved branch {name} from {was.name} to {version.name}")
    else:
        version = store.create_branch(name, revision)
        click.echo(f"made branch {name} at {version.name}; `tfgrpo checkout {name}` goes onto it")


@click.command()
@click.argument("name", required=False)
@click.argument("revision", default="HEAD", type=REVISION)
@click.option("-f", "--force", is_flag=True, help="Move a tag that exists.")
@click.option("-d", "--delete", "delete_", is_flag=True, help="Forget the name; versions stay.")
@json_option
@pass_app
def tag(
    app: App, name: str | None, revision: str, force: bool, delete_: bool, as_json: bool
) -> None:
    """List tags, or make, move or delete one. Training tags its steps RUN/step_N.

    \b
    Examples:
      tfgrpo tag
      tfgrpo tag approved v1
    """
    store = app.store
    if name is None:
        if as_json:
            text.emit_json(store.tags())
        else:
            rows = [(n, f"v{v}", store.version(v).message) for n, v in store.tags().items()]
            text.emit(app, text.table(rows, header=("tag", "at", "message")))
    elif delete_:
        version = store.delete_tag(name)
        click.echo(f"deleted tag {name}; it stood at {version.name}, which stays")
    else:
        version = store.create_tag(name, revision, force=force)
        click.echo(f"tagged {version.name} as {name}")
