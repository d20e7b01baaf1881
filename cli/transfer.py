"""`tfgrpo export` and `tfgrpo import`: libraries as files."""

from __future__ import annotations

from pathlib import Path

import click

from tfgrpo.cli import change, checkout, text
from tfgrpo.cli.context import REVISION, App, force_option, pass_app


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@checkout.format_option
@click.option("-o", "--output", default="-", help="Write here; else to standard output.")
@pass_app
def export(app: App, revision: str, format_: str, output: str) -> None:
    """Write the library at REVISION to a file, without moving HEAD.

    \b
    Examples:
      tfgrpo export HEAD -f md
      tfgrpo export v1 -o experiences.json
    """
    from tfgrpo.render import FORMATS, formatted

    library = app.store.library(revision)
    content = formatted(library, next(known for known in FORMATS if known == format_))
    if output == "-":
        click.echo(content, nl=False)
    else:
        checkout.write(Path(output), content)
        size = text.plural(len(library), "experience")
        click.echo(f"wrote {size} of {library.version.name} to {output}")


@click.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("-m", "--message", help="The version's message.")
@force_option
@pass_app
def import_(app: App, file: Path, message: str | None) -> None:
    """Read experiences from FILE into the library, as one version on HEAD's branch.

    FILE is the reference implementation's experiences.json, or Markdown as `export -f md`
    writes it, whose ids make changed texts changes and not additions. What the library holds
    already is left alone, so reading a file again makes no version.

    \b
    Examples:
      tfgrpo import experiences.json
      tfgrpo import library.md -m "reviewed by the shop"
    """
    from tfgrpo import interchange

    items = interchange.read(file)
    operations = interchange.operations(app.store.library("HEAD"), items, file)
    if not operations:
        click.echo(f"nothing new in {file}: the library holds all {len(items)} of its texts")
        return
    change.commit(app, operations, message or f"import {file.name}")
