"""The one place that chooses an implementation: SQLite, for files and every record of traffic;
PostgreSQL for a store that is named by the address of a database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfgrpo.store.address import is_address, named_by
from tfgrpo.store.errors import StoreError
from tfgrpo.store.sqlite.file import is_store, memory_connection
from tfgrpo.store.sqlite.port import SqlitePort

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.ledger import Ledger
    from tfgrpo.store.members import Members
    from tfgrpo.store.port import Port
    from tfgrpo.store.traffic import Traffic

__all__ = [
    "is_store",
    "is_there",
    "members_of",
    "memory_port",
    "new_library",
    "open_ledger",
    "open_port",
    "open_traffic",
    "there_already",
]


def open_port(
    path: Path | str, *, create: bool = False, watching: bool = False, unchecked: bool = False
) -> Port:
    """Opens the storage at `path`, a file's or a database's address, or makes it with `create`;
    `Store.open` says what `watching` and `unchecked` mean. Raises StoreError."""
    if is_address(path):
        from tfgrpo.store.postgres.port import PostgresPort

        return PostgresPort(str(path), create=create, watching=watching)
    return SqlitePort(path, create=create, watching=watching, unchecked=unchecked)


def is_there(path: Path) -> bool:
    """Returns whether there is a store at a path, or in the database that it stands for. Raises
    StoreError where that cannot be told."""
    address = named_by(path)
    if not is_address(address):
        return path.exists()
    from tfgrpo.store.postgres.session import is_library

    return is_library(str(address))


def members_of(port: Port) -> Members:
    """Returns who may do what in a shared store. Raises InvalidOperation for a file."""
    from tfgrpo.store.errors import InvalidOperation

    if isinstance(port, SqlitePort):
        raise InvalidOperation(
            "a store in a file has no members",
            hint="whoever may write the file may do everything; docs/scale.md has shared stores",
        )
    from tfgrpo.store.postgres.members import PostgresMembers
    from tfgrpo.store.postgres.port import PostgresPort

    assert isinstance(port, PostgresPort)
    return PostgresMembers(port)


@contextmanager
def new_library(address: str) -> Iterator[Port]:
    """Yields the port over a library of a database that is made by one transaction, which ends
    with this: until then nobody sees it, and it is there whole or not at all, whatever kills its
    maker. Raises StoreError where there is one already."""
    from tfgrpo.store.address import parse_address
    from tfgrpo.store.postgres.port import PostgresPort
    from tfgrpo.store.postgres.session import Session, has_schema

    session = Session(parse_address(address))
    try:
        with session.writing():
            if has_schema(session):
                raise there_already(address)
            yield PostgresPort(session, create=True)
    finally:
        session.close()


def there_already(place: Path | str) -> StoreError:
    """Returns the error for a clone to where there is a store."""
    return StoreError(f"there is already a store at {place}", hint="update it with `tfgrpo pull`")


def memory_port(path: Path | str) -> Port:
    """Returns empty storage in memory, as it would be at `path`."""
    return SqlitePort(path, connection=memory_connection())


def open_ledger(path: str, *, create: bool = False) -> Ledger:
    """Opens the keys and the spending at `path`, or makes that with `create`. Raises StoreError."""
    from tfgrpo.store.sqlite.ledger import SqliteLedger

    return SqliteLedger(path, create=create)


def open_traffic(path: str, *, create: bool = False) -> Traffic:
    """Opens the record of traffic at `path`, or makes it with `create`. Raises StoreError."""
    from tfgrpo.store.sqlite.traffic import SqliteTraffic

    return SqliteTraffic(path, create=create)
