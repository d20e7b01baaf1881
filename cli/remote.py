"""`tfgrpo remote`: where other stores are."""

from __future__ import annotations

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.help import ListingGroup
from tfgrpo.cli.start_context import REMOTE, App, pass_app
from tfgrpo.store.transfer import locations
from tfgrpo.store.transfer.remotes import Remotes, tracked
from tfgrpo.trust.permissions import of_remote
from tfgrpo.trust.trusted_folders import remember_own


@click.group(cls=ListingGroup)
def remote() -> None:
    """List, add, change or remove remotes: other stores, each with a name.

    A location is a path, a bundle file, host:path or ssh://host/path. Remotes are settings of this
    store; clone and push do not copy them.

    \b
    Examples:
      tfgrpo remote
      tfgrpo remote add team ../team
    """


@remote.command("list")
@flag("-v, --verbose", "Changes nothing: the list is whole.", expose_value=False)
@JSON
@pass_app
def list_(app: App, as_json: bool) -> None:
    """List remotes, their locations, and where their branches were when last fetched.

    \b
    Examples:
      tfgrpo remote list
      tfgrpo remote list --json
    """
    store = app.store
    remotes = Remotes(store).all()
    if as_json:
        printing.emit_json(
            {
                name: {"location": location, "branches": tracked(store.port, name)}
                for name, location in remotes.items()
            }
        )
        return
    if not remotes:
        printing.echo("no remotes; add one with `tfgrpo remote add NAME LOCATION`")
        return
    rows = [
        (
            name,
            ", ".join(f"{b} v{n}" for b, n in tracked(store.port, name).items()) or "not fetched",
            location,
        )
        for name, location in remotes.items()
    ]
    printing.emit(app, printing.table(rows, header=("remote", "branches", "location")))


@remote.command()
@click.argument("name")
@click.argument("location")
@pass_app
def add(app: App, name: str, location: str) -> None:
    """Add a remote, without fetching from it.

    \b
    Examples:
      tfgrpo remote add team ../team
      tfgrpo remote add lab ada@lab:experience
    """
    there = locations.parse(location)
    Remotes(app.store).add(name, there.text)
    remember_own(of_remote(app.root, name, there.text))
    printing.echo(f"added {name} at {there.text}; `tfgrpo fetch {name}` downloads its versions")


@remote.command()
@click.argument("name", type=REMOTE)
@pass_app
def remove(app: App, name: str) -> None:
    """Remove a remote and its branches here. Versions are kept.

    \b
    Examples:
      tfgrpo remote remove origin
      tfgrpo remote add usb backup.bundle && tfgrpo remote remove usb
    """
    branches = Remotes(app.store).remove(name)
    printing.echo(f"removed {name} and its branches here ({branches})")


@remote.command("set-url")
@click.argument("name", type=REMOTE)
@click.argument("location")
@pass_app
def set_url(app: App, name: str, location: str) -> None:
    """Change the location of a remote.

    \b
    Examples:
      tfgrpo remote set-url origin ../team
      tfgrpo remote set-url origin ssh://lab:2222/srv/experience
    """
    there = locations.parse(location)
    before = Remotes(app.store).move(name, there.text)
    remember_own(of_remote(app.root, name, there.text))
    printing.echo(f"changed {name} from {before} to {there.text}")
