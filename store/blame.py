"""Who taught us this: for each live experience, the event that last shaped it and its votes."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store import replay
from tfgrpo.store.history import row_ranges
from tfgrpo.store.records import Event, Experience, Version
from tfgrpo.store.store import Store


class Blame(NamedTuple):
    """An experience, the event that last shaped it, and how many KEEPs confirmed it since."""

    experience: Experience
    event: Event
    version: Version
    keeps: int


def blame(store: Store, version: Version) -> list[Blame]:
    """Returns who last shaped each experience of a library, in library order."""
    with replay.without_gc():
        library = store.library(version)
        rows = {e.id: e.row for e in library}
        events = store.events_at(rows.values())
        versions = store.versions_of(rows.values())
        keeps = store.port.count_keeps(rows, row_ranges(store.port, version.position))
        return [Blame(e, events[e.row], versions[e.row], keeps.get(e.row, 0)) for e in library]
