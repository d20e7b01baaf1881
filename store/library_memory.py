"""What a store remembers of the libraries that it has read.

Events never change but by redaction, so a live event that one library has need not be read again
for another: a version near one that was read costs its replay and the few events that are new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tfgrpo.store import replay
from tfgrpo.store.replay import LiveEvents

if TYPE_CHECKING:
    from tfgrpo.store.port import Port, Shape
    from tfgrpo.store.records import Library, Version

LIBRARIES = 4
CHARACTERS = 16_000_000
"""Of texts that are in no remembered library, and are remembered all the same."""


class LibraryMemory:
    """The last few libraries, and the events that were live in them and in some before."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._libraries: dict[bytes, Library] = {}  # by digest, the last one that was asked last
        self._events = LiveEvents()
        self._characters = 0  # of the texts of those, more or less
        self._newest: Version | None = None  # of those that were read
        self._redaction = 0  # the last one when they were

    def library(self, version: Version) -> Library:
        """Returns the library in force at a version, which has just been read. Raises
        StoreError."""
        self._check()
        library = self._libraries.pop(version.digest, None)
        if library is None or library.version != version:
            library = self._replayed(version)
        self._libraries[version.digest] = library
        if len(self._libraries) > LIBRARIES:
            del self._libraries[next(iter(self._libraries))]
        if self._characters > CHARACTERS:
            self._trim()
        return library

    def shapes(self, version: Version) -> Iterable[Shape] | None:
        """Returns what is live at a version, in any order; None where that is not remembered."""
        library = self._libraries.get(version.digest)
        if library is None or library.version != version:
            return None
        births = self._events.births
        return [(e.id, None if e.redacted else e.text, e.row, births[e.row]) for e in library]

    def forget(self) -> None:
        """Drops everything."""
        self._libraries.clear()
        self._events = LiveEvents()
        self._characters, self._newest = 0, None

    def _check(self) -> None:
        """Drops everything where something was redacted since, or where a transaction failed
        in which it was read."""
        now, newest = self._port.redactions.last(), self._newest
        if now != self._redaction or (
            newest is not None and self._port.version(newest.number) != newest
        ):
            self.forget()
        self._redaction = now

    def _replayed(self, version: Version) -> Library:
        before = len(self._events.births)
        library = replay.library_at(self._port, version, self._events)
        if (more := len(self._events.births) - before) and library:
            mean = sum(len(e.text) for e in library) / len(library)
            self._characters += int(mean * more)
        if self._newest is None or version.number > self._newest.number:
            self._newest = version
        return library

    def _trim(self) -> None:
        """Drops the events that no remembered library has."""
        births, trimmed = self._events.births, LiveEvents()
        for library in self._libraries.values():
            trimmed.experiences.update((e.row, e) for e in library)
        trimmed.births.update((row, births[row]) for row in trimmed.experiences)
        self._events, self._characters = trimmed, 0
