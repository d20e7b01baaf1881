"""`tfgrpo show`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from tfgrpo.cli import log, printing
from tfgrpo.cli.event_text import event_lines, version_move_lines
from tfgrpo.cli.flags import JSON
from tfgrpo.cli.start_context import WHAT, App, pass_app
from tfgrpo.display.event_lines import ShownEvent, event_object, events_of, life_of
from tfgrpo.display.measured_merge import measured_lines
from tfgrpo.display.order_changes import move_objects, moves_of
from tfgrpo.display.version_rows import StandingNames, signature_objects, signed, version_object
from tfgrpo.runs.run_issues import Issue, issues, repaired
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.fsck import defects
from tfgrpo.store.records import Library, Version
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
    yield from log.heading(store, version, names)
    yield from log.signed_lines(store, version)
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
        yield from printing.wrap(
            [
                printing.Word(version.name, fg="yellow"),
                *printing.words(
                    f"{printing.when(version.time)} ({printing.age(version.time)})"
                    f" by {signed(store, version)}",
                    dim=True,
                ),
            ],
            indent=2,
        )
        yield from event_lines(shown.event, shown.before, shown.origin)


def library_object(library: Library) -> list[dict[str, str]]:
    """A library as JSON for programs, in order."""
    return [
        {"label": label, "id": id, "text": library.by_id[id].text}
        for label, id in library.labels.items()
    ]
