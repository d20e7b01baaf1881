"""What an append has to know of the version it builds on, kept from one append to the next."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store import replay
from tfgrpo.store.append import Place
from tfgrpo.store.port import Port, lane_of
from tfgrpo.store.records import Version


class Standing(NamedTuple):
    """What is live at a version, and what a replay up to there would read, in events."""

    tip: Version
    live: dict[str, Place]
    cost: int


def standing_at(port: Port, known: Standing | None, tip: Version) -> Standing:
    """Returns what stands at a version.

    From `known`, which is used up, it takes no query where an append follows on the last one.
    Beside other writers it is brought up to date by their events alone, for as long as those
    are few.
    """
    if known is not None:
        if (known.tip.digest, known.tip.position) == (tip.digest, tip.position):
            return known
        if _follows_shortly(port, tip, known.tip):
            live = known.live
            for row in port.events(known.tip.position, tip.position):
                if row.op == "DELETE":
                    live.pop(row.experience, None)
                elif row.op != "KEEP":
                    live[row.experience] = Place(row.row, row.birth or row.row)
            return Standing(tip, live, _cost(port, tip))
    shapes = replay.shapes(port, replay.live_rows(port, tip.position))
    live = {id: Place(row, birth) for id, _, row, birth in shapes}
    return Standing(tip, live, _cost(port, tip))


def _follows_shortly(port: Port, tip: Version, known: Version) -> bool:
    if lane_of(tip.position) != lane_of(known.position):
        return False
    if not 0 <= tip.position - known.position <= replay.SHORT_RANGE:
        return False
    there = port.version(known.number)  # not so when a transaction around it failed
    return there is not None and there.digest == known.digest


def _cost(port: Port, tip: Version) -> int:
    _, ranges = replay.segments(port, tip.position)
    return replay.reading(ranges)
