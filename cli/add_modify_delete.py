"""`tfgrpo add`, `modify`, `delete`, `keep`, `move`: a person's own operations."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from tfgrpo.cli import printing
from tfgrpo.cli.event_text import events_lines, version_move_lines
from tfgrpo.cli.flags import flag, option
from tfgrpo.cli.start_context import EXPERIENCE, App, Given, force_option, pass_app, pass_given
from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.records import Op, Operation, Version

message_option = option("-m, --message", "Message for the new version.")
reason_option = option("-r, --reason", "Why; recorded with each event.")


@click.command()
@click.argument("texts", nargs=-1, required=True, metavar="TEXT...")
@message_option
@reason_option
@force_option
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
    from tfgrpo.hand_edits import added

    given = [line for words in texts for line in (_typed() if words == "-" else (words,))]
    while True:
        library = app.store.library("HEAD")
        try:
            commit(app, added(library, given, reason), message, expected=library.version)
        except StaleVersion:  # somebody else may have just added one of them
            continue
        return


@click.command()
@click.argument("experience", type=EXPERIENCE)
@click.argument("new_text", metavar="TEXT")
@message_option
@reason_option
@force_option
@pass_app
def modify(
    app: App, experience: str, new_text: str, message: str | None, reason: str | None
) -> None:
    """Change an experience's text. Its id and its history stay the same.

    EXPERIENCE is an id, a prefix of one, or a label at HEAD such as G0.

    \b
    Examples:
      tfgrpo modify G0 "Count both days of a hire: last minus first, plus one."
      tfgrpo modify G0 "Charge both days." -r "shorter"
    """
    from tfgrpo.hand_edits import modified

    library = app.store.library("HEAD")
    id = app.store.experience_id(experience, library.version)
    commit(app, [modified(library, id, new_text, reason)], message, onto=library.version)


@click.command()
@click.argument("experiences", nargs=-1, required=True, type=EXPERIENCE, metavar="EXPERIENCE...")
@message_option
@reason_option
@force_option
@pass_app
def delete(app: App, experiences: tuple[str, ...], message: str | None, reason: str | None) -> None:
    """Delete experiences from the library. Their events and older versions are kept.

    \b
    Examples:
      tfgrpo delete G0 -r "it misleads the model"
      tfgrpo delete G0 G1
    """
    _each(app, "DELETE", experiences, message, reason)


@click.command()
@click.argument("experiences", nargs=-1, required=True, type=EXPERIENCE, metavar="EXPERIENCE...")
@message_option
@reason_option
@force_option
@pass_app
def keep(app: App, experiences: tuple[str, ...], message: str | None, reason: str | None) -> None:
    """Confirm experiences: records a vote for each and changes no text.

    \b
    Examples:
      tfgrpo keep G0 -r "checked with the shop"
      tfgrpo keep G0 G1
    """
    _each(app, "KEEP", experiences, message, reason)


@click.command()
@click.argument("experiences", nargs=-1, required=True, type=EXPERIENCE, metavar="EXPERIENCE...")
@option("--before", "Move them before this experience.", type=EXPERIENCE)
@option("--after", "Move them after this experience.", type=EXPERIENCE)
@flag("--first", "Move them to the beginning.")
@flag("--last", "Move them to the end.")
@message_option
@option("-r, --reason, --why", "Why; recorded in the message.")
@force_option
@pass_given
def move(app: App, given: Given) -> None:
    """Move experiences within the library, whose order is that of the prompts.

    They keep their ids, texts and history; several stand in the order given. A library is in
    the order in which its experiences were first added until one is moved.

    \b
    Examples:
      tfgrpo move G1 --before G0 --why "the rule comes before its exception"
      tfgrpo move G0 --last
    """
    from tfgrpo.hand_edits import Place, move_experiences

    if (given.before is not None) + (given.after is not None) + given.first + given.last != 1:
        raise click.UsageError("give one of --before, --after, --first and --last")
    store, branch = app.store, app.branch()
    at = store.head.version
    ids = list(dict.fromkeys(store.experience_id(e, at) for e in given.experiences))
    place = Place(
        None if given.before is None else store.experience_id(given.before, at),
        None if given.after is None else store.experience_id(given.after, at),
        given.last,
    )
    version = move_experiences(
        store, branch, ids, place, message=given.message, reason=given.reason
    )
    report(app, branch, version)


def _each(
    app: App, op: Op, experiences: Sequence[str], message: str | None, reason: str | None
) -> None:
    library = app.store.library("HEAD")
    ids = list(dict.fromkeys(app.store.experience_id(e, library.version) for e in experiences))
    operations = [Operation(op, id, reason=reason) for id in ids]
    commit(app, operations, message, onto=library.version)


def _typed() -> list[str]:
    """The lines of standard input that say something. Raises InvalidOperation for none."""
    lines = [line for line in sys.stdin if line.strip()]
    if not lines:
        raise InvalidOperation(
            "standard input is empty: nothing was added", hint="write one experience a line"
        )
    return lines


def commit(
    app: App,
    operations: Sequence[Operation],
    message: str | None,
    *,
    onto: Version | None = None,
    expected: Version | None = None,
) -> None:
    """Appends a version to HEAD's branch, for operations made `onto` a version or with the
    branch still at `expected`, and reports it. Raises StaleVersion."""
    from tfgrpo.hand_edits import commit_by_hand

    branch = app.branch()
    version = commit_by_hand(app.store, branch, operations, message, onto=onto, expected=expected)
    report(app, branch, version)


def report(app: App, branch: str, version: Version) -> None:
    """Prints a version that was just recorded: its events, and what it moved."""
    printing.echo(f"{version.name} on {branch}: {version.message}")
    printing.echo_each(events_lines(app.store, version))
    printing.echo_each(version_move_lines(app.store, version))
