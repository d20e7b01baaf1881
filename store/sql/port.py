"""Versions, events, names, redactions and counts in SQL, and what a dialect writes differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from tfgrpo.store.damaged_values import as_rows, check_row, check_rows, damage_error, parse_json
from tfgrpo.store.errors import StoreError
from tfgrpo.store.records import (
    TAGGED,
    BranchTip,
    ChainLink,
    Deletion,
    EventRow,
    Merge,
    RefMove,
    Shape,
    Step,
    Version,
    lane_of,
    lane_start,
)
from tfgrpo.store.sql.port_parts import SqlCounts, check_ops

if TYPE_CHECKING:
    from tfgrpo.store.sql.port_parts import SqlRedactions, SqlStorage
    from tfgrpo.store.sql.runs import SqlRecords


Values: TypeAlias = Sequence[object] | Mapping[str, object]
PAGE = 1000
"""Events that are read at a time."""
VERSION_COLUMNS = "number, digest, parent, merged, position, events, author, time, message, meta"
OF_VERSION = ", ".join(f"v.{column}" for column in VERSION_COLUMNS.split(", "))
EVENT_COLUMNS = "row, op, experience, text, reason, evidence, replaces, birth, seal, salt, schema"
REF_COLUMNS = "row, batch, name, version, symbol, previous, previous_symbol, author, time, action"


OF_MOVE = ", ".join("r." + column for column in REF_COLUMNS.split(", "))
BY_NAME = itemgetter(2)
MOVES = 100
"""Moves that are read at a time: most who ask need the newest."""

HEAD_QUERY = f"""
select h.symbol, {OF_VERSION}
from (select symbol, version from @.reflog where name = 'HEAD' order by row desc limit 1) h
join @.versions v on v.number = case when h.symbol is null then h.version else
    (select version from @.reflog where name = h.symbol order by row desc limit 1) end
"""
TIP_QUERY = f"""
select {OF_VERSION}, r.symbol, (select max(number) from @.versions),
    (select max(row) from @.reflog), not exists (
        select 1 from @.events where row > v.position and row < ((v.position >> 40) + 1) << 40
    ), (
        select version from @.reflog where name = 'protected/' || r.name order by row desc limit 1
    ) is not null
from (select name, version, symbol from @.reflog where name = ? order by row desc limit 1) r
join @.versions v on v.number = r.version
"""
LATEST_QUERY = f"""
with recursive names (name) as (
    select min(name) from @.reflog where name >= ? and name < ?
    union all select (
        select min(l.name) from @.reflog l where l.name > names.name and l.name < ?
    ) from names where names.name is not null
)
select {OF_MOVE} from names join @.reflog r
    on r.row = (select max(l.row) from @.reflog l where l.name = names.name)
"""
MARKS_QUERY = """
select r.name, a.number, a.meta from (
    select number, meta from @.versions where number = ? union all
    select c.number, c.meta from @.versions v join @.versions c on c.position = v.position
    where v.number = ? and c.parent = v.number and c.events = 0 and c.meta is not null
) a join @.reflog r on r.version = a.number
where r.name > 'heads0' and not (r.name >= 'protected/' and r.name < 'protected0')
    and r.row <= ? and not exists (
        select 1 from @.reflog l where l.name = r.name and l.row > r.row and l.row <= ?
    )
"""


class Database(ABC):
    """What a database has to do. One instance belongs to one thread at a time."""

    dialect: ClassVar[Dialect]

    @abstractmethod
    def close(self) -> None:
        """Releases the file or connection."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Everything written inside lands whole or not at all. One inside another joins it."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[None]:
        """Everything read inside is of one state, whatever others commit meanwhile. No writer waits
        for it. Nothing is written inside; one inside another, or inside a transaction, joins it."""

    @abstractmethod
    def changes(self) -> int:
        """A number that changes after anybody else has committed. Costs microseconds."""

    @abstractmethod
    def rows(self, query: str, values: Values = ()) -> list[Any]:
        """A query's rows."""

    @abstractmethod
    def row(self, query: str, values: Values = ()) -> Any:
        """A query's first row, or None."""

    @abstractmethod
    def stream(self, query: str, values: Values = ()) -> Generator[Any, None, None]:
        """A query's rows as they are read."""

    @abstractmethod
    def execute(self, query: str, values: Values = ()) -> object:
        """Changes something. Only inside a transaction."""

    @abstractmethod
    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        """Appends rows to a table. Only inside a transaction."""

    @abstractmethod
    def items(self, values: Iterable[int] | Iterable[str]) -> object:
        """Values as the parameter of `integers`, `texts` and `among`."""

    @abstractmethod
    def packed(self, live: Sequence[int]) -> object:
        """The rows of a snapshot as its column holds them."""

    @abstractmethod
    def unpacked(self, column: Any) -> list[int]:
        """The rows of a snapshot. Raises ValueError for a damaged one."""

    def number(self, query: str, values: Values = ()) -> int:
        """A query's only number; 0 for null."""
        row = self.row(query, values)
        return int(row[0] or 0)

    def column(self, query: str, values: Values = ()) -> list[Any]:
        """A query's only column."""
        return [value for (value,) in self.rows(query, values)]


class Port(Database):
    """Versions and events: append, and read; and the other parts of a library."""

    _first_opened: int = 1 << 62
    """The first lane that was opened here; those before it are others', and committed."""

    @property
    @abstractmethod
    def records(self) -> SqlRecords:
        """What training and evaluation leave behind."""

    @property
    @abstractmethod
    def redactions(self) -> SqlRedactions: ...

    @property
    @abstractmethod
    def storage(self) -> SqlStorage: ...

    @cached_property
    def names(self) -> SqlNames:
        return SqlNames(self)

    @cached_property
    def counts(self) -> SqlCounts:
        return SqlCounts(self)

    # Versions:

    def last_version(self) -> int:
        """The highest version number; below 0 where there is none."""
        (number,) = self.row("select max(number) from @.versions")
        if number is not None and not 0 <= number < 1 << 40:
            raise damage_error(f"v{number} cannot be")
        return -1 if number is None else int(number)

    def version(self, number: int) -> Version | None:
        """The version of that number."""
        row = self.row(f"select {VERSION_COLUMNS} from @.versions where number = ?", (number,))
        return None if row is None else version_of(row)

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        """The versions of these numbers, those that there are, ascending."""
        source = self.dialect.among("@.versions", "v", "number")
        values = (self.items(sorted(set(numbers))),)
        return list(map(version_of, self.rows(f"select {OF_VERSION} from {source}", values)))

    def chain(self, numbers: Iterable[int] | None = None) -> Iterator[ChainLink]:
        """Every version (of these numbers), ascending, with what its digest is made from."""
        columns = f"select {OF_VERSION}, v.schema from"
        if numbers is None:
            rows: Iterable[Any] = self.stream(f"{columns} @.versions v order by v.number")
        else:
            source = self.dialect.among("@.versions", "v", "number")
            rows = self.rows(f"{columns} {source}", (self.items(sorted(set(numbers))),))
        for row in rows:
            *of_version, schema = check_row(row, "ibIIiistsSi", "versions")
            yield ChainLink(version_of(tuple(of_version)), schema, of_version[-1])

    def versions_by_digest(self, prefix: str, limit: int) -> list[Version]:
        """Versions whose digest in hex begins with `prefix`."""
        low = bytes.fromhex(prefix + "0" * (len(prefix) % 2))
        rows = self.rows(
            f"select {VERSION_COLUMNS} from @.versions where digest >= ? order by digest limit ?",
            (low, limit),
        )
        return [v for row in rows if (v := version_of(row)).digest.hex().startswith(prefix)]

    def first_since(self, time: int) -> int | None:
        """The lowest number of the versions since `time` (microseconds). Reads every version."""
        (number,) = self.row("select min(number) from @.versions where time >= ?", (time,))
        return None if number is None else int(number)

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        """Row → the number of the version that holds the event there. Raises StoreError."""
        query = f"""
            select j.value, (
                select number from @.versions where position >= j.value
                order by position, number limit 1
            ) from {self.dialect.integers} j
            """
        numbers = dict(self.rows(query, (self.items(list(rows)),)))
        for row, number in numbers.items():
            if number is None:
                raise StoreError(
                    f"event {row} belongs to no version", hint="run `tfgrpo fsck` for details"
                )
        return numbers

    def merges(self, after: int, upto: int) -> list[Merge]:
        """The merges whose last event is in a range (after, upto] of rows, ascending."""
        query = (
            "select v.position, v.events, m.position from @.versions v"
            " join @.versions m on m.number = v.merged"
            " where v.merged is not null and v.position > ? and v.position <= ? order by 1"
        )
        return [Merge._make(row) for row in self.rows(query, (after, upto))]

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        """Records a version and its events. Only inside a transaction."""
        meta = None
        if version.meta:
            from tfgrpo.store.canonical import canonical

            meta = canonical(version.meta).decode()
        self.execute(
            f"insert into @.versions ({VERSION_COLUMNS}, schema) values (?,?,?,?,?,?,?,?,?,?,1)",
            (*version[:9], meta),
        )
        if events:
            self.insert("events", EVENT_COLUMNS, events)

    # Lanes:

    def lane_tip(self, position: int) -> bool:
        """Whether nothing has been recorded in the lane after `position`."""
        end = lane_start(lane_of(position) + 1)
        query = "select 1 from @.events where row > ? and row < ? limit 1"
        return self.row(query, (position, end)) is None

    def lane_base(self, lane: int) -> int:
        """The row at which the lane left an earlier one."""
        base = self._lane_bases.get(lane)
        if base is not None:
            return base
        columns = self.row("select base from @.lanes where lane = ?", (lane,))
        if columns is None:
            raise StoreError(f"lane {lane} is missing", hint="run `tfgrpo fsck` for details")
        base = columns[0]
        if not isinstance(base, int) or not 0 <= base <= lane_start(lane):
            raise damage_error(f"lane {lane} leaves where there is none")
        if lane < self._first_opened or not self.in_transaction:  # others may yet be rolled back
            self._lane_bases[lane] = base
        return base

    @cached_property
    def _lane_bases(self) -> dict[int, int]:
        """Those that were read: where a lane left never changes."""
        return {}

    def open_lane(self, base: int) -> int:
        """Opens a lane that leaves at `base`; returns its number. Only inside a transaction."""
        lane = self.number("select max(lane) + 1 from @.lanes")
        self.execute("insert into @.lanes (lane, base) values (?, ?)", (lane, base))
        self._first_opened = min(self._first_opened, lane)
        return lane

    # Events:

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        """What replay needs of the events with after < row <= upto, KEEPs left out."""
        rows = self.rows(
            "select row, op, replaces from @.events"
            " where row > ? and row <= ? and op <> 'KEEP' order by row",
            (after, upto),
        )
        return known(check_rows(rows, "isI", "events"))

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        """The events with after < row <= upto, in order."""
        query = (
            f"select {EVENT_COLUMNS} from @.events where row > ? and row <= ?"
            f" order by row limit {PAGE}"
        )
        while rows := self.rows(query, (after, upto)):
            yield from events_of(rows)
            if len(rows) < PAGE:
                return
            after = rows[-1][0]

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        """The events at these rows, in row order."""
        columns = ", ".join(f"e.{column}" for column in EVENT_COLUMNS.split(", "))
        return events_of(self._at(columns, rows))

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        """What a library needs of the events at these rows, in row order."""
        columns = "e.experience, e.text, e.row, coalesce(e.birth, e.row)"
        return check_rows(self._at(columns, rows), "sSii", "events")

    def _at(self, columns: str, rows: Iterable[int]) -> list[Any]:
        source = self.dialect.among("@.events", "e", "row")
        return self.rows(f"select {columns} from {source}", (self.items(sorted(set(rows))),))

    def events_of(self, experience: str) -> list[EventRow]:
        """Every event of one experience, in row order, whatever branch it is on."""
        query = f"select {EVENT_COLUMNS} from @.events where experience = ? order by row"
        return events_of(self.rows(query, (experience,)))

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        """Every DELETE of these experiences, in row order, whatever branch it is on."""
        rows = self.rows(
            f"select e.experience, e.row, e.birth from {self.dialect.texts} j"
            " join @.events e on e.experience = j.value where e.op = 'DELETE' order by e.row",
            (self.items(sorted(set(experiences))),),
        )
        return list(map(Deletion._make, check_rows(rows, "siI", "events")))

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with `prefix`."""
        rows = self.rows(
            "select distinct experience from @.events where experience >= ? and experience < ?"
            " order by experience limit ?",
            (prefix, prefix + "{", limit),
        )
        return [id for (id,) in check_rows(rows, "s", "experiences")]

    # Snapshots:

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        """The latest snapshot with after < position <= upto: its position, live rows."""
        query = (
            "select position, live from @.snapshots where position > ? and position <= ?"
            " order by position desc limit 1"
        )
        while (columns := self.row(query, (after, upto))) is not None:
            try:
                return columns[0], self.unpacked(columns[1])
            except ValueError:  # damaged: an earlier one will do
                upto = columns[0] - 1
        return None

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        """Records a snapshot. Only inside a transaction."""
        query = "insert into @.snapshots (position, live) values (?, ?) on conflict do nothing"
        self.execute(query, (position, self.packed(live)))


class Dialect(NamedTuple):
    """The words of a database. `integers`, `texts`, `pairs` (`after`, `upto`) and `numbers` (`key`,
    `value`) are tables made of a parameter.

    `among` gives the rows of a table whose column has one of a parameter's values, in order. `find`
    gives the place of a text in another. `member` is what JSON has under a name, `kind` whether it
    is a string or object. `text_key` names a call's request; `differs` compares null as a value
    too.
    """

    integers: str
    texts: str
    pairs: str
    numbers: str
    among: Callable[[str, str, str], str]
    find: str
    member: Callable[[str, str], str]
    kind: Callable[[str, str, str], str]
    text_key: str
    bytes_of_snapshot: str
    differs: str


class SqlNames:
    """The names of a database: branches, tags, HEAD, remotes."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def ref(self, name: str) -> RefMove | None:
        """The latest move of a name."""
        query = f"select {REF_COLUMNS} from @.reflog where name = ? order by row desc limit 1"
        row = self._port.row(query, (name,))
        return None if row is None else moves_of([row])[0]

    def refs(self, prefix: str) -> list[RefMove]:
        """The latest move of each name that begins with `prefix`, names ascending."""
        high = prefix + "\U0010ffff"
        return sorted(moves_of(self._port.rows(LATEST_QUERY, (prefix, high, high))), key=BY_NAME)

    def last_move(self) -> int:
        """The row of the newest move; 0 where there is none."""
        return self._port.number("select max(row) from @.reflog")

    def marks_at(self, number: int, upto: int) -> list[str]:
        """The tags and remote branches that stood at a version after the move in row `upto`, those
        tags too whose own version, as a signed one has it, is on top of it."""
        rows = self._port.rows(MARKS_QUERY, (number, number, upto, upto))
        return sorted(
            name
            for name, at, meta in check_rows(rows, "siS", "moves of names")
            if at == number
            or (name.startswith("tags/") and TAGGED in parse_json(meta, f"the meta of v{at}"))
        )

    def head(self) -> tuple[str | None, Version] | None:
        """The name that HEAD follows (None: detached) and its version; None where it is unknown."""
        row = self._port.row(HEAD_QUERY)
        if row is None or not isinstance(row[0], str | None):
            return None
        return row[0], version_of(row[1:])

    def standing(self, name: str) -> Version | None:
        """The version that a name stands at now."""
        row = self._port.row(
            f"select {OF_VERSION} from @.versions v where v.number ="
            " (select version from @.reflog where name = ? order by row desc limit 1)",
            (name,),
        )
        return None if row is None else version_of(row)

    def branch_tip(self, name: str) -> BranchTip | None:
        """Where a name stands, with the values that an append needs; None where it stands
        nowhere."""
        row = self._port.row(TIP_QUERY, (name,))
        if row is None:
            return None
        tip = version_of(row[:10])
        symbol, newest, last_move, ends, protected = row[10:]
        check_row((symbol, newest, last_move), "Sii", "moves of names")
        if not tip.number <= newest < 1 << 40:
            raise damage_error(f"v{newest} cannot be")
        return BranchTip(
            name, tip, tip.number, symbol, newest, last_move, bool(ends), bool(protected)
        )

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        """The moves of a name (None: of all names), newest first."""
        where, of = ("row < ?", ()) if name is None else ("row < ? and name = ?", (name,))
        query = f"select {REF_COLUMNS} from @.reflog where {where} order by row desc limit ?"
        before = 1 << 62
        while rows := self._port.rows(query, (before, *of, MOVES)):
            yield from moves_of(rows)
            before = rows[-1][0]

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        """Records moves, whose own `row` and `batch` are ignored, in `batch` or one of their own;
        returns it. `after` is `last_move`, if known. Only inside a transaction."""
        first = (self.last_move() if after is None else after) + 1
        batch = batch or first
        rows = [(first + i, batch, *move[2:]) for i, move in enumerate(moves)]
        self._port.insert("reflog", REF_COLUMNS, rows)
        return batch

    def remotes(self) -> dict[str, str]:
        """Name → location of other stores, names ascending."""
        return dict(self._port.rows("select name, location from @.remotes order by name"))

    def put_remote(self, name: str, location: str) -> None:
        """Adds a remote, or moves the one of that name. Only inside a transaction."""
        self._port.execute(
            "insert into @.remotes (name, location) values (?, ?)"
            " on conflict (name) do update set location = excluded.location",
            (name, location),
        )

    def drop_remote(self, name: str) -> None:
        """Forgets a remote. Only inside a transaction."""
        self._port.execute("delete from @.remotes where name = ?", (name,))


def version_of(row: tuple[object, ...]) -> Version:
    """A version from its columns. Raises StoreError."""
    *columns, meta = check_row(row, "ibIIiistsS", "versions")
    version = Version._make((*columns, parse_json(meta, f"the meta of v{columns[0]}")))
    if max(version.parent or -1, version.merged or -1) >= version.number:
        raise damage_error(f"{version.name} builds on a later version")
    return version


def events_of(rows: list[Any]) -> list[EventRow]:
    """Events from their columns. Raises StoreError."""
    return as_rows(EventRow, known(check_rows(rows, "issSSSIIBBi", "events")))


def known(rows: list[Any]) -> list[Any]:
    """Events whose second column is an operation that there is. Raises StoreError."""
    check_ops([row[1] for row in rows])
    return rows


def moves_of(rows: list[Any]) -> list[RefMove]:
    """Moves of names from their columns. Raises StoreError."""
    return list(map(RefMove._make, check_rows(rows, "iisISISsts", "moves of names")))
