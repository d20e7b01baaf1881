"""Who taught us this: for each live experience, the event that last shaped it and its votes."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store import replay
from tfgrpo.store.history import row_ranges
from tfgrpo.store.records import REDACTED, Event, Experience, Version
from tfgrpo.store.store import Store, event_of


class Blame(NamedTuple):
    """An experience, the event that last shaped it, and how many KEEPs confirmed it since."""

    experience: Experience
    event: Event
    version: Version
    keeps: int


def blame(store: Store, version: Version) -> list[Blame]:
    """Returns who last shaped each experience of a library, in library order."""
    with replay.without_gc():
        return _blame(store, version)


def _blame(store: Store, version: Version) -> list[Blame]:
    live = replay.live_rows(store.port, version.position)
    events = replay.all_of(live, store.port.events_at(live))
    rows = {e.experience: e.row for e in events}
    keeps = store.port.count_keeps(rows, row_ranges(store.port, version.position))
    versions = store.versions_of(live)
    return [
        Blame(
            Experience(e.experience, REDACTED if e.text is None else e.text, e.row, e.text is None),
            event_of(e, versions[e.row].number),
            versions[e.row],
            keeps.get(e.row, 0),
        )
        for e in sorted(events, key=lambda e: e.birth or e.row)
    ]
