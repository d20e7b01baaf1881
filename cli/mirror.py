"""`tfgrpo mirror`: the store as a git repository."""

from __future__ import annotations

from pathlib import Path

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import REVISION, App, pass_app


@click.group(cls=SuggestingGroup)
def mirror() -> None:
    """Keep a copy of the history that other tools can read.

    \b
    Examples:
      tfgrpo mirror git mirror
      tfgrpo mirror git ../review main
    """


@mirror.command("git")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("revision", required=False, type=REVISION)
@JSON
@pass_app
def git_(app: App, folder: Path, revision: str | None, as_json: bool) -> None:
    """Mirror the history to the git repository DIR, with one commit per version.

    library.md there has one experience per line, for git log -p, git blame and code review. Run it
    again to add new versions; `tfgrpo import git DIR` reads everything back, including commits made
    by hand. With REVISION, only its history and the names in it are mirrored.

    DIR must be new, empty or an existing mirror. Redacted texts are mirrored as redacted; commits
    made before the redaction may still contain them.

    \b
    Examples:
      tfgrpo mirror git mirror
      tfgrpo mirror git mirror main
    """
    from tfgrpo import mirror as mirrors

    done = mirrors.mirror(app.store, folder, revision)
    if as_json:
        printing.emit_json(done._asdict() | {"folder": str(folder)})
        return
    if done.written:
        was = f", {done.there} already there" if done.there else ""
        printing.echo(f"mirrored {printing.plural(done.written, 'version')} to {folder}{was}")
    else:
        printing.echo(
            f"already up to date: {folder} has all {printing.plural(done.there, 'version')}"
        )
    for what, names in (("moved", done.moved), ("removed", done.removed)):
        if names and (done.there or what == "removed"):
            printing.echo(f"{what} {', '.join(names[:8])}{' …' if len(names) > 8 else ''}")
    if done.redacted:
        printing.echo(
            f"{printing.plural(done.redacted, 'text')} redacted: "
            "mirrors made before, and their clones, may hold copies"
        )
