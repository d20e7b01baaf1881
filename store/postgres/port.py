"""The port over one library of a PostgreSQL database: versions, events, names and remotes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tfgrpo.store.address import Address, parse_address
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
from tfgrpo.store.postgres import occurrences
from tfgrpo.store.postgres.changes import Changes
from tfgrpo.store.postgres.session import Session, prepare
from tfgrpo.store.records import OPS, Op, RefMove, Version
from tfgrpo.store.row_checks import check_row, check_rows, damage_error, parse_json

if TYPE_CHECKING:
    import re

    from tfgrpo.store.checks import Defect
    from tfgrpo.store.occurrences import Occurrence
    from tfgrpo.store.postgres.journal import PostgresWriter
    from tfgrpo.store.postgres.records import PostgresRecords

KNOWN = frozenset(OPS)
VERSION_COLUMNS = "number, digest, parent, merged, position, events, author, time, message, meta"
OF_VERSION = ", ".join(f"v.{column}" for column in VERSION_COLUMNS.split(", "))
EVENT_COLUMNS = "row, op, experience, text, reason, evidence, replaces, birth, seal, salt, schema"
EVENT_TYPES = "bigint text text text text text bigint bigint bytea bytea bigint"
REF_COLUMNS = "row, batch, name, version, symbol, previous, previous_symbol, author, time, action"
REF_TYPES = "bigint bigint text bigint text bigint text text bigint text"

REMEMBERED = 20_000
"""Versions that are remembered at most."""

HEAD_QUERY = f"""
select h.symbol, {OF_VERSION}
from (select symbol, version from @.reflog where name = 'HEAD' order by row desc limit 1) h
join @.versions v on v.number = case when h.symbol is null then h.version else
    (select version from @.reflog where name = h.symbol order by row desc limit 1) end
"""
TIP_QUERY = f"""
select {OF_VERSION}, r.symbol, (select max(number) from @.versions),
    (select max(row) from @.reflog), not exists (
        select from @.events where row > v.position and row < ((v.position >> 40) + 1) << 40
    ), (
        select version from @.reflog where name = 'protected/' || r.name order by row desc limit 1
    ) is not null
from (select name, version, symbol from @.reflog where name = %s order by row desc limit 1) r
join @.versions v on v.number = r.version
"""
MERGES = """
select v.position, v.events, m.position from @.versions v join @.versions m on m.number = v.merged
where v.merged is not null and v.position > %s and v.position <= %s order by v.position
"""


class PostgresPort:
    """The port over one library of a database. One instance belongs to one thread at a time."""

    def __init__(
        self, place: Address | Session | str, *, create: bool = False, watching: bool = False
    ) -> None:
        known = parse_address(place) if isinstance(place, str) else place
        self.session = known if isinstance(known, Session) else Session(known)
        self.address = self.session.address
        self._changes = Changes(self.session)
        self._reading = False
        self._moved = False
        self._versions: dict[int, Any] = {}
        try:
            prepare(self.session, create=create, watching=watching)
        except BaseException:
            self.session.close()
            raise

    def close(self) -> None:
        self.session.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert not self._reading, "nothing is written while one state is read"
        if self.session.in_transaction:  # joins the one that is open
            yield
            return
        self._moved = False
        with self.session.writing(self._commit):
            yield

    def _commit(self) -> str:
        """Returns what ends a transaction: who listens is told of what a library shows."""
        return f"{self._changes.notice}; commit" if self._moved else "commit"

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self.session.in_transaction:  # joins the one that is open
            yield
            return
        with self.session.reading():
            self._reading = True
            try:
                yield
            finally:
                self._reading = False

    def moved(self) -> None:
        """Has whoever listens told when the transaction is committed."""
        self._moved = True

    def changes(self) -> int:
        return self._changes.count()

    def rows(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> list[Any]:
        """Returns a query's rows."""
        return self.session.rows(query, values)

    def row(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> Any:
        """Returns a query's first row, or None."""
        return self.session.row(query, values)

    def number(self, query: str, values: Sequence[object] = ()) -> int:
        """Returns the number that a query asks for; 0 for null."""
        return int(self.row(query, values)[0] or 0)

    def insert(
        self, table: str, columns: str, types: str, rows: Sequence[Sequence[object]]
    ) -> None:
        """Appends rows to a table in one statement. Only inside a transaction."""
        if rows:
            arrays = ", ".join(f"%s::{type}[]" for type in types.split())
            self.session.execute(
                f"insert into @.{table} ({columns}) select * from unnest({arrays})",
                [list(column) for column in zip(*rows, strict=True)],
            )

    # Versions and events:

    def last_version(self) -> int:
        (number,) = self.row("select max(number) from @.versions")
        if number is not None and not 0 <= number < 1 << 40:
            raise damage_error(f"v{number} cannot be")
        return -1 if number is None else int(number)

    def version(self, number: int) -> Version | None:
        return next(iter(self.versions_at([number])), None)

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        wanted = sorted(set(numbers))
        query = f"select {VERSION_COLUMNS} from @.versions where number = any(%s) order by number"
        if self.session.in_transaction and not self._reading:  # some may yet be rolled back
            return list(map(_version, self.rows(query, (wanted,))))
        there = self._versions  # which never change, so a history is walked again for nothing
        if len(there) > REMEMBERED:
            there.clear()
        if missing := [number for number in wanted if number not in there]:
            there.update((row[0], row) for row in self.rows(query, (missing,)))
        return [_version(there[number]) for number in wanted if number in there]

    def chain(self) -> Iterator[ChainLink]:
        query = f"select {VERSION_COLUMNS}, schema from @.versions order by number"
        for row in self.session.stream(query):
            *columns, schema = check_row(row, "ibIIiistsSi", "versions")
            yield ChainLink(_version(tuple(columns)), schema, columns[-1])

    def version_schema(self, number: int) -> int:
        return self.number("select schema from @.versions where number = %s", (number,))

    def version_meta(self, number: int) -> str | None:
        (meta,) = self.row("select meta from @.versions where number = %s", (number,))
        return None if meta is None else str(meta)

    def recorder(self, number: int) -> str | None:
        return str(self.row("select recorded_by from @.versions where number = %s", (number,))[0])

    def versions_by_digest(self, prefix: str, limit: int) -> list[Version]:
        low = bytes.fromhex(prefix + "0" * (len(prefix) % 2))
        rows = self.rows(
            f"select {VERSION_COLUMNS} from @.versions where digest >= %s order by digest limit %s",
            (low, limit),
        )
        return [v for row in rows if (v := _version(row)).digest.hex().startswith(prefix)]

    def first_since(self, time: int) -> int | None:
        (number,) = self.row("select min(number) from @.versions where time >= %s", (time,))
        return None if number is None else int(number)

    def version_of_row(self, row: int) -> Version:
        columns = self.row(
            f"select {VERSION_COLUMNS} from @.versions where position >= %s and events > 0"
            " order by position limit 1",
            (row,),
        )
        if columns is None:
            raise _of_no_version(row)
        return _version(columns)

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        query = """
            select j.row, (
                select number from @.versions
                where position >= j.row and events > 0 order by position limit 1
            ) from unnest(%s::bigint[]) j (row)
            """
        numbers = dict(self.rows(query, (list(rows),)))
        for row, number in numbers.items():
            if number is None:
                raise _of_no_version(row)
        return numbers

    def merges(self, after: int, upto: int) -> list[Merge]:
        return [Merge._make(row) for row in self.rows(MERGES, (after, upto))]

    def lane_tip(self, position: int) -> bool:
        end = lane_start(lane_of(position) + 1)
        query = "select 1 from @.events where row > %s and row < %s limit 1"
        return self.row(query, (position, end)) is None

    def lane_base(self, lane: int) -> int:
        columns = self.row("select base from @.lanes where lane = %s", (lane,))
        if columns is None:
            raise StoreError(f"lane {lane} is missing", hint="run `tfgrpo fsck` for details")
        base = columns[0]
        if not 0 <= base <= lane_start(lane):
            raise damage_error(f"lane {lane} leaves where there is none")
        return int(base)

    def open_lane(self, base: int) -> int:
        return self.number(
            "insert into @.lanes select max(lane) + 1, %s from @.lanes returning lane", (base,)
        )

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        self._moved = True
        self.session.execute(
            f"insert into @.versions ({VERSION_COLUMNS}, schema)"
            " values (%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,1)",
            (*version[:9], _dumps(version.meta)),
        )
        self.insert("events", EVENT_COLUMNS, EVENT_TYPES, events)

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        rows = self.rows(
            "select row, op, replaces from @.events"
            " where row > %s and row <= %s and op <> 'KEEP' order by row",
            (after, upto),
        )
        return _known(check_rows(rows, "isI", "events"))

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        query = (
            f"select {EVENT_COLUMNS} from @.events where row > %s and row <= %s"
            " order by row limit 1000"
        )
        while rows := self.rows(query, (after, upto)):
            yield from _events(rows)
            if len(rows) < 1000:
                return
            after = rows[-1][0]

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        return _events(self._at(EVENT_COLUMNS, rows))

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        columns = "experience, text, row, coalesce(birth, row)"
        return check_rows(self._at(columns, rows), "sSii", "events")

    def _at(self, columns: str, rows: Iterable[int]) -> list[Any]:
        query = f"select {columns} from @.events where row = any(%s) order by row"
        return self.rows(query, (sorted(set(rows)),))

    def events_of(self, experience: str) -> list[EventRow]:
        query = f"select {EVENT_COLUMNS} from @.events where experience = %s order by row"
        return _events(self.rows(query, (experience,)))

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        rows = self.rows(
            "select experience, row, birth from @.events"
            " where experience = any(%s::text[]) and op = 'DELETE' order by row",
            (list(set(experiences)),),
        )
        return list(map(Deletion._make, check_rows(rows, "siI", "events")))

    def count_keeps(
        self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]
    ) -> dict[int, int]:
        query = """
            select k.replaces, k.row
            from unnest(%s::text[], %s::bigint[]) j (experience, row)
            join @.events k on k.experience = j.experience and k.row > j.row
            where k.replaces = j.row and k.op = 'KEEP'
            """
        keeps = self.rows(query, (list(rows), list(rows.values())))
        return dict(Counter(of for of, row in keeps if row_within(row, ranges)))

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        rows = self.rows(
            "select distinct experience from @.events where experience >= %s and experience < %s"
            " order by experience limit %s",
            (prefix, prefix + "{", limit),
        )
        return [id for (id,) in rows]

    def count_events(self) -> int:
        return self.number("select count(*) from @.events")

    def count_ops(self, after: int, upto: int) -> dict[Op, int]:
        query = "select op, count(*) from @.events where row > %s and row <= %s group by op"
        return dict(self.rows(query, (after, upto)))

    def count_versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        if not ranges:
            return 0
        return self.number(
            "select count(*) from unnest(%s::bigint[], %s::bigint[]) r (after, upto)"
            " join @.versions on position > after and position <= upto and events > 0",
            _pairs(ranges),
        )

    def count_modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        rows = self.rows(
            "select experience, count(*) from unnest(%s::bigint[], %s::bigint[]) r (after, upto)"
            " join @.events on row > after and row <= upto and op = 'MODIFY' group by experience",
            _pairs(ranges),
        )
        return dict(rows)

    # Snapshots:

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        columns = self.row(
            "select position, live from @.snapshots where position > %s and position <= %s"
            " order by position desc limit 1",
            (after, upto),
        )
        return None if columns is None else (columns[0], columns[1])

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        query = "insert into @.snapshots values (%s, %s) on conflict do nothing"
        self.session.execute(query, (position, list(live)))

    def snapshot_positions(self) -> list[int]:
        return [p for (p,) in self.rows("select position from @.snapshots order by position")]

    def snapshot_sizes(self) -> list[int]:
        return [
            n
            for (n,) in self.rows("select pg_column_size(live) from @.snapshots order by position")
        ]

    def drop_snapshots(self) -> None:
        with self.transaction():
            self.session.execute("delete from @.snapshots")

    # Names:

    def ref(self, name: str) -> RefMove | None:
        row = self.row(
            f"select {REF_COLUMNS} from @.reflog where name = %s order by row desc limit 1",
            (name,),
        )
        return None if row is None else _moves([row])[0]

    def refs(self, prefix: str) -> list[RefMove]:
        columns = ", ".join("r." + c for c in REF_COLUMNS.split(", "))
        rows = self.rows(
            f"""
            with recursive names (name) as (
                select min(name) from @.reflog where name >= %(low)s and name < %(high)s
                union all select (
                    select min(r.name) from @.reflog r
                    where r.name > names.name and r.name < %(high)s
                ) from names where names.name is not null
            )
            select {columns} from names join lateral (
                select * from @.reflog l where l.name = names.name order by row desc limit 1
            ) r on true
            """,
            {"low": prefix, "high": prefix + "\U0010ffff"},
        )
        return sorted(_moves(rows), key=itemgetter(2))

    def last_move(self) -> int:
        return self.number("select max(row) from @.reflog")

    def marks_at(self, number: int, upto: int) -> list[str]:
        rows = self.rows(
            """
            select distinct name from @.reflog r
            where version = %s and name > 'heads0' and not starts_with(name, 'protected/')
                and row <= %s and not exists (
                    select 1 from @.reflog l where l.name = r.name and l.row > r.row
                        and l.row <= %s
                )
            order by name
            """,
            (number, upto, upto),
        )
        return [name for (name,) in rows]

    def head(self) -> tuple[str | None, Version] | None:
        row = self.row(HEAD_QUERY)
        return None if row is None else (row[0], _version(row[1:]))

    def standing(self, name: str) -> Version | None:
        row = self.row(
            f"select {VERSION_COLUMNS} from @.versions where number ="
            " (select version from @.reflog where name = %s order by row desc limit 1)",
            (name,),
        )
        return None if row is None else _version(row)

    def branch_tip(self, name: str) -> BranchTip | None:
        row = self.row(TIP_QUERY, (name,))
        if row is None:
            return None
        tip = _version(row[:10])
        return BranchTip(name, tip, tip.number, *row[10:])

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        where = "row < %s" if name is None else "row < %s and name = %s"
        query = f"select {REF_COLUMNS} from @.reflog where {where} order by row desc limit 1000"
        before = 1 << 62
        while rows := self.rows(query, (before,) if name is None else (before, name)):
            yield from _moves(rows)
            before = rows[-1][0]

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        self._moved = True
        first = (self.last_move() if after is None else after) + 1
        batch = batch or first
        rows = [(first + i, batch, *move[2:]) for i, move in enumerate(moves)]
        self.insert("reflog", REF_COLUMNS, REF_TYPES, rows)
        return batch

    # Redactions:

    def redactions(self, row: int) -> list[Redaction]:
        query = "select author, time, reason from @.redactions where event = %s order by row"
        return list(map(Redaction._make, self.rows(query, (row,))))

    def append_redactions(self, row: int, redactions: Sequence[Redaction]) -> None:
        self._moved = True
        first = self.last_redaction() + 1
        self.insert(
            "redactions",
            "row, event, author, time, reason",
            "bigint bigint text bigint text",
            [(first + i, row, *redaction) for i, redaction in enumerate(redactions)],
        )

    def blank(self, row: int) -> None:
        self.rows("select @.blank_event(%s)", (row,))

    def last_redaction(self) -> int:
        return self.number("select max(row) from @.redactions")

    def redacted(self) -> list[int]:
        query = "select distinct event from @.redactions order by event"
        return [row for (row,) in self.rows(query)]

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        query = "select row, text, reason from @.events order by row"
        return [
            row
            for row, *texts in self.session.stream(query)
            if any(pattern.search(text or "") for text in texts)
        ]

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        return list(occurrences.occurrences(self.session, pattern))

    def replace(self, pattern: re.Pattern[str]) -> None:
        self._moved = True
        occurrences.replace(self.session, pattern)

    def rewrite(self) -> bool:
        return occurrences.rewrite(self.session)

    def needs_rewrite(self) -> bool:
        return occurrences.needs_rewrite(self.session)

    # Remotes:

    def remotes(self) -> dict[str, str]:
        return dict(self.rows("select name, location from @.remotes order by name"))

    def put_remote(self, name: str, location: str) -> None:
        self.session.execute(
            "insert into @.remotes values (%s, %s)"
            " on conflict (name) do update set location = excluded.location",
            (name, location),
        )

    def drop_remote(self, name: str) -> None:
        self.session.execute("delete from @.remotes where name = %s", (name,))

    # Records:

    @cached_property
    def records(self) -> PostgresRecords:
        from tfgrpo.store.postgres.records import PostgresRecords

        return PostgresRecords(self)

    def evaluated(self) -> bool:
        return self.row("select 1 from @.evaluations limit 1") is not None

    def writer(self) -> PostgresWriter:
        from tfgrpo.store.postgres.journal import PostgresWriter

        return PostgresWriter(self.address)

    # The storage itself:

    def content(self) -> bytes:
        raise StoreError(
            "a store in a database is no file",
            hint=f"copy it into one: `tfgrpo clone '{self.address.text}' FOLDER`",
        )

    def size(self) -> int:
        return self.number(
            "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relkind = 'r'",
            (self.address.schema,),
        )

    def check_storage(self) -> list[Defect]:
        from tfgrpo.store.postgres.checks import check_storage

        return check_storage(self)

    def checking_storage(self) -> Callable[[], list[Defect]]:
        return self.check_storage

    def rebuild(self) -> None:
        from tfgrpo.store.postgres.checks import rebuild

        with self.transaction():
            rebuild(self.session)


def _pairs(ranges: Sequence[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [after for after, _ in ranges], [upto for _, upto in ranges]


def _of_no_version(row: int) -> StoreError:
    return StoreError(f"event {row} belongs to no version", hint="run `tfgrpo fsck` for details")


def _version(row: tuple[object, ...]) -> Version:
    *columns, meta = check_row(row, "ibIIiistsS", "versions")
    version = Version._make((*columns, parse_json(meta, f"the meta of v{columns[0]}")))
    if max(version.parent or -1, version.merged or -1) >= version.number:
        raise damage_error(f"{version.name} builds on a later version")
    return version


def _events(rows: list[Any]) -> list[EventRow]:
    return list(map(EventRow._make, _known(check_rows(rows, "issSSSIIBBi", "events"))))


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
