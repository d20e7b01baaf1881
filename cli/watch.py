"""`tfgrpo watch`."""

from __future__ import annotations

import signal
import threading

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import flag, option
from tfgrpo.cli.start_context import REVISION, App, pass_app


@click.command()
@option(
    "--export",
    "The file: AGENTS.md, CLAUDE.md, a SKILL.md, or as for `export -o`.",
    name="path",
    required=True,
    type=click.Path(dir_okay=False),
)
@option("--revision", "What it shows.  [HEAD]", default="HEAD", type=REVISION, show_default=False)
@flag("--once", "Bring the file up to date once, and end.")
@option("--name", "Name of a new SKILL.md's skill; by default its folder's.")
@option("--description", "When to use a new SKILL.md's skill.")
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
