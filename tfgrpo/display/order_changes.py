"""What a version moved: a library's order, where a person put it in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgrpo.store.history.library_order import ORDER
from tfgrpo.store.strange_values import texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tfgrpo.store.history.library_order import Move
    from tfgrpo.store.records import Version
    from tfgrpo.store.store import Store


def moves_of(store: Store, version: Version) -> Sequence[Move]:
    """What a version moved, against its first parent; read only if it records an order."""
    if ORDER not in version.meta or version.parent is None:
        return ()
    from tfgrpo.store.history.library_order import moves

    return moves(store, store.version(version.parent), version)


def change_counts(store: Store, version: Version) -> dict[str, int]:
    """A version's events by kind, those that there are, and under MOVE what it moved."""
    counts: dict[str, int] = dict(store.counts(version).items())
    if moved := len(moves_of(store, version)):
        counts["MOVE"] = moved
    return counts


def left_in_place(version: Version) -> Sequence[str]:
    """The experiences that both sides of a merge had moved, and that stayed with ours."""
    return texts(version.meta.get("order_conflicts"))


def move_objects(moves: Iterable[Move]) -> list[dict[str, Any]]:
    """Moves as JSON for programs: labels before and after."""
    return [
        {"experience": one.experience, "from": f"G{one.before}", "to": f"G{one.after}"}
        for one in moves
    ]
