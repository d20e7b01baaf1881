"""The embedded port: one SQLite file in WAL mode.

The connection is used bare where a replay or an append is hot; sqlite-utils makes and migrates
the schema and is imported only when there is something to make or migrate.

Durability: `synchronous = FULL`, so a version that `commit` returned is on the disk, at the
price of one fdatasync. SQLite's own error texts are translated here into errors with hints.
"""

from __future__ import annotations

import array
import json
import sqlite3
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.migrations import APPLICATION_ID, SCHEMA
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import EventRow, Step, lane_of, lane_start
from tfgrpo.store.records import Op, RefMove, Version

Values: TypeAlias = Sequence[object] | Mapping[str, object]
VERSION_COLUMNS = "number, digest, parent, merged, position, events, author, time, message, meta"
REF_COLUMNS = "row, batch, name, version, symbol, previous, previous_symbol, author, time, action"


def connect(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Opens a store file, making or migrating its schema when that is needed.

    Returns a connection in autocommit mode. Raises StoreError for a file that is missing, not
    a store, or made by a newer tfgrpo.
    """
    if not create and not path.is_file():
        raise StoreError(f"no store at {path}", hint="run `tfgrpo init` to make one")
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, isolation_level=None, timeout=60)
        (schema,) = connection.execute("pragma user_version").fetchone()
        (application,) = connection.execute("pragma application_id").fetchone()
        (tables,) = connection.execute("select count(*) from sqlite_master").fetchone()
        if application != APPLICATION_ID and (tables or not create):
            raise StoreError(
                f"{path} is not a tfgrpo store",
                hint="name the store's own file, usually .tfgrpo/store.db",
            )
        if schema > SCHEMA:
            raise StoreError(
                f"{path} has schema {schema}; this tfgrpo knows {SCHEMA}",
                hint="upgrade tfgrpo: `pip install -U tfgrpo`",
            )
        if schema < SCHEMA:
            migrate(connection)
        use_wal(connection)
        connection.execute("pragma synchronous = full")
        connection.execute("pragma foreign_keys = on")
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        raise translated(error, path) from error
    except StoreError:
        if connection is not None:
            connection.close()
        raise
    return connection


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


def use_wal(connection: sqlite3.Connection) -> None:
    """Makes the journal a write-ahead log, which SQLite refuses at once while others read."""
    deadline = time.monotonic() + 60
    while connection.execute("pragma journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def translated(error: sqlite3.Error, path: Path) -> StoreError:
    """Returns the error that a user should read in place of SQLite's."""
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return StoreError(
            f"cannot write {path}: {text}",
            hint="free some space and run the same command again; nothing recorded is lost",
        )
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"cannot write {path}: {text}", hint="check the file's permissions")
    if "malformed" in text or "not a database" in text:
        return StoreError(
            f"{path} is damaged or not a store: {text}",
            hint="restore a copy of the file; keep the damaged one",
        )
    if "locked" in text:
        return StoreError(
            f"{path} is busy: another process has been writing to it for a minute",
            hint="run the same command again when it is done",
        )
    return StoreError(f"{path}: {text}")


class SqlitePort:
    """The port over one SQLite file. One instance belongs to one thread."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self.connection = connect(path, create=create)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turns SQLite's errors into ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self.connection.in_transaction:  # joins the one that is open
            yield
            return
        with self.translating():
            self.connection.execute("begin immediate")
            try:
                yield
                self.connection.execute("commit")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("rollback")
                raise

    def rows(self, query: str, values: Values = ()) -> list[Any]:
        """Returns a query's rows."""
        with self.translating():
            return self.connection.execute(query, values).fetchall()

    def row(self, query: str, values: Values = ()) -> Any:
        """Returns a query's first row, or None."""
        with self.translating():
            return self.connection.execute(query, values).fetchone()

    def stream(self, query: str, values: Values = ()) -> Iterator[Any]:
        """Yields a query's rows as they are read."""
        with self.translating():
            yield from self.connection.execute(query, values)

    # Versions and events:

    def last_version(self) -> int:
        (number,) = self.row("select max(number) from versions")
        return -1 if number is None else int(number)

    def version(self, number: int) -> Version | None:
        row = self.row(f"select {VERSION_COLUMNS} from versions where number = ?", (number,))
        return None if row is None else _version(row)

    def version_schema(self, number: int) -> int:
        (schema,) = self.row("select schema from versions where number = ?", (number,))
        return int(schema)

    def version_meta(self, number: int) -> str | None:
        (meta,) = self.row("select meta from versions where number = ?", (number,))
        return None if meta is None else str(meta)

    def versions_by_digest(self, prefix: str, limit: int) -> list[Version]:
        low = bytes.fromhex(prefix + "0" * (len(prefix) % 2))
        rows = self.rows(
            f"select {VERSION_COLUMNS} from versions where digest >= ? order by digest limit ?",
            (low, limit),
        )
        return [v for row in rows if (v := _version(row)).digest.hex().startswith(prefix)]

    def first_since(self, time: int) -> int | None:
        (number,) = self.row("select min(number) from versions where time >= ?", (time,))
        return None if number is None else int(number)

    def version_of_row(self, row: int) -> Version:
        found = self.row(
            f"select {VERSION_COLUMNS} from versions where position >= ? and events > 0"
            " order by position limit 1",
            (row,),
        )
        if found is None:
            raise StoreError(f"event {row} belongs to no version", hint="`tfgrpo fsck` tells more")
        return _version(found)

    def lane_tip(self, position: int) -> bool:
        end = lane_start(lane_of(position) + 1)
        query = "select 1 from events where row > ? and row < ? limit 1"
        return self.row(query, (position, end)) is None

    def lane_base(self, lane: int) -> int:
        found = self.row("select base from lanes where lane = ?", (lane,))
        if found is None:
            raise StoreError(f"lane {lane} is missing", hint="`tfgrpo fsck` tells more")
        return int(found[0])

    def open_lane(self, base: int) -> int:
        (lane,) = self.row("insert into lanes (base) values (?) returning lane", (base,))
        return int(lane)

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        self.connection.execute(
            f"insert into versions ({VERSION_COLUMNS}, schema) values (?,?,?,?,?,?,?,?,?,?,1)",
            (*version[:9], _dumps(version.meta)),
        )
        self.connection.executemany("insert into events values (?,?,?,?,?,?,?,?,?,?,?)", events)

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        return map(
            Step._make,
            self.rows(
                "select row, op, replaces from events"
                " where row > ? and row <= ? and op <> 'KEEP' order by row",
                (after, upto),
            ),
        )

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        query = "select * from events where row > ? and row <= ? order by row"
        return map(EventRow._make, self.stream(query, (after, upto)))

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        query = "select * from events where row in (select value from json_each(?)) order by row"
        return list(map(EventRow._make, self.rows(query, (json.dumps(list(rows)),))))

    def events_of(self, experience: str) -> list[EventRow]:
        query = "select * from events where experience = ? order by row"
        return list(map(EventRow._make, self.rows(query, (experience,))))

    def count_keeps(self, rows: Sequence[int], ranges: Sequence[tuple[int, int]]) -> dict[int, int]:
        return dict(
            self.rows(
                """
                select k.replaces, count(*)
                from events e join events k on k.experience = e.experience
                where e.row in (select value from json_each(?))
                    and k.op = 'KEEP' and k.replaces = e.row
                    and exists (
                        select 1 from json_each(?) r
                        where k.row > r.value ->> 0 and k.row <= r.value ->> 1
                    )
                group by k.replaces
                """,
                (json.dumps(list(rows)), json.dumps(ranges)),
            )
        )

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        rows = self.rows(
            "select distinct experience from events where experience >= ? and experience < ?"
            " order by experience limit ?",
            (prefix, prefix + "{", limit),
        )
        return [id for (id,) in rows]

    def count_events(self) -> int:
        (count,) = self.row("select count(*) from events")
        return int(count)

    def count_ops(self, after: int, upto: int) -> dict[Op, int]:
        query = "select op, count(*) from events where row > ? and row <= ? group by op"
        return dict(self.rows(query, (after, upto)))

    def count_versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        query = "select count(*) from versions where position > ? and position <= ? and events > 0"
        return sum(int(self.row(query, pair)[0]) for pair in ranges)

    def count_modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        query = (
            "select experience, count(*) from events"
            " where row > ? and row <= ? and op = 'MODIFY' group by experience"
        )
        found: Counter[str] = Counter()
        for pair in ranges:
            found.update(dict(self.rows(query, pair)))
        return dict(found)

    # Snapshots:

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        found = self.row(
            "select position, live from snapshots where position > ? and position <= ?"
            " order by position desc limit 1",
            (after, upto),
        )
        return None if found is None else (found[0], unpack(found[1]))

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        self.connection.execute(
            "insert or ignore into snapshots values (?, ?)", (position, pack(live))
        )

    def snapshot_positions(self) -> list[int]:
        return [p for (p,) in self.rows("select position from snapshots order by position")]

    def snapshot_sizes(self) -> list[int]:
        return [n for (n,) in self.rows("select length(live) from snapshots order by position")]

    def drop_snapshots(self) -> None:
        with self.transaction():
            self.connection.execute("delete from snapshots")

    # Names:

    def ref(self, name: str) -> RefMove | None:
        row = self.row(
            f"select {REF_COLUMNS} from reflog where name = ? order by row desc limit 1", (name,)
        )
        return None if row is None else RefMove._make(row)

    def refs(self, prefix: str) -> list[RefMove]:
        # One index probe per name, however long the log: the names are walked like a skip scan.
        rows = self.rows(
            f"""
            with recursive names (name) as (
                select min(name) from reflog where name >= :low and name < :high
                union all
                select (select min(name) from reflog where name > names.name and name < :high)
                from names where names.name is not null
            )
            select {", ".join("r." + c for c in REF_COLUMNS.split(", "))}
            from names join reflog r on r.row = (
                select max(row) from reflog where reflog.name = names.name
            )
            where names.name is not null
            """,
            {"low": prefix, "high": prefix + "\U0010ffff"},
        )
        return list(map(RefMove._make, rows))

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        where, values = ("", ()) if name is None else ("where name = ?", (name,))
        query = f"select {REF_COLUMNS} from reflog {where} order by row desc"
        return map(RefMove._make, self.stream(query, values))

    def append_refs(self, moves: Sequence[RefMove]) -> None:
        (last,) = self.row("select max(row) from reflog")
        batch = (last or 0) + 1
        self.connection.executemany(
            f"insert into reflog ({REF_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?)",
            [(batch + i, batch, *move[2:]) for i, move in enumerate(moves)],
        )


def pack(live: Sequence[int]) -> bytes:
    """Returns ascending row numbers as deltas, 64-bit little endian, compressed with zlib."""
    deltas = array.array("q", [b - a for a, b in zip([0, *live], live, strict=False)])
    if sys.byteorder == "big":
        deltas.byteswap()
    return zlib.compress(deltas.tobytes(), 1)


def unpack(blob: bytes) -> list[int]:
    """Returns the row numbers that `pack` packed."""
    deltas = array.array("q")
    deltas.frombytes(zlib.decompress(blob))
    if sys.byteorder == "big":
        deltas.byteswap()
    rows, row = [], 0
    for delta in deltas:
        row += delta
        rows.append(row)
    return rows


def _version(row: tuple[object, ...]) -> Version:
    *columns, meta = row
    return Version._make((*columns, json.loads(meta) if isinstance(meta, str) else {}))


def _dumps(meta: object) -> str | None:
    return canonical(meta).decode() if meta else None
