"""`tfgrpo bundle`: versions in a file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, option
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import REF, REVISION, App, pass_app
from tfgrpo.store.transfer import bundle as bundles
from tfgrpo.store.transfer.other_store import parse_name
from tfgrpo.store.transfer.pack_stream import Names, printable


@click.group(cls=SuggestingGroup)
def bundle() -> None:
    """Pack versions into a file, to clone, fetch or pull where there is no network connection.

    \b
    Examples:
      tfgrpo bundle create library.bundle
      tfgrpo bundle list-heads team.bundle
    """


@bundle.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("names", nargs=-1, type=REF)
@option("--since", "Leave out this version and its history.", metavar="REVISION", type=REVISION)
@pass_app
def create(app: App, file: Path, names: tuple[str, ...], since: str | None) -> None:
    """Write the history of branches and tags to FILE; by default all of them.

    \b
    Examples:
      tfgrpo bundle create library.bundle
      tfgrpo bundle create news.bundle main --since v1
    """
    store = app.store
    base = store.resolve(since) if since is not None else None
    header, count = bundles.create(store, file, names, since=base)
    printing.echo(f"wrote {printing.plural(count, 'version')} to {file}")
    printing.echo_each(heads(header.names))
    if header.needs:
        needed = printing.plural(len(header.needs), "version")
        printing.echo(f"to read it, a store must already have the {needed} it builds on")


@bundle.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@JSON
@pass_app
def verify(app: App, file: Path, as_json: bool) -> None:
    """Recompute every seal and digest in FILE, and check whether this store can read it.

    Exits with 1 if FILE builds on versions that this store lacks.

    \b
    Examples:
      tfgrpo bundle verify team.bundle
      tfgrpo bundle verify team.bundle --json
    """
    with closing(bundles.Bundle(file)) as opened:
        verified = opened.verify(bundles.needs_met(app.store))
    versions, events = verified.held
    lacking = [digest.hex() for digest in verified.lacking]
    if as_json:
        printing.emit_json(
            {
                "versions": versions,
                "events": events,
                "head": verified.header.names.head,
                "names": {name: digest.hex() for name, digest in verified.header.names.at.items()},
                "needs": [digest.hex() for digest in verified.header.needs],
                "lacking": lacking,
            }
        )
    else:
        contents = f"{printing.plural(versions, 'version')}, {printing.plural(events, 'event')}"
        printing.echo(f"{file} is valid: {contents}")
        if lacking:
            printing.echo(
                f"this store lacks versions it builds on: {', '.join(d[:12] for d in lacking)}"
            )
        else:
            printing.echo("this store has everything it builds on")
    if lacking:
        click.get_current_context().exit(1)


@bundle.command("list-heads")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@JSON
def list_heads(file: Path, as_json: bool) -> None:
    """List the branches and tags in FILE, each with its version's digest.

    \b
    Examples:
      tfgrpo bundle list-heads team.bundle
      tfgrpo bundle list-heads team.bundle --json
    """
    with closing(bundles.Bundle(file)) as opened:
        names = opened.names()
    if as_json:
        printing.emit_json({name: digest.hex() for name, digest in names.at.items()})
    else:
        printing.echo_each(heads(names))


def heads(names: Names) -> list[str]:
    """A line for each name: the digest's beginning, and what people call it."""
    lines = []
    for name, digest in names.at.items():
        kind, short = parse_name(name)
        head = "  (HEAD)" if kind == "branch" and short == names.head else ""
        called = f"tag {printable(short)}" if kind == "tag" else printable(short)
        lines.append(f"  {digest.hex()[:12]}  {called}{head}")
    return lines
