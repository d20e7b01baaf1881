"""The order of a library: that in which its experiences were first added, or another one that a
version records.

A version that arranges its library anew has the list of ids in its meta, under `order`: those are
first, in that order, and whatever is not in the list follows in the order in which it was first
added. So a list need be no longer than up to the last experience that was moved, and an empty one
says that nothing is moved any more. The versions built on it have its digest under `ordered`, so
that a replay finds the list without a search. Both are in the digests of these versions, and so
every clone orders a library alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.row_checks import damage_error

if TYPE_CHECKING:
    from tfgrpo.store.append import Changes, LiveRow
    from tfgrpo.store.commit_details import CommitDetails
    from tfgrpo.store.port import Port, Shape
    from tfgrpo.store.records import Json, Version

ORDER, ORDERED = "order", "ordered"
BIRTH = itemgetter(3)  # of a Shape


def source(version: Version) -> str | None:
    """Returns the digest in hex of the version whose list orders a library; None: there is none."""
    order = version.meta.get(ORDER)
    if order is not None:
        return version.digest.hex() if order else None
    return version.meta.get(ORDERED)


def inherited(parent: Version) -> Json:
    """Returns what the meta of a version says that leaves the order as it is."""
    before = source(parent)
    return {} if before is None else {ORDERED: before}


def listed(port: Port, version: Version) -> Sequence[str]:
    """Returns the experiences that come first in the library at a version, in order. Raises
    StoreError where the list is missing."""
    order: Sequence[str] | None = version.meta.get(ORDER)
    if order is None and ORDERED in version.meta:
        digest = version.meta[ORDERED]
        there = port.versions_by_digest(digest, 1) if _is_digest(digest) else []
        order = there[0].meta.get(ORDER) if there else None
        if order is None:
            raise damage_error(f"the order of {version.name} is missing")
    if order is not None and not _is_list_of_ids(order):
        raise damage_error(f"the order of {version.name} is no list of experiences")
    return order or ()


def arranged(shapes: Iterable[Shape], order: Sequence[str]) -> list[Shape]:
    """Returns live events in library order, under the list in force."""
    if not order:
        return sorted(shapes, key=BIRTH)
    place = {id: number for number, id in enumerate(order)}
    last = len(place)
    return sorted(shapes, key=lambda shape: (place.get(shape[0], last), shape[3]))


def problem(meta: Json, before: str | None) -> str | None:
    """Returns what is wrong with the order that a version records; `before` is the `source` of its
    first parent."""
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
    """Returns the meta of a version that is appended to `tip`, with the order of its library.

    `live` is what is live at the tip, and `changes` what the version makes of it. Raises
    StaleVersion where an order was made for a version that has another one than the tip, and
    InvalidOperation where the caller's meta has an order of its own.
    """
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
    """Returns the ids that are live in the order that a list gives them."""
    place = {id: number for number, id in enumerate(order)}
    last = len(place)
    return sorted(births, key=lambda id: (place.get(id, last), births[id]))


def _shortest(order: Sequence[str], births: Mapping[str, int]) -> list[str]:
    """Returns the shortest beginning of an order that gives all of it: what follows is in the
    order of birth as it is."""
    end = len(order)
    while end > 1 and births[order[end - 2]] < births[order[end - 1]]:
        end -= 1
    return list(order[: end - 1]) if end else []


def _is_list_of_ids(value: object) -> bool:
    from tfgrpo.store.canonical import is_id  # a log of a library that nobody rearranged needs none

    if not isinstance(value, list) or not all(isinstance(id, str) and is_id(id) for id in value):
        return False
    return len(set(value)) == len(value)


def _is_digest(text: object) -> bool:
    return isinstance(text, str) and len(text) == 64 and not text.strip("0123456789abcdef")
