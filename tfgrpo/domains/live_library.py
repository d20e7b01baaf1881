"""A library that is always the one in force (`tfgrpo.live`).

A server must not answer with a library that was rolled back a minute ago, and cannot open the
store for each request. SQLite says in about a microsecond whether anybody has committed since
it was last asked (`Port.changes`), and a look at the file, fifty times a second, whether it is
still the same one. Only after a change is the revision looked up again, and only when it names
another version is the library read. Nothing is cached for a time.

What cannot be read (the store is locked, gone, damaged, or has lost the name) does not stop the
server: the last library that could be read goes on, and `trouble` says why.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

from tfgrpo.domains.prompt_library import ProblemLike, PromptLibrary, prompt_library
from tfgrpo.store.address import find_file, is_address, located, named_by
from tfgrpo.store.errors import FileChanged, StoreError, TfgrpoError
from tfgrpo.store.records import Experience, Version
from tfgrpo.store.store import Store

LOOK = 0.02
"""Seconds between looks whether the file is there, and still the same one."""
RETRY = 0.25
"""Seconds until a store that could not be read, and has not changed since, is tried again."""
UNREADABLE = (TfgrpoError, OSError, ArithmeticError, LookupError, TypeError, ValueError)
"""What reading a damaged file raises, as in `tfgrpo.cli.main`."""


class LiveLibrary:
    """The library in force at a revision, each time it is asked for. Threads may share it.

    `library` is the library itself, immutable: take it once for a request that uses it twice.
    `prompt` and `render` are those of the library that is in force at the call.
    """

    def __init__(
        self,
        revision: str = "HEAD",
        *,
        store: Path | str | None = None,
        beside: Callable[[Store], object] | None = None,
    ) -> None:
        """`beside` reads what else is to be in force at the same moment; it raises nothing."""
        self.revision = revision
        self._beside = beside
        path = find_file(os.getcwd()) if store is None else located(store)
        self.path = os.path.abspath(path)
        self.trouble: str | None = None
        """Why the library may not be the one in force; None while it is."""
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._file: tuple[int, int] | None = None
        self._look_at = 0.0
        self._seen: int | None = None
        self._changes: Callable[[], int | None] = _never
        self._redactions = 0
        self._retry_at = 0.0
        self._known: PromptLibrary | None = None
        try:
            if os.path.exists(f"{self.path}-redacting"):  # and who watches finishes nothing
                with suppress(ModuleNotFoundError):  # with the standard library alone it cannot
                    Store.open(self.path).close()
            self._in_force = self._read(self._look())
        except StoreError as error:  # an older schema among them, which opening brings up to date
            try:
                Store.open(self.path).close()
            except ModuleNotFoundError:  # with the standard library alone it cannot
                raise error from None
            self._in_force = self._read(self._look())
        _LIVE.add(self)

    @property
    def library(self) -> PromptLibrary:
        """The library in force, or the last one that could be read. Raises nothing."""
        return self.in_force[0]

    @property
    def in_force(self) -> tuple[PromptLibrary, object]:
        """The library, and what was read beside it from the same state of the store."""
        if monotonic() < self._look_at and self._changes() == self._seen:
            return self._in_force  # without the lock: both are set once the library is
        with self._lock:
            try:
                seen = self._look()
                if seen != self._seen:
                    self._refresh(seen)
            except UNREADABLE as error:
                self.trouble = _reason(error)
            return self._in_force

    def check(self) -> str | None:
        """Reads the library anew, whether anything changed or not; returns what is wrong, or None.

        For a health check: damage to a file is no commit, and is met when it is read.
        """
        with self._lock:
            try:
                self._forget()
                self._read(self._look())
            except UNREADABLE as error:
                self.trouble = _reason(error)
            return self.trouble

    @property
    def version(self) -> Version:
        """The version whose library this is."""
        return self.library.version

    def prompt(self, problem: str = "", *, top_k: int | None = None) -> str:
        """Returns the library as prompt text, as `PromptLibrary.prompt` does."""
        return self.library.prompt(problem, top_k=top_k)

    def render(self, problem: ProblemLike, *, top_k: int | None = None) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as `PromptLibrary.render` does."""
        return self.library.render(problem, top_k=top_k)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.library)

    def __len__(self) -> int:
        return len(self.library)

    def __repr__(self) -> str:
        return f"LiveLibrary({self.revision!r}, {self.library.version.name})"

    def close(self) -> None:
        """Closes the store. The last library stays."""
        with self._lock:
            self._forget()

    # with the lock:

    def _look(self) -> int:
        """Returns what is another value when the store may have changed. Raises StoreError."""
        try:
            return self._look_at_file()
        except FileChanged:
            self._forget()
            return self._look_at_file()

    def _look_at_file(self) -> int:
        now = monotonic()
        if now >= self._look_at or self._store is None:
            try:
                file = _file(self.path)
            except OSError as error:
                self._look_at, self._file = 0.0, None
                raise StoreError(f"{self.path}: {error.strerror}", hint="`tfgrpo init`") from error
            self._look_at = now + LOOK
            if self._store is None or self._file != file:
                self._forget()
                self._store = Store.open(self.path, watching=True)
                self._file = file
            self._changes = _never
        seen = self._store.port.changes()
        if isinstance(seen, bytes):  # which any thread may ask for at any time
            self._changes = self._store.port.changes
        return seen

    def _refresh(self, seen: int) -> None:
        if self.trouble and monotonic() < self._retry_at:
            return
        self._retry_at = monotonic() + RETRY
        self._read(seen)

    def _read(self, seen: int) -> tuple[PromptLibrary, object]:
        """Returns the library in force, the same object where it is the same library, and what is
        beside it."""
        store = self._store
        assert store is not None
        with store.port.reading():
            version = store.resolve(self.revision)
            redactions = store.port.redactions.last()
            library = self._known
            same = library is not None and library.version == version
            if library is None or not same or self._redactions != redactions:
                library = prompt_library(store, version)
            beside = None if self._beside is None else self._beside(store)
        self._known = library
        self._in_force = library, beside
        self._redactions, self.trouble = redactions, None
        self._seen = seen
        return self._in_force

    def _forget(self) -> None:
        store, self._store, self._seen = self._store, None, None
        self._redactions = -1
        if store is not None:
            store.close()

    def _in_child(self) -> None:
        """A connection is no use on the other side of a fork, nor may it be closed there."""
        _LEFT.append(self._store)
        self._lock = threading.Lock()
        self._store = self._seen = None


_LIVE: weakref.WeakSet[LiveLibrary] = weakref.WeakSet()
_LEFT: list[Store | None] = []


def _after_fork() -> None:
    for one in list(_LIVE):
        one._in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _file(path: str) -> tuple[int, int]:
    """Returns which file is at a path; a database is the same one for as long as it answers."""
    if is_address(named_by(path)):
        return 0, 0
    status = os.stat(path)
    return status.st_ino, status.st_dev


def _never() -> int:
    """Stands for a store that has to be asked with the lock; nothing seen is this."""
    return -1


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def live(revision: str = "HEAD", *, store: Path | str | None = None) -> LiveLibrary:
    """Returns the library at a revision, always as it is in force: at once after a commit, a
    checkout or a rollback by whatever process.

    `store` is the path of a store file or of its project's folder; without it, the nearest
    `.tfgrpo/store.db` at or above the working folder. Raises StoreError or UnknownRevision where
    there is none to begin with; later the last library goes on, and `trouble` says why.
    """
    return LiveLibrary(revision, store=store)
