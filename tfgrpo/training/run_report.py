"""What went wrong in a run and was left out of its library, as its versions have it on record."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store.records import Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store


class Mishap(NamedTuple):
    """A lesson that was `refused`, or a stage that `failed`: what, at which problem, and why."""

    version: Version
    kind: str
    what: str
    problem: str
    reason: str


class Account(NamedTuple):
    """A run's mishaps, oldest first, and how many answers had to be repaired to be read."""

    mishaps: tuple[Mishap, ...]
    repaired: int

    @property
    def refused(self) -> int:
        """Lessons that did not become an operation."""
        return sum(mishap.kind == "refused" for mishap in self.mishaps)

    @property
    def failed(self) -> int:
        """Answers that could not be had or read."""
        return sum(mishap.kind == "failed" for mishap in self.mishaps)


def versions_of(store: Store, run: Run) -> list[Version]:
    """Returns the versions a run made, oldest first."""
    prefix = f"{run.name}/step_"
    numbers = {v for tag, v in store.tags().items() if tag.startswith(prefix)}
    versions = [store.version(number) for number in sorted(numbers)]
    return [version for version in versions if version.meta.get("run") == run.name]


def mishaps(version: Version) -> tuple[Mishap, ...]:
    """Returns what a version has on record as refused or failed."""
    return tuple(
        Mishap(
            version,
            kind,
            item.get("text") or item.get("stage", ""),
            item.get("problem", ""),
            item.get("reason", ""),
        )
        for kind in ("refused", "failed")
        for item in version.meta.get(kind, [])
    )


def account(store: Store, run: Run) -> Account:
    """Returns the account of a run, so far."""
    versions = versions_of(store, run)
    found = tuple(mishap for version in versions for mishap in mishaps(version))
    return Account(found, sum(version.meta.get("repaired", 0) for version in versions))
