"""`tfgrpo show` and `diff`: a version, an experience, and what changed between two versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import click

from tfgrpo.cli import printing, version_text
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.start_context import RANGE, REVISION, WHAT, App, Given, pass_app, pass_given
from tfgrpo.cli.version_text import event_lines, move_lines, version_move_lines
from tfgrpo.display.event_lines import ShownEvent, event_object, events_of, life_of
from tfgrpo.display.measured_merge import measured_lines
from tfgrpo.display.order_changes import move_objects, moves_of
from tfgrpo.display.version_rows import StandingNames, signature_objects, signed, version_object
from tfgrpo.runs.run_issues import Issue, issues, repaired
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.fsck import defects
from tfgrpo.store.history.library_order import Move, moves
from tfgrpo.store.history.revisions import resolve_range
from tfgrpo.store.records import Change, Library, Op, Version
from tfgrpo.store.store import Store


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
    store = app.store
    try:
        version = store.resolve(what)
    except UnknownRevision as unknown:
        try:
            experience = store.experience_id(what)
        except UnknownRevision as no_experience:
            label = what[:1] == "G" and what[1:].isdigit()
            raise (no_experience if label else unknown) from None
        show_experience(app, store, experience, as_json)
        return
    for defect in defects(store, version):
        raise damage_error(f"{defect.where} {defect.what}")
    library = store.library(version)
    if as_json:
        fields = version_object(store, version, StandingNames(store))
        fields |= signature_objects(store, version)
        fields["events"] = [
            event_object(shown.event, shown.origin) for shown in events_of(store, version)
        ]
        fields["library"] = library_object(library)
        fields["moves"] = move_objects(moves_of(store, version))
        printing.emit_json(fields)
    else:
        printing.emit(app, _version_lines(store, version, library))


def show_experience(app: App, store: Store, experience: str, as_json: bool) -> None:
    """Prints an experience's whole life."""
    if as_json:
        events = store.history(experience)
        printing.emit_json({"experience": experience, "events": [event_object(e) for e in events]})
    else:
        printing.emit(app, _life(store, experience, life_of(store, experience)))


def _version_lines(store: Store, version: Version, library: Library) -> Iterator[str]:
    names = StandingNames(store)
    yield from version_text.heading(store, version, names)
    yield from version_text.signed_lines(store, version)
    yield printing.style(f"  {version.digest.hex()}", dim=True)
    for shown in events_of(store, version):
        yield ""
        yield from event_lines(shown.event, shown.before, shown.origin)
    if moves := version_move_lines(store, version):
        yield ""
        yield from moves
    if measured := measured_lines(store, version):
        yield ""
        for line in measured:
            yield from printing.wrapped(line, indent=2)
    for issue in issues(version):
        yield ""
        yield from issue_lines(issue)
    if count := repaired(version):
        yield ""
        yield printing.plural(count, "answer") + " had to be repaired to be read"
    yield ""
    yield printing.style(f"the library at {version.name}", bold=True) + (
        f": {printing.plural(len(library), 'experience')}" if library else ": empty"
    )
    yield from library_lines(library)


def issue_lines(issue: Issue, *, first: str = "") -> Iterator[str]:
    """Yields what was refused or failed, and why; `first` stands before it."""
    where = f" ({issue.problem})" if issue.problem else ""
    words = printing.words(issue.what + where)
    yield from printing.wrap([printing.Word(issue.kind, fg="red"), *words], first=first, indent=2)
    yield from printing.wrapped(issue.reason, dim=True, first="  ", indent=2)


def library_lines(library: Library) -> Iterator[str]:
    """Yields `[G0] text` for each experience, hung under its label."""
    for label, id in library.labels.items():
        first = printing.style(f"[{label}]", fg="cyan") + " "
        yield from printing.wrapped(library.by_id[id].text, first=first, indent=len(label) + 3)


def _life(store: Store, experience: str, life: Iterable[ShownEvent]) -> Iterator[str]:
    labels = store.library("HEAD").label_of
    here = f"[{labels[experience]}] at HEAD" if experience in labels else "not in HEAD's library"
    yield printing.style(f"experience {experience}", bold=True) + f", {here}"
    for shown in life:
        version = shown.version
        yield ""
        who = f"{printing.dated(version.time)} by {signed(store, version)}"
        first = printing.style(version.name, fg="yellow") + " "
        yield from printing.wrapped(who, first=first, indent=2, dim=True)
        yield from event_lines(shown.event, shown.before, shown.origin)


def library_object(library: Library) -> list[dict[str, str]]:
    """A library as JSON for programs, in order."""
    return [
        {"label": label, "id": id, "text": library.by_id[id].text}
        for label, id in library.labels.items()
    ]


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
