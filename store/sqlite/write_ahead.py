"""The write-ahead log of a SQLite file."""

from __future__ import annotations

import sqlite3
import time

PATIENCE_SECONDS = 60.0
PAUSE_SECONDS = 0.01


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
