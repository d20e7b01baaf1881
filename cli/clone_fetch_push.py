"""`clone`, `fetch`, `pull`, `push`, `remote`, `bundle`, `serve`: this store and other ones."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import click

from tfgrpo.author import default_author
from tfgrpo.cli import merge_pick_revert, printing, trust
from tfgrpo.cli.flags import FORCE, JSON, flag, option, path
from tfgrpo.cli.help import ListingGroup, SuggestingGroup
from tfgrpo.cli.start_context import (
    BRANCH,
    REF,
    REMOTE,
    REVISION,
    App,
    Given,
    pass_app,
    pass_given,
)
from tfgrpo.store.address import located, named_by, project_root, store_path
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history import merge as merges
from tfgrpo.store.store import Store
from tfgrpo.store.transfer import bundle as bundles
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.locations import Location
from tfgrpo.store.transfer.other_store import StorePeer, parse_name
from tfgrpo.store.transfer.other_store import serve as answer
from tfgrpo.store.transfer.pack import Names, printable
from tfgrpo.store.transfer.remotes import Remotes, tracked
from tfgrpo.store.transfer.sync import Transferred
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import of_remote
from tfgrpo.trust.trusted_folders import remember_own


class Other(NamedTuple):
    """The store at the other end: its name here if it has one, where it is, what it is called."""

    name: str | None
    location: Location
    called: str


@click.command()
@click.argument("location")
@click.argument("folder", required=False, type=path())
@pass_app
def clone(app: App, location: str, folder: Path | None) -> None:
    """Copy another store: all its versions, branches and tags.

    LOCATION is a path, a bundle file, host:path or ssh://host/path, and becomes the remote origin.
    The store is created in FOLDER/.tfgrpo (FOLDER defaults to the last part of LOCATION),
    completely or not at all.

    \b
    Examples:
      tfgrpo clone team copy
    """
    there = locations.parse(location)
    if folder is None and app.named is not None:
        path = app.named
    else:
        path = store_path(folder or Path(locations.folder_for(there)))
    done = locations.clone(there, path, author=default_author(), ssh=_ssh())
    remember_own(of_remote(project_root(path), "origin", there.text))
    with Store.open(path, author=default_author()) as store:
        head = store.head
        size = printing.plural(len(store.library(head.version)), "experience")
        printing.echo(f"cloned {_amount(done)} into {named_by(path)}")
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
        raise click.UsageError(f"--all fetches from every remote: leave out {remote}")
    for one in Remotes(app.store).all() if all_ else [remote]:
        _fetch(app, _find(app, one), branches)


def _fetch(app: App, other: Other, branches: tuple[str, ...]) -> None:
    if other.name is None:
        raise UnknownRevision(
            f"{other.called} is not a remote, so its branches have no names here",
            hint=f"`tfgrpo remote add NAME {other.called}`, or `tfgrpo pull {other.called}`",
        )
    with locations.source(other.location, author=app.store.author, ssh=_ssh()) as source:
        done = sync.fetch(app.store, source, other.name, branches=branches or None)
    _tell_fetched(done, other)


def _tell_fetched(done: Transferred, other: Other) -> None:
    printing.echo(f"fetched {_amount(done)} from {other.called}")
    printing.echo_each(_moved(done))


@click.command()
@click.argument("remote", required=False, type=REMOTE)
@click.argument("branch", required=False, type=BRANCH)
@merge_pick_revert.sides("ours", "theirs")
@option("-m, --message", "Message for a merge version.")
@FORCE
@pass_given
def pull(app: App, given: Given) -> None:
    """Fetch a branch and bring it into HEAD's branch, by fast-forward or merge.

    REMOTE defaults to origin and may be a location; BRANCH defaults to the one with the same name
    as HEAD's. On a conflict the fetched versions are kept, and nothing is merged.

    \b
    Examples:
      tfgrpo pull
      tfgrpo pull origin main --theirs
    """
    store = app.store
    into = app.branch("there is no branch to pull into")
    other = _find(app, given.remote)
    theirs = given.branch or into
    resolve = merges.side(given.take) if given.take else None
    called = f"{other.called} {theirs}"
    how = {"into": into, "message": given.message, "resolve": resolve, "called": called}
    with (
        locations.source(other.location, author=app.store.author, ssh=_ssh()) as source,
        merge_pick_revert.conflicts_shown(resolve, as_json=False),
    ):
        done = sync.pull(store, source, other.name, theirs, **how)
    _tell_fetched(done.fetched, other)
    merge_pick_revert.print_merge(app, done.before, done.theirs, done.after, into, called)


@click.command()
@click.argument("remote", required=False, type=REMOTE)
@click.argument("names", nargs=-1, type=REF)
@flag("--all", "Push every branch of this store.", name="all_")
@flag("--tags", "Push every tag of this store too.", name="tags")
@flag("-f, --force", "Move protected or diverged names on the remote.")
@flag("-d, --delete", "Delete NAMES on the remote; versions are kept.", name="delete_")
@pass_given
def push(app: App, given: Given) -> None:
    """Send branches and tags to a remote, with the versions it lacks.

    NAMES default to HEAD's branch; tags in their history are pushed too. If a branch is not a
    fast-forward the push is refused, and nothing moves. --force moves names only: the remote keeps
    its versions, by digest.

    \b
    Examples:
      tfgrpo push
      tfgrpo push origin main web
    """
    if given.delete_ and (given.all_ or given.tags):
        raise click.UsageError("--delete deletes only the given names: leave out --all and --tags")
    if given.delete_ and not given.names:
        raise click.UsageError("--delete needs the names to delete")
    if given.all_ and given.names:
        raise click.UsageError(f"--all pushes every branch: leave out {' '.join(given.names)}")
    store = app.store
    other = _find(app, given.remote)
    chosen = list(store.branches()) if given.all_ else list(given.names)
    chosen = chosen or [app.branch("there is no branch to push, unless it is named")]
    chosen += [tag for tag in store.tags() if tag not in chosen] if given.tags else []
    with locations.peer(other.location, author=app.store.author, ssh=_ssh()) as peer:
        done = sync.push(
            store, peer, chosen, remote=other.name, force=given.force, delete=given.delete_
        )
    if not done.moved:
        printing.echo(f"already up to date: {other.called} has {', '.join(chosen)}")
    else:
        printing.echo(f"pushed {_amount(done)} to {other.called}")
    printing.echo_each(_moved(done))


def _find(app: App, given: str | None) -> Other:
    remotes = Remotes(app.store)
    name = given or remotes.default()
    if name in remotes.all() or not (set(name) & set("/:.\\") or Path(name).exists()):
        location = remotes.location(name)
        trust.ask_on_a_terminal()
        trusted_folders.require(of_remote(app.root, name, location))
        return Other(name, locations.parse(location), name)
    place = locations.parse(name)
    return Other(None, place, place.text)


def _ssh() -> list[str]:
    return shlex.split(os.environ.get("TFGRPO_SSH", "")) or ["ssh"]


def _amount(done: Transferred) -> str:
    return _counted(*done.received) if done.received[0] else "no versions"


def _counted(versions: int, events: int) -> str:
    return f"{printing.plural(versions, 'version')}, {printing.plural(events, 'event')}"


def _moved(done: Transferred) -> Iterator[str]:
    """Yields a line for every name that moved, and for every tag that did not."""
    for move in done.moved:
        was = move.before.name if move.before else None
        now = move.after.name if move.after else "deleted"
        place = f"{was} → {now}" if was else f"new, at {now}" if move.after else now
        called = f"tag {move.name}" if move.kind == "tag" else move.name
        yield f"  {printing.style(called, fg='green')}  {place}"
    for tag in done.kept:
        yield f"  tag {tag} points elsewhere on the other side; it was not moved"
    for id in done.redacted:
        yield (
            f"  {id} was redacted on the other side, and has texts here still: "
            f"`tfgrpo redact {id}` removes them"
        )


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
@flag("-v, --verbose", "Accepted as in git; the list always shows everything.", expose_value=False)
@JSON
@pass_app
def list_(app: App, as_json: bool) -> None:
    """List remotes, their locations, and where their branches were when last fetched.

    \b
    Examples:
      tfgrpo remote list
    """
    store = app.store
    remotes = Remotes(store).all()
    there = {name: tracked(store.port, name) for name in remotes}
    objects = {name: {"location": at, "branches": there[name]} for name, at in remotes.items()}
    rows = [
        (name, ", ".join(f"{b} v{n}" for b, n in there[name].items()) or "not fetched", location)
        for name, location in remotes.items()
    ]
    header, none = ("remote", "branches", "location"), "no remotes; `tfgrpo remote add` adds one"
    printing.answer(app, objects, printing.table(rows, header=header, none=none), as_json)


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
      tfgrpo remote set-url origin ssh://lab:2222/srv/experience
    """
    there = locations.parse(location)
    before = Remotes(app.store).move(name, there.text)
    remember_own(of_remote(app.root, name, there.text))
    printing.echo(f"changed {name} from {before} to {there.text}")


@click.group(cls=SuggestingGroup)
def bundle() -> None:
    """Pack versions into a file, to clone, fetch or pull where there is no network connection.

    \b
    Examples:
      tfgrpo bundle create library.bundle
      tfgrpo bundle list-heads team.bundle
    """


@bundle.command()
@click.argument("file", type=path(dir_okay=False))
@click.argument("names", nargs=-1, type=REF)
@option("--since REVISION", "Leave out this version and its history.", type=REVISION)
@pass_app
def create(app: App, file: Path, names: tuple[str, ...], since: str | None) -> None:
    """Write the history of branches and tags to FILE; by default all of them.

    \b
    Examples:
      tfgrpo bundle create library.bundle
      tfgrpo bundle create news.bundle main --since v1
    """
    base = app.store.resolve(since) if since is not None else None
    header, count = bundles.create(app.store, file, names, since=base)
    printing.echo(f"wrote {printing.plural(count, 'version')} to {file}")
    printing.echo_each(_heads(header.names))
    if header.needs:
        needed = printing.plural(len(header.needs), "version")
        printing.echo(f"to read it, a store must already have the {needed} it builds on")


@bundle.command()
@click.argument("file", type=path(dir_okay=False))
@JSON
@pass_app
def verify(app: App, file: Path, as_json: bool) -> None:
    """Recompute every seal and digest in FILE, and check whether this store can read it.

    Exits with 1 if FILE builds on versions that this store lacks.

    \b
    Examples:
      tfgrpo bundle verify team.bundle
    """
    with closing(bundles.Bundle(file)) as opened:
        verified = opened.verify(StorePeer(app.store).known)
    versions, events = verified.held
    lacking = [digest.hex() for digest in verified.lacking]
    names, needs = verified.header.names, verified.header.needs
    fields = {
        "versions": versions,
        "events": events,
        "head": names.head,
        "names": {name: digest.hex() for name, digest in names.at.items()},
        "needs": [digest.hex() for digest in needs],
        "lacking": lacking,
    }
    listed = ", ".join(digest[:12] for digest in lacking)
    lacks = f"lacks versions it builds on: {listed}" if lacking else "has everything it builds on"
    lines = [f"{file} is valid: {_counted(versions, events)}", f"this store {lacks}"]
    printing.answer(app, fields, lines, as_json)
    if lacking:
        click.get_current_context().exit(1)


@bundle.command("list-heads")
@click.argument("file", type=path(dir_okay=False))
@JSON
@pass_app
def list_heads(app: App, file: Path, as_json: bool) -> None:
    """List the branches and tags in FILE, each with its version's digest.

    \b
    Examples:
      tfgrpo bundle list-heads team.bundle
    """
    with closing(bundles.Bundle(file)) as opened:
        names = opened.names()
    digests = {name: digest.hex() for name, digest in names.at.items()}
    printing.answer(app, digests, _heads(names), as_json)


def _heads(names: Names) -> Iterator[str]:
    """Yields a line for each name: the digest's beginning, and what people call it."""
    for name, digest in names.at.items():
        kind, short = parse_name(name)
        head = "  (HEAD)" if kind == "branch" and short == names.head else ""
        called = "tag " * (kind == "tag") + printable(short)
        yield f"  {digest.hex()[:12]}  {called}{head}"


@click.command()
@pass_app
def serve(app: App) -> None:
    """Answer a clone, fetch or push over standard input and output.

    Other machines start this over ssh; you never need to type it. Whoever may start it can read,
    and move the names of, every store that this account can write to; with --store, only that one.

    \b
    Examples:
      tfgrpo serve
    """
    with ExitStack() as opened:

        def open_(path: str | None) -> Store:
            alone = path is None or app.named is not None
            at = app.path if alone else located(Path(path or ".").expanduser())
            return opened.enter_context(Store.open(at, author=default_author))

        answer(open_, sys.stdin.buffer, sys.stdout.buffer)
