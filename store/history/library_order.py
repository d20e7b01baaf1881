"""The order of a library: that of first additions, or one that a version records.

Under `order` in a version's meta are the ids that come first; the others follow in the order of
birth. Versions built on it have its digest under `ordered`, so that a replay finds the list. Both
are in the digests, so every clone orders alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.records import Library, Version

if TYPE_CHECKING:
    from tfgrpo.store.history.append import Changes, CommitDetails, LiveRow
    from tfgrpo.store.records import Json, Shape
    from tfgrpo.store.sql.port import Port
    from tfgrpo.store.store import Store


ORDER, ORDERED = "order", "ordered"
BIRTH = itemgetter(3)  # of a Shape


def source(version: Version) -> str | None:
    """The digest in hex of the version whose list orders a library; None: there is none."""
    order = version.meta.get(ORDER)
    if order is not None:
        return version.digest.hex() if order else None
    return version.meta.get(ORDERED)


def inherited(parent: Version) -> Json:
    """The meta of a version that leaves the order as it is."""
    before = source(parent)
    return {} if before is None else {ORDERED: before}


def listed(port: Port, version: Version) -> Sequence[str]:
    """The experiences that come first in a version's library, in order. Raises StoreError."""
    order: Sequence[str] | None = version.meta.get(ORDER)
    if order is None and ORDERED in version.meta:
        digest = version.meta[ORDERED]
        there = port.versions_by_digest(digest, 1) if is_digest(digest) else []
        order = there[0].meta.get(ORDER) if there else None
        if order is None:
            raise damage_error(f"the order of {version.name} is missing")
    if order is not None and not _is_list_of_ids(order):
        raise damage_error(f"the order of {version.name} is no list of experiences")
    return order or ()


def arranged(shapes: Iterable[Shape], order: Sequence[str]) -> list[Shape]:
    """Live events in library order, under the list in force."""
    if not order:
        return sorted(shapes, key=BIRTH)
    place = {id: number for number, id in enumerate(order)}
    last = len(place)
    return sorted(shapes, key=lambda shape: (place.get(shape[0], last), shape[3]))


def problem(meta: Json, before: str | None) -> str | None:
    """The mistake in a version's order, if any; `before` is the `source` of its first parent."""
    if ORDER in meta and not (_is_list_of_ids(meta[ORDER]) and ORDERED not in meta):
        return "its order is no list of experiences"
    if ORDERED in meta and meta[ORDERED] != before:
        return "its order is not that of the version that it builds on"
    return None


def with_order(
    port: Port,
    tip: Version,
    live: Mapping[str, LiveRow],
    changes: Changes,
    details: CommitDetails,
) -> Json | None:
    """The meta of a version appended to `tip`, with its library's order; `live` is what is live at
    the tip, `changes` what the version makes of it. Raises StaleVersion where the order was made
    for another one than the tip's, InvalidOperation where the meta has one of its own."""
    meta, wanted, onto = details.get("meta") or {}, details.get("order"), details.get("onto")
    if not meta.keys().isdisjoint((ORDER, ORDERED)):
        raise InvalidOperation("meta has an order", hint="give it to commit as `order`")
    before = source(tip)
    if wanted is not None:
        if onto is not None and source(onto) != before:
            raise StaleVersion(
                f"the library was put in another order meanwhile, at {tip.name}",
                hint="look at the new order and try again",
            )
        births = {id: row.birth for id, row in live.items()}
        for id, row in changes.items():
            if row is None:
                births.pop(id, None)
            else:
                births[id] = row.birth
        was = _sequence(births, listed(port, tip))
        order = _sequence(births, dict.fromkeys([*wanted, *was]))
        if order != was:
            return {**meta, ORDER: _shortest(order, births)}
    return {**meta, **inherited(tip)} or None


def _sequence(births: Mapping[str, int], order: Iterable[str]) -> list[str]:
    """The ids that are live in the order that a list gives them."""
    shapes = ((id, None, 0, birth) for id, birth in births.items())
    return [id for id, *_ in arranged(shapes, list(order))]


def _shortest(order: Sequence[str], births: Mapping[str, int]) -> list[str]:
    """The shortest beginning of an order that gives all of it, by birth."""
    end = len(order)
    while end > 1 and births[order[end - 2]] < births[order[end - 1]]:
        end -= 1
    return list(order[: end - 1]) if end else []


def _is_list_of_ids(value: object) -> bool:
    from tfgrpo.store.canonical import is_id  # a log of a library that nobody rearranged needs none

    if not isinstance(value, list) or not all(isinstance(id, str) and is_id(id) for id in value):
        return False
    return len(set(value)) == len(value)


def is_digest(text: object) -> TypeGuard[str]:
    """Whether something is a version's digest in hex."""
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")


class Move(NamedTuple):
    """An experience's places in an order before and after, from 0."""

    experience: str
    before: int
    after: int


class MergedOrder(NamedTuple):
    """The order that has both sides' moves, None where only ours has any, and the experiences
    that both moved, which stay where ours put them."""

    order: tuple[str, ...] | None
    conflicts: tuple[str, ...]


def moved(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The fewest of the common experiences that, moved, bring one order into the other."""
    place = {id: number for number, id in enumerate(before)}
    common = [id for id in after if id in place]
    stay = set(_rising([place[id] for id in common]))
    return [id for number, id in enumerate(common) if number not in stay]


def _rising(numbers: Sequence[int]) -> Sequence[int]:
    """The places of a longest choice of numbers that rise (patience sorting)."""
    if numbers == sorted(numbers):
        return range(len(numbers))
    from bisect import bisect_left  # a log of a library in its first order needs none

    ends: list[int] = []  # the lowest number in which a choice of each length can end
    last: list[int] = []  # and its place
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(number)
            last.append(place)
        else:
            ends[length], last[length] = number, place
    chosen: list[int] = []
    place = last[-1] if last else -1
    while place >= 0:
        chosen.append(place)
        place = before[place]
    return chosen[::-1]


def moves(store: Store, a: Version, b: Version) -> tuple[Move, ...]:
    """The experiences that were moved between `a` and `b`: those whose place in the library at `b`
    would be another one without moves since `a`, in the order of `b`. Without a recorded order
    there are none, and nothing is read."""
    if source(a) == source(b):
        return ()
    before, after = ids_of(store.library(a)), ids_of(store.library(b))
    was = {id: number for number, id in enumerate(before)}
    now = {id: number for number, id in enumerate(after)}
    return tuple(Move(id, was[id], now[id]) for id in moved(before, after))


def ids_of(library: Library) -> list[str]:
    """The ids of a library, in order."""
    return [e.id for e in library]


def placed(
    order: Sequence[str],
    ids: Collection[str],
    *,
    before: str | None = None,
    after: str | None = None,
    last: bool = False,
) -> list[str]:
    """An order with some of it, in the order given, moved before or after another one, to
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
    """The order of a three-way merge: ours, with what theirs moved and ours did not put after the
    same experience as in theirs. `added` are the experiences that the merge brings into ours."""
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
    """The experiences that were moved, and those added anywhere but at the end."""
    old, moves = set(before), set(moved(before, after))
    last = max((number for number, id in enumerate(after) if id in old), default=-1)
    return [id for id in after[: last + 1] if id in moves or id not in old]


def _place_in(
    order: Sequence[str], theirs: Sequence[str], id: str, without: Collection[str]
) -> int:
    """The place after the nearest one before it in theirs, or before the nearest after it."""
    place = {other: number for number, other in enumerate(order) if other not in without}
    at = theirs.index(id)
    for other in reversed(theirs[:at]):
        if other in place:
            return place[other] + 1
    return next((place[other] for other in theirs[at + 1 :] if other in place), 0)


def _before(order: Sequence[str], id: str) -> str | None:
    at = order.index(id)
    return order[at - 1] if at else None
