"""How a store is opened or made: the one place that chooses between SQLite and PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from tfgrpo.store import atomic_write
from tfgrpo.store.address import is_address, named_by
from tfgrpo.store.errors import InvalidOperation, StoreError, advice, install_hint
from tfgrpo.store.history.revisions import BRANCH, HEAD
from tfgrpo.store.records import ROOT
from tfgrpo.store.sqlite.file import is_store as is_store
from tfgrpo.store.sqlite.file import memory_connection
from tfgrpo.store.sqlite.port import SqlitePort

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.activity.traffic import Traffic
    from tfgrpo.store.postgres.port import PostgresPort
    from tfgrpo.store.postgres.storage import PostgresMembers
    from tfgrpo.store.sql.port import Port
    from tfgrpo.store.sqlite.ledger_file import SqliteLedger
    from tfgrpo.store.store import Store

DEFAULT_BRANCH = "main"


def open_port(
    path: Path | str, *, create: bool = False, watching: bool = False, unchecked: bool = False
) -> Port:
    """Opens the storage at `path`, a file's or a database's address, or makes it with `create`;
    `Store.open` says what `watching` and `unchecked` mean. Raises StoreError."""
    if is_address(path):
        return _database()(str(path), create=create, watching=watching)
    return SqlitePort(path, create=create, watching=watching, unchecked=unchecked)


def is_there(path: Path) -> bool:
    """Whether there is a store at a path or in its database. Raises StoreError."""
    address = named_by(path)
    return _database().is_there(str(address)) if is_address(address) else os.path.exists(path)


def members_of(port: Port) -> PostgresMembers:
    """Who may do what in a shared store. Raises InvalidOperation for a file."""
    if isinstance(port, SqlitePort):
        raise InvalidOperation(
            "a store in a file has no members",
            hint="whoever may write the file may do everything; docs/scale.md has shared stores",
        )
    database = _database()
    assert isinstance(port, database)
    return port.members()


def new_library(address: str) -> AbstractContextManager[Port]:
    """The port over a new library of a database. One transaction makes the library, whole or not at
    all, and ends with this. Raises StoreError where there is one already."""
    return _database().new(address, there_already(address))


def _database() -> type[PostgresPort]:
    try:
        from tfgrpo.store.postgres.port import PostgresPort
    except ImportError as error:
        raise StoreError(
            "a store in PostgreSQL needs psycopg, which is not installed",
            hint=install_hint("postgres"),
        ) from error
    return PostgresPort


def there_already(place: Path | str) -> StoreError:
    """The error for a clone to where there is a store."""
    return StoreError(f"there is already a store at {place}", hint="update it with `tfgrpo pull`")


def open_ledger(path: str, *, create: bool = False) -> SqliteLedger:
    """Opens the keys and the spending at `path`, or makes that with `create`. Raises StoreError."""
    from tfgrpo.store.sqlite.ledger_file import SqliteLedger

    return SqliteLedger(path, create=create)


def open_traffic(path: str, *, create: bool = False) -> Traffic:
    """Opens the record of traffic at `path`, or makes it with `create`. Raises StoreError."""
    from tfgrpo.store.sqlite.side_files import SqliteTraffic

    return SqliteTraffic(path, create=create)


def init(path: Path | str, opened: Callable[[Port], Store]) -> Store:
    """The store at `path`, made where none is; `opened` gives one on a port. Raises StoreError."""
    if not is_address(path) and not os.path.lexists(path):
        _create(path, opened)
    store = opened(open_port(path, create=True))
    begin(store)  # of an empty file that somebody else made
    return store


def in_memory(path: Path | str, opened: Callable[[Port], Store]) -> Store:
    """The store that `init` makes, in memory alone."""
    store = opened(SqlitePort(path, connection=memory_connection()))
    begin(store)
    return store


def begin(store: Store) -> None:
    """Records the first version and its names, unless they are there."""
    if store.port.last_version() >= 0:
        return
    with store.port.transaction():
        if store.port.last_version() < 0:
            store.port.append_version(ROOT, ())
            main = BRANCH + DEFAULT_BRANCH
            store._move([(main, 0, None), (HEAD, 0, main)], "init")


def _create(path: Path | str, opened: Callable[[Port], Store]) -> None:
    """Makes a store's file, and its folder where there is none; of several who do so at once, one
    does. Raises StoreError, and leaves nothing behind then."""
    folder = os.path.dirname(path) or "."
    there = os.path.isdir(folder)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {folder}: {error.strerror}", hint=advice(error)) from error
    try:
        with in_memory(path, opened) as store:
            atomic_write.create(path, store.port.storage.content())
    except OSError as error:
        if not there:
            with suppress(OSError):  # somebody else uses it by now
                os.rmdir(folder)
        raise StoreError(f"cannot create {path}: {error.strerror}", hint=advice(error)) from error
