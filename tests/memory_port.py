"""A port over plain lists and dicts: it shows that the contract is not about SQLite.

Several ports may share one `Memory`. A transaction works on a copy that takes the place of the
shared state when it ends well, so readers see whole transactions and a failed one leaves nothing.
"""

from __future__ import annotations

import copy
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

from memory_records import Kept, MemoryRecords, occurrences, replace

from tfgrpo.store import Op, RefMove, StoreError, Version
from tfgrpo.store.canonical import canonical
from tfgrpo.store.damaged_values import Defect
from tfgrpo.store.port import Work
from tfgrpo.store.records import (
    VERSION_SCHEMA,
    BranchTip,
    ChainLink,
    Deletion,
    EventRow,
    Redaction,
    Shape,
    Step,
    lane_of,
)
from tfgrpo.store.text_occurrences import Occurrence


@dataclass
class State:
    versions: dict[int, Version] = field(default_factory=dict)
    events: dict[int, EventRow] = field(default_factory=dict)
    lanes: list[int] = field(default_factory=lambda: [0])
    snapshots: dict[int, list[int]] = field(default_factory=dict)
    redactions: dict[int, list[Redaction]] = field(default_factory=dict)
    refs: list[RefMove] = field(default_factory=list)
    remotes: dict[str, str] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)


class Memory:
    """What several ports share: the committed state and the writers' turn."""

    def __init__(self) -> None:
        self.state = State()
        self.commits = 0
        self.turn, self.waiting = threading.Lock(), 0


class MemoryPort:
    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self._mine: State | None = None
        self._seen: State | None = None

    @property
    def _state(self) -> State:
        return self._mine or self._seen or self.memory.state

    @property
    def _written(self) -> State:
        assert self._mine is not None, "only inside a transaction"
        return self._mine

    def close(self) -> None:
        pass

    def changes(self) -> int:
        return self.memory.commits

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert self._seen is None, "nothing is written while one state is read"
        if self._mine is not None:  # joins the one that is open
            yield
            return
        self.memory.waiting += 1
        with self.memory.turn:
            self.memory.waiting -= 1
            self._mine = copy.deepcopy(self.memory.state)
            try:
                yield
                self.memory.state = self._mine
                self.memory.commits += 1
            finally:
                self._mine = None

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self._mine is not None or self._seen is not None:  # joins the one that is open
            yield
            return
        self._seen = self.memory.state
        try:
            yield
        finally:
            self._seen = None

    @property
    def names(self) -> MemoryPort:
        return self

    @property
    def storage(self) -> MemoryPort:
        return self

    @property
    def redactions(self) -> MemoryRedactions:
        return MemoryRedactions(self)

    @property
    def counts(self) -> MemoryCounts:
        return MemoryCounts(self)

    # versions and events:

    def last_version(self) -> int:
        return max(self._state.versions, default=-1)

    def version(self, number: int) -> Version | None:
        return self._state.versions.get(number)

    def versions_by_digest(self, prefix: str, limit: int) -> list[Version]:
        found = (v for v in self._state.versions.values() if v.digest.hex().startswith(prefix))
        return sorted(found, key=lambda v: v.digest)[:limit]

    def first_since(self, time: int) -> int | None:
        found = (n for n, v in self._state.versions.items() if v.time >= time)
        return min(found, default=None)

    def version_of_row(self, row: int) -> Version:
        for version in self._state.versions.values():
            if version.position - version.events < row <= version.position:
                return version
        raise StoreError(f"event {row} belongs to no version", hint="the store is damaged")

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        return {row: self.version_of_row(row).number for row in rows}

    def merges(self, after: int, upto: int) -> list[tuple[int, int, int]]:
        versions = self._state.versions
        merges = [
            (v.position, v.events, versions[v.merged].position)
            for v in versions.values()
            if v.merged is not None and after < v.position <= upto
        ]
        return sorted(merges)

    def lane_tip(self, position: int) -> bool:
        lane = lane_of(position)
        return not any(row > position and lane_of(row) == lane for row in self._state.events)

    def lane_base(self, lane: int) -> int:
        return self._state.lanes[lane]

    def open_lane(self, base: int) -> int:
        self._written.lanes.append(base)
        return len(self._written.lanes) - 1

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        state = self._written
        digests = {v.digest for v in state.versions.values()}
        rows = {e.row for e in events}
        if (
            version.number in state.versions
            or version.digest in digests
            or rows & set(state.events)
        ):
            raise StoreError("versions and events are append-only")
        state.versions[version.number] = version
        state.events.update((e.row, e) for e in events)

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        return [(e.row, e.op, e.replaces) for e in self.events(after, upto) if e.op != "KEEP"]

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        events = self._state.events
        return iter([events[row] for row in sorted(events) if after < row <= upto])

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        return [self._state.events[row] for row in sorted(set(rows) & self._state.events.keys())]

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        return [(e.experience, e.text, e.row, e.birth or e.row) for e in self.events_at(rows)]

    def events_of(self, experience: str) -> list[EventRow]:
        return [e for e in self.events(0, 1 << 62) if e.experience == experience]

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        ids = set(experiences)
        gone = (e for e in self.events(0, 1 << 62) if e.op == "DELETE" and e.experience in ids)
        return [Deletion(e.experience, e.row, e.birth) for e in gone]

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        ids = {e.experience for e in self._state.events.values()}
        return sorted(id for id in ids if id.startswith(prefix))[:limit]

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        there = self._state.versions
        return [there[number] for number in sorted(set(numbers)) if number in there]

    def recorder(self, number: int) -> str | None:
        return None

    def chain(self, numbers: Iterable[int] | None = None) -> Iterator[ChainLink]:
        for version in self.versions_at(self._state.versions if numbers is None else numbers):
            meta = canonical(version.meta).decode() if version.meta else None
            yield ChainLink(version, VERSION_SCHEMA, meta)

    # snapshots:

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        position = max((p for p in self._state.snapshots if after < p <= upto), default=None)
        return None if position is None else (position, list(self._state.snapshots[position]))

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        self._written.snapshots.setdefault(position, list(live))

    def drop_snapshots(self) -> None:
        with self.transaction():
            self._written.snapshots.clear()

    # names:

    def ref(self, name: str) -> RefMove | None:
        return next(self.ref_log(name), None)

    def refs(self, prefix: str) -> list[RefMove]:
        latest = {m.name: m for m in self._state.refs if m.name.startswith(prefix)}
        return [latest[name] for name in sorted(latest)]

    def last_move(self) -> int:
        return len(self._state.refs)

    def marks_at(self, number: int, upto: int) -> list[str]:
        latest = {m.name: m.version for m in self._state.refs[:upto]}
        marks = [name for name in latest if name.startswith(("tags/", "remotes/"))]
        return sorted(name for name in marks if number in self._meant(name, latest[name]))

    def _meant(self, name: str, at: int | None) -> tuple[int | None, ...]:
        there = None if at is None else self.version(at)
        own = name.startswith("tags/") and there is not None and "tag" in there.meta
        return (at, there.parent) if own and there and not there.events else (at,)

    def head(self) -> tuple[str | None, Version] | None:
        move = self.ref("HEAD")
        if move is None:
            return None
        there = self.standing(move.symbol or "HEAD")
        return None if there is None else (move.symbol, there)

    def standing(self, name: str) -> Version | None:
        move = self.ref(name)
        return None if move is None or move.version is None else self.version(move.version)

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        return (m for m in reversed(self._state.refs) if name in (None, m.name))

    def branch_tip(self, name: str) -> BranchTip | None:
        tip, move, guard = self.standing(name), self.ref(name), self.ref(f"protected/{name}")
        if tip is None or move is None:
            return None
        return BranchTip(
            name,
            tip,
            tip.number,
            move.symbol,
            self.last_version(),
            self.last_move(),
            self.lane_tip(tip.position),
            guard is not None and guard.version is not None,
        )

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        refs = self._written.refs
        assert after in (None, len(refs))
        first = len(refs) + 1
        batch = batch or first
        refs += [m._replace(row=first + i, batch=batch) for i, m in enumerate(moves)]
        return batch

    # remotes:

    def remotes(self) -> dict[str, str]:
        return dict(sorted(self._state.remotes.items()))

    def put_remote(self, name: str, location: str) -> None:
        self._written.remotes[name] = location

    def drop_remote(self, name: str) -> None:
        self._written.remotes.pop(name, None)

    # records:

    @property
    def kept(self) -> Kept:
        return self._state.kept

    @property
    def records(self) -> MemoryRecords:
        return MemoryRecords(self)

    def evaluated(self) -> bool:
        return bool(self.kept.evaluations)

    # the storage:

    def check(self) -> list[Defect]:
        return []

    def checking(self) -> Callable[[], list[Defect]]:
        return self.check

    def rebuild(self) -> None:
        pass

    def content(self) -> bytes:
        raise StoreError("a store in memory is no file")

    def hold(self, name: str) -> AbstractContextManager[bool]:
        return nullcontext(True)

    def is_ours(self, name: str) -> bool:
        return True

    def is_held(self, name: str) -> bool:
        return False

    def refusal(self, work: Work) -> StoreError | None:
        return None


class MemoryRedactions:
    def __init__(self, port: MemoryPort) -> None:
        self._port = port

    def of(self, row: int) -> list[Redaction]:
        return list(self._port._state.redactions.get(row, []))

    def append(self, row: int, redactions: Sequence[Redaction]) -> None:
        self._port._written.redactions.setdefault(row, []).extend(redactions)

    def blank(self, row: int) -> None:
        events = self._port._written.events
        events[row] = events[row]._replace(text=None, reason=None, salt=None)

    def last(self) -> int:
        return sum(map(len, self._port._state.redactions.values()))

    def rows(self) -> list[int]:
        return sorted(self._port._state.redactions)

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        events = self._port.events(0, 1 << 62)
        return [e.row for e in events if any(pattern.search(t or "") for t in (e.text, e.reason))]

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        said = [
            ("versions", v.number, v.message, v.author) for v in self._port._state.versions.values()
        ]
        said += [("refs", m.row, m.action, m.author) for m in self._port._state.refs]
        held = [(w, row) for w, row, *texts in said if any(map(pattern.search, texts))]
        kept = [Occurrence(where, "text", row, "it is append-only") for where, row in held]
        return [*kept, *occurrences(self._port._state.kept, pattern)]

    def replace(self, pattern: re.Pattern[str]) -> None:
        replace(self._port._written.kept, pattern)

    def rewrite(self) -> bool:
        return True

    def needs_rewrite(self) -> bool:
        return False


class MemoryCounts:
    def __init__(self, port: MemoryPort) -> None:
        self._port = port

    def size(self) -> int:
        return 0

    def events(self) -> int:
        return len(self._port._state.events)

    def ops(self, after: int, upto: int) -> dict[Op, int]:
        return dict(Counter(e.op for e in self._port.events(after, upto)))

    def keeps(self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]) -> dict[int, int]:
        events = (e for after, upto in ranges for e in self._port.events(after, upto))
        keeps = (e for e in events if e.op == "KEEP")
        return dict(Counter(e.replaces for e in keeps if rows.get(e.experience) == e.replaces))  # type: ignore[misc]

    def snapshot_positions(self) -> list[int]:
        return sorted(self._port._state.snapshots)
