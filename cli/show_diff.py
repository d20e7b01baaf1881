"""`tfgrpo show` and `diff`: a version, an experience, and what changed between two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import printing, version_text
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.start_context import RANGE, REVISION, WHAT, App, Given, pass_app, pass_given
from tfgrpo.cli.version_text import (
    change_lines,
    change_object,
    event_lines,
    move_lines,
    version_move_lines,
)
from tfgrpo.display.event_lines import event_object, events_of, life_of
from tfgrpo.display.version_rows import (
    StandingNames,
    move_objects,
    moves_of,
    signature_objects,
    signed,
    version_object,
)
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history.library_order import Move, moves
from tfgrpo.store.history.revisions import resolve_range
from tfgrpo.store.records import Change, Library, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.runs.run_issues import Issue


@click.command()
@click.argument("what", default="HEAD", type=WHAT)
@JSON
@pass_app
def show(app: App, what: str, as_json: bool) -> None:
    """Show a version with its events, their reasons and evidence, and the resulting library.

    What a version says is checked against its digest first. WHAT may also be an experience: an id,
    a prefix of one, or a label such as G0 of the library at HEAD. Its whole history is then shown,
    on every branch.

    \b
    Examples:
      tfgrpo show HEAD
      tfgrpo show G0
    """
    from tfgrpo.store.fsck import defects  # which a diff has no need of

    store = app.store
    try:
        version = store.resolve(what)
    except UnknownRevision as unknown:
        try:
            experience = store.experience_id(what)
        except UnknownRevision as no_experience:
            label = what[:1] == "G" and what[1:].isdigit()
            raise (no_experience if label else unknown) from None
        events = [event_object(event) for event in store.history(experience)]
        fields = {"experience": experience, "events": events}
        printing.answer(app, fields, _life(store, experience), as_json)
        return
    for defect in defects(store, version):
        raise damage_error(f"{defect.where} {defect.what}")
    library = store.library(version)
    lines = _version_lines(store, version, library)
    printing.answer(app, lambda: _object(store, version, library), lines, as_json)


def _object(store: Store, version: Version, library: Library) -> dict[str, Any]:
    labels = library.labels.items()
    return {
        **version_object(store, version, StandingNames(store)),
        **signature_objects(store, version),
        "events": [event_object(shown.event, shown.origin) for shown in events_of(store, version)],
        "library": [{"label": at, "id": id, "text": library.by_id[id].text} for at, id in labels],
        "moves": move_objects(moves_of(store, version)),
    }


def _version_lines(store: Store, version: Version, library: Library) -> Iterator[str]:
    from tfgrpo.display.measured_merge import measured_lines
    from tfgrpo.runs.run_issues import issues, repaired

    yield from version_text.heading(store, version, StandingNames(store))
    yield from version_text.signed_lines(store, version)
    yield printing.style(f"  {version.digest.hex()}", dim=True)
    for shown in events_of(store, version):
        yield from printing.apart(event_lines(shown.event, shown.before, shown.origin))
    yield from printing.apart(version_move_lines(store, version))
    measured = (printing.wrapped(line, indent=2) for line in measured_lines(store, version))
    yield from printing.apart(line for lines in measured for line in lines)
    for issue in issues(version):
        yield from printing.apart(issue_lines(issue))
    if count := repaired(version):
        yield from ("", printing.plural(count, "answer") + " had to be repaired to be read")
    size = printing.plural(len(library), "experience") if library else "empty"
    yield from ("", printing.style(f"the library at {version.name}", bold=True) + f": {size}")
    for label, id in library.labels.items():
        first = printing.style(f"[{label}]", fg="cyan") + " "
        yield from printing.wrapped(library.by_id[id].text, first=first, indent=len(label) + 3)


def issue_lines(issue: Issue, *, first: str = "") -> Iterator[str]:
    """Yields what was refused or failed, and why; `first` stands before it."""
    where = f" ({issue.problem})" if issue.problem else ""
    words = printing.words(issue.what + where)
    yield from printing.wrap([printing.Word(issue.kind, fg="red"), *words], first=first, indent=2)
    yield from printing.wrapped(issue.reason, dim=True, first="  ", indent=2)


def _life(store: Store, experience: str) -> Iterator[str]:
    labels = store.library("HEAD").label_of
    here = f"[{labels[experience]}] at HEAD" if experience in labels else "not in HEAD's library"
    yield printing.style(f"experience {experience}", bold=True) + f", {here}"
    for shown in life_of(store, experience):
        version = shown.version
        yield ""
        who = f"{printing.dated(version.time)} by {signed(store, version)}"
        first = printing.style(version.name, fg="yellow") + " "
        yield from printing.wrapped(who, first=first, indent=2, dim=True)
        yield from event_lines(shown.event, shown.before, shown.origin)


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

    A..B means the same as A B, and A...B shows what B has changed since the two parted. Without
    arguments it shows what the last version changed: nothing is ever uncommitted, so that is
    nearest to git's. Within a changed text, removed and added words are marked.

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
            before = store.resolve(given.a)
            after = store.resolve("HEAD" if given.b is None else given.b)
    changes, moved = store.diff(before, after), moves(store, before, after)
    if given.quiet:
        given.exit_code = True
    elif given.as_json:
        fields = change_object(before, after, changes)
        printing.emit_json({**fields, "moves": move_objects(moved)})
    elif given.name_only:
        ids = [c.experience for c in changes] + [m.experience for m in moved]
        printing.emit(app, dict.fromkeys(ids))
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
        yield from change_lines(change.op, change.experience, change.before, change.after)
    yield from move_lines(store.library(after), moved) if moved else ()
    yield _total(before, after, changes, len(moved))


def _total(before: Version, after: Version, changes: tuple[Change, ...], moved: int) -> str:
    if not changes and not moved:
        return f"{before.name} and {after.name} hold the same library"
    words = {"ADD": "added", "MODIFY": "modified", "DELETE": "deleted"}
    number = Counter(words[change.op] for change in changes) + Counter(moved=moved)
    counts = ", ".join(
        f"{number[word]} {word}" for word in (*words.values(), "moved") if number[word]
    )
    return printing.style(f"{before.name} → {after.name}: {counts}", bold=True)
