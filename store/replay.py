"""From events to libraries: the fold that everything else rests on.

`library(v) = library(first parent of v) + events(v)`. Because a lane is a range of rows, the
fold of a history is a few range reads. A snapshot holds the rows that are live at a position
and nothing else; it saves reading the history before it, and dropping it changes no answer.

An experience keeps its place: libraries are ordered by the row of an experience's first ADD in
the history (its birth), which any other store with the same history orders the same way.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfgrpo.store.damage import damaged
from tfgrpo.store.port import EventRow, Port, Step, lane_of, lane_start
from tfgrpo.store.records import REDACTED, Change, Experience, Library, Version

SNAPSHOT_EVERY = 1000
SHORT_RANGE = 2000


def segments(
    port: Port, position: int, *, snapshots: bool = True
) -> tuple[list[int], list[tuple[int, int]]]:
    """Returns where a replay to `position` starts and what it has to read.

    That is the live rows of the nearest snapshot, and the ranges (after, upto] of rows since
    it, oldest first.
    """
    ranges: list[tuple[int, int]] = []
    while True:
        lane = lane_of(position)
        start = lane_start(lane)
        found = port.snapshot(start, position) if snapshots else None
        if found is not None:
            ranges.append((found[0], position))
            return found[1], ranges[::-1]
        ranges.append((start, position))
        if lane == 0:
            return [], ranges[::-1]
        position = port.lane_base(lane)


def fold(live: set[int], steps: Iterable[Step]) -> None:
    """Applies events to a set of live rows, in place."""
    for row, op, replaces in steps:
        if replaces is not None:
            live.discard(replaces)
        if op != "DELETE":
            live.add(row)


def live_rows(port: Port, position: int, *, snapshots: bool = True) -> set[int]:
    """Returns the rows of the events that are live at a position, with or without snapshots."""
    snapshot, ranges = segments(port, position, snapshots=snapshots)
    live = set(snapshot)
    for after, upto in ranges:
        fold(live, port.steps(after, upto))
    return live


def library_at(port: Port, version: Version) -> Library:
    """Returns the library in force at a version."""
    live = live_rows(port, version.position)
    rows = port.events_at(live)
    if len(rows) != len(live):
        raise damaged(f"{len(live) - len(rows)} events of {version.name} are missing")
    return Library(version, experiences(rows))


def experiences(rows: Iterable[EventRow]) -> tuple[Experience, ...]:
    """Returns live events as experiences, in library order."""
    ordered = sorted(rows, key=lambda e: e.birth or e.row)
    return tuple(
        Experience(e.experience, e.text, e.row)
        if e.text is not None
        else Experience(e.experience, REDACTED, e.row, True)
        for e in ordered
    )


def diff(port: Port, a: Version, b: Version) -> tuple[Change, ...]:
    """Returns how the library at `b` differs from the one at `a`, in library order.

    When `b` follows closely on `a` in one lane only the events between are read, so the cost
    follows the change; otherwise the two sets of live rows are compared.
    """
    if lane_of(a.position) == lane_of(b.position) and 0 <= b.position - a.position <= SHORT_RANGE:
        gone, come = _range(port, a.position, b.position)
    else:
        before, after = live_rows(port, a.position), live_rows(port, b.position)
        gone, come = before - after, after - before
    rows = {e.row: e for e in port.events_at(gone | come)}
    old = {rows[r].experience: rows[r] for r in gone}
    new = {rows[r].experience: rows[r] for r in come}
    births = {id: e.birth or e.row for side in (old, new) for id, e in side.items()}
    changes = (
        Change(id, _text(old.get(id)), _text(new.get(id)))
        for id in sorted(births, key=lambda id: births[id])
    )
    return tuple(c for c in changes if c.before != c.after)


def _range(port: Port, after: int, upto: int) -> tuple[set[int], set[int]]:
    """Returns the rows that stop and start being live between two positions of a lane."""
    gone: set[int] = set()
    come: set[int] = set()
    for row, op, replaces in port.steps(after, upto):
        if replaces in come:
            come.discard(replaces)
        elif replaces is not None and op != "ADD":  # an ADD may point at the DELETE it takes back
            gone.add(replaces)
        if op != "DELETE":
            come.add(row)
    return gone, come


def _text(event: EventRow | None) -> str | None:
    if event is None:
        return None
    return event.text if event.text is not None else REDACTED
