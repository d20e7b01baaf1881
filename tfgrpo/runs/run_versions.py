"""The versions of a run, and the tags and branches that name them."""

from __future__ import annotations

from collections.abc import Iterable

from tfgrpo.store.activity.runs import Run
from tfgrpo.store.history.revisions import TAG
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.store.strange_values import whole

BASE = "base"
"""What a version of the pool says of the version in force that it goes with."""


def versions_of(store: Store, run: Run) -> list[Version]:
    """The versions a run made, oldest first."""
    moves = store.port.names.refs(f"{TAG}{run.name}/step_")
    numbers = {move.version for move in moves if move.version is not None}
    versions = [store.version(number) for number in sorted(numbers)]
    return [version for version in versions if version.meta.get("run") == run.name]


def pool_branch(run: Run) -> str:
    """The name of a run's branch of candidates."""
    return f"{run.name}/candidates"


def pool_versions(store: Store, run: Run) -> list[Version]:
    """The versions of a run's pool, oldest first, with what a person added to its branch; none
    where it has no pool."""
    if (name := pool_branch(run)) not in store.branches():
        return []
    listed: list[Version] = []
    for version in first_parents(store, store.tip(name)):
        listed.append(version)
        if BASE in version.meta and version.meta[BASE] == version.parent:
            return listed[::-1]
    return []  # the branch was moved to where no pool is


def base_of_pool(versions: Iterable[Version]) -> int | None:
    """The number of the version in force that the last of a pool's versions goes with."""
    bases = [whole(version.meta.get(BASE)) for version in versions]
    return next((base for base in reversed(bases) if base is not None), None)
