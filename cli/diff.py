"""`tfgrpo diff`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import click

from tfgrpo.cli import printing
from tfgrpo.cli.event_text import move_lines
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.start_context import RANGE, REVISION, App, Given, pass_given
from tfgrpo.display.order_changes import move_objects
from tfgrpo.store.history.library_order import Move, moves
from tfgrpo.store.history.revisions import resolve_range
from tfgrpo.store.records import Change, Op, Version
from tfgrpo.store.store import Store


@click.command()
@click.argument("a", required=False, type=RANGE)
@click.argument("b", required=False, type=REVISION)
@flag("--stat", "Only count the changes.")
@flag("--name-only", "Only list the ids of changed experiences.")
@flag("-q, --quiet", "Print nothing, and exit with 1 if they differ.")
@flag("--exit-code", "Exit with 1 if the two differ.")
@JSON
@pass_given
def diff(app: App, given: Given) -> None:
    """Show what changed from A to B (by default HEAD), experience by experience.

    A..B means the same as A B, and A...B what B has changed since the two parted. Without any,
    what the last version changed: nothing is ever uncommitted, so that is the nearest to git's.
    Within a changed text, removed and added words are marked.

    \b
    Examples:
      tfgrpo diff v1 v3
      tfgrpo diff v1..HEAD --stat
      tfgrpo diff
    """
    store = app.store
    with store.port.reading():
        if given.a is None:
            after = store.head.version
            before = after if after.parent is None else store.version(after.parent)
        elif given.b is None and ".." in given.a:
            low, high = resolve_range(store, given.a)
            before, after = low or high, high
        else:
            before, after = (
                store.resolve(given.a),
                store.resolve("HEAD" if given.b is None else given.b),
            )
    changes, moved = store.diff(before, after), moves(store, before, after)
    if given.quiet:
        given.exit_code = True
    elif given.as_json:
        printing.emit_json(
            {
                "from": before.name,
                "to": after.name,
                "changes": [{"op": c.op, **c._asdict()} for c in changes],
                "moves": move_objects(moved),
            }
        )
    elif given.name_only:
        printing.emit(
            app, dict.fromkeys([c.experience for c in changes] + [m.experience for m in moved])
        )
    elif given.stat:
        printing.echo(_total(before, after, changes, len(moved)))
    else:
        printing.emit(app, _lines(store, before, after, changes, moved))
    if given.exit_code and (changes or moved):
        click.get_current_context().exit(1)


def _lines(
    store: Store,
    before: Version,
    after: Version,
    changes: tuple[Change, ...],
    moved: Sequence[Move],
) -> Iterator[str]:
    for change in changes:
        yield from _change(change)
    if moved:
        yield from move_lines(store.library(after), moved)
    yield _total(before, after, changes, len(moved))


def _change(change: Change) -> list[str]:
    op = change.op
    sign = printing.Word(printing.SIGNS[op], fg=printing.COLOURS[op], bold=True)
    if change.before is None:
        body = printing.words(change.after or "", fg="green")
    elif change.after is None:
        body = printing.words(change.before, fg="red")
    else:
        body = printing.word_diff(change.before, change.after)
    return printing.wrap([sign, printing.Word(change.experience, dim=True), *body], indent=15)


def _total(before: Version, after: Version, changes: tuple[Change, ...], moved: int) -> str:
    if not changes and not moved:
        return f"{before.name} and {after.name} hold the same library"
    number: Counter[Op] = Counter(change.op for change in changes)
    words = {"ADD": "added", "MODIFY": "modified", "DELETE": "deleted"}
    counts = ", ".join(f"{number[op]} {word}" for op, word in words.items() if number[op])  # type: ignore[index]
    counts += f"{', ' if counts else ''}{moved} moved" if moved else ""
    return printing.style(f"{before.name} → {after.name}: {counts}", bold=True)
