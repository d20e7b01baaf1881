"""`tfgrpo edit`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from tfgrpo.cli import change, text
from tfgrpo.cli.context import App, force_option, pass_app
from tfgrpo.store.errors import InvalidOperation, TfgrpoError
from tfgrpo.store.records import Library


@click.command()
@click.option("-m", "--message", help="The version's message.")
@click.option("-r", "--reason", help="Why; kept with every event.")
@click.option(
    "-F",
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Take this edited file and open no editor.",
)
@force_option
@pass_app
def edit(app: App, message: str | None, reason: str | None, file: Path | None) -> None:
    """Edit the library in your editor, as one version on HEAD's branch.

    It opens as Markdown in $VISUAL, $EDITOR or vi. A changed line is a MODIFY, a new one an
    ADD, one that is gone a DELETE. A line whose id was cut off is still the same experience
    when it says nearly the same. Libraries are in the order in which experiences were first
    added: moving lines makes no event. Nothing saved, nothing changed; a file that cannot be
    read is kept.

    \b
    Examples:
      tfgrpo edit -m "clearer words"
      tfgrpo export -f md -o mine.md && tfgrpo edit --file mine.md
    """
    store = app.store
    head = store.head
    if head.branch is None:
        raise InvalidOperation(
            "HEAD is detached: a version needs a branch to grow",
            hint="`tfgrpo switch main` goes onto one",
        )
    library = store.library(head.version)
    if file is not None:
        _apply(app, library, _read(file), message, reason)
        return
    path, before = _opened(app, library)
    try:
        after = _edit(path)
        if after == before:
            click.echo("nothing was changed")
        else:
            _apply(app, library, after, message, reason)
    except TfgrpoError as error:
        if path.read_bytes().strip() not in (b"", before.strip().encode()):
            hint = f"{error.hint}; " if error.hint else ""
            again = f"what was written is kept: `tfgrpo edit --file {path}` takes it"
            raise _Kept(str(error), hint=hint + again) from error
        path.unlink()
        raise
    path.unlink()


class _Kept(TfgrpoError):
    """An edit that came to nothing, whose file is kept."""


def _opened(app: App, library: Library) -> tuple[Path, str]:
    """Writes the library into a file of its own beside the store; returns it and its text."""
    from tfgrpo.rendering.edit import document

    content = document(library)
    handle, name = tempfile.mkstemp(prefix="edit-", suffix=".md", dir=app.path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)
    return Path(os.path.relpath(name)), content


def _edit(path: Path) -> str:
    """Opens a file in the user's editor and returns what was saved."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        click.edit(filename=str(path), editor=editor)
    except click.ClickException as error:
        raise TfgrpoError(
            f"{error.format_message()}: nothing was changed",
            hint="$VISUAL or $EDITOR names the editor",
        ) from None
    return _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TfgrpoError(f"cannot read {path}: {error}", hint="UTF-8 is expected") from None


def _apply(
    app: App, library: Library, content: str, message: str | None, reason: str | None
) -> None:
    """Records what an edited file asks for, and tells about lines that only moved."""
    from tfgrpo.rendering.edit import edited

    found = edited(library, content)
    if found.operations:
        operations = [operation._replace(reason=reason) for operation in found.operations]
        told = message or f"edit {text.plural(len(operations), 'experience')}"
        change.commit(app, operations, told, onto=library.version)
    else:
        click.echo("nothing was changed")
    if found.moved:
        click.echo(
            f"{text.plural(found.moved, 'line')} moved: no event, because a library is in the "
            "order in which its experiences were first added"
        )
