"""`checkout`, `switch`, `reset`, `undo`, `redo`, `reflog`: moving names, and taking moves back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import COUNT, FORCE, JSON, TEXT_PATH, flag, option
from tfgrpo.cli.help import CountedCommand
from tfgrpo.cli.start_context import BRANCH as BRANCH_NAME
from tfgrpo.cli.start_context import NAME, REVISION, App, Given, pass_app, pass_given
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history import name_moves as undos
from tfgrpo.store.history.name_moves import PROTECTED
from tfgrpo.store.history.revisions import BRANCH, HEAD, REMOTE, TAG, moves_of
from tfgrpo.store.records import RefMove

format_option = option(
    "--format",
    "json: label to text; md: Markdown with ids; prompt: the text that goes into a prompt.",
    name="format_",
    type=click.Choice(["json", "md", "prompt"]),
    default="json",
)


@click.command()
@click.argument("revision", type=REVISION, required=False)
@option("-b, --branch", "Create this branch at REVISION, by default HEAD, and switch to it.")
@format_option
@option(
    "-o, --output",
    "Where to write, - for standard output; by default next to the store.",
    type=TEXT_PATH,
)
@pass_given
def checkout(app: App, given: Given) -> None:
    """Move HEAD to REVISION and write its library to a file for inference.

    The library is written to .tfgrpo/experiences.json (or .md, .txt) unless --output is given; that
    file is rewritten at each later change. On a branch, later versions are added to it; any other
    revision detaches HEAD. - is the branch that HEAD was on before.

    \b
    Examples:
      tfgrpo checkout v1
      tfgrpo checkout -b try
      tfgrpo checkout main --format prompt -o -
    """
    store = app.store
    if given.revision is None and given.branch is None:
        raise click.UsageError("give a REVISION, or -b BRANCH for a new branch at HEAD")
    if given.output not in (None, "-"):
        from tfgrpo.store.atomic_write import check_place

        check_place(given.output)  # before HEAD has moved
    if given.revision == "-":
        given.revision = undos.previous_branch(store)
    if given.branch is not None:
        store.create_branch(given.branch, given.revision or "HEAD")
        given.revision = given.branch
    head = store.checkout(given.revision)
    library = store.library(head.version)
    line = f"HEAD is at {head.version.name}"
    if given.revision != head.version.name and head.branch is None:
        line += f" ({given.revision})"
    on_branch = f", on branch {head.branch}" if head.branch else ""
    size = printing.plural(len(library), "experience")
    printing.echo(f"{line}, {size}{on_branch}", err=given.output == "-")
    if head.branch is None:
        back = undos.branch_to_return_to(store)
        returns = f"`tfgrpo checkout {back}` returns to the branch, " if back else ""
        printing.echo(
            f"HEAD is detached: {returns}"
            f"`tfgrpo checkout -b NAME {head.version.name}` starts a new one here",
            err=given.output == "-",
        )
    if given.output == "-":
        from tfgrpo import interchange

        printing.write_out("".join(interchange.export(store, "HEAD", given.format_)))
    else:
        printing.echo(f"wrote {app.write_library(given.format_, given.output)}")


@click.command()
@click.argument("branch", type=BRANCH_NAME)
@click.argument("revision", required=False, type=REVISION)
@flag("-c, --create", "Create the branch first, at REVISION or HEAD.")
@pass_app
def switch(app: App, branch: str, revision: str | None, create: bool) -> None:
    """Switch to a branch; later versions are added to it.

    - is the branch that HEAD was on before. REVISION, only with -c, is where the new branch begins.

    \b
    Examples:
      tfgrpo switch main
      tfgrpo switch -c draft v1
      tfgrpo switch -
    """
    store = app.store
    if revision is not None and not create:
        raise click.UsageError(
            f"only a new branch begins at {revision}: `tfgrpo switch -c {branch} {revision}`"
        )
    if branch == "-":
        branch = undos.previous_branch(store)
    if create:
        store.create_branch(branch, "HEAD" if revision is None else revision)
    elif not store.has_branch(branch):
        raise UnknownRevision(
            f"there is no branch {branch!r}",
            hint=f"`tfgrpo switch -c {branch}` creates it; `tfgrpo checkout` takes any revision",
        )
    head = store.checkout(branch)
    app.write_library()
    size = printing.plural(len(store.library(head.version)), "experience")
    printing.echo(f"on branch {branch}, at {head.version.name}, {size}")


@click.command()
@click.argument("revision", type=REVISION)
@FORCE
@pass_app
def reset(app: App, revision: str) -> None:
    """Move HEAD's branch to REVISION, forwards or backwards. Nothing is deleted, so there is no
    --hard: there is no working tree to overwrite.

    \b
    Examples:
      tfgrpo reset v1
      tfgrpo reset main@{1}
    """
    branch, before = app.branch("there is no branch to move"), app.store.head.version
    version = app.store.move_branch(branch, revision)
    app.write_library()
    size = printing.plural(len(app.store.library(version)), "experience")
    printing.echo(
        f"moved {branch} from {before.name} to {version.name}, {size}; `tfgrpo undo` reverses it"
    )


@click.command()
@FORCE
@pass_app
def undo(app: App) -> None:
    """Undo the last operation of any kind: a version, a checkout, a tag, a reset.

    Names move back to where they were. Versions are kept, and `redo` moves forward again.

    \b
    Examples:
      tfgrpo undo
      tfgrpo undo && tfgrpo redo
    """
    _print_moves(app, "undid", undos.undo(app.store))


@click.command()
@FORCE
@pass_app
def redo(app: App) -> None:
    """Redo what the last undo reversed.

    \b
    Examples:
      tfgrpo undo && tfgrpo redo
    """
    _print_moves(app, "redid", undos.redo(app.store))


DECISION = re.compile(r"(accept|review|reject|reopen) proposal |(promote|rollback) |start exper")
"""Operations that record a decision too, which an undo of the names does not take back."""


def _print_moves(app: App, verb: str, moves: Sequence[RefMove]) -> None:
    action = moves[0].action.removeprefix(undos.UNDO)
    printing.echo(f"{verb} {action}")
    for move in moves:
        if move.name.startswith(PROTECTED):
            again = "again" if move.previous is not None else "no longer"
            printing.echo(f"  {short(move.name.removeprefix(PROTECTED))} is {again} protected")
        elif move.previous is None and move.previous_symbol is None:
            printing.echo(f"  {short(move.name)} no longer exists")
        else:
            at = place(move.previous, move.previous_symbol)
            printing.echo(f"  {short(move.name)} is back at {at}")
    app.write_library()
    head = app.store.head
    where = f"on branch {head.branch}" if head.branch else "detached"
    printing.echo(f"HEAD is {where}, at {head.version.name}")
    if verb == "undid" and DECISION.match(action):
        printing.echo(
            "the decision stays on record: `tfgrpo redo` moves the names to fit it, and "
            "`proposal reopen` or `experiment rollback` takes it back"
        )


@click.command(cls=CountedCommand)
@click.argument("name", required=False, type=NAME)
@option("-n, --number", "Show at most this many.", type=COUNT)
@JSON
@pass_app
def reflog(app: App, name: str | None, number: int | None, as_json: bool) -> None:
    """Show every move of HEAD, branches and tags, newest first; for a single NAME, with the @{n} of
    each.

    \b
    Examples:
      tfgrpo reflog -n 10
      tfgrpo reflog main
    """
    moves = app.store.port.names.ref_log(None) if name is None else moves_of(app.store, name)
    shown = printing.first(moves, number)
    rows = (move._asdict() | {"time": printing.iso(move.time)} for move in shown)
    printing.answer(app, rows, _lines(shown, name), as_json)


def _lines(moves: Iterator[RefMove], name: str | None) -> Iterator[str]:
    for number, move in enumerate(moves):
        called = f"{name}@{{{number}}}" if name else short(move.name)
        was = place(move.previous, move.previous_symbol)
        line = [
            printing.Word(called, fg="green", bold=True),
            *printing.words(f"{was} → {place(move.version, move.symbol)}", fg="yellow"),
            *printing.words(move.action),
            *printing.words(f"({printing.age(move.time)}, {move.author})", dim=True),
        ]
        yield from printing.wrap(line, indent=4)


def short(name: str) -> str:
    """A name as people say it: without heads/, tags/ or remotes/."""
    if name.startswith(PROTECTED):
        return f"protection of {short(name.removeprefix(PROTECTED))}"
    return (
        name if name == HEAD else name.removeprefix(BRANCH).removeprefix(TAG).removeprefix(REMOTE)
    )


def place(version: int | None, symbol: str | None) -> str:
    """Where a name stands: a version, a branch, or nowhere."""
    if symbol is not None:
        return short(symbol)
    return "none" if version is None else f"v{version}"
