"""Who taught us this: for each live experience, the event that last shaped it and its votes."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store.port import Port, lane_of, lane_start
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
    library = store.library(version)
    keeps = store.port.count_keeps([e.row for e in library], history(store.port, version.position))
    events = store.events_at([e.row for e in library])
    return [
        Blame(e, events[e.row], store.version(events[e.row].version), keeps.get(e.row, 0))
        for e in library
    ]


def history(port: Port, position: int) -> list[tuple[int, int]]:
    """Returns the whole history up to a position as ranges (after, upto] of rows, oldest first."""
    ranges = []
    while True:
        lane = lane_of(position)
        ranges.append((lane_start(lane), position))
        if lane == 0:
            return ranges[::-1]
        position = port.lane_base(lane)
