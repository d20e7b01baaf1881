"""`tfgrpo add`, `modify`, `delete`, `keep`, `move`, `edit`: a person's own operations."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from hashlib import sha256
from pathlib import Path

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import FORCE, MESSAGE, REASON, flag, option, path, together
from tfgrpo.cli.start_context import EXPERIENCE, App, Given, pass_app, pass_given
from tfgrpo.cli.version_text import events_lines, version_move_lines
from tfgrpo.store import atomic_write
from tfgrpo.store.errors import InvalidOperation, TfgrpoError
from tfgrpo.store.records import Op, Operation, Version


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@MESSAGE
@REASON
@FORCE
@pass_app
def add(app: App, texts: tuple[str, ...], message: str | None, reason: str | None) -> None:
    """Add experiences by hand, as one version on HEAD's branch.

    A text that is already in the library is recorded as a confirmation. - reads texts from
    standard input, one a line.

    \b
    Examples:
      tfgrpo add "Count both the first and the last day of a hire."
      tfgrpo add "Round up to whole euros." -r "the shop's own rule"
      printf '%s\n' "Charge both days." "Round up." | tfgrpo add -
    """
    from tfgrpo.hand_edits import add_texts

    given = [line for words in texts for line in (_typed() if words == "-" else (words,))]
    branch = app.branch()
    report(app, branch, add_texts(app.store, branch, given, message, reason))


@click.command()
@click.argument("experience", type=EXPERIENCE)
@click.argument("new_text", metavar="TEXT")
@MESSAGE
@REASON
@FORCE
@pass_given
def modify(app: App, given: Given) -> None:
    """Change an experience's text. Its id and its history stay the same.

    EXPERIENCE is an id, a prefix of one, or a label at HEAD such as G0.

    \b
    Examples:
      tfgrpo modify G0 "Count both days of a hire: last minus first, plus one."
    """
    from tfgrpo.hand_edits import modified

    library = app.store.library("HEAD")
    id = app.store.experience_id(given.experience, library.version)
    operation = modified(library, id, given.new_text, given.reason)
    commit(app, [operation], given.message, library.version)


EXPERIENCES = click.argument(
    "experiences", nargs=-1, required=True, type=EXPERIENCE, metavar="EXPERIENCE..."
)
each = together(EXPERIENCES, MESSAGE, REASON, FORCE, pass_given)


@click.command()
@each
def delete(app: App, given: Given) -> None:
    """Delete experiences from the library. Their events and older versions are kept.

    \b
    Examples:
      tfgrpo delete G0 -r "it misleads the model"
      tfgrpo delete G0 G1
    """
    _each(app, "DELETE", given)


@click.command()
@each
def keep(app: App, given: Given) -> None:
    """Confirm experiences: records a vote for each and changes no text.

    \b
    Examples:
      tfgrpo keep G0 -r "checked with the shop"
    """
    _each(app, "KEEP", given)


@click.command()
@EXPERIENCES
@option("--before", "Move them before this experience.", type=EXPERIENCE)
@option("--after", "Move them after this experience.", type=EXPERIENCE)
@flag("--first", "Move them to the beginning.")
@flag("--last", "Move them to the end.")
@MESSAGE
@option("-r, --reason, --why", "Why; recorded in the message.")
@FORCE
@pass_given
def move(app: App, given: Given) -> None:
    """Move experiences within the library, whose order is that of the prompts.

    They keep their ids, texts and history; several are placed in the order given. A library is in
    the order in which its experiences were first added until one is moved.

    \b
    Examples:
      tfgrpo move G1 --before G0 --why "the rule comes before its exception"
      tfgrpo move G0 --last
    """
    from tfgrpo.hand_edits import move_experiences

    if (given.before is not None) + (given.after is not None) + given.first + given.last != 1:
        raise click.UsageError("give one of --before, --after, --first and --last")
    store, branch = app.store, app.branch()
    at = store.head.version
    ids = list(dict.fromkeys(store.experience_id(e, at) for e in given.experiences))
    beside = {name: id for name, id in given.of("before", "after").items() if id is not None}
    how = given.of("last", "message", "reason")
    how |= {name: store.experience_id(id, at) for name, id in beside.items()}
    report(app, branch, move_experiences(store, branch, ids, **how))


def _each(app: App, op: Op, given: Given) -> None:
    store = app.store
    library = store.library("HEAD")
    ids = dict.fromkeys(store.experience_id(e, library.version) for e in given.experiences)
    operations = [Operation(op, id, reason=given.reason) for id in ids]
    commit(app, operations, given.message, library.version)


def _typed() -> list[str]:
    """The lines of standard input that say something. Raises InvalidOperation for none."""
    if lines := [line for line in sys.stdin if line.strip()]:
        return lines
    empty = "standard input is empty: nothing was added"
    raise InvalidOperation(empty, hint="write one experience a line")


def commit(app: App, operations: Sequence[Operation], message: str | None, onto: Version) -> None:
    """Appends a version to HEAD's branch, for operations made `onto` a version, and reports it.
    Raises StaleVersion."""
    from tfgrpo.hand_edits import commit_by_hand

    branch = app.branch()
    report(app, branch, commit_by_hand(app.store, branch, operations, message, onto=onto))


def report(app: App, branch: str, version: Version) -> None:
    """Prints a version that was just recorded: its events, and what it moved."""
    printing.echo(f"{version.name} on {branch}: {version.message}")
    printing.echo_each(events_lines(app.store, version))
    printing.echo_each(version_move_lines(app.store, version))


DRAFTS, DRAFT = "edit-", "draft.md"
"""How the name of a draft's folder begins, and the draft's own name in it."""


@click.command()
@MESSAGE
@REASON
@option(
    "-F, --file",
    "Read this edited file instead of opening an editor.",
    type=path(dir_okay=False),
)
@FORCE
@pass_given
def edit(app: App, given: Given) -> None:
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
    words = (
        edited(app, document(library)) if given.file is None else nullcontext(read_file(given.file))
    )
    with words as content:
        version = commit_edit(
            app.store, branch, library, content, message=given.message, reason=given.reason
        )
    if given.file is not None:
        forget(app, given.file)
    if version is None:
        printing.echo("nothing changed")
    else:
        report(app, branch, version)


@contextmanager
def edited(app: App, content: str) -> Iterator[str]:
    """Opens a text in the user's editor, from a folder of its own beside the store, and yields
    what was saved. When that was changed and the block fails, it is kept, and the error says
    where. What a kill has left of earlier drafts is removed, or named."""
    beside, before = app.path.absolute().parent, content.encode()
    beside.mkdir(mode=0o700, parents=True, exist_ok=True)

    def begins(words: bytes) -> str:  # a draft's folder says what the draft was made with
        return f"{DRAFTS}{sha256(words.strip()).hexdigest()[:16]}-"

    def holds_words(path: Path) -> bool:
        words = path.read_bytes().strip() if path.exists() else b""
        return words != b"" and not path.parent.name.startswith(begins(words))

    def clear(folder: str) -> None:
        path = Path(folder, DRAFT)
        if holds_words(path) or len(os.listdir(folder)) > 1:  # an editor keeps words beside it too
            words = f"{path} has an edit that was interrupted"
            printing.echo(f"note: {words}; --file takes it, then remove its folder", err=True)
        else:
            shutil.rmtree(folder)

    atomic_write.sweep(str(beside), DRAFTS, clear)
    with atomic_write.held_folder(beside, begins(before)) as folder:
        path = folder / DRAFT
        atomic_write.create(path, before)
        try:
            yield edit_file(path)
        except (TfgrpoError, click.UsageError) as error:
            if holds_words(path):
                hint = f"{error.hint}; " if isinstance(error, TfgrpoError) and error.hint else ""
                hint += f"your edit is saved: the same command with `--file {path}` takes it"
                raise TfgrpoError(str(error), hint=hint) from error
            shutil.rmtree(folder)
            raise
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
