"""How a version stands: what an append has to know of it, kept from one append to the next."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store import replay
from tfgrpo.store.append import Place
from tfgrpo.store.port import Port, lane_of
from tfgrpo.store.records import Version


class Standing(NamedTuple):
    """A version, what is live there, and what a replay to it would read, in events."""

    version: Version
    live: dict[str, Place]
    cost: int


def standing_at(port: Port, tip: Version, known: Standing | None) -> Standing:
    """Returns how a version stands, from what is known of another where that is near.

    Beside other writers what is known is brought up to date by their events alone, in place, for
    as long as those are few.
    """
    if known is not None:
        version, live, cost = known
        if (version.digest, version.position) == (tip.digest, tip.position):
            return known
        if _follows_shortly(port, tip, version):
            for row in port.events(version.position, tip.position):
                if row.op == "DELETE":
                    live.pop(row.experience, None)
                elif row.op != "KEEP":
                    live[row.experience] = Place(row.row, row.birth or row.row)
            return Standing(tip, live, cost + tip.position - version.position)
    _, ranges = replay.segments(port, tip.position)
    shapes = replay.shapes(port, replay.live_rows(port, tip.position))
    live = {id: Place(row, birth) for id, _, row, birth in shapes}
    return Standing(tip, live, replay.reading(ranges))


def _follows_shortly(port: Port, tip: Version, known: Version) -> bool:
    if lane_of(tip.position) != lane_of(known.position):
        return False
    if not 0 <= tip.position - known.position <= replay.SHORT_RANGE:
        return False
    there = port.version(known.number)  # not so when a transaction around it failed
    return there is not None and there.digest == known.digest
