"""The pool: the library in force and the candidates on probation, as a branch beside the run's.

Attempts run under a version of `RUN/candidates`: the library in force and the candidates after it,
with the same ids. One that is promoted is an ADD on the run's branch, and one that is given up a
DELETE on this one, both with their figures. A reader of the run's branch never sees a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tfgrpo.learn.assign import beside, factors
from tfgrpo.learn.library_draft import Draft
from tfgrpo.runs.run_versions import BASE, base_of_pool, pool_branch, pool_versions
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.history.merge import change
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.store.store import Store


@dataclass(frozen=True)
class Pool:
    """The branch of candidates and its library, and the version in force with its own."""

    name: str
    base: Version
    in_force: Library
    library: Library

    @cached_property
    def candidates(self) -> Library:
        """The candidates alone."""
        return self.library.less(frozenset(self.in_force.by_id))

    @cached_property
    def factors(self) -> dict[str, tuple[str, ...]]:
        """What candidates and experiences are shown as (`assign.py`), with the ids of each."""
        candidates = factors(self.candidates)
        return {**beside(factors(self.in_force), candidates), **candidates}

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The factors that are candidates, and those that are in force."""
        candidates = factors(self.candidates)
        return list(candidates), list(beside(factors(self.in_force), candidates))


def open_pool(store: Store, run: Run, base: Version) -> Pool:
    """The pool that goes with a version in force. What has changed on the run's branch since the
    pool's last version (by a person's hand) is brought into it, as a version."""
    in_force, name = store.library(base), pool_branch(run)
    if name not in store.branches():
        return Pool(name, base, in_force, in_force)
    if _before(store, run, in_force) != in_force:
        append_to_pool(store, run, base, (), "what changed in the library meanwhile")
    return Pool(name, base, in_force, store.library(store.tip(name)))


def append_to_pool(
    store: Store, run: Run, base: Version, operations: Sequence[Operation], message: str
) -> Version:
    """Appends a version to a run's pool, which goes with `base`, with what has changed in the
    library up to there; makes the branch for the first."""
    name, in_force = pool_branch(run), store.library(base)
    before = _before(store, run, in_force)
    if name not in store.branches():
        store.create_branch(name, base)
    pool = store.library(store.tip(name))
    there = pool.by_id  # of the first version what is gone is gone
    left = [one for one in operations if one.op == "ADD" or one.experience in there]
    after = Draft(pool).after(one for one in left if one.experience is not None)
    left += _changes(before, in_force, after.library)
    meta: dict[str, Any] = {"run": run.name, BASE: base.number}
    models = run.config["models"]
    author = f"tfgrpo ({models['reflection_model'] or models['model']})"  # as of the run's versions
    return store.commit(name, left, message=message, author=author, meta=meta)


def _before(store: Store, run: Run, in_force: Library) -> Library:
    """The library that a run's pool goes with so far; `in_force` where it has no version."""
    number = base_of_pool(pool_versions(store, run))
    return in_force if number is None else store.library(store.version(number))


def _changes(before: Library, now: Library, pool: Library) -> list[Operation]:
    there = {id: one.text for id, one in pool.by_id.items()}
    gone = [Operation("DELETE", id) for id in before.by_id if id not in now.by_id and id in there]
    changes = (change(id, there.get(id), one.text) for id, one in now.by_id.items())
    return [*gone, *(one for one in changes if one is not None)]
