"""`tfgrpo edit`."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import click

from tfgrpo.cli import add_modify_delete, printing
from tfgrpo.cli.flags import option
from tfgrpo.cli.start_context import App, force_option, pass_app
from tfgrpo.store import atomic_write
from tfgrpo.store.errors import TfgrpoError

DRAFTS, DRAFT = "edit-", "draft.md"
"""How the name of a draft's folder begins, which goes on with a digest of what was in the draft;
and the draft's own name in it."""


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
    from tfgrpo.hand_edits import commit_edit
    from tfgrpo.rendering.markdown_edit import document

    branch = app.branch()
    library = app.store.library("HEAD")
    words = edited(app, document(library)) if file is None else nullcontext(read_file(file))
    with words as content:
        version = commit_edit(app.store, branch, library, content, message=message, reason=reason)
    if file is not None:
        forget(app, file)
    if version is None:
        printing.echo("nothing changed")
    else:
        add_modify_delete.report(app, branch, version)


class _EditRefused(TfgrpoError):
    """An edit that came to nothing, whose file is kept."""


@contextmanager
def edited(app: App, content: str, again: str = "tfgrpo edit") -> Iterator[str]:
    """Opens a text in the user's editor, from a folder of its own beside the store, and yields
    what was saved. When that was changed and the block fails, it is kept, and the error says that
    `again` takes it. What a kill has left of earlier drafts is removed, or named."""
    beside, before = app.path.parent, content.encode()
    beside.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic_write.sweep(str(beside), DRAFTS, _remove_draft)
    with atomic_write.held_folder(beside, f"{DRAFTS}{_digest(before)}-") as folder:
        path = Path(os.path.relpath(folder / DRAFT))
        atomic_write.create(path, before)
        try:
            yield edit_file(path)
        except BaseException as error:
            if path.exists() and path.read_bytes().strip() not in (b"", before.strip()):
                if not isinstance(error, TfgrpoError | click.UsageError):
                    raise
                hint = f"{error.hint}; " if isinstance(error, TfgrpoError) and error.hint else ""
                hint += f"your edit is saved: retry with `{again} --file {path}`"
                raise _EditRefused(str(error), hint=hint) from error
            shutil.rmtree(folder)
            raise
        shutil.rmtree(folder)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _remove_draft(folder: str) -> None:
    """Removes a draft that nobody has open and nobody has changed; names any other."""
    path, names = Path(folder, DRAFT), os.listdir(folder)
    content = path.read_bytes() if DRAFT in names else b""
    changed = content.strip() and _digest(content) not in path.parent.name
    if changed or names not in ([], [DRAFT]):  # such as a file in which an editor keeps words
        words = f"{os.path.relpath(path)} has an edit that was interrupted"
        printing.echo(f"note: {words}; --file takes it, then remove its folder", err=True)
    else:
        shutil.rmtree(folder)


def forget(app: App, file: Path) -> None:
    """Removes a draft that was kept, now that what it says is recorded."""
    folder = file.resolve().parent
    if folder.name.startswith(DRAFTS) and folder.parent == app.path.parent.resolve():
        shutil.rmtree(folder)


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
