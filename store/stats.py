"""How much a library's history holds, what changes in it, and what has been confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tfgrpo.store.blame import blame
from tfgrpo.store.history import row_within, version_of_row, whole_history
from tfgrpo.store.records import OPS, Experience, Op, Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store


class Confirmed(NamedTuple):
    """A live experience, the version that gave it its text, how many KEEPs have confirmed that
    since, and how often any of its texts was replaced."""

    experience: Experience
    version: Version
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

    `versions` and `events` count what is in the version's history, second parents' included
    (versions without an event are left out, and steps as well); what a merge brings over counts
    where it was made, and not again as the merge's own. `file_versions` and `file_events` count
    all that is in the file. `experiences` are the live ones, in library order. Sizes are in
    bytes; `first` is the oldest version with events, if any.
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

    Reads every event of the history once.
    """
    with store.port.reading():
        return _stats(store, version)


def _stats(store: Store, version: Version) -> Stats:
    port = store.port
    ranges, copied = whole_history(port, version)
    events: dict[Op, int] = dict.fromkeys(OPS, 0)
    for pairs, sign in ((ranges, 1), (copied, -1)):
        for after, upto in pairs:
            for op, count in port.counts.ops(after, upto).items():
                events[op] += sign * count
    blamed = blame(store, version)
    modified = Counter(port.counts.modified(ranges))
    modified.subtract(port.counts.modified(copied))
    first = next((low for after, upto in ranges for low in port.events(after, upto)), None)
    snapshots = port.counts.snapshot_sizes()
    tags = store.tags()
    return Stats(
        version=version,
        bytes=port.counts.size(),
        snapshot_bytes=sum(snapshots),
        snapshots=len(snapshots),
        file_versions=port.last_version() + 1,
        file_events=port.counts.events(),
        versions=port.counts.versions(ranges) - len(copied),
        events=events,
        experiences=tuple(
            Confirmed(b.experience, b.version, b.keeps, modified[b.experience.id]) for b in blamed
        ),
        first=None if first is None else version_of_row(port, first.row),
        steps=tuple(s for run in store.runs.all() for s in _steps(store, run, tags, ranges)),
    )


def _steps(
    store: Store, run: Run, tags: Mapping[str, int], ranges: list[tuple[int, int]]
) -> list[StepStats]:
    """Returns what the steps of a run did that lie in a history, oldest first."""
    prefix = f"{run.name}/step_"
    numbers = {n for tag, n in tags.items() if tag.startswith(prefix)}
    versions = [store.version(number) for number in sorted(numbers)]
    return [
        StepStats(run.name, int(v.meta["step"]), v, store.counts(v))
        for v in versions
        if v.events and v.meta.get("run") == run.name and row_within(v.position, ranges)
    ]
