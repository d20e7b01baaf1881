"""From events to libraries: the fold that everything else rests on.

`library(v) = library(first parent of v) + events(v)`, read as a few ranges of rows. A snapshot
holds the rows live at a position, and dropping it changes no answer. Libraries are ordered by
birth, the row of the first ADD, unless a version recorded an order (`library_order.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from itertools import repeat
from typing import TYPE_CHECKING, TypeVar

from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.history.library_order import arranged, listed
from tfgrpo.store.history.walks import lanes
from tfgrpo.store.records import (
    REDACTED,
    Change,
    Experience,
    Library,
    Shape,
    Step,
    Version,
    lane_of,
)

if TYPE_CHECKING:
    from tfgrpo.store.sql.port import Port

T = TypeVar("T")

SNAPSHOT_EVERY = 500
LIVE_PER_EVENT = 16
HOP = 50
SHORT_RANGE = 2000
LIBRARIES = 4
EVENTS = 200_000
"""Live events that are remembered at most: with more of them all of it is dropped."""


def segments(
    port: Port, position: int, *, snapshots: bool = True
) -> tuple[list[int], list[tuple[int, int]]]:
    """Where a replay to `position` starts and what it has to read. That is the live rows of the
    nearest snapshot, and the ranges (after, upto] of rows since it, oldest first."""
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
    """The cost of a replay over these ranges, in events: a hop between lanes is some."""
    return sum(upto - after for after, upto in ranges) + HOP * (len(ranges) - 1)


def snapshot_due(cost: int, live: int) -> bool:
    """Whether a replay of so many events deserves a snapshot of so many rows. With an event for
    every sixteen live rows, snapshots stay far below a tenth of the log."""
    return cost >= max(SNAPSHOT_EVERY, live // LIVE_PER_EVENT)


def live_rows(port: Port, position: int, *, snapshots: bool = True) -> set[int]:
    """The rows of the events that are live at a position, with or without snapshots."""
    snapshot, ranges = segments(port, position, snapshots=snapshots)
    live = set(snapshot)
    for after, upto in ranges:
        fold(live, port.steps(after, upto))
    return live


class LiveEvents:
    """Live events by row: births and experiences. Kept by whoever reads several libraries."""

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
    """The library at a version. What is read is added to `known`, and not read again. Raises
    StoreError."""
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
    """The events that are live at a version, in row order. Raises StoreError."""
    return _shapes(port, live_rows(port, version.position))


def _shapes(port: Port, rows: set[int]) -> list[Shape]:
    return all_of(rows, port.shapes_at(rows))


def all_of(rows: AbstractSet[int], events: list[T]) -> list[T]:
    """The events read from these rows. Raises StoreError unless there is one at each."""
    if len(events) != len(rows):
        raise damage_error(f"{len(rows) - len(events)} events that are in force are missing")
    return events


@contextmanager
def without_gc() -> Iterator[None]:
    """Spares thousands of new tuples a search for cycles: a third of a large checkout."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def diff(port: Port, a: Version, b: Version) -> tuple[Change, ...]:
    """How the library at `b` differs from the one at `a`, in library order. Where `b` follows
    closely on `a` in one lane only the events between are read."""
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
    """The rows that stop and start being live between two positions of a lane."""
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


class LibraryMemory:
    """The last few libraries, and the events that were live in them and in some before."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._libraries: dict[bytes, Library] = {}  # by digest, the last one that was asked last
        self._events = LiveEvents()
        self._newest: Version | None = None  # of those that were read
        self._redaction = 0  # the last one when they were

    def library(self, version: Version) -> Library:
        """The library in force at a version, which has just been read. Raises StoreError."""
        self._check()
        if len(self._events.births) > EVENTS:
            self.forget()
        library = self._libraries.pop(version.digest, None)
        if library is None or library.version != version:
            library = self._replayed(version)
        self._libraries[version.digest] = library
        if len(self._libraries) > LIBRARIES:
            del self._libraries[next(iter(self._libraries))]
        return library

    def forget(self) -> None:
        """Drops everything."""
        self._libraries.clear()
        self._events = LiveEvents()
        self._newest = None

    def _check(self) -> None:
        """Drops everything after a redaction, or a failed transaction in which it was read."""
        now, newest = self._port.redactions.last(), self._newest
        if now != self._redaction or (
            newest is not None and self._port.version(newest.number) != newest
        ):
            self.forget()
        self._redaction = now

    def _replayed(self, version: Version) -> Library:
        library = library_at(self._port, version, self._events)
        if self._newest is None or version.number > self._newest.number:
            self._newest = version
        return library
