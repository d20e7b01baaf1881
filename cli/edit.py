"""`tfgrpo edit`."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tfgrpo.cli import add_modify_delete, printing
from tfgrpo.cli.flags import option
from tfgrpo.cli.start_context import App, force_option, pass_app
from tfgrpo.store import atomic_write
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Library


@click.command()
@option("-m, --message", "Message for the new version.")
@option("-r, --reason", "Why; recorded with each event.")
@option(
    "-F, --file",
    "Read this edited file instead of opening an editor.",
    type=click.Path(dir_okay=False, path_type=Path),
)
@force_option
@pass_app
def edit(app: App, message: str | None, reason: str | None, file: Path | None) -> None:
    """Edit the library in your editor, as one version on HEAD's branch.

    It opens as Markdown in $VISUAL, $EDITOR or vi. A changed line is a MODIFY, a new line an
    ADD, a removed line a DELETE. A line that lost its id still counts as the same experience
    if its text is nearly the same. A moved line moves its experience. If you save nothing,
    nothing changes; a file that cannot be parsed is kept.

    \b
    Examples:
      tfgrpo edit -m "clearer words"
      tfgrpo export --format md -o mine.md && tfgrpo edit --file mine.md
    """
    store = app.store
    app.branch()
    library = store.library("HEAD")
    if file is not None:
        _apply(app, library, read_file(file), message, reason)
        return
    path, before = _opened(app, library)
    try:
        after = edit_file(path)
        if after == before:
            printing.echo("nothing changed")
        else:
            _apply(app, library, after, message, reason)
    except TfgrpoError as error:
        if path.read_bytes().strip() not in (b"", before.strip().encode()):
            hint = f"{error.hint}; " if error.hint else ""
            again = f"your edit is saved: retry with `tfgrpo edit --file {path}`"
            raise _EditRefused(str(error), hint=hint + again) from error
        path.unlink()
        raise
    path.unlink()


class _EditRefused(TfgrpoError):
    """An edit that came to nothing, whose file is kept."""


def _opened(app: App, library: Library) -> tuple[Path, str]:
    """Writes the library into a file of its own beside the store; returns it and its text."""
    from tfgrpo.rendering.markdown_edit import document

    content = document(library)
    return draft(app, "edit-", content), content


def draft(app: App, prefix: str, content: str) -> Path:
    """Writes a text into a new file of its own beside the store; returns where."""
    app.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{prefix}{os.urandom(8).hex()}.md"
    atomic_write.create(app.path.parent / name, content.encode())
    return Path(os.path.relpath(app.path.parent / name))


def edit_file(path: Path) -> str:
    """Opens a file in the user's editor and returns what was saved."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        click.edit(filename=str(path), editor=editor)
    except click.ClickException as error:
        raise TfgrpoError(
            f"{error.format_message()}: nothing changed",
            hint="set $VISUAL or $EDITOR to your editor",
        ) from None
    return read_file(path)


def read_file(path: Path) -> str:
    """What an edited file says. Raises TfgrpoError."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TfgrpoError(f"cannot read {path}: {error}", hint="the file must be UTF-8") from None


def _apply(
    app: App, library: Library, content: str, message: str | None, reason: str | None
) -> None:
    from tfgrpo.hand_edits import commit_edit

    branch = app.branch()
    version = commit_edit(app.store, branch, library, content, message=message, reason=reason)
    if version is None:
        printing.echo("nothing changed")
    else:
        add_modify_delete.report(app, branch, version)
