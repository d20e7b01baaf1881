"""How events are shown: what one did, why, and who taught it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.cli import printing
from tfgrpo.display.event_lines import credit_words, evidence_words
from tfgrpo.display.order_changes import left_in_place, moves_of
from tfgrpo.store.records import Event, Library, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfgrpo.store.history.blame import Origin
    from tfgrpo.store.history.library_order import Move
    from tfgrpo.store.store import Store


def event_lines(event: Event, before: str | None, origin: Origin | None = None) -> list[str]:
    """An event's lines: what, why, and who taught it; `origin` is where a merge got it from."""
    head = [
        printing.Word(printing.SIGNS[event.op], fg=printing.COLOURS[event.op], bold=True),
        printing.Word(event.experience, dim=True),
    ]
    if event.redacted:
        body = printing.words("[redacted]", dim=True)
    elif event.op == "MODIFY" and before is not None and event.text is not None:
        body = printing.word_diff(before, event.text)
    elif event.op == "KEEP":
        body = printing.words(before or "", fg="cyan")
    elif event.op == "DELETE":
        body = printing.words(before or "", fg="red")
    else:
        body = printing.words(event.text or "", fg="green")
    lines = printing.wrap([*head, *body], indent=15)
    if event.reason:
        lines += printing.wrapped(f"because {event.reason}", first=" " * 15, indent=15)
    evidence = evidence_words(event)
    if origin is not None and origin.event.row != event.row:
        evidence = f"{origin.version.name}: {credit_words(origin.event, origin.version)}"
    if evidence:
        lines += printing.wrapped(evidence, dim=True, first=" " * 15, indent=15)
    return lines


def events_lines(store: Store, version: Version, *, reasons: bool = True) -> Iterator[str]:
    """Yields the lines of a version's events."""
    events = store.events(version)
    texts = store.texts_before(events)
    for event in events:
        shown = event if reasons else event._replace(reason=None)
        yield from event_lines(shown, texts.get(event.row))


def version_move_lines(store: Store, version: Version) -> list[str]:
    """The lines that say what a version moved, and what a merge left in place."""
    moves = moves_of(store, version)
    lines = move_lines(store.library(version), moves) if moves else []
    if left := left_in_place(version):
        where = f"moved on both sides, and where ours has it: {', '.join(left)}"
        lines += printing.wrapped(where, indent=2)
    return lines


def move_lines(library: Library, moves: Iterable[Move]) -> list[str]:
    """The lines that say which experiences of a library stand elsewhere than before."""
    lines = []
    for one in moves:
        words = [
            printing.Word(printing.MOVED, fg="blue", bold=True),
            printing.Word(one.experience, dim=True),
            *printing.words(f"[G{one.before} → G{one.after}]", fg="cyan"),
            *printing.words(library.by_id[one.experience].text),
        ]
        lines += printing.wrap(words, indent=15)
    return lines
