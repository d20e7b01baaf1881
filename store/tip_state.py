"""What an append has to know of the version it builds on, kept from one append to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tfgrpo.store import replay
from tfgrpo.store.append import Changes, LiveRow
from tfgrpo.store.port import EventRow, Port, Shape, lane_of, lane_start
from tfgrpo.store.records import Version


class TipState(NamedTuple):
    """What is live at a version, the position after which it grows, and what a replay up to
    there would read, in events."""

    version: Version
    position: int
    live: dict[str, LiveRow]
    cost: int


def tip_state_at(
    port: Port,
    version: Version,
    known: TipState | None,
    remembered: Callable[[Version], Iterable[Shape] | None] | None = None,
) -> TipState:
    """Returns the state at a version.

    From `known`, which is used up, it takes no query where an append follows on the last one.
    Beside other writers it is brought up to date by their events alone, for as long as those
    are few. `remembered` gives what is live there, where that has been replayed already.
    """
    if known is not None:
        if (known.version.digest, known.position) == (version.digest, version.position):
            return known
        if _follows_shortly(port, version, known.version):
            live = known.live
            for row in port.events(known.position, version.position):
                if row.op == "DELETE":
                    live.pop(row.experience, None)
                elif row.op != "KEEP":
                    live[row.experience] = LiveRow(row.row, row.birth or row.row)
            return TipState(version, version.position, live, _cost(port, version))
    shapes = None if remembered is None else remembered(version)
    if shapes is None:
        shapes = replay.shapes_at(port, version)
    live = {id: LiveRow(row, birth) for id, _, row, birth in shapes}
    return TipState(version, version.position, live, _cost(port, version))


def with_lane(port: Port, state: TipState) -> TipState:
    """Returns a state that may grow: itself, or, where its lane has gone on, a copy of it at the
    beginning of a new lane. Only inside a transaction."""
    return state if port.lane_tip(state.position) else in_new_lane(port, state)


def in_new_lane(port: Port, state: TipState) -> TipState:
    """Returns a copy of a state, at the beginning of a new lane. Only inside a transaction."""
    position = lane_start(port.open_lane(state.position))
    return TipState(state.version, position, dict(state.live), state.cost + replay.HOP)


def grown(
    port: Port, state: TipState, version: Version, rows: Sequence[EventRow], changes: Changes
) -> TipState:
    """Returns the state after a version was appended to `state`, which is used up.

    Records a snapshot where one is due. Only inside a transaction.
    """
    live, cost = state.live, state.cost + len(rows)
    for id, shaped_by in changes.items():
        if shaped_by is None:
            live.pop(id, None)
        else:
            live[id] = shaped_by
    if rows and replay.snapshot_due(cost, len(live)):
        port.put_snapshot(version.position, sorted(live_row.row for live_row in live.values()))
        cost = 0
    return TipState(version, version.position, live, cost)


def _follows_shortly(port: Port, version: Version, known: Version) -> bool:
    if lane_of(version.position) != lane_of(known.position):
        return False
    if not 0 <= version.position - known.position <= replay.SHORT_RANGE:
        return False
    there = port.version(known.number)  # not so when a transaction around it failed
    return there is not None and there.digest == known.digest


def _cost(port: Port, version: Version) -> int:
    _, ranges = replay.segments(port, version.position)
    return replay.reading(ranges)
