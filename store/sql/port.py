"""Versions, events, snapshots and counts in SQL, and what a dialect writes differently."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

from tfgrpo.store.damaged_values import check_row, check_rows, damage_error
from tfgrpo.store.errors import StoreError
from tfgrpo.store.history.walks import row_within
from tfgrpo.store.records import (
    ChainLink,
    Deletion,
    EventRow,
    Merge,
    Op,
    Shape,
    Step,
    Version,
    lane_of,
    lane_start,
)
from tfgrpo.store.sql.names import SqlNames
from tfgrpo.store.sql.rows import (
    EVENT_COLUMNS,
    KNOWN,
    OF_VERSION,
    VERSION_COLUMNS,
    events_of,
    known,
    version_of,
)

if TYPE_CHECKING:
    from tfgrpo.store.sql.runs import SqlRecords


Values: TypeAlias = Sequence[object] | Mapping[str, object]
PAGE = 1000
"""Events that are read at a time."""


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


class SqlPort(ABC):
    """The port over a database. One instance belongs to one thread at a time."""

    dialect: ClassVar[Dialect]

    # What a database has to do:

    @abstractmethod
    def close(self) -> None: ...

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]: ...

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
    def execute(self, query: str, values: Values = ()) -> None:
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

    @property
    @abstractmethod
    def records(self) -> "SqlRecords":
        """What training and evaluation leave behind."""

    def number(self, query: str, values: Values = ()) -> int:
        """A query's only number; 0 for null."""
        row = self.row(query, values)
        return int(row[0] or 0)

    def column(self, query: str, values: Values = ()) -> list[Any]:
        """A query's only column."""
        return [value for (value,) in self.rows(query, values)]

    def moved(self) -> None:  # noqa: B027 - a file has nobody to tell
        """Called where something is written that a library shows."""

    @cached_property
    def names(self) -> SqlNames:
        return SqlNames(self)

    # Versions:

    def last_version(self) -> int:
        (number,) = self.row("select max(number) from @.versions")
        if number is not None and not 0 <= number < 1 << 40:
            raise damage_error(f"v{number} cannot be")
        return -1 if number is None else int(number)

    def version(self, number: int) -> Version | None:
        row = self.row(f"select {VERSION_COLUMNS} from @.versions where number = ?", (number,))
        return None if row is None else version_of(row)

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        source = self.dialect.among("@.versions", "v", "number")
        values = (self.items(sorted(set(numbers))),)
        return list(map(version_of, self.rows(f"select {OF_VERSION} from {source}", values)))

    def chain(self, numbers: Iterable[int] | None = None) -> Iterator[ChainLink]:
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
        low = bytes.fromhex(prefix + "0" * (len(prefix) % 2))
        rows = self.rows(
            f"select {VERSION_COLUMNS} from @.versions where digest >= ? order by digest limit ?",
            (low, limit),
        )
        return [v for row in rows if (v := version_of(row)).digest.hex().startswith(prefix)]

    def first_since(self, time: int) -> int | None:
        (number,) = self.row("select min(number) from @.versions where time >= ?", (time,))
        return None if number is None else int(number)

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
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
        query = (
            "select v.position, v.events, m.position from @.versions v"
            " join @.versions m on m.number = v.merged"
            " where v.merged is not null and v.position > ? and v.position <= ? order by 1"
        )
        return self.rows(query, (after, upto))

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        self.moved()
        self.execute(
            f"insert into @.versions ({VERSION_COLUMNS}, schema) values (?,?,?,?,?,?,?,?,?,?,1)",
            (*version[:9], _dumps(version.meta)),
        )
        if events:
            self.insert("events", EVENT_COLUMNS, events)

    # Lanes:

    def lane_tip(self, position: int) -> bool:
        end = lane_start(lane_of(position) + 1)
        query = "select 1 from @.events where row > ? and row < ? limit 1"
        return self.row(query, (position, end)) is None

    def lane_base(self, lane: int) -> int:
        columns = self.row("select base from @.lanes where lane = ?", (lane,))
        if columns is None:
            raise StoreError(f"lane {lane} is missing", hint="run `tfgrpo fsck` for details")
        base = columns[0]
        if not isinstance(base, int) or not 0 <= base <= lane_start(lane):
            raise damage_error(f"lane {lane} leaves where there is none")
        return base

    def open_lane(self, base: int) -> int:
        lane = self.number("select max(lane) + 1 from @.lanes")
        self.execute("insert into @.lanes (lane, base) values (?, ?)", (lane, base))
        return lane

    # Events:

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        rows = self.rows(
            "select row, op, replaces from @.events"
            " where row > ? and row <= ? and op <> 'KEEP' order by row",
            (after, upto),
        )
        return known(check_rows(rows, "isI", "events"))

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
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
        columns = ", ".join(f"e.{column}" for column in EVENT_COLUMNS.split(", "))
        return events_of(self._at(columns, rows))

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        columns = "e.experience, e.text, e.row, coalesce(e.birth, e.row)"
        return check_rows(self._at(columns, rows), "sSii", "events")

    def _at(self, columns: str, rows: Iterable[int]) -> list[Any]:
        source = self.dialect.among("@.events", "e", "row")
        return self.rows(f"select {columns} from {source}", (self.items(sorted(set(rows))),))

    def events_of(self, experience: str) -> list[EventRow]:
        query = f"select {EVENT_COLUMNS} from @.events where experience = ? order by row"
        return events_of(self.rows(query, (experience,)))

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        rows = self.rows(
            f"select e.experience, e.row, e.birth from {self.dialect.texts} j"
            " join @.events e on e.experience = j.value where e.op = 'DELETE' order by e.row",
            (self.items(sorted(set(experiences))),),
        )
        return list(map(Deletion._make, check_rows(rows, "siI", "events")))

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        rows = self.rows(
            "select distinct experience from @.events where experience >= ? and experience < ?"
            " order by experience limit ?",
            (prefix, prefix + "{", limit),
        )
        return [id for (id,) in check_rows(rows, "s", "experiences")]

    # Snapshots:

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
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
        query = "insert into @.snapshots (position, live) values (?, ?) on conflict do nothing"
        self.execute(query, (position, self.packed(live)))


def _dumps(meta: object) -> str | None:
    if not meta:
        return None
    from tfgrpo.store.canonical import canonical

    return canonical(meta).decode()


class SqlCounts(ABC):
    """What there is in a database, counted."""

    def __init__(self, port: SqlPort) -> None:
        self._port = port

    @abstractmethod
    def size(self) -> int: ...

    def events(self) -> int:
        return self._port.number("select count(*) from @.events")

    def ops(self, after: int, upto: int) -> dict[Op, int]:
        query = "select op, count(*) from @.events where row > ? and row <= ? group by op"
        counts = dict(self._port.rows(query, (after, upto)))
        if not KNOWN.issuperset(counts):
            raise damage_error("an event has an operation that there is not")
        return counts

    def versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._port.number(
            f"select count(*) from {self._port.dialect.pairs} r join @.versions v"
            " on v.position > r.after and v.position <= r.upto where v.events > 0",
            (_pairs(ranges),),
        )

    def modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        rows = self._port.rows(
            f"select e.experience, count(*) from {self._port.dialect.pairs} r join @.events e"
            " on e.row > r.after and e.row <= r.upto where e.op = 'MODIFY' group by e.experience",
            (_pairs(ranges),),
        )
        return dict(rows)

    def keeps(self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]) -> dict[int, int]:
        # A KEEP comes after what it confirms: nothing of an experience's earlier life is read.
        import json

        query = f"""
            select k.replaces, k.row from {self._port.dialect.numbers} j
            join @.events k on k.experience = j.key and k.row > j.value
            where k.replaces = j.value and k.op = 'KEEP'
            """
        keeps = self._port.rows(query, (json.dumps(dict(rows)),))
        return dict(Counter(of for of, row in keeps if row_within(row, ranges)))

    def snapshot_positions(self) -> list[int]:
        return self._port.column("select position from @.snapshots order by position")

    def snapshot_sizes(self) -> list[int]:
        size = self._port.dialect.bytes_of_snapshot
        return self._port.column(f"select {size} from @.snapshots order by position")


def _pairs(ranges: Sequence[tuple[int, int]]) -> str:
    return str([list(pair) for pair in ranges])
