"""Who taught us this: for each live experience, the event that gave it its text, and its votes.

A merge or cherry-pick records what it brings over as events that name their version. They are
followed to the event they repeat, so credit goes to who wrote the text. The events of a revert name
the version that it takes back: the text that they repeat is that of the version before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from tfgrpo.store.activity.runs import Run
from tfgrpo.store.damaged_values import whole
from tfgrpo.store.history import replay
from tfgrpo.store.history.library_order import is_digest
from tfgrpo.store.history.walks import row_within, rows_contained, version_of_row, whole_history
from tfgrpo.store.records import OPS, Event, EventRow, Experience, Op, Version
from tfgrpo.store.store import Store, event_of

Ranges: TypeAlias = Sequence[tuple[int, int]]
"""Where events lie: (after, upto] of rows."""


class Blame(NamedTuple):
    """An experience, the event that gave it its text, that event's version, and how many KEEPs
    have confirmed the text since, wherever in the history they are."""

    experience: Experience
    event: Event
    version: Version
    keeps: int


class Origin(NamedTuple):
    """The event that another one repeats, its version, and the rows that lead there."""

    event: Event
    version: Version
    rows: tuple[int, ...]


class Origins:
    """Follows events to those that they repeat."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, event: Event, version: Version) -> Origin:
        """The origin of an event of `version`: the event itself if it repeats none."""
        if not event.evidence and version.merged is None:  # like most, it was not brought over
            return Origin(event, version, (event.row,))
        rows = [event.row]
        events: list[EventRow] | None = None
        while sources := self._sources(event, version):
            if events is None:
                events = self._store.port.events_of(event.experience)
            last = (self._last(events, source) for source in sources)
            repeated = next((one for one in last if one and _repeats(event, one)), None)
            if repeated is None:
                break
            version = version_of_row(self._store.port, repeated.row)
            event = event_of(repeated, version.number)
            rows.append(event.row)
        return Origin(event, version, tuple(rows))

    def _sources(self, event: Event, version: Version) -> list[Version]:
        """Where an event may have been brought over from: a merge's other side, or the version that
        it names, picked, and before that one's change, reverted."""
        if version.merged is not None:
            return [self._store.version(version.merged)]
        evidence = event.evidence or {}
        digest = evidence.get("version")
        if len(evidence) != 1 or not is_digest(digest):
            return []
        there = self._store.port.versions_by_digest(digest, 1)
        if not there or there[0].number >= version.number:
            return []
        before = there[0].parent
        return there if before is None else [there[0], self._store.version(before)]

    def _last(self, events: Sequence[EventRow], source: Version) -> EventRow | None:
        """The event that last shaped an experience in the history of a version."""
        shaped = {event.row: event for event in reversed(events) if event.op != "KEEP"}
        row = next(rows_contained(self._store.port, shaped, source.position), None)
        return None if row is None else shaped[row]


def _repeats(event: Event, earlier: EventRow) -> bool:
    deletes = event.op == "DELETE"
    return (earlier.op == "DELETE") == deletes and earlier.text == event.text


def blame(store: Store, version: Version, *, only: Collection[str] | None = None) -> list[Blame]:
    """Who gave each experience (in `only`) of a library its text, in library order."""
    with replay.without_gc():
        library = [e for e in store.library(version) if only is None or e.id in only]
        events = store.events_at(e.row for e in library)
        numbers = {event.version for event in events.values()}
        versions = {v.number: v for v in store.port.versions_at(numbers)}
        origins = Origins(store)
        origin_of = {
            e.id: origins.of(events[e.row], versions[events[e.row].version]) for e in library
        }
        ranges = whole_history(store.port, version).ranges
        keeps = count_keeps(store, {id: one.rows for id, one in origin_of.items()}, ranges)
        return [
            Blame(e, origin_of[e.id].event, origin_of[e.id].version, keeps[e.id]) for e in library
        ]


def count_keeps(
    store: Store, rows: Mapping[str, tuple[int, ...]], ranges: Ranges
) -> dict[str, int]:
    """Experience → how many KEEPs in these ranges of rows confirm one of its rows."""
    counts = dict.fromkeys(rows, 0)
    depth = 0
    while level := {id: chain[depth] for id, chain in rows.items() if depth < len(chain)}:
        keeps = store.port.counts.keeps(level, ranges)
        for id, row in level.items():
            counts[id] += keeps.get(row, 0)
        depth += 1
    return counts


class Confirmed(NamedTuple):
    """A live experience, its text's version and KEEPs, and how often its texts were replaced."""

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
    """The figures of a version's history, second parents' included, and of the file it lies in.

    What a merge brings over counts where it was made. `experiences` are the live ones in library
    order. Sizes are in bytes; `first` is the oldest version with events.
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
    """The figures of a version's history, every event of which is read once."""
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
        bytes=port.storage.size(),
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
    prefix = f"{run.name}/step_"
    numbers = {n for tag, n in tags.items() if tag.startswith(prefix)}
    versions = [store.version(number) for number in sorted(numbers)]
    return [
        StepStats(run.name, whole(v.meta.get("step")) or 0, v, store.counts(v))
        for v in versions
        if v.events and v.meta.get("run") == run.name and row_within(v.position, ranges)
    ]
