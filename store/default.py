"""The one place that chooses an implementation of the port: SQLite, for every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.store.sqlite.file import is_store
from tfgrpo.store.sqlite.port import SqlitePort

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.port import Port

__all__ = ["is_store", "open_port"]


def open_port(path: Path | str, *, create: bool = False, watching: bool = False) -> Port:
    """Opens the storage at `path`, or makes it with `create`; `watching` is for one who serves
    what is there (`Store.open` says what that means). Raises StoreError."""
    return SqlitePort(path, create=create, watching=watching)
