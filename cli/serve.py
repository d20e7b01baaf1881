"""`tfgrpo serve`: the far end of a clone, fetch or push."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo.author import default_author
from tfgrpo.cli.start_context import App, pass_app
from tfgrpo.store.address import located

if TYPE_CHECKING:
    from tfgrpo.store.store import Store


@click.command()
@pass_app
def serve(app: App) -> None:
    """Answer a clone, fetch or push over standard input and output.

    Other machines start this over ssh; you never need to type it. Whoever may start it can read,
    and move the names of, every store that this account can write to; with --store, only that one.

    \b
    Examples:
      tfgrpo serve
      tfgrpo --store team.db serve
    """
    from tfgrpo.store.store import Store
    from tfgrpo.store.transfer.ssh import serve as answer

    opened: list[Store] = []

    def open_(path: str | None) -> Store:
        alone = path is None or app.named is not None
        at = app.path if alone else located(Path(path or ".").expanduser())
        opened.append(Store.open(at, author=default_author))
        return opened[-1]

    try:
        answer(open_, sys.stdin.buffer, sys.stdout.buffer)
    finally:
        for store in opened:
            store.close()
