"""What went wrong in a run and was left out of its library, as its versions have it on record."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store.records import Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store


class Issue(NamedTuple):
    """A lesson that was `refused`, or a stage that `failed`: what, at which problem, and why."""

    version: Version
    kind: str
    what: str
    problem: str
    reason: str


class RunReport(NamedTuple):
    """A run's issues, oldest first, and how many answers had to be repaired to be read."""

    issues: tuple[Issue, ...]
    repaired: int

    @property
    def refused(self) -> int:
        """Lessons that did not become an operation."""
        return sum(issue.kind == "refused" for issue in self.issues)

    @property
    def failed(self) -> int:
        """Answers that could not be had or read."""
        return sum(issue.kind == "failed" for issue in self.issues)


def versions_of(store: Store, run: Run) -> list[Version]:
    """Returns the versions a run made, oldest first."""
    prefix = f"{run.name}/step_"
    numbers = {v for tag, v in store.tags().items() if tag.startswith(prefix)}
    versions = [store.version(number) for number in sorted(numbers)]
    return [version for version in versions if version.meta.get("run") == run.name]


def issues(version: Version) -> tuple[Issue, ...]:
    """Returns what a version has on record as refused or failed."""
    return tuple(
        Issue(
            version,
            kind,
            item.get("text") or item.get("stage", ""),
            item.get("problem", ""),
            item.get("reason", ""),
        )
        for kind in ("refused", "failed")
        for item in version.meta.get(kind, [])
    )


def report(store: Store, run: Run) -> RunReport:
    """Returns what went wrong in a run, so far."""
    versions = versions_of(store, run)
    listed = tuple(issue for version in versions for issue in issues(version))
    return RunReport(listed, sum(version.meta.get("repaired", 0) for version in versions))
