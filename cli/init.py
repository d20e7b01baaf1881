"""`tfgrpo init`."""

from __future__ import annotations

import click

from tfgrpo.author import default_author
from tfgrpo.cli.context import App, pass_app


@click.command()
@pass_app
def init(app: App) -> None:
    """Create a store here, with an empty library on the branch main.

    The store is one SQLite file, .tfgrpo/store.db. Every other command finds it from this folder
    and any folder below. If the folder already has a store, nothing changes.

    \b
    Examples:
      tfgrpo init
      tfgrpo --store shared/team.db init
    """
    from tfgrpo.store.store import Store

    path = app.new_path
    there = path.exists()
    store = Store.init(path, author=default_author)
    app.adopt(store)
    head = store.head
    if there:
        click.echo(f"there is already a store at {path}, at {head.version.name}")
    else:
        click.echo(f"made an empty library at {path}, on branch {head.branch}")
