"""The embedded port: one SQLite file in WAL mode.

The connection is used bare where a replay or an append is hot; sqlite-utils makes and migrates
the schema and is imported only when there is something to make or migrate.

Durability: `synchronous = FULL`, so a version that `commit` returned is on the disk, at the
price of one fdatasync. SQLite's own error texts are translated here into errors with hints.
"""

from __future__ import annotations

import array
import os
import sqlite3
import sys
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.migrations import APPLICATION_ID, SCHEMA
from tfgrpo.store.damage import check_row, checked, damaged, parsed
from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import EventRow, Link, Redaction, Shape, Step, lane_of, lane_start
from tfgrpo.store.records import OPS, Op, RefMove, Version
from tfgrpo.store.turns import Turns

if TYPE_CHECKING:
    from pathlib import Path

KNOWN = frozenset(OPS)
FAILURES = (sqlite3.Error, UnicodeError)  # the latter for a text that no SQL can hold
Values: TypeAlias = Sequence[object] | Mapping[str, object]
VERSION_COLUMNS = "number, digest, parent, merged, position, events, author, time, message, meta"
REF_COLUMNS = "row, batch, name, version, symbol, previous, previous_symbol, author, time, action"


def connect(path: Path | str, *, create: bool = False) -> sqlite3.Connection:
    """Opens a store file, making or migrating its schema when that is needed.

    Returns a connection in autocommit mode. Raises StoreError for a file that is missing, not
    a store, or made by a newer tfgrpo.
    """
    if not create and not os.path.isfile(path):
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
    except UnicodeDecodeError:  # SQLite quotes what it could not read
        if connection is not None:
            connection.close()
        raise damaged(f"{path} has a schema that is no text") from None
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


def schema(connection: sqlite3.Connection | None) -> dict[str, str]:
    """Returns name → SQL of a store's tables, indexes and triggers; without a connection, of
    those that the migrations make."""
    if connection is None:
        from sqlite_utils import Database

        from tfgrpo.migrations.migrations import migrations

        made = Database(memory=True)
        migrations.apply(made)
        connection = made.conn
    query = "select name, sql from sqlite_master where sql is not null and name not glob '_*'"
    return dict(connection.execute(query).fetchall())


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


def translated(error: sqlite3.Error | UnicodeError, path: Path | str) -> StoreError:
    """Returns the error that a user should read in place of SQLite's."""
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it could not read
        return damaged("what SQLite says of it is no text")
    if isinstance(error, UnicodeEncodeError):
        return StoreError(
            f"{error.object!r} is not whole Unicode",
            hint="a character was cut in half on the way here",
        )
    text = str(error)
    if "full" in text or "disk I/O" in text:
        return StoreError(
            f"cannot write {path}: {text}",
            hint="free some space and run the same command again; nothing recorded is lost",
        )
    if "readonly" in text or "unable to open" in text:
        return StoreError(f"cannot write {path}: {text}", hint="check the file's permissions")
    if any(said in text for said in ("malformed", "not a database", "decode to UTF-8")):
        return StoreError(
            f"{path} is damaged or not a store: {text}",
            hint="restore a copy of the file; keep the damaged one",
        )
    if "locked" in text:
        return StoreError(
            f"{path} is busy: another process has been writing to it for a minute",
            hint="run the same command again when it is done",
        )
    return StoreError(f"{path}: {text}", hint="`tfgrpo fsck` says whether the file is damaged")


@contextmanager
def writing(connection: sqlite3.Connection, turns: Turns) -> Iterator[None]:
    """A transaction that writes, when it is this writer's turn; whole or not at all."""
    with turns.turn():
        connection.execute("begin immediate")
        try:
            yield
            connection.execute("commit")
        except BaseException:
            if connection.in_transaction:
                connection.execute("rollback")
            raise


class SqlitePort:
    """The port over one SQLite file. One instance belongs to one thread."""

    def __init__(self, path: Path | str, *, create: bool = False) -> None:
        self.path = path
        self.connection = connect(path, create=create)
        self._turns = Turns(path)

    def close(self) -> None:
        self.connection.close()
        self._turns.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, and Python's about a text that no SQL can hold."""
        try:
            yield
        except FAILURES as error:
            raise translated(error, self.path) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self.connection.in_transaction:  # joins the one that is open
            yield
            return
        with self.translating(), writing(self.connection, self._turns):
            yield

    def rows(self, query: str, values: Values = ()) -> list[Any]:
        """Returns a query's rows."""
        try:  # and not `translating`, which costs as much as a small query
            return self.connection.execute(query, values).fetchall()
        except FAILURES as error:
            raise translated(error, self.path) from error

    def row(self, query: str, values: Values = ()) -> Any:
        """Returns a query's first row, or None."""
        try:
            return self.connection.execute(query, values).fetchone()
        except FAILURES as error:
            raise translated(error, self.path) from error

    def stream(self, query: str, values: Values = ()) -> Generator[Any, None, None]:
        """Yields a query's rows as they are read."""
        with self.translating():
            yield from self.connection.execute(query, values)

    # Versions and events:

    def last_version(self) -> int:
        (number,) = self.row("select max(number) from versions")
        if number is not None and not 0 <= number < 1 << 40:
            raise damaged(f"v{number} cannot be")
        return -1 if number is None else int(number)

    def version(self, number: int) -> Version | None:
        row = self.row(f"select {VERSION_COLUMNS} from versions where number = ?", (number,))
        return None if row is None else _version(row)

    def chain(self) -> Iterator[Link]:
        query = f"select {VERSION_COLUMNS}, schema from versions order by number"
        for row in self.stream(query):
            *columns, schema = check_row(row, "ibIIiistsSi", "versions")
            yield Link(_version(tuple(columns)), schema, columns[-1])

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
            raise _of_no_version(row)
        return _version(found)

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        query = """
            select j.value, (
                select number from versions
                where position >= j.value and events > 0 order by position limit 1
            ) from json_each(?) j
            """
        numbers = dict(self.rows(query, (str(list(rows)),)))
        for row, number in numbers.items():
            if number is None:
                raise _of_no_version(row)
        return numbers

    def lane_tip(self, position: int) -> bool:
        end = lane_start(lane_of(position) + 1)
        query = "select 1 from events where row > ? and row < ? limit 1"
        return self.row(query, (position, end)) is None

    def lane_base(self, lane: int) -> int:
        found = self.row("select base from lanes where lane = ?", (lane,))
        if found is None:
            raise StoreError(f"lane {lane} is missing", hint="`tfgrpo fsck` tells more")
        base = found[0]
        if not isinstance(base, int) or not 0 <= base <= lane_start(lane):
            raise damaged(f"lane {lane} leaves where there is none")
        return base

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
        rows = self.rows(
            "select row, op, replaces from events"
            " where row > ? and row <= ? and op <> 'KEEP' order by row",
            (after, upto),
        )
        return _known(checked(rows, "isI", "events"))

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        query = "select * from events where row > ? and row <= ? order by row"
        with self.translating():
            cursor = self.connection.execute(query, (after, upto))
            while rows := cursor.fetchmany(1000):
                yield from _events(rows)

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        return _events(self._at("e.*", rows))

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        columns = "e.experience, e.text, e.row, coalesce(e.birth, e.row)"
        return checked(self._at(columns, rows), "sSii", "events")

    def _at(self, columns: str, rows: Iterable[int]) -> list[Any]:
        # Asked for in row order, so that a page is read once and nothing has to be sorted.
        query = f"select {columns} from json_each(?) j cross join events e on e.row = j.value"
        return self.rows(query, (str(sorted(set(rows))),))

    def events_of(self, experience: str) -> list[EventRow]:
        query = "select * from events where experience = ? order by row"
        return _events(self.rows(query, (experience,)))

    def count_keeps(
        self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]
    ) -> dict[int, int]:
        # A KEEP comes after what it confirms, and the index on experience holds rows in order:
        # each probe reads those KEEPs and nothing of the experience's earlier life.
        import json

        keeps = self.rows(
            """
            select k.replaces, k.row
            from json_each(?) j cross join events k on k.experience = j.key and k.row > j.value
            where k.replaces = j.value and k.op = 'KEEP'
            """,
            (json.dumps(rows),),
        )
        return dict(
            Counter(of for of, row in keeps if any(after < row <= upto for after, upto in ranges))
        )

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        rows = self.rows(
            "select distinct experience from events where experience >= ? and experience < ?"
            " order by experience limit ?",
            (prefix, prefix + "{", limit),
        )
        return [id for (id,) in checked(rows, "s", "experiences")]

    def count_events(self) -> int:
        (count,) = self.row("select count(*) from events")
        return int(count)

    def count_ops(self, after: int, upto: int) -> dict[Op, int]:
        query = "select op, count(*) from events where row > ? and row <= ? group by op"
        counts = dict(self.rows(query, (after, upto)))
        if not KNOWN.issuperset(counts):
            raise damaged("an event has an operation that there is not")
        return counts

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
        query = (
            "select position, live from snapshots where position > ? and position <= ?"
            " order by position desc limit 1"
        )
        while (found := self.row(query, (after, upto))) is not None:
            try:
                return found[0], unpack(found[1])
            except (zlib.error, ValueError, TypeError):  # damaged: an earlier one will do
                upto = found[0] - 1
        return None

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
        return None if row is None else _moves([row])[0]

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
        return _moves(rows)

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        where, values = ("", ()) if name is None else ("where name = ?", (name,))
        query = f"select {REF_COLUMNS} from reflog {where} order by row desc"
        with closing(self.stream(query, values)) as rows:
            for row in rows:
                yield from _moves([row])

    def append_refs(self, moves: Sequence[RefMove], batch: int | None = None) -> int:
        (last,) = self.row("select max(row) from reflog")
        first = (last or 0) + 1
        batch = batch or first
        self.connection.executemany(
            f"insert into reflog ({REF_COLUMNS}) values (?,?,?,?,?,?,?,?,?,?)",
            [(first + i, batch, *move[2:]) for i, move in enumerate(moves)],
        )
        return batch

    # Redactions:

    def redactions(self, row: int) -> list[Redaction]:
        query = "select author, time, reason from redactions where event = ? order by row"
        return list(map(Redaction._make, self.rows(query, (row,))))

    def append_redactions(self, row: int, redactions: Sequence[Redaction]) -> None:
        self.connection.executemany(
            "insert into redactions (event, author, time, reason) values (?,?,?,?)",
            [(row, *redaction) for redaction in redactions],
        )

    def blank(self, row: int) -> None:
        query = "update events set text = null, reason = null, salt = null where row = ?"
        self.connection.execute(query, (row,))

    def redacted(self) -> list[int]:
        query = "select distinct event from redactions order by event"
        return [row for (row,) in self.rows(query)]

    def rewrite(self) -> bool:
        """Writes the whole file anew and empties its log, so that nothing deleted is left in
        either; returns whether the log could be emptied, which nobody may be reading for."""
        with self.translating():
            (timeout,) = self.connection.execute("pragma busy_timeout").fetchone()
            try:
                self.connection.execute("pragma busy_timeout = 1000")
                self.connection.execute("pragma secure_delete = on")
                self.connection.execute("vacuum")
                done = self.connection.execute("pragma wal_checkpoint(truncate)").fetchone()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
                return False
            finally:
                self.connection.execute(f"pragma busy_timeout = {timeout}")
        return bool(done[0] == 0)

    # The storage itself:

    def damage(self) -> Iterator[str]:
        for (told,) in self.rows("pragma integrity_check(20)"):
            if told != "ok":
                yield str(told)
        for table, row, parent, _ in self.rows("pragma foreign_key_check"):
            yield f"row {row} of {table} refers to a row of {parent} that is not there"

    def rebuild(self) -> None:
        there = schema(self.connection)
        with self.transaction():
            for name, sql in schema(None).items():
                if name not in there and not sql.lower().startswith("create table"):
                    self.connection.execute(sql)
            self.connection.execute("reindex")


def _of_no_version(row: int) -> StoreError:
    return StoreError(f"event {row} belongs to no version", hint="`tfgrpo fsck` tells more")


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
    return list(accumulate(deltas))


def _version(row: tuple[object, ...]) -> Version:
    *columns, meta = check_row(row, "ibIIiistsS", "versions")
    version = Version._make((*columns, parsed(meta, f"the meta of v{columns[0]}")))
    if max(version.parent or -1, version.merged or -1) >= version.number:
        raise damaged(f"{version.name} builds on a later version")
    return version


def _events(rows: list[Any]) -> list[EventRow]:
    return list(map(EventRow._make, _known(checked(rows, "issSSSIIBBi", "events"))))


def _known(rows: list[Any]) -> list[Any]:
    """Returns events whose second column is an operation that there is. Raises StoreError."""
    if not KNOWN.issuperset([row[1] for row in rows]):
        raise damaged("an event has an operation that there is not")
    return rows


def _moves(rows: list[Any]) -> list[RefMove]:
    return list(map(RefMove._make, checked(rows, "iisISISsts", "moves of names")))


def _dumps(meta: object) -> str | None:
    if not meta:
        return None
    from tfgrpo.store.canonical import canonical

    return canonical(meta).decode()
