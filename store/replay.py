"""From events to libraries: the fold that everything else rests on.

`library(v) = library(first parent of v) + events(v)`. Because a lane is a range of rows, the
fold of a history is a few range reads. A snapshot holds the rows that are live at a position
and nothing else; it saves reading the history before it, and dropping it changes no answer.

An experience keeps its place: libraries are ordered by the row of an experience's first ADD in
the history (its birth), which any other store with the same history orders the same way, unless
a version recorded another order (`order.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import repeat
from typing import TypeVar

from tfgrpo.store.history import lanes
from tfgrpo.store.order import arranged, listed
from tfgrpo.store.port import Port, Shape, Step, lane_of
from tfgrpo.store.records import REDACTED, Change, Experience, Library, Version
from tfgrpo.store.row_checks import damage_error

T = TypeVar("T")

SNAPSHOT_EVERY = 500
LIVE_PER_EVENT = 16
HOP = 50
SHORT_RANGE = 2000


def segments(
    port: Port, position: int, *, snapshots: bool = True
) -> tuple[list[int], list[tuple[int, int]]]:
    """Returns where a replay to `position` starts and what it has to read.

    That is the live rows of the nearest snapshot, and the ranges (after, upto] of rows since
    it, oldest first.
    """
    ranges: list[tuple[int, int]] = []
    for start, upto in lanes(port, position):
        snapshot = port.snapshot(start, upto) if snapshots else None
        if snapshot is not None:
            ranges.append((snapshot[0], upto))
            return snapshot[1], ranges[::-1]
        ranges.append((start, upto))
    return [], ranges[::-1]


def fold(live: set[int], steps: Iterable[Step]) -> None:
    """Applies events to a set of live rows, in place."""
    for row, op, replaces in steps:
        if replaces is not None:
            live.discard(replaces)
        if op != "DELETE":
            live.add(row)


def reading(ranges: Sequence[tuple[int, int]]) -> int:
    """Returns what a replay over these ranges costs, in events: a hop between lanes is some."""
    return sum(upto - after for after, upto in ranges) + HOP * (len(ranges) - 1)


def snapshot_due(cost: int, live: int) -> bool:
    """Returns whether a replay that costs so many events deserves a snapshot of so many rows.

    A live row takes about a byte of a snapshot and an event more than two hundred of the log:
    with an event for every sixteen live rows, snapshots stay far below a tenth of the log,
    however large the library is.
    """
    return cost >= max(SNAPSHOT_EVERY, live // LIVE_PER_EVENT)


def live_rows(port: Port, position: int, *, snapshots: bool = True) -> set[int]:
    """Returns the rows of the events that are live at a position, with or without snapshots."""
    snapshot, ranges = segments(port, position, snapshots=snapshots)
    live = set(snapshot)
    for after, upto in ranges:
        fold(live, port.steps(after, upto))
    return live


class LiveEvents:
    """Live events by row: the births of their experiences, and the experiences as they show
    them. Whoever reads more than one library keeps one of these for all."""

    __slots__ = ("births", "experiences")

    def __init__(self) -> None:
        self.births: dict[int, int] = {}
        self.experiences: dict[int, Experience] = {}

    def add(self, shapes: Sequence[Shape]) -> None:
        """Adds events that were read."""
        if not shapes:
            return
        ids, texts, rows, births = zip(*shapes, strict=True)
        self.births.update(zip(rows, births, strict=True))
        # What Experience() calls, by way of Python and one at a time.
        columns = zip(ids, texts, rows, repeat(False))
        shown = map(tuple.__new__, repeat(Experience), columns)
        self.experiences.update(zip(rows, shown, strict=True))
        if not all(texts):  # one was redacted
            for id, text, row, _ in shapes:
                if text is None:
                    self.experiences[row] = Experience(id, REDACTED, row, True)


def library_at(port: Port, version: Version, known: LiveEvents | None = None) -> Library:
    """Returns the library in force at a version. Raises StoreError.

    `known` has live events of other libraries: what was read for those, and not redacted since,
    is not read again. What is read is added to it.
    """
    known = known or LiveEvents()
    with without_gc():
        live = live_rows(port, version.position)
        known.add(_shapes(port, live.difference(known.births)))
        births, experiences = known.births, known.experiences
        order = listed(port, version)
        if not order:
            rows = sorted(live, key=births.__getitem__)
        else:
            shapes = [(experiences[row].id, None, row, births[row]) for row in live]
            rows = [row for _, _, row, _ in arranged(shapes, order)]
        return Library(version, tuple(map(experiences.__getitem__, rows)))


def shapes_at(port: Port, version: Version) -> list[Shape]:
    """Returns the events that are live at a version, in row order. Raises StoreError."""
    return _shapes(port, live_rows(port, version.position))


def _shapes(port: Port, rows: set[int]) -> list[Shape]:
    return all_of(rows, port.shapes_at(rows))


def all_of(rows: AbstractSet[int], events: list[T]) -> list[T]:
    """Returns the events read from these rows. Raises StoreError unless there is one at each."""
    if len(events) != len(rows):
        raise damage_error(f"{len(rows) - len(events)} events that are in force are missing")
    return events


@contextmanager
def without_gc() -> Iterator[None]:
    """Spares thousands of new tuples, none of which can be garbage, a search for cycles.

    That search took a third of a large checkout.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def diff(port: Port, a: Version, b: Version) -> tuple[Change, ...]:
    """Returns how the library at `b` differs from the one at `a`, in library order.

    When `b` follows closely on `a` in one lane only the events between are read, so the cost
    follows the change; otherwise the two sets of live rows are compared.
    """
    if lane_of(a.position) == lane_of(b.position) and 0 <= b.position - a.position <= SHORT_RANGE:
        removed, added = _range(port, a.position, b.position)
    else:
        old, new = live_rows(port, a.position), live_rows(port, b.position)
        removed, added = old - new, new - old
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    places: dict[str, Shape] = {}
    for shape in _shapes(port, removed | added):
        id, text, row, _ = shape
        (after if row in added else before)[id] = REDACTED if text is None else text
        places[id] = shape
    changed = arranged(places.values(), listed(port, b))
    changes = (Change(id, before.get(id), after.get(id)) for id, *_ in changed)
    return tuple(c for c in changes if c.before != c.after)


def _range(port: Port, after: int, upto: int) -> tuple[set[int], set[int]]:
    """Returns the rows that stop and start being live between two positions of a lane."""
    removed: set[int] = set()
    added: set[int] = set()
    for row, op, replaces in port.steps(after, upto):
        if replaces in added:
            added.discard(replaces)
        elif replaces is not None and op != "ADD":  # an ADD may point at the DELETE it takes back
            removed.add(replaces)
        if op != "DELETE":
            added.add(row)
    return removed, added
