"""Branches that running experiments name: these are not deleted or renamed unawares.

An experiment on a branch that is gone is paused, as on one that was moved: it can decide nothing. A
candidate is a version, and goes on without its name; but then nobody sees what is tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tfgrpo.production.experiment import RUNNING, Experiment, experiments
from tfgrpo.store.errors import InvalidName
from tfgrpo.store.history import name_moves
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

T = TypeVar("T")


def delete_branch(store: Store, name: str) -> tuple[Version, list[str]]:
    """Deletes a branch; returns where it stood, and what becomes of each experiment that names it.
    Raises InvalidName where one does, unless the store is forced, and as `Store.delete_branch`."""
    return _without_name(store, name, lambda: store.delete_branch(name))


def rename_branch(store: Store, old: str, new: str) -> list[str]:
    """Renames a branch; returns what becomes of each experiment that names it. Raises InvalidName
    where one does, unless the store is forced, and as `name_moves.rename`."""
    _, become = _without_name(store, old, lambda: name_moves.rename(store, "branch", old, new))
    return become


def _without_name(store: Store, name: str, act: Callable[[], T]) -> tuple[T, list[str]]:
    with store.port.transaction():
        named = [
            one
            for one in experiments(store)
            if one.state == RUNNING and name in (one.control.revision, one.candidate.revision)
        ]
        if named and name in store.branches() and not store.is_forced:
            one = named[0]
            does = "is running on" if one.control.revision == name else "is trying"
            raise InvalidName(
                f"experiment {one.name} {does} {name}",
                hint=f"`tfgrpo experiment stop {one.name}` first; --force does it now",
            )
        return act(), [_becomes(store, one, name) for one in named]


def _becomes(store: Store, one: Experiment, name: str) -> str:
    if one.control.revision == name:
        ends = f"`tfgrpo experiment stop {one.name}` ends it"
        return f"experiment {one.name} is paused, as it has no branch {name} any more; {ends}"
    version = store.resolve(one.candidate.digest).name
    return f"experiment {one.name} goes on with {version}, which was {name}"
