"""`clone`, `fetch`, `pull`, `push`: between this store and another one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tfgrpo.author import default_author
from tfgrpo.cli import checkout, merge_pick_revert, printing, trust
from tfgrpo.cli.flags import flag, option
from tfgrpo.cli.merge_pick_revert import show_conflicts
from tfgrpo.cli.start_context import BRANCH, REF, REMOTE, SWITCH, App, force_option, pass_app
from tfgrpo.rendering.near_duplicates import near_duplicates
from tfgrpo.store.address import named_by, project_root, store_path
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history import merge as merges
from tfgrpo.store.store import Store
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.locations import Location
from tfgrpo.store.transfer.remotes import Remotes
from tfgrpo.store.transfer.sync import Transferred
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import of_remote
from tfgrpo.trust.trusted_folders import remember_own

SSH = "TFGRPO_SSH"


class Other(NamedTuple):
    """The store at the other end: where it is, and its name here if it has one."""

    name: str | None
    location: Location

    @property
    def called(self) -> str:
        """What people call it."""
        return self.name or self.location.text


@click.command()
@click.argument("location")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@pass_app
def clone(app: App, location: str, folder: Path | None) -> None:
    """Copy another store: all its versions, branches and tags.

    LOCATION is a path, a bundle file, host:path or ssh://host/path, and becomes the remote origin.
    The store is created in FOLDER/.tfgrpo (FOLDER defaults to the last part of LOCATION),
    completely or not at all.

    \b
    Examples:
      tfgrpo clone team copy
      tfgrpo clone "$PWD/team" elsewhere/copy
    """
    there = locations.parse(location)
    if folder is None and app.named is not None:
        path = app.named
    else:
        path = store_path(folder or Path(locations.folder_for(there)))
    done = locations.clone(there, path, author=default_author(), ssh=ssh())
    remember_own(of_remote(project_root(path), "origin", there.text))
    with Store.open(path, author=default_author()) as store:
        head = store.head
        size = printing.plural(len(store.library(head.version)), "experience")
        printing.echo(f"cloned {amount(done)} into {named_by(path)}")
        printing.echo(f"on branch {head.branch}, at {head.version.name}, {size}")


@click.command()
@click.argument("remote", required=False, type=REMOTE)
@click.argument("branches", nargs=-1, type=BRANCH)
@flag("--all", "Fetch from every remote.", name="all_")
@pass_app
def fetch(app: App, remote: str | None, branches: tuple[str, ...], all_: bool) -> None:
    """Download a remote's new versions, branches and tags; none of your branches move.

    The branch main of the remote origin is called origin/main here. REMOTE defaults to origin, and
    BRANCHES to all of them.

    \b
    Examples:
      tfgrpo fetch
      tfgrpo fetch origin main
    """
    if all_ and remote is not None:
        raise click.UsageError(f"--all fetches from every remote, {remote} among them")
    for one in Remotes(app.store).all() if all_ else [remote]:
        _fetch(app, find(app, one), branches)


def _fetch(app: App, other: Other, branches: tuple[str, ...]) -> None:
    if other.name is None:
        raise UnknownRevision(
            f"{other.called} is not a remote, so its branches have no names here",
            hint=f"`tfgrpo remote add NAME {other.called}`, or `tfgrpo pull {other.called}`",
        )
    with locations.source(other.location, author=app.store.author, ssh=ssh()) as source:
        done = sync.fetch(app.store, source, other.name, branches=branches or None)
    printing.echo(f"fetched {amount(done)} from {other.called}")
    printing.echo_each(moved(done))


@click.command()
@click.argument("remote", required=False, type=REMOTE)
@click.argument("branch", required=False, type=BRANCH)
@merge_pick_revert.sides("ours", "theirs")
@merge_pick_revert.ABORT
@option("-m, --message", "Message for a merge version.")
@force_option
@pass_app
def pull(
    app: App, remote: str | None, branch: str | None, take: str | None, message: str | None
) -> None:
    """Fetch a branch and bring it into HEAD's branch, by fast-forward or merge.

    REMOTE defaults to origin and may be a location; BRANCH defaults to the one with the same name
    as HEAD's. On a conflict the fetched versions are kept, and nothing is merged.

    \b
    Examples:
      tfgrpo pull
      tfgrpo pull origin main --theirs
    """
    store = app.store
    into = app.branch("there is no branch to pull into", SWITCH)
    other = find(app, remote)
    theirs = branch or into
    resolve = merges.side("ours" if take == "ours" else "theirs") if take else None
    with locations.source(other.location, author=app.store.author, ssh=ssh()) as source:
        try:
            done = sync.pull(
                store,
                source,
                other.name,
                theirs,
                into=into,
                called=f"{other.called} {theirs}",
                message=message,
                resolve=resolve,
            )
        except merges.MergeConflict as error:
            show_conflicts(error)
            raise
    printing.echo(f"fetched {amount(done.fetched)} from {other.called}")
    printing.echo_each(moved(done.fetched))
    if done.after.number == done.before.number:
        printing.echo(f"already up to date: {into} contains {other.called} {theirs}")
    elif done.after.merged is None or done.after.parent != done.before.number:
        printing.echo(f"fast-forwarded {into} from {done.before.name} to {done.after.name}")
        checkout.materialise(app)
    else:
        merge_pick_revert.print_version(app, done.after, into)
    near = near_duplicates(store.library(done.before), store.library(done.after))
    merge_pick_revert.point_out(app, near, done.after)


@click.command()
@click.argument("remote", required=False, type=REMOTE)
@click.argument("names", nargs=-1, type=REF)
@flag("--all", "Push every branch of this store.", name="all_")
@flag("--tags", "Push every tag of this store too.", name="tags")
@flag("-f, --force", "Move protected or diverged names on the remote.")
@flag("-d, --delete", "Delete NAMES on the remote; versions are kept.", name="delete_")
@pass_app
def push(
    app: App,
    remote: str | None,
    names: tuple[str, ...],
    all_: bool,
    tags: bool,
    force: bool,
    delete_: bool,
) -> None:
    """Send branches and tags to a remote, with the versions it lacks.

    NAMES default to HEAD's branch; tags in their history are pushed too. If a branch is not a
    fast-forward the push is refused, and nothing moves. --force moves names only: the remote keeps
    its versions, by digest.

    \b
    Examples:
      tfgrpo push
      tfgrpo push origin main web
    """
    store = app.store
    other = find(app, remote)
    chosen = list(store.branches()) if all_ else list(names)
    if delete_ and not names:
        raise click.UsageError("--delete needs the names to delete")
    if not chosen:
        hint = "name one: `tfgrpo push origin main`"
        chosen = [app.branch("there is no branch to push", hint)]
    chosen += [tag for tag in store.tags() if tag not in chosen] if tags else []
    with locations.peer(other.location, author=app.store.author, ssh=ssh()) as peer:
        done = sync.push(store, peer, chosen, remote=other.name, force=force, delete=delete_)
    if not done.moved:
        printing.echo(f"already up to date: {other.called} has {', '.join(chosen)}")
    else:
        printing.echo(f"pushed {amount(done)} to {other.called}")
    printing.echo_each(moved(done))


def find(app: App, given: str | None) -> Other:
    """The remote of that name, or a location as it is; without one, the default."""
    remotes = Remotes(app.store)
    name = given or remotes.default()
    if name in remotes.all() or not (set(name) & set("/:.\\") or Path(name).exists()):
        location = remotes.location(name)
        trust.ask_on_a_terminal()
        trusted_folders.require(of_remote(app.root, name, location))
        return Other(name, locations.parse(location))
    return Other(None, locations.parse(name))


def ssh() -> list[str]:
    """The command that reaches other machines: $TFGRPO_SSH, else ssh."""
    return shlex.split(os.environ.get(SSH, "")) or ["ssh"]


def amount(done: Transferred) -> str:
    """`3 versions` and their events."""
    versions, events = done.received
    if not versions:
        return "no versions"
    return f"{printing.plural(versions, 'version')}, {printing.plural(events, 'event')}"


def moved(done: Transferred) -> Iterator[str]:
    """Yields a line for every name that moved, and for every tag that did not."""
    for move in done.moved:
        was = move.before.name if move.before else None
        now = move.after.name if move.after else None
        if now is None:
            place = f"{was} → deleted" if was else "deleted"
        else:
            place = f"{was} → {now}" if was else f"new, at {now}"
        called = f"tag {move.name}" if move.kind == "tag" else move.name
        yield f"  {printing.style(called, fg='green')}  {place}"
    for tag in done.kept:
        yield f"  tag {tag} points elsewhere on the other side; it was not moved"
