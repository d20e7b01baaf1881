"""A SQLite file in a folder that cannot be written.

A reader of a write-ahead log needs the log's index beside it, and makes it where nobody else has.
Where it may not, the file can be read alone, as long as nothing is in its log and nobody writes to
it meanwhile (https://sqlite.org/wal.html, "Read-Only Databases"): so that is asked for before
every statement.
"""

from __future__ import annotations

import os
import sqlite3
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.store.errors import FileChanged, StoreError
from tfgrpo.store.sqlite.foreign_schema import defend

if TYPE_CHECKING:
    from pathlib import Path


State: TypeAlias = tuple[int, int, int, bool]
PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.01


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
    """Makes the journal a write-ahead log. SQLite refuses that at once, whatever the timeout, while
    others read or do the same."""
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
