"""Every walk over a history: first parents, ancestors, ranges, common ancestors, lanes of rows.

A version's number is higher than its parents', so a walk that takes the highest number left yields
a history newest first, and reads no more of it than it is asked for.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.store.errors import StoreError
from tfgrpo.store.records import lane_of, lane_start

if TYPE_CHECKING:
    from tfgrpo.store.records import Version
    from tfgrpo.store.sql.port import Port
    from tfgrpo.store.store import Store

Parents: TypeAlias = Callable[[int], Sequence[int]]
"""The numbers of a version's parents, which are lower than its own."""
MOST_AHEAD = 512
"""How many versions a long walk reads at a time."""


class WholeHistory(NamedTuple):
    """Where the events of a history lie, as ranges (after, upto] of rows, ascending; `copied`,
    within them, are the events of merges."""

    ranges: list[tuple[int, int]]
    copied: list[tuple[int, int]]


Versions: TypeAlias = "Store | Port"
"""What reads versions by number."""


def version_at(versions: Versions, number: int) -> Version:
    """A version that has to be there. Raises StoreError."""
    version = versions.version(number)
    if version is None:
        raise StoreError(f"v{number} is missing", hint="run `tfgrpo fsck` for details")
    return version


def version_of_row(port: Port, row: int) -> Version:
    """The version that holds the event at a row. Raises StoreError."""
    return version_at(port, port.numbers_of_rows([row])[row])


class ReadAhead:
    """Reads versions for a walk from newer to older: one at first, and more the longer it is."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._ahead: dict[int, Version] = {}
        self._many, self._used = 1, 1

    def __call__(self, number: int) -> Version:
        """The version of that number, which has to be there. Raises StoreError."""
        version = self._ahead.pop(number, None)
        if version is not None:
            self._used += 1
            return version
        few = self._used * 4 < self._many
        self._many = max(1, self._many // 4) if few else min(self._many * 2, MOST_AHEAD)
        self._used = 1
        numbers = range(max(0, number - self._many + 1), number)
        self._ahead = {}
        with suppress(StoreError):  # of a version that this walk may never come to
            self._ahead = {v.number: v for v in self._versions.versions_at(numbers)}
        return version_at(self._versions, number)


def first_parents(versions: Versions, version: Version | None) -> Iterator[Version]:
    """A version and its first parents, newest first."""
    read = ReadAhead(versions)
    while version is not None:
        yield version
        version = None if version.parent is None else read(version.parent)


def ancestors(
    versions: Versions, tips: Iterable[int], without: Iterable[int] = ()
) -> Iterator[Version]:
    """`tips` and their ancestors, newest first, but none that `without` has or is."""
    version: Version | None = None
    read = ReadAhead(versions)

    def parents(number: int) -> Sequence[int]:
        nonlocal version
        version = read(number)
        return version.parents

    for _ in ancestor_numbers(parents, tips, without):
        assert version is not None
        yield version


def ancestor_numbers(
    parents: Parents, tips: Iterable[int], without: Iterable[int] = ()
) -> Iterator[int]:
    """Does what `ancestors` does for any history of numbers. Asks for the parents of a number
    once, and of no number below the last that can be yielded."""
    excluded = dict.fromkeys(tips, False) | dict.fromkeys(without, True)
    heap = [-number for number in excluded]
    heapq.heapify(heap)
    included = sum(not drop for drop in excluded.values())
    while included:
        number = -heapq.heappop(heap)
        drop = excluded.pop(number)
        included -= not drop
        for parent in parents(number):
            if parent not in excluded:
                heapq.heappush(heap, -parent)
                excluded[parent] = drop
                included += not drop
            elif drop and not excluded[parent]:
                excluded[parent] = True
                included -= 1
        if not drop:
            yield number


def contained(versions: Versions, tips: Iterable[int], candidates: AbstractSet[int]) -> set[int]:
    """Those of the candidates that are in the history of `tips`."""
    there: set[int] = set()
    if not candidates:
        return there
    oldest = min(candidates)
    for version in ancestors(versions, tips):
        if version.number in candidates:
            there.add(version.number)
        if version.number <= oldest:
            break
    return there


def has_in_history(versions: Versions, tip: Version, version: Version) -> bool:
    """Whether a version is another, or in its history."""
    return bool(contained(versions, {tip.number}, {version.number}))


def common_ancestor(versions: Versions, a: Version, b: Version) -> Version:
    """A version that both have in their history, and no later one has both. v0 is in every
    history. Of several, the one that every copy of the store takes."""
    return common_ancestors(versions, a, b)[0]


def common_ancestors(versions: Versions, a: Version, b: Version) -> list[Version]:
    """The versions that both have in their history, without those that another of them has in its
    own: several where each side has merged the other. Their order is that of their digests, alike
    in every copy of a store, as numbers are not."""
    ours, theirs, passed = 1, 2, 4
    sides = {a.number: ours}
    sides[b.number] = sides.get(b.number, 0) | theirs
    heap = [-number for number in sides]
    heapq.heapify(heap)
    read, open_ends = ReadAhead(versions), len(sides)
    common: list[Version] = []
    while open_ends:  # the others are in the history of a version that is common
        version = read(-heapq.heappop(heap))
        side = sides[version.number]
        open_ends -= not side & passed
        if side == ours | theirs:
            common.append(version)
            side |= passed
        for parent in version.parents:
            before = sides.get(parent)
            if before is None:
                heapq.heappush(heap, -parent)
            now = (before or 0) | side
            open_ends += (not now & passed) - (before is not None and not before & passed)
            sides[parent] = now
    return sorted(common, key=lambda version: version.digest)


def parents_reader(versions: Versions) -> Parents:
    """The parents of versions by number, each version read once."""
    known: dict[int, tuple[int, ...]] = {}
    read = ReadAhead(versions)

    def parents(number: int) -> tuple[int, ...]:
        if number not in known:
            known[number] = read(number).parents
        return known[number]

    return parents


# rows:


def lanes(port: Port, position: int) -> Iterator[tuple[int, int]]:
    """The first-parent history up to a position as ranges (after, upto] of rows, newest first."""
    while True:
        lane = lane_of(position)
        yield lane_start(lane), position
        if lane == 0:
            return
        position = port.lane_base(lane)


def row_ranges(port: Port, position: int) -> list[tuple[int, int]]:
    """The first-parent history up to a position as ranges of rows, oldest first."""
    return list(lanes(port, position))[::-1]


def whole_history(port: Port, version: Version) -> WholeHistory:
    """Where the events of a history lie, second parents' included. Goes by lanes and merges: what
    has neither is one range, however long it is."""
    ends: dict[int, int] = {}
    copied = []
    left = [version.position]
    while left:
        for after, upto in lanes(port, left.pop()):
            lane = lane_of(upto)
            before = ends.get(lane, after or -1)
            if upto <= before:
                break
            ends[lane] = upto
            for position, events, merged in port.merges(before, upto):
                if not events:  # a place that other versions have too: whose is it?
                    return _by_version(port, version)
                copied.append((position - events, position))
                left.append(merged)
    return WholeHistory(_ranges(ends), sorted(copied))


def _by_version(port: Port, version: Version) -> WholeHistory:
    ends: dict[int, int] = {}
    copied = []
    for one in ancestors(port, [version.number]):
        lane = lane_of(one.position)
        ends[lane] = max(one.position, ends.get(lane, 0))
        if one.merged is not None and one.events:
            copied.append((one.position - one.events, one.position))
    return WholeHistory(_ranges(ends), sorted(copied))


def _ranges(ends: Mapping[int, int]) -> list[tuple[int, int]]:
    return [(lane_start(lane), position) for lane, position in sorted(ends.items())]


def row_within(row: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether a row is in one of some ranges (after, upto], which ascend."""
    at = bisect_left(ranges, (row, 0)) - 1
    return at >= 0 and row <= ranges[at][1]


def rows_contained(port: Port, rows: Iterable[int], position: int) -> Iterator[int]:
    """Those of some rows, which descend, that are in the first-parent history up to `position`: one
    walk for all, which goes no further back than is asked for."""
    history = lanes(port, position)
    after, upto = next(history)
    for row in rows:
        while row <= after:
            older = next(history, None)
            if older is None:
                return
            after, upto = older
        if row <= upto:
            yield row
