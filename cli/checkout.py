"""`tfgrpo checkout`."""

from __future__ import annotations

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import option
from tfgrpo.cli.start_context import REVISION, App, pass_app

format_option = option(
    "--format",
    "json: label to text; md: Markdown with ids; prompt: the text that goes into a prompt.",
    name="format_",
    type=click.Choice(["json", "md", "prompt"]),
    default="json",
)


@click.command()
@click.argument("revision", type=REVISION)
@option("-b, --branch", "Create this branch at REVISION and switch to it.")
@format_option
@option("-o, --output", "Where to write, - for standard output; by default next to the store.")
@pass_app
def checkout(app: App, revision: str, branch: str | None, format_: str, output: str | None) -> None:
    """Move HEAD to REVISION and write its library to a file for inference.

    The library is written to .tfgrpo/experiences.json (or .md, .txt) unless --output is given.
    On a branch, later versions are added to it; any other revision detaches HEAD. - is the branch
    that HEAD was on before.

    \b
    Examples:
      tfgrpo checkout v1
      tfgrpo checkout main --format prompt -o -
    """
    store = app.store
    if output not in (None, "-"):
        from tfgrpo.store.atomic_write import check_place

        check_place(output)  # before HEAD has moved
    if revision == "-":
        from tfgrpo.store.history.name_moves import previous_branch

        revision = previous_branch(store)
    if branch is not None:
        store.create_branch(branch, revision)
        revision = branch
    before = store.head
    head = store.checkout(revision)
    library = store.library(head.version)
    line = f"HEAD is at {head.version.name}"
    if revision != head.version.name and head.branch is None:
        line += f" ({revision})"
    line += f", {printing.plural(len(library), 'experience')}"
    line += f", on branch {head.branch}" if head.branch else ""
    printing.echo(line, err=output == "-")
    if head.branch is None:
        back = before.branch or "main"
        printing.echo(
            f"HEAD is detached: `tfgrpo checkout {back}` returns to the branch, "
            f"`tfgrpo checkout -b NAME {revision}` starts a new one here",
            err=output == "-",
        )
    written = materialise(app, format_, output)
    if written is not None:
        printing.echo(f"wrote {written}")


def materialise(app: App, format_: str = "json", output: str | None = None) -> str | None:
    """Writes the library at HEAD for inference; returns where, None for standard output."""
    from tfgrpo.hand_edits import write_library

    if output == "-":
        from tfgrpo import interchange

        printing.write_out("".join(interchange.export(app.store, "HEAD", format_)))
        return None
    return write_library(app.store, format_, output)
