"""Who taught us this: for each live experience, the event that gave it its text, and its votes.

A merge or cherry-pick records what it brings over as events that name their version. They are
followed to the event they repeat, so credit goes to who wrote the text. The events of a revert name
the version that it takes back: the text that they repeat is that of the version before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tfgrpo.store.history import replay
from tfgrpo.store.history.library_order import arranged, is_digest, listed
from tfgrpo.store.history.walks import rows_contained, version_of_row, whole_history
from tfgrpo.store.records import Event, EventRow, Experience, Version
from tfgrpo.store.store import Store, event_of

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Where events lie: (after, upto] of rows."""


class Blame(NamedTuple):
    """An experience, the event that gave it its text, that event's version, and how many KEEPs
    have confirmed the text since, wherever in the history they are."""

    experience: Experience
    event: Event
    version: Version
    keeps: int


class Origin(NamedTuple):
    """The event that another one repeats, its version, and the rows that lead there."""

    event: Event
    version: Version
    rows: tuple[int, ...]


class Origins:
    """Follows events to those that they repeat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, event: Event, version: Version) -> Origin:
        """The origin of an event of `version`: the event itself if it repeats none."""
        if not event.evidence and version.merged is None:  # like most, it was not brought over
            return Origin(event, version, (event.row,))
        rows = [event.row]
        events: list[EventRow] | None = None
        while sources := self._sources(event, version):
            if events is None:
                events = self._store.port.events_of(event.experience)
            last = (self._last(events, source) for source in sources)
            repeated = next((one for one in last if one and _repeats(event, one)), None)
            if repeated is None:
                break
            version = version_of_row(self._store.port, repeated.row)
            event = event_of(repeated, version.number)
            rows.append(event.row)
        return Origin(event, version, tuple(rows))

    def _sources(self, event: Event, version: Version) -> list[Version]:
        """Where an event may have been brought over from: a merge's other side, or the version that
        it names, picked, and before that one's change, reverted."""
        if version.merged is not None:
            return [self._store.version(version.merged)]
        evidence = event.evidence or {}
        digest = evidence.get("version")
        if len(evidence) != 1 or not is_digest(digest):
            return []
        there = self._store.port.versions_by_digest(digest, 1)
        if not there or there[0].number >= version.number:
            return []
        before = there[0].parent
        return there if before is None else [there[0], self._store.version(before)]

    def _last(self, events: Sequence[EventRow], source: Version) -> EventRow | None:
        """The event that last shaped an experience in the history of a version."""
        shaped = {event.row: event for event in reversed(events) if event.op != "KEEP"}
        row = next(rows_contained(self._store.port, shaped, source.position), None)
        return None if row is None else shaped[row]


def _repeats(event: Event, earlier: EventRow) -> bool:
    deletes = event.op == "DELETE"
    return (earlier.op == "DELETE") == deletes and earlier.text == event.text


def blame(store: Store, version: Version, *, only: Collection[str] | None = None) -> list[Blame]:
    """Who gave each experience (in `only`) of a library its text, in library order."""
    with replay.without_gc():
        live = _live(store, version, only)
        numbers = {event.version for _, event in live}
        versions = {v.number: v for v in store.port.versions_at(numbers)}
        origins = Origins(store)
        origin_of = [origins.of(event, versions[event.version]) for _, event in live]
        rows = {e.id: origin.rows for (e, _), origin in zip(live, origin_of, strict=True)}
        keeps = count_keeps(store, rows, whole_history(store.port, version).ranges)
        return [
            Blame(e, origin.event, origin.version, keeps[e.id])
            for (e, _), origin in zip(live, origin_of, strict=True)
        ]


def _live(
    store: Store, version: Version, only: Collection[str] | None
) -> list[tuple[Experience, Event]]:
    if only is not None:
        library = [e for e in store.library(version) if e.id in only]
        events = store.events_at(e.row for e in library)
        return [(e, events[e.row]) for e in library]
    port = store.port
    live = replay.live_rows(port, version.position)
    rows = replay.all_of(live, port.events_at(live))
    numbers = port.numbers_of_rows(live)
    events = {row.row: event_of(row, numbers[row.row]) for row in rows}
    shapes = [(row.experience, row.text, row.row, row.birth or row.row) for row in rows]
    known = replay.LiveEvents()
    known.add(shapes)
    ordered = arranged(shapes, listed(port, version))
    return [(known.experiences[row], events[row]) for _, _, row, _ in ordered]


def count_keeps(
    store: Store, rows: Mapping[str, tuple[int, ...]], ranges: Ranges
) -> dict[str, int]:
    """Experience → how many KEEPs in these ranges of rows confirm one of its rows."""
    counts = dict.fromkeys(rows, 0)
    depth = 0
    while level := {id: chain[depth] for id, chain in rows.items() if depth < len(chain)}:
        keeps = store.port.counts.keeps(level, ranges)
        for id, row in level.items():
            counts[id] += keeps.get(row, 0)
        depth += 1
    return counts
