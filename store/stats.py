"""How much a library's history holds, what changes in it, and what has been confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfgrpo.store.history import row_ranges
from tfgrpo.store.records import OPS, Experience, Op, Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store


class Confirmed(NamedTuple):
    """A live experience, how many KEEPs have confirmed its present text, and how often any of
    its texts was replaced."""

    experience: Experience
    keeps: int
    modified: int


class StepStats(NamedTuple):
    """What one step of a run did: the version it made, and its events by kind."""

    run: str
    step: int
    version: Version
    events: Mapping[Op, int]


class Stats(NamedTuple):
    """The figures of the history of one version, and of the file that it lies in.

    `versions` and `events` count what is in the version's first-parent history (versions without
    an event are left out, and steps as well), `file_versions` and `file_events` all that is in
    the file. `experiences` are the live ones, in library order. Sizes are in bytes; `first` is
    the oldest version with events, if any.
    """

    version: Version
    bytes: int
    snapshot_bytes: int
    snapshots: int
    file_versions: int
    file_events: int
    versions: int
    events: Mapping[Op, int]
    experiences: tuple[Confirmed, ...]
    first: Version | None
    steps: tuple[StepStats, ...]

    @property
    def snapshot_share(self) -> float:
        """How much of the file is snapshots, in [0, 1]."""
        return self.snapshot_bytes / self.bytes if self.bytes else 0.0

    @property
    def most_confirmed(self) -> tuple[Confirmed, ...]:
        """The experiences by how many KEEPs confirm them, most first."""
        return tuple(sorted(self.experiences, key=lambda c: -c.keeps))

    @property
    def least_confirmed(self) -> tuple[Confirmed, ...]:
        """The experiences by how many KEEPs confirm them, least first."""
        return tuple(sorted(self.experiences, key=lambda c: c.keeps))

    @property
    def churn(self) -> tuple[Confirmed, ...]:
        """The experiences whose texts were replaced, most often first."""
        changed = (c for c in self.experiences if c.modified)
        return tuple(sorted(changed, key=lambda c: -c.modified))


def stats(store: Store, version: Version) -> Stats:
    """Returns the figures of a version's history. A read-only operation.

    Reads every event of the history once; `events` are counted where rows lie, so what a merge
    brought in counts as the merge's own events.
    """
    with store.port.reading():
        return _stats(store, version)


def _stats(store: Store, version: Version) -> Stats:
    port = store.port
    ranges = row_ranges(port, version.position)
    events: dict[Op, int] = dict.fromkeys(OPS, 0)
    for after, upto in ranges:
        for op, count in port.count_ops(after, upto).items():
            events[op] += count
    library = store.library(version)
    keeps = port.count_keeps({e.id: e.row for e in library}, ranges)
    modified = port.count_modified(ranges)
    first = next((low for after, upto in ranges for low in port.events(after, upto)), None)
    snapshots = port.snapshot_sizes()
    return Stats(
        version=version,
        bytes=port.size(),
        snapshot_bytes=sum(snapshots),
        snapshots=len(snapshots),
        file_versions=port.last_version() + 1,
        file_events=port.count_events(),
        versions=port.count_versions(ranges),
        events=events,
        experiences=tuple(
            Confirmed(e, keeps.get(e.row, 0), modified.get(e.id, 0)) for e in library
        ),
        first=None if first is None else port.version_of_row(first.row),
        steps=tuple(s for run in store.runs.all() for s in _steps(store, run, ranges)),
    )


def _steps(store: Store, run: Run, ranges: list[tuple[int, int]]) -> list[StepStats]:
    """Returns what the steps of a run did that lie in a history, oldest first."""
    prefix = f"{run.name}/step_"
    numbers = {n for tag, n in store.tags().items() if tag.startswith(prefix)}
    versions = [store.version(number) for number in sorted(numbers)]
    return [
        StepStats(run.name, int(v.meta["step"]), v, store.counts(v))
        for v in versions
        if v.events
        and v.meta.get("run") == run.name
        and any(after < v.position <= upto for after, upto in ranges)
    ]
