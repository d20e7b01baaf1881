"""eventsourcing: the library as one aggregate of an application on the SQLite module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

from benchmarks.workload import Change, batches, changes


class Library(Aggregate):
    @event("Started")
    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    @event("Put")
    def put(self, key: str, text: str) -> None:
        self.texts[key] = text

    @event("Dropped")
    def drop(self, key: str) -> None:
        del self.texts[key]

    @event("Kept")
    def keep(self, key: str) -> None:
        pass


class EventSourcing:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "eventsourcing.db"
        self.app: Application = Application(
            env={
                "PERSISTENCE_MODULE": "eventsourcing.sqlite",
                "SQLITE_DBNAME": str(self.path),
                "SQLITE_SYNCHRONOUS": "FULL",
            }
        )
        self.library = Library()
        self.app.save(self.library)
        self.ends = [1]

    def build(self, count: int, live: int | None) -> None:
        stream = changes(count, live=live)
        for size in batches(count):
            self.append(self.prepared([next(stream) for _ in range(size)]))

    def prepared(self, changes: Sequence[Change]) -> list[Change]:
        return list(changes)

    def append(self, prepared: list[Change]) -> None:
        for op, key, text in prepared:
            if op == "DELETE":
                self.library.drop(key)
            elif op == "KEEP":
                self.library.keep(key)
            else:
                self.library.put(key, text or "")
        self.app.save(self.library)
        self.ends.append(self.ends[-1] + len(prepared))

    def checkout(self, version: int) -> int:
        return len(self._library(version).texts)

    def _library(self, version: int) -> Library:
        found = self.app.repository.get(self.library.id, version=self.ends[version])
        assert isinstance(found, Library)
        return found

    def diff(self, a: int, b: int) -> int:
        old, new = self._library(a).texts, self._library(b).texts
        return sum(old.get(key) != new.get(key) for key in old.keys() | new.keys())

    def log(self) -> None:
        list(self.app.events.get(self.library.id, desc=True, limit=1))

    def history(self, key: str) -> int:
        found = self.app.events.get(self.library.id)
        return sum(getattr(each, "key", None) == key for each in found)

    def blame(self) -> int:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError

    def size(self) -> int:
        return sum(p.stat().st_size for p in self.path.parent.glob("eventsourcing.db*"))
