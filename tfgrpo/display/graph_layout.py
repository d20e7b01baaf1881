"""Where a history is drawn: a column for every line of versions, so that any stretch can be drawn
alone.

A chain of first parents takes a column from its base to the last version that needs it. Chains that
do not overlap share columns, by greedy colouring of intervals.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tfgrpo.store.records import Version
    from tfgrpo.store.store import Store

CHUNK = 2_000
"""Versions that are read at once."""


class Line(NamedTuple):
    """A part of a row's drawing between columns: `through`, `above` or `below` the version,
    `fork` from the top of `a` to the version in `b`, or `join` from it to the bottom of `a`."""

    part: str
    a: int
    b: int


class DrawnRow(NamedTuple):
    """One version's row: its number, its column, and the lines in the row."""

    number: int
    column: int
    lines: tuple[Line, ...]


class _Chain:
    """Versions in a line, drawn from `start` (what the first builds on, else itself) to `until`."""

    __slots__ = ("column", "last", "start", "until")

    def __init__(self, start: int, last: int) -> None:
        self.start, self.last, self.until, self.column = start, last, last, 0


class HistoryLayout:
    """The drawing of a store's versions. It reads each once; threads may share it."""

    def __init__(self) -> None:
        self._parents: list[tuple[int, ...]] = []
        self._chain_of: list[int] = []
        self._chains: list[_Chain] = []
        self._merges: list[tuple[int, int]] = []  # what was merged, and by which version
        self._next: list[int] = []  # the version that goes on in the same chain; -1 for none
        self._joins: dict[int, list[_Chain]] = {}  # lines that end in a merge and go on as well
        self._drawn: list[_Chain] = []
        self._lock = threading.Lock()

    def rows(self, store: Store, newest: int, count: int) -> list[DrawnRow]:
        """The rows of so many versions, from `newest` down."""
        with self._lock:
            self._read(store)
            high = min(newest, len(self._parents) - 1)
            low = max(0, high - count + 1)
            near = [c for c in self._drawn if c.start <= high and c.until >= low]
            return [self._row(number, near) for number in range(high, low - 1, -1)]

    def ancestors(self, store: Store, version: Version) -> bytearray:
        """A byte for each version up to one: whether it is in that one's history."""
        with self._lock:
            self._read(store)
            there = bytearray(version.number + 1)
            there[version.number] = 1
            for number in range(version.number, -1, -1):
                if there[number]:
                    for parent in self._parents[number]:
                        there[parent] = 1
            return there

    def _read(self, store: Store) -> None:
        """Reads the versions that are new since the last time, and gives columns anew."""
        newest = store.port.last_version()
        begin = len(self._parents)
        if begin > newest:
            return
        for start in range(begin, newest + 1, CHUNK):
            stop = min(start + CHUNK, newest + 1)
            for version in store.port.versions_at(range(start, stop)):
                self._add(version.number, version.parents)
        self._give_columns()

    def _add(self, number: int, parents: Sequence[int]) -> None:
        while len(self._parents) < number:  # a number that is missing is a line of its own
            self._add(len(self._parents), ())
        self._parents.append(tuple(parents))
        chain = self._chain_of[parents[0]] if parents else -1
        if chain >= 0 and self._chains[chain].last == parents[0]:
            self._chains[chain].last = number
            self._next[parents[0]] = number
        else:
            chain = len(self._chains)
            self._chains.append(_Chain(parents[0] if parents else number, number))
        self._chain_of.append(chain)
        self._next.append(-1)
        self._merges += [(merged, number) for merged in parents[1:]]

    def _give_columns(self) -> None:
        for chain in self._chains:
            chain.until = chain.last
        drawn = [*self._chains]
        self._joins = {}
        for merged, by in reversed(self._merges):
            chain = self._chains[self._chain_of[merged]]
            if chain.until == merged:  # its tip: the chain itself leads to the merge
                chain.until = by
            elif self._next[merged] > by:  # the chain passes by: it goes on above the merge
                self._joins.setdefault(by, []).append(chain)
            else:
                drawn.append(extra := _Chain(merged, -1))
                extra.until = by
        drawn.sort(key=lambda chain: (chain.start, chain.until))
        free: list[int] = []
        taken: list[tuple[int, int]] = []  # (until, column)
        columns = 0
        for chain in drawn:
            while taken and taken[0][0] <= chain.start:
                heapq.heappush(free, heapq.heappop(taken)[1])
            if free:
                chain.column = heapq.heappop(free)
            else:
                chain.column, columns = columns, columns + 1
            heapq.heappush(taken, (chain.until, chain.column))
        self._drawn = drawn

    def _row(self, number: int, near: Sequence[_Chain]) -> DrawnRow:
        own = self._chains[self._chain_of[number]]
        lines = []
        for chain in near:
            above = chain.start <= number < chain.until
            below = chain.start < number <= chain.until
            if chain is own:
                lines += [Line("above", own.column, own.column)] * above
                lines += [Line("below", own.column, own.column)] * below
            elif above and below:
                lines.append(Line("through", chain.column, chain.column))
            elif above:
                lines.append(Line("fork", chain.column, own.column))
            elif below:
                lines.append(Line("join", chain.column, own.column))
        for chain in self._joins.get(number, ()):
            lines.append(Line("join", chain.column, own.column))
        return DrawnRow(number, own.column, tuple(lines))
