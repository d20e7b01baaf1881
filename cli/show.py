"""`tfgrpo show`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tfgrpo.cli import log, text
from tfgrpo.cli.context import WHAT, App, pass_app
from tfgrpo.cli.events import event_lines, event_object
from tfgrpo.store.blame import Origins
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.records import Event, Library, Version
from tfgrpo.store.store import Store
from tfgrpo.training.run_report import Issue, issues


@click.command()
@click.argument("what", default="HEAD", type=WHAT)
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
@pass_app
def show(app: App, what: str, as_json: bool) -> None:
    """Show a version with its events, their reasons and evidence, and the resulting library.

    WHAT may also be an experience: an id, a prefix of one, or a label such as G0 of the library at
    HEAD. Its whole history is then shown, on every branch.

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
    library = store.library(version)
    if as_json:
        fields = log.as_object(store, version, log.StandingNames(store))
        origins = Origins(store)
        fields["events"] = [
            event_object(event, origins.of(event, version)) for event in store.events(version)
        ]
        fields["library"] = library_object(library)
        text.emit_json(fields)
    else:
        text.emit(app, _version_lines(store, version, library))


def show_experience(app: App, store: Store, experience: str, as_json: bool) -> None:
    """Prints an experience's whole life."""
    events = store.history(experience)
    if as_json:
        text.emit_json({"experience": experience, "events": [event_object(e) for e in events]})
    else:
        text.emit(app, _life(store, experience, events))


def _version_lines(store: Store, version: Version, library: Library) -> Iterator[str]:
    names = log.StandingNames(store)
    yield from log.heading(store, version, names)
    yield text.style(f"  {version.digest.hex()}", dim=True)
    before = _before(store, version)
    origins = Origins(store)
    for event in store.events(version):
        yield ""
        yield from event_lines(event, before.get(event.experience), origins.of(event, version))
        if event.text is not None:
            before[event.experience] = event.text
    for issue in issues(version):
        yield ""
        yield from issue_lines(issue)
    if version.meta.get("repaired"):
        yield ""
        yield text.plural(version.meta["repaired"], "answer") + " had to be repaired to be read"
    yield ""
    yield text.style(f"the library at {version.name}", bold=True) + (
        f": {text.plural(len(library), 'experience')}" if library else ": empty"
    )
    yield from library_lines(library)


def issue_lines(issue: Issue, *, first: str = "") -> Iterator[str]:
    """Yields what was refused or failed, and why; `first` stands before it."""
    where = f" ({issue.problem})" if issue.problem else ""
    words = text.words(issue.what + where)
    yield from text.wrap([text.Word(issue.kind, fg="red"), *words], first=first, indent=2)
    yield from text.wrap(text.words(issue.reason, dim=True), first="  ", indent=2)


def _before(store: Store, version: Version) -> dict[str, str]:
    """Returns the texts that a version's events started from."""
    if version.parent is None:
        return {}
    return {e.id: e.text for e in store.library(store.version(version.parent))}


def library_lines(library: Library) -> Iterator[str]:
    """Yields `[G0] text` for each experience, hung under its label."""
    for label, id in library.labels.items():
        first = text.style(f"[{label}]", fg="cyan") + " "
        yield from text.wrap(text.words(library.by_id[id].text), first=first, indent=len(label) + 3)


def _life(store: Store, experience: str, events: tuple[Event, ...]) -> Iterator[str]:
    labels = store.library("HEAD").label_of
    here = f"[{labels[experience]}] at HEAD" if experience in labels else "not in HEAD's library"
    yield text.style(f"experience {experience}", bold=True) + f", {here}"
    texts = {event.row: event.text for event in events}
    origins = Origins(store)
    for event in events:
        version = store.version(event.version)
        before = texts.get(event.replaces) if event.replaces else None
        if texts.get(event.row) is None:
            texts[event.row] = before
        yield ""
        yield from text.wrap(
            [
                text.Word(version.name, fg="yellow"),
                *text.words(
                    f"{text.when(version.time)} ({text.age(version.time)}) by {version.author}",
                    dim=True,
                ),
            ],
            indent=2,
        )
        yield from event_lines(event, before, origins.of(event, version))


def library_object(library: Library) -> list[dict[str, str]]:
    """Returns a library as JSON for programs, in order."""
    return [
        {"label": label, "id": id, "text": library.by_id[id].text}
        for label, id in library.labels.items()
    ]
