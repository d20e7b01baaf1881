"""The port over one SQLite file, its connection bare where a replay or an append is hot."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.store.errors import StoreError
from tfgrpo.store.history import row_within
from tfgrpo.store.port import (
    BranchTip,
    ChainLink,
    Deletion,
    EventRow,
    Merge,
    Redaction,
    Shape,
    Step,
    lane_of,
    lane_start,
)
from tfgrpo.store.records import OPS, Op, RefMove, Version
from tfgrpo.store.row_checks import as_rows, check_row, check_rows, damage_error, parse_json
from tfgrpo.store.sqlite import appending, file
from tfgrpo.store.sqlite.file import FAILURES, connect, translated, writing
from tfgrpo.store.sqlite.writer_queue import WriterQueue

if TYPE_CHECKING:
    import re
    import sqlite3
    from pathlib import Path

    from tfgrpo.store.checks import Defect
    from tfgrpo.store.occurrences import Occurrence
    from tfgrpo.store.sqlite.journal import SqliteWriter
    from tfgrpo.store.sqlite.records import SqliteRecords

KNOWN = frozenset(OPS)
Values: TypeAlias = Sequence[object] | Mapping[str, object]
LARGE = 4_000_000
"""Bytes of a file from which on a thread of its own saves time in checking it."""
VERSION_COLUMNS = "number, digest, parent, merged, position, events, author, time, message, meta"
REF_COLUMNS = "row, batch, name, version, symbol, previous, previous_symbol, author, time, action"

HEAD_QUERY = f"""
select h.symbol, {", ".join("v." + column for column in VERSION_COLUMNS.split(", "))}
from (select symbol, version from reflog where name = 'HEAD' order by row desc limit 1) h
cross join versions v on v.number = iif(h.symbol is null, h.version,
    (select version from reflog where name = h.symbol order by row desc limit 1))
"""


class SqlitePort:
    """The port over one SQLite file. One instance belongs to one thread."""

    def __init__(
        self,
        path: Path | str,
        *,
        create: bool = False,
        watching: bool = False,
        connection: sqlite3.Connection | None = None,
    ) -> None:
        """With a `connection` of its own, to a store in memory, nothing at `path` is read or
        written: it is where the file would be."""
        self.path = path
        self.connection = connection or connect(path, create=create, watching=watching)
        self._queue = WriterQueue(None if connection else path)
        self._reading = False

    def close(self) -> None:
        self.connection.close()
        self._queue.close()

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turns SQLite's errors into ours, and Python's about a text that no SQL can hold."""
        try:
            yield
        except FAILURES as error:
            raise translated(error, self.path) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert not self._reading, "nothing is written while one state is read"
        if self.connection.in_transaction:  # joins the one that is open
            yield
            return
        try:  # as in `rows`: a transaction of one row feels each step
            with writing(self.connection, self._queue):
                yield
        except FAILURES as error:
            raise translated(error, self.path) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self.connection.in_transaction:  # joins the one that is open
            yield
            return
        with self.translating():
            self.connection.execute("begin")
        self._reading = True
        try:
            yield
        finally:
            self._reading = False
            if self.connection.in_transaction:  # a disk that fails ends it
                with self.translating():
                    self.connection.execute("commit")

    def changes(self) -> int:
        try:
            (number,) = self.connection.execute("pragma data_version").fetchone()
        except FAILURES as error:
            if "locked" in str(error):  # by whom is a search of milliseconds
                raise StoreError(f"{self.path} is locked", hint="wait for its writer") from error
            raise translated(error, self.path) from error
        return int(number)

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
            raise damage_error(f"v{number} cannot be")
        return -1 if number is None else int(number)

    def version(self, number: int) -> Version | None:
        row = self.row(f"select {VERSION_COLUMNS} from versions where number = ?", (number,))
        return None if row is None else _version(row)

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        columns = ", ".join(f"v.{column}" for column in VERSION_COLUMNS.split(", "))
        query = f"select {columns} from json_each(?) j cross join versions v on v.number = j.value"
        return list(map(_version, self.rows(query, (str(sorted(set(numbers))),))))

    def chain(self) -> Iterator[ChainLink]:
        query = f"select {VERSION_COLUMNS}, schema from versions order by number"
        for row in self.stream(query):
            *columns, schema = check_row(row, "ibIIiistsSi", "versions")
            yield ChainLink(_version(tuple(columns)), schema, columns[-1])

    def version_schema(self, number: int) -> int:
        (schema,) = self.row("select schema from versions where number = ?", (number,))
        return int(schema)

    def version_meta(self, number: int) -> str | None:
        (meta,) = self.row("select meta from versions where number = ?", (number,))
        return None if meta is None else str(meta)

    def recorder(self, number: int) -> str | None:
        return None  # a file knows nobody

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
        columns = self.row(
            f"select {VERSION_COLUMNS} from versions where position >= ? and events > 0"
            " order by position limit 1",
            (row,),
        )
        if columns is None:
            raise _of_no_version(row)
        return _version(columns)

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        query = """
            select j.value, (
            select number from versions where position >= j.value order by position, number limit 1
            ) from json_each(?) j
            """
        numbers = dict(self.rows(query, (str(list(rows)),)))
        for row, number in numbers.items():
            if number is None:
                raise _of_no_version(row)
        return numbers

    def merges(self, after: int, upto: int) -> list[Merge]:
        query = (
            "select v.position, v.events, m.position from versions v join versions m on m.number ="
            " v.merged where v.merged is not null and v.position > ? and v.position <= ? order by 1"
        )
        return [Merge._make(row) for row in self.rows(query, (after, upto))]

    def lane_tip(self, position: int) -> bool:
        end = lane_start(lane_of(position) + 1)
        query = "select 1 from events where row > ? and row < ? limit 1"
        return self.row(query, (position, end)) is None

    def lane_base(self, lane: int) -> int:
        columns = self.row("select base from lanes where lane = ?", (lane,))
        if columns is None:
            raise StoreError(f"lane {lane} is missing", hint="run `tfgrpo fsck` for details")
        base = columns[0]
        if not isinstance(base, int) or not 0 <= base <= lane_start(lane):
            raise damage_error(f"lane {lane} leaves where there is none")
        return base

    def open_lane(self, base: int) -> int:
        (lane,) = self.row("insert into lanes (base) values (?) returning lane", (base,))
        return int(lane)

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        self.connection.execute(
            f"insert into versions ({VERSION_COLUMNS}, schema) values (?,?,?,?,?,?,?,?,?,?,1)",
            (*version[:9], _dumps(version.meta)),
        )
        if events:
            self.connection.executemany(appending.INSERT_EVENT, appending.event_values(events))

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        rows = self.rows(
            "select row, op, replaces from events"
            " where row > ? and row <= ? and op <> 'KEEP' order by row",
            (after, upto),
        )
        return _known(check_rows(rows, "isI", "events"))

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
        return check_rows(self._at(columns, rows), "sSii", "events")

    def _at(self, columns: str, rows: Iterable[int]) -> list[Any]:
        # Asked for in row order, so that a page is read once and nothing has to be sorted.
        query = f"select {columns} from json_each(?) j cross join events e on e.row = j.value"
        return self.rows(query, (str(sorted(set(rows))),))

    def events_of(self, experience: str) -> list[EventRow]:
        query = "select * from events where experience = ? order by row"
        return _events(self.rows(query, (experience,)))

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        rows = self.rows(*appending.deletions_query(set(experiences)))
        return list(map(Deletion._make, check_rows(rows, "siI", "events")))

    def count_keeps(
        self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]
    ) -> dict[int, int]:
        # A KEEP comes after what it confirms: nothing of an experience's earlier life is read.
        import json

        query = """
            select k.replaces, k.row
            from json_each(?) j cross join events k on k.experience = j.key and k.row > j.value
            where k.replaces = j.value and k.op = 'KEEP'
            """
        keeps = self.rows(query, (json.dumps(rows),))
        return dict(Counter(of for of, row in keeps if row_within(row, ranges)))

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        rows = self.rows(
            "select distinct experience from events where experience >= ? and experience < ?"
            " order by experience limit ?",
            (prefix, prefix + "{", limit),
        )
        return [id for (id,) in check_rows(rows, "s", "experiences")]

    def count_events(self) -> int:
        (count,) = self.row("select count(*) from events")
        return int(count)

    def count_ops(self, after: int, upto: int) -> dict[Op, int]:
        query = "select op, count(*) from events where row > ? and row <= ? group by op"
        counts = dict(self.rows(query, (after, upto)))
        if not KNOWN.issuperset(counts):
            raise damage_error("an event has an operation that there is not")
        return counts

    def count_versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        query = "select count(*) from versions where position > ? and position <= ? and events > 0"
        return sum(int(self.row(query, pair)[0]) for pair in ranges)

    def count_modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        query = (
            "select experience, count(*) from events"
            " where row > ? and row <= ? and op = 'MODIFY' group by experience"
        )
        counts: Counter[str] = Counter()
        for pair in ranges:
            counts.update(dict(self.rows(query, pair)))
        return dict(counts)

    # Snapshots:

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        query = (
            "select position, live from snapshots where position > ? and position <= ?"
            " order by position desc limit 1"
        )
        while (columns := self.row(query, (after, upto))) is not None:
            from tfgrpo.store.sqlite.packing import unpack

            try:
                return columns[0], unpack(columns[1])
            except ValueError:  # damaged: an earlier one will do
                upto = columns[0] - 1
        return None

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        from tfgrpo.store.sqlite.packing import pack

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
        columns = ", ".join("r." + c for c in REF_COLUMNS.split(", "))
        if prefix > "heads0":  # tags are many and seldom move: all their moves are read
            within = "name >= :low and name < :high"
            latest = f"select max(row) row from reflog where {within} group by name"
        else:  # branches move with every commit: a probe each, however long the log
            latest = """
                with recursive names (name) as (
                    select min(name) from reflog where name >= :low and name < :high
                    union all select (
                        select min(name) from reflog where name > names.name and name < :high
                    ) from names where names.name is not null
                )
                select (select max(row) from reflog where reflog.name = names.name) row from names
                """
        rows = self.rows(
            f"select {columns} from ({latest}) l cross join reflog r on r.row = l.row",
            {"low": prefix, "high": prefix + "\U0010ffff"},
        )
        return sorted(_moves(rows), key=itemgetter(2))

    def last_move(self) -> int:
        return self.row("select max(row) from reflog")[0] or 0

    def marks_at(self, number: int, upto: int) -> list[str]:
        rows = self.rows(
            """
            select distinct name from reflog r
            where version = ? and name > 'heads0' and name not glob 'protected/*' and row <= ?
                and not exists (
                    select 1 from reflog l where l.name = r.name and l.row > r.row and l.row <= ?
                )
            order by name
            """,
            (number, upto, upto),
        )
        return [name for (name,) in check_rows(rows, "s", "moves of names")]

    def head(self) -> tuple[str | None, Version] | None:
        row = self.row(HEAD_QUERY)
        if row is None or not isinstance(row[0], str | None):
            return None
        return row[0], _version(row[1:])

    def standing(self, name: str) -> Version | None:
        row = self.row(
            f"select {VERSION_COLUMNS} from versions where number ="
            " (select version from reflog where name = ? order by row desc limit 1)",
            (name,),
        )
        return None if row is None else _version(row)

    def branch_tip(self, name: str) -> BranchTip | None:
        row = self.row(appending.TIP_QUERY, (name,))
        return None if row is None else appending.tip_of(name, _version(row[:10]), row[10:])

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        where, values = ("", ()) if name is None else ("where name = ?", (name,))
        query = f"select {REF_COLUMNS} from reflog {where} order by row desc"
        with closing(self.stream(query, values)) as rows:
            for row in rows:
                yield from _moves([row])

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        first = (self.last_move() if after is None else after) + 1
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
        self._zero()
        query = "update events set text = null, reason = null, salt = null where row = ?"
        self.connection.execute(query, (row,))

    def last_redaction(self) -> int:
        return self.row("select max(row) from redactions")[0] or 0

    def redacted(self) -> list[int]:
        query = "select distinct event from redactions order by event"
        return [row for (row,) in self.rows(query)]

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        from tfgrpo.store.sqlite.occurrences import holding

        holding(self.connection, pattern)
        query = "select row from events where holds(text) or holds(reason) order by row"
        return [row for (row,) in self.rows(query)]

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        from tfgrpo.store.sqlite.occurrences import occurrences

        with self.translating():
            return list(occurrences(self.connection, pattern))

    def replace(self, pattern: re.Pattern[str]) -> None:
        from tfgrpo.store.sqlite.occurrences import replace

        self._zero()
        replace(self.connection, pattern)

    def _zero(self) -> None:
        """From now on what is deleted is overwritten with zeros."""
        self.connection.execute("pragma secure_delete = on")

    def rewrite(self) -> bool:
        with self.translating():
            return file.rewrite(self.connection)

    # Remotes:

    def remotes(self) -> dict[str, str]:
        return dict(self.rows("select name, location from remotes order by name"))

    def put_remote(self, name: str, location: str) -> None:
        query = (
            "insert into remotes values (?, ?)"
            " on conflict (name) do update set location = excluded.location"
        )
        self.connection.execute(query, (name, location))

    def drop_remote(self, name: str) -> None:
        self.connection.execute("delete from remotes where name = ?", (name,))

    # Records:

    @cached_property
    def records(self) -> SqliteRecords:
        from tfgrpo.store.sqlite.records import SqliteRecords

        return SqliteRecords(self)

    def evaluated(self) -> bool:
        return self.row("select 1 from evaluations limit 1") is not None

    def writer(self) -> SqliteWriter:
        from tfgrpo.store.sqlite.journal import SqliteWriter

        return SqliteWriter(self.path)

    # The storage itself:

    def content(self) -> bytes:
        """Returns what a file with all of this in it holds.

        Its header says (bytes 18 and 19) that changes go through a write-ahead log, as they do in
        every store: turning that on later would write a journal, which a kill leaves behind.
        """
        content = self.connection.serialize()
        return content[:18] + b"\x02\x02" + content[20:]

    def size(self) -> int:
        return os.stat(self.path).st_size

    def check_storage(self) -> list[Defect]:
        from tfgrpo.store.sqlite.checks import check_storage

        return check_storage(self)

    def checking_storage(self) -> Callable[[], list[Defect]]:
        if self.size() < LARGE or not self._reading:  # what is not committed only we can see
            return self.check_storage
        from tfgrpo.store.sqlite.checks import check_beside

        return check_beside(self.path)

    def rebuild(self) -> None:
        with self.transaction():
            file.rebuild(self.connection)


def _of_no_version(row: int) -> StoreError:
    return StoreError(f"event {row} belongs to no version", hint="run `tfgrpo fsck` for details")


def _version(row: tuple[object, ...]) -> Version:
    *columns, meta = check_row(row, "ibIIiistsS", "versions")
    version = Version._make((*columns, parse_json(meta, f"the meta of v{columns[0]}")))
    if max(version.parent or -1, version.merged or -1) >= version.number:
        raise damage_error(f"{version.name} builds on a later version")
    return version


def _events(rows: list[Any]) -> list[EventRow]:
    return as_rows(EventRow, _known(check_rows(rows, "issSSSIIBBi", "events")))


def _known(rows: list[Any]) -> list[Any]:
    """Returns events whose second column is an operation that there is. Raises StoreError."""
    if not KNOWN.issuperset([row[1] for row in rows]):
        raise damage_error("an event has an operation that there is not")
    return rows


def _moves(rows: list[Any]) -> list[RefMove]:
    return list(map(RefMove._make, check_rows(rows, "iisISISsts", "moves of names")))


def _dumps(meta: object) -> str | None:
    if not meta:
        return None
    from tfgrpo.store.canonical import canonical

    return canonical(meta).decode()
