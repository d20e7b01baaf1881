"""The store's file: opening it, making and migrating its schema, one writer at a time; SQLite's
errors get hints here."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from tfgrpo.migrations import APPLICATION_ID, SCHEMA
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import RowRefused, StoreError, advice
from tfgrpo.store.sqlite.foreign_schema import defend, refuse_computed, refuse_foreign, schema
from tfgrpo.store.sqlite.read_only_folder import UnchangingFile, folder_of, open_database, use_wal
from tfgrpo.store.sqlite.writer_queue import WriterQueue, holder

if TYPE_CHECKING:
    from pathlib import Path

FAILURES = (sqlite3.Error, UnicodeError, OverflowError)  # the last two for what no SQL can hold


def connect(
    path: Path | str, create: bool = False, watching: bool = False, unchecked: bool = False
) -> sqlite3.Connection:
    """Opens a store file in autocommit mode, making or migrating its schema when that is needed.

    With `watching`, threads may take turns, no lock is waited for, and an older schema is an error.
    With `unchecked` additions to the schema are let be. Raises StoreError.
    """
    if not create and not os.path.isfile(path):
        raise StoreError(f"no store at {path}", hint="create one with `tfgrpo init`")
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
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise translated(error, path) from error
    except OSError as error:
        raise StoreError(f"cannot create {path}: {error.strerror}", hint=advice(error)) from error
    except UnicodeDecodeError:  # SQLite quotes what it could not read
        if connection is not None:
            connection.close()
        raise damage_error(f"{path} has a schema that is no text") from None
    except StoreError:
        if connection is not None:
            connection.close()
        raise
    return connection


def memory_connection() -> sqlite3.Connection:
    """A connection to a store in memory, with a schema and nothing else."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    migrate(connection)
    defend(connection)
    connection.execute("pragma foreign_keys = on")
    return connection


def _create(path: Path | str) -> None:
    """Makes the file, its owner's alone, where there is none; the log's files take its mode. A link
    to nowhere is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        os.close(os.open(path, flags, 0o600))
    except FileExistsError:
        if not os.path.exists(path):
            raise


def migrate(connection: sqlite3.Connection) -> None:
    """Brings the schema to the present one, whole or not at all, whoever else tries as well."""
    from sqlite_utils import Database

    from tfgrpo.migrations.migrations import migrations

    connection.execute("begin immediate")
    try:
        (schema,) = connection.execute("pragma user_version").fetchone()
        if schema < SCHEMA:  # else another process has just done it
            migrations.apply(Database(connection))
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def translated(
    error: sqlite3.Error | UnicodeError | OverflowError, path: Path | str
) -> StoreError | KeyboardInterrupt:
    """The error that a user should read in place of SQLite's."""
    if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
        return KeyboardInterrupt()  # as it was, until SQLite took it (`foreign_schema.py`)
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it could not read
        return damage_error("what SQLite says of it is no text")
    if isinstance(error, UnicodeEncodeError):
        return RowRefused(
            f"{error.object!r} is not valid Unicode",
            hint="part of a character is missing (a lone surrogate)",
        )
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
            f"{path} is busy: {holder(path)} has been writing to it for over a minute",
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


@contextmanager
def writing(connection: sqlite3.Connection, turns: WriterQueue) -> Iterator[None]:
    """A transaction that writes, when it is this writer's turn; whole or not at all."""
    queued = turns.take()
    try:
        connection.execute("begin immediate")
        try:
            yield
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise
    finally:
        turns.give_back(queued)


def rewrite(connection: sqlite3.Connection, path: Path | str) -> bool:
    """Writes the whole file anew and empties its log, so that nothing deleted is left in
    either; returns whether the log could be emptied, which nobody may be reading for."""
    refuse_foreign(connection, path)
    (timeout,) = connection.execute("pragma busy_timeout").fetchone()
    try:
        connection.execute("pragma busy_timeout = 1000")
        connection.execute("pragma secure_delete = on")
        connection.execute("vacuum")
        done = connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    except sqlite3.OperationalError as error:
        if "locked" not in str(error):
            raise
        return False
    finally:
        connection.execute(f"pragma busy_timeout = {timeout}")
    return bool(done[0] == 0)


def rebuild(connection: sqlite3.Connection) -> None:
    """Makes triggers and indexes that are missing or others, and every index anew, and removes
    triggers, views and indexes that no migration makes. Only inside a transaction."""
    there, expected = schema(connection), schema(None)
    for (kind, name), sql in there.items():
        if kind != "table" and expected.get((kind, name)) != sql:
            quoted = name.replace('"', '""')
            connection.execute(f'drop {kind} "{quoted}"')
    for (kind, name), sql in expected.items():
        if kind != "table" and there.get((kind, name)) != sql:
            connection.execute(sql)
    connection.execute("reindex")


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
