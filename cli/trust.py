"""`tfgrpo trust`, and how a command asks for trust on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import flag, path
from tfgrpo.cli.start_context import App, Given, pass_given
from tfgrpo.store.address import project_root, store_path
from tfgrpo.store.atomic_write import is_database
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import Permissions


@click.command()
@click.argument("place", required=False, metavar="[FOLDER | FILE]", type=path())
@flag("--show", "Show what would be allowed; change nothing.")
@flag("--revoke", "Take back all trust in the folder.")
@flag("-y, --yes", "Do not ask.")
@flag("--json", "With --show: output JSON.", name="as_json")
@pass_given
def trust(app: App, given: Given) -> None:
    """Allow a folder to do what its settings, rubrics, runs and remotes say.

    Settings can run code or send something away: a model's address, the variable with its key, a
    domain in Python, a tool's command, a path outside of the folder. In a folder that came from
    somebody else, nothing like that happens before you allow it here, once; it is asked about
    again only when it changes. What you type yourself needs no trust, and neither does a run
    that was begun here. Reading (log, diff, status, ...) never needs any.

    FOLDER is the project of this folder by default. Trust is kept outside of it, in
    $XDG_STATE_HOME/tfgrpo. Folders named in $TFGRPO_TRUST, separated as in PATH, are trusted
    with all that lies in them.

    \b
    Examples:
      tfgrpo trust --show
      tfgrpo trust --yes
    """
    if given.as_json and not given.show:
        raise click.UsageError("--json needs --show")
    folder, sources = _sources(app, given.place)
    if given.revoke:
        entries = trusted_folders.revoke(folder)
        printing.echo(f"revoked {entries} {'entry' if entries == 1 else 'entries'} of {folder}")
        return
    lines = [line for one in sources for line in _lines(one)]
    lines = lines or [f"nothing in {folder} would run code or send anything away"]
    printing.answer(app, [_object(one) for one in sources], lines, given.as_json)
    unknown = [one for one in sources if not trusted_folders.is_trusted(one)]
    if given.show or not unknown:
        return
    if not given.yes and sys.stdin.isatty() and not printing.confirm("Trust this?"):
        printing.echo("nothing was allowed")
        click.get_current_context().exit(1)
    trusted_folders.remember(*unknown)
    printing.echo("trusted, until any of this changes")


def ask_on_a_terminal() -> None:
    """Has whoever sits at a terminal asked where something is not trusted."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        trusted_folders.asking(_ask)


def _ask(permissions: Permissions) -> bool:
    printing.echo(trusted_folders.describe(permissions), err=True)
    for line in permissions.words:
        printing.echo(f"  {line}", err=True)
    return printing.confirm("Trust this?", err=True)


def _sources(app: App, place: Path | None) -> tuple[Path, list[Permissions]]:
    """A folder, and what its parts need that need anything."""
    from tfgrpo.project import file_permissions, store_permissions
    from tfgrpo.proxy.proxy_file import FILE as PROXY
    from tfgrpo.settings import FILE

    if place is not None and place.is_file() and place.suffix == ".toml":
        return place.resolve().parent, [one for one in file_permissions(place) if one.needed]
    if place is not None and not place.is_dir() and not is_database(place.resolve()):
        raise TfgrpoError(
            f"{place} is no folder, settings file or store: it runs nothing, and needs no trust",
            hint="name a folder, a settings file (.toml) or a store",
        )
    try:
        path = app.path if place is None else store_path(place) if place.is_dir() else place
        root = project_root(path)
    except StoreError:
        path, root = app.new_path, Path.cwd()
    sources: list[Permissions] = []
    for file in (root / FILE, root / PROXY):
        sources += file_permissions(file) if file.is_file() else []
    if path.is_file():
        with Store.open(path) as store:
            sources += store_permissions(store)
    return root, [one for one in sources if one.needed]


def _lines(permissions: Permissions) -> Sequence[str]:
    known = " (trusted)" if trusted_folders.is_trusted(permissions) else ""
    lines = [printing.style(permissions.source, bold=True) + known]
    for words in permissions.words:
        lines += printing.wrapped(words, first="  ", indent=4)
    return lines


def _object(permissions: Permissions) -> dict[str, object]:
    return {
        "source": permissions.source,
        "folder": str(permissions.folder),
        "trusted": trusted_folders.is_trusted(permissions),
        "allows": [{"setting": one.key, "words": one.words} for one in permissions.needed],
    }
