"""`tfgrpo watch`."""

from __future__ import annotations

import signal
import threading

import click

from tfgrpo.cli import printing
from tfgrpo.cli.start_context import REVISION, App, pass_app


@click.command()
@click.option(
    "--export",
    "path",
    required=True,
    type=click.Path(dir_okay=False),
    help="The file: AGENTS.md, CLAUDE.md, a SKILL.md, or as for `export -o`.",
)
@click.option("--revision", default="HEAD", type=REVISION, help="What it shows.  [HEAD]")
@click.option("--once", is_flag=True, help="Bring the file up to date once, and end.")
@click.option("--name", help="Name of a new SKILL.md's skill; by default its folder's.")
@click.option("--description", help="When to use a new SKILL.md's skill.")
@pass_app
def watch(
    app: App, path: str, revision: str, once: bool, name: str | None, description: str | None
) -> None:
    """Keep a file up to date with the library at REVISION, until it is stopped.

    Of a Markdown file only the block between two comments is written, and everything else in it
    stays; without a block, one is added at its end. A file that is not there is made.

    \b
    Examples:
      tfgrpo watch --export AGENTS.md --revision prod
      tfgrpo watch --export .claude/skills/sums/SKILL.md --once
    """
    from tfgrpo.domains.live_library import live
    from tfgrpo.serving.kept_file import KeptFile, keep

    library = live(revision, store=app.path)
    file = KeptFile(path, library, name=name, description=description)

    def wrote(version: str) -> None:
        printing.echo(f"wrote {version} to {path}")

    if file.bring_up_to_date():
        wrote(library.version.name)
    elif once:
        printing.echo(f"{path} has {library.version.name} already")
    if once:
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    printing.echo(f"watching {revision}; Ctrl-C ends", err=True)
    keep(file, stop, wrote)
