"""The store's file: opening it, making and migrating its schema, one writer at a time; SQLite's
errors get hints here.

A reader of a write-ahead log needs the log's index beside it, and makes it where nobody else has.
In a folder that cannot be written the file can be read alone, as long as nothing is in its log and
nobody writes to it meanwhile (https://sqlite.org/wal.html, "Read-Only Databases"): so that is
checked before every statement.

Writers take turns in the order in which they came: SQLite alone gives the file to whoever tries
at the right instant, who is mostly the one that has just committed.

A writer queues with locks on single bytes of a file beside the store:

1. its *ticket* is the time at which it came: it locks the byte at that offset for itself; 2. it
then asks to share every byte before its own. That is granted when nobody who came earlier holds a
ticket, and keeps out who read the clock earlier and locks later.

The file stays empty, and a ticket is gone when its process is. Where there is no such queue
(another system or file system), writers compete as SQLite lets them.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.migrations import APPLICATION_ID, SCHEMA
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import FileChanged, RowRefused, StoreError, advice, not_unicode
from tfgrpo.store.sqlite.checks import defend, refuse_computed, refuse_foreign

if TYPE_CHECKING:
    from pathlib import Path

State: TypeAlias = tuple[int, int, int, bool]
PATIENCE_SECONDS, PAUSE_SECONDS = 60.0, 0.01
SUFFIX = "-queue"
OPEN_FILE_LOCKS = hasattr(fcntl, "F_OFD_SETLKW")
"""Whether locks can be an open file's: those of a process do not tell two threads apart."""
FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
PATIENCE = 60.0
"""Seconds to wait for a turn. Then the writer competes as SQLite lets it, from then on."""
FAILURES = (sqlite3.Error, UnicodeError, OverflowError)  # the last two for what no SQL can hold


def connect(
    path: Path | str, create: bool = False, watching: bool = False, unchecked: bool = False
) -> sqlite3.Connection:
    """Opens a store file in autocommit mode, making or migrating its schema when that is needed.

    With `watching`, threads may take turns, no lock is waited for, and an older schema is an error.
    With `unchecked` additions to the schema are let be. Raises StoreError.
    """
    if not create and not os.path.isfile(path):
        raise StoreError(f"no store at {os.fspath(path)}", hint="create one with `tfgrpo init`")
    connection: sqlite3.Connection | None = None
    try:
        if create:
            _create(path)
        connection = open_database(path, timeout=0 if watching else 60, threads=watching)
        (schema,) = connection.execute("pragma user_version").fetchone()
        (application,) = connection.execute("pragma application_id").fetchone()
        (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
        if application != APPLICATION_ID and (tables or not create):
            raise StoreError(
                f"{path} is not a tfgrpo store",
                hint="give the store's file, usually .tfgrpo/store.db",
            )
        if schema > SCHEMA:
            from tfgrpo.store.errors import upgrade_hint

            raise StoreError(
                f"{path} has schema {schema}; this tfgrpo reads {SCHEMA}",
                hint=upgrade_hint(),
            )
        refuse_computed(connection, path)
        if schema < SCHEMA and watching:
            raise StoreError(
                f"{path} has the older schema {schema}",
                hint="any command, such as `tfgrpo log`, brings it up to date",
            )
        if schema < SCHEMA:
            migrate(connection)
        if not unchecked:
            refuse_foreign(connection, path)
        # While watching, who writes has seen to it, and asking may have to wait.
        if not watching and not isinstance(connection, UnchangingFile):
            use_wal(connection)
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise translated(error, path) from error
        if isinstance(error, OSError):
            raise StoreError(
                f"cannot create {path}: {error.strerror}", hint=advice(error)
            ) from error
        if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it could not read
            raise damage_error(f"{path} has a schema that is no text") from None
        raise
    return connection


class UnchangingFile(sqlite3.Connection):
    """A connection that reads a file alone, and refuses to once somebody has written to it."""

    place: tuple[str, State] | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Does what every connection does. Raises FileChanged."""
        if self.place is not None and _state(self.place[0]) != self.place[1]:
            raise FileChanged(
                f"{self.place[0]} has changed while it was read",
                hint="run the same command again; its folder cannot be written, so changes are "
                "not seen as they come",
            )
        return super().execute(sql, parameters)


def open_database(path: Path | str, *, timeout: float, threads: bool = False) -> sqlite3.Connection:
    """Opens a file in autocommit mode; one in a folder that cannot be written to be read alone,
    where that has to be. With `threads` they may take turns with it. Raises StoreError where its
    last changes are in a log that cannot be read, and sqlite3.Error."""
    connection = sqlite3.connect(
        path, isolation_level=None, timeout=timeout, check_same_thread=not threads
    )
    try:
        connection.execute("pragma user_version")
        defend(connection)
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        refused = error.sqlite_errorcode & 0xFF in (
            sqlite3.SQLITE_READONLY,
            sqlite3.SQLITE_CANTOPEN,
        )
        if not refused or os.access(folder_of(path), os.W_OK) or not os.access(path, os.R_OK):
            raise
    except BaseException:
        connection.close()
        raise
    name = os.path.realpath(path)
    state = _state(name)
    if state[-1]:
        raise StoreError(
            f"cannot read {path}: its last changes are in {name}-wal, and its folder cannot be "
            "written",
            hint="any command of somebody who may write the folder brings them into the file; or "
            "copy both files into a folder of your own",
        )
    from urllib.parse import quote

    connection = sqlite3.connect(
        f"file:{quote(name)}?immutable=1",
        uri=True,
        isolation_level=None,
        check_same_thread=not threads,
        factory=UnchangingFile,
    )
    connection.place = name, state
    defend(connection)
    return connection


def folder_of(path: Path | str) -> str:
    """The folder that a file is in, whatever links lead there."""
    return os.path.dirname(os.path.realpath(path))


def _state(name: str) -> State:
    """A state that is another one once a file or its log has been written to."""
    file = os.stat(name)
    try:
        logged = os.stat(f"{name}-wal").st_size > 0
    except FileNotFoundError:
        logged = False
    return file.st_ino, file.st_size, file.st_mtime_ns, logged


def use_wal(connection: sqlite3.Connection) -> None:
    """Makes the journal a write-ahead log, which SQLite refuses at once while others read."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if connection.execute("pragma journal_mode").fetchone() == ("wal",):
                return
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_SECONDS)


def memory_connection() -> sqlite3.Connection:
    """A connection to a store in memory, with a schema and nothing else."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    with closing(sqlite3.connect(":memory:")) as empty:
        empty.deserialize(_migrated())
        empty.backup(connection)
    defend(connection)
    connection.execute("pragma foreign_keys = on")
    return connection


@cache
def _migrated() -> bytes:
    """A store's file with its schema and nothing else; to copy it is faster than to migrate."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection)
        return connection.serialize()


def _create(path: Path | str) -> None:
    """Makes the file, its owner's alone, as its log will be. A link to nowhere is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        if not os.path.exists(path):
            raise


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the schema to the present one, whole or not at all, whoever else tries as well."""
    from sqlite_utils import Database

    from tfgrpo.migrations.migrations import migrations

    with whole(connection):
        (schema,) = connection.execute("pragma user_version").fetchone()
        if schema < SCHEMA:  # else another process has just done it
            migrations.apply(Database(connection))


@contextmanager
def whole(connection: sqlite3.Connection, *, dry_run: bool = False) -> Iterator[None]:
    """A transaction that writes, whole or not at all; for a `dry_run` not at all."""
    connection.execute("begin immediate")
    try:
        yield
        connection.execute("rollback" if dry_run else "commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def translated(
    error: sqlite3.Error | UnicodeError | OverflowError, path: Path | str
) -> StoreError | KeyboardInterrupt:
    """The error that a user should read in place of SQLite's."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return KeyboardInterrupt()  # as it was, until SQLite took it (`checks.py`)
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it could not read
        return damage_error("what SQLite says of it is no text")
    if isinstance(error, UnicodeEncodeError):
        return not_unicode(error)
    if isinstance(error, OverflowError):
        return RowRefused("a number is too large for the store", hint="at most 2**63 - 1")
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return StoreError(
            f"cannot write {path}: {text}",
            hint="free some space and run the same command again; nothing already recorded is lost",
        )
    if "readonly" in text or "unable to open" in text:
        return _forbidden(path, text)
    if any(phrase in text for phrase in ("malformed", "not a database", "decode to UTF-8")):
        return StoreError(
            f"{path} is damaged or not a store: {text}",
            hint="restore a backup of the file, and keep the damaged one",
        )
    if "locked" in text:
        return StoreError(
            f"{path} is busy: another process has been writing to it for over a minute",
            hint="run the same command again when that is done",
        )
    kind = RowRefused if isinstance(error, sqlite3.IntegrityError) else StoreError
    return kind(f"{path}: {text}", hint="`tfgrpo fsck` checks whether the file is damaged")


def _forbidden(path: Path | str, text: str) -> StoreError:
    if not os.access(path, os.R_OK):
        return StoreError(f"cannot read {path}: {text}", hint="check the file's permissions")
    if not os.access(folder := folder_of(path), os.W_OK):
        return StoreError(
            f"cannot write {path}: its folder {folder} cannot be written",
            hint="check the folder's permissions: changes need a log beside the file",
        )
    return StoreError(f"cannot write {path}: {text}", hint="check the file's permissions")


class WriterQueue:
    """One writer's place in the queue of a store. Belongs to one thread, like a connection."""

    def __init__(self, path: Path | str | None) -> None:
        """`path` is None for a store in memory. Nothing is made before the first turn."""
        self._path = path
        self._file: int | None = None
        self._given_up = path is None or not OPEN_FILE_LOCKS

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits until everybody who came before has had a turn, or has died."""
        queued = self._take()
        try:
            yield
        finally:
            if queued and self._file is not None:  # not closed meanwhile
                _lock(self._file, fcntl.F_UNLCK, 0, 0, wait=True)  # 0 bytes: to the end

    def close(self) -> None:
        """Gives the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _take(self) -> bool:
        """Waits for a turn; returns whether there is a queue at all."""
        if self._given_up:
            return False
        try:
            if self._file is None:
                self._file = os.open(f"{self._path}{SUFFIX}", FLAGS, self._mode())
            ticket = time.monotonic_ns()
            if not (self._wait(fcntl.F_WRLCK, ticket, 1) and self._wait(fcntl.F_RDLCK, 0, ticket)):
                self._given_up = True
                self.close()
                return False
        except OSError:  # no queue here: SQLite says who is next, and what is wrong if nothing is
            self.close()
            return False
        except BaseException:  # interrupted while waiting
            self.close()
            raise
        return True

    def _mode(self) -> int:
        """Who may open the queue: whoever may write the store. A reader could hold it."""
        assert self._path is not None
        writers = os.stat(self._path).st_mode & 0o222
        return writers | writers << 1

    def _wait(self, kind: int, start: int, length: int) -> bool:
        """Locks bytes; returns whether they were given within `PATIENCE` seconds."""
        assert self._file is not None
        if _lock(self._file, kind, start, length, wait=False):
            return True
        import threading  # fcntl knows no timeout of its own

        given = threading.Event()
        same = os.dup(self._file)  # locks are the open file's, whichever of its numbers asks

        def wait() -> None:
            try:
                _lock(same, kind, start, length, wait=True)
                given.set()
            finally:
                os.close(same)

        threading.Thread(target=wait, daemon=True).start()
        return given.wait(PATIENCE)


def _lock(file: int, kind: int, start: int, length: int, *, wait: bool) -> bool:
    """Locks or unlocks bytes; returns False where that would have to wait and may not."""
    try:
        import struct  # which who only reads needs not

        command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
        flock = struct.pack("@hhqqi0q", kind, os.SEEK_SET, start, length, 0)  # 64-bit offsets
        fcntl.fcntl(file, command, flock)
    except (BlockingIOError, PermissionError):
        if wait:
            raise
        return False
    return True


@contextmanager
def writing(connection: sqlite3.Connection, turns: WriterQueue) -> Iterator[None]:
    """A transaction that writes, when it is this writer's turn; whole or not at all."""
    with turns.turn(), whole(connection):
        yield


def is_store(path: Path) -> bool:
    """Whether a file is a store: True as well where that cannot be told."""
    if not path.stat().st_size:
        return False
    # Not by opening the file: closing it would drop the locks that SQLite holds in this process.
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.execute("pragma schema_version")
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return True
