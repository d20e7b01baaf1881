"""Putting a library in another order, and what two orders have changed against each other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.order import source
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store


class Move(NamedTuple):
    """That an experience stands elsewhere in an order: its places there before and after, among
    all of the library, from 0."""

    experience: str
    before: int
    after: int


class MergedOrder(NamedTuple):
    """The order that has both sides' moves, None where only ours has any, and the experiences
    that both moved, which stay where ours put them."""

    order: tuple[str, ...] | None
    conflicts: tuple[str, ...]


def moved(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Returns the fewest experiences that, moved, bring one order into the other, in the order of
    `after`. What is not in both is no move."""
    place = {id: number for number, id in enumerate(before)}
    common = [id for id in after if id in place]
    stay = _longest_rise([place[id] for id in common])
    return [id for number, id in enumerate(common) if number not in stay]


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """Returns the positions of a longest rising subsequence (patience sorting)."""
    ends: list[int] = []  # the lowest number that ends a rise of each length
    at: list[int] = []  # and its position
    before: list[int] = []
    for position, number in enumerate(numbers):
        length = bisect_left(ends, number)
        ends[length : length + 1] = [number]
        at[length : length + 1] = [position]
        before.append(at[length - 1] if length else -1)
    stay: set[int] = set()
    position = at[-1] if at else -1
    while position >= 0:
        stay.add(position)
        position = before[position]
    return stay


def moves(store: Store, a: Version, b: Version) -> tuple[Move, ...]:
    """Returns which experiences stand elsewhere in the library at `b` than they would had nobody
    moved any since `a`, in the order of `b`. Without a recorded order there are none, and nothing
    is read."""
    if source(a) == source(b):
        return ()
    before, after = ids_of(store.library(a)), ids_of(store.library(b))
    was = {id: number for number, id in enumerate(before)}
    now = {id: number for number, id in enumerate(after)}
    return tuple(Move(id, was[id], now[id]) for id in moved(before, after))


def ids_of(library: Library) -> list[str]:
    """Returns the ids of a library, in order."""
    return [e.id for e in library]


def placed(
    order: Sequence[str],
    ids: Collection[str],
    *,
    before: str | None = None,
    after: str | None = None,
    last: bool = False,
) -> list[str]:
    """Returns an order with some of it, in the order given, moved before or after another one, to
    the end, or with none of these to the beginning. Raises InvalidOperation."""
    rest = [id for id in order if id not in ids]
    anchor = before or after
    if anchor in ids:
        raise InvalidOperation(
            f"{anchor} cannot stand before or after itself", hint="name another experience"
        )
    if anchor is not None and anchor not in rest:
        raise InvalidOperation(
            f"the library has no {anchor}", hint="`tfgrpo show HEAD` lists experiences"
        )
    at = len(rest) if last else 0
    if anchor is not None:
        at = rest.index(anchor) + (before is None)
    return [*rest[:at], *ids, *rest[at:]]


def merged_order(
    base: Library, ours: Library, theirs: Library, added: Iterable[str]
) -> MergedOrder:
    """Returns the order of a merge, three-way: ours, with what theirs moved and ours did not put
    where theirs has it, after the same experience.

    `added` are the experiences that the merge brings into ours. Where theirs records no other order
    than base, it moved nothing.
    """
    if source(base.version) == source(theirs.version):
        return MergedOrder(None, ())
    was, mine, other = ids_of(base), ids_of(ours), ids_of(theirs)
    by_us = set(moved(was, mine))
    by_them = _moved_or_placed(was, other)
    order = [*mine, *(id for id in added if id not in ours.by_id)]
    there = set(order)
    for id in by_them:
        if id in there and id not in by_us:
            order.remove(id)
            order.insert(_place_in(order, other, id, by_us), id)
    both = [id for id in by_them if id in by_us and id in there]
    shared = [id for id in order if id in theirs.by_id]
    conflicts = [id for id in both if _before(shared, id) != _before(other, id)]
    return MergedOrder(tuple(order), tuple(conflicts))


def _moved_or_placed(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Returns what was moved, and what was added anywhere but at the end."""
    old, moves = set(before), set(moved(before, after))
    last = max((number for number, id in enumerate(after) if id in old), default=-1)
    return [id for id in after[: last + 1] if id in moves or id not in old]


def _place_in(
    order: Sequence[str], theirs: Sequence[str], id: str, without: Collection[str]
) -> int:
    """Returns where in an order an experience goes that stands at its place in theirs: after the
    nearest one before it there, or, where none is, before the nearest after it."""
    place = {other: number for number, other in enumerate(order) if other not in without}
    at = theirs.index(id)
    for other in reversed(theirs[:at]):
        if other in place:
            return place[other] + 1
    return next((place[other] for other in theirs[at + 1 :] if other in place), 0)


def _before(order: Sequence[str], id: str) -> str | None:
    at = order.index(id)
    return order[at - 1] if at else None
