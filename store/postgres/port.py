"""The port over one library of a PostgreSQL database."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tfgrpo.store.address import Address, parse_address
from tfgrpo.store.errors import StoreError
from tfgrpo.store.postgres import checks, occurrences
from tfgrpo.store.postgres.changes import Changes
from tfgrpo.store.postgres.journal import PostgresRecords
from tfgrpo.store.postgres.members import PostgresMembers
from tfgrpo.store.postgres.session import Session, has_schema, lost_error, prepare
from tfgrpo.store.records import Version
from tfgrpo.store.sql.names import SqlRedactions
from tfgrpo.store.sql.port import Dialect, SqlCounts, SqlPort, Values
from tfgrpo.store.sql.rows import VERSION_COLUMNS, version_of

if TYPE_CHECKING:
    import re

    from tfgrpo.store.address import Address
    from tfgrpo.store.defects import Defect
    from tfgrpo.store.text_occurrences import Occurrence


GONE = 30
"""Seconds after which the database asks a silent machine whether it is there; it does so four times
at most."""


@contextmanager
def hold(address: Address, name: str, ours: dict[str, Session]) -> Iterator[bool]:
    """Tries to take the lock of that name; yields whether it was free, and has its connection in
    `ours` meanwhile. Raises StoreError."""
    session = Session(address)
    try:
        free = _take(session, name)
        if free:
            ours[name] = session
        yield free
    finally:
        if ours.get(name) is session:
            del ours[name]
        session.roll_back()  # the database notices a closed connection some time later
        session.close()


def is_ours(name: str, ours: dict[str, Session]) -> bool:
    """Whether the lock of that name, which was taken, is held still. One whose connection
    was lost is taken again where nobody else has it by now. Raises StoreError."""
    session = ours.get(name)
    if session is None:
        return False
    opened = session.opened
    session.row("select 1")
    return session.opened == opened or _take(session, name)


def _take(session: Session, name: str) -> bool:
    """Takes a lock for its connection's life; returns whether it was free. Raises StoreError."""
    session.close()
    session.execute(
        f"begin; set local idle_in_transaction_session_timeout = 0;"
        f" set local tcp_keepalives_idle = {GONE};"
        f" set local tcp_keepalives_interval = {GONE // 3};"
        f" set local tcp_keepalives_count = 3"
    )
    opened = session.opened
    (free,) = session.row(f"select pg_try_advisory_xact_lock({_key(session, name)})")
    if session.opened != opened:  # outside of the transaction, then: given back at once
        raise lost_error(session.address)
    return bool(free)


def is_held(session: Session, name: str) -> bool:
    """Whether some process holds the lock of that name. Raises StoreError."""
    key = _key(session, name) & (1 << 64) - 1
    (there,) = session.row(
        "select exists (select 1 from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and l.locktype = 'advisory' and l.granted"
        " and l.objsubid = 1 and l.classid::bigint = %s and l.objid::bigint = %s)",
        (key >> 32, key & (1 << 32) - 1),
    )
    return bool(there)


def _key(session: Session, name: str) -> int:
    text = f"{session.address.schema}/{name}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)


TYPES = {
    "events": "bigint text text text text text bigint bigint bytea bytea bigint",
    "reflog": "bigint bigint text bigint text bigint text text bigint text",
    "redactions": "bigint bigint text bigint text",
    "scores": "bigint text bigint bytea float8 text",
}
"""The types of the columns of a table that rows are appended to."""
REMEMBERED = 20_000
"""Versions that are remembered at most."""


def _json(column: str) -> str:
    """A column as JSON. PostgreSQL's own has no NUL, so another character takes its place."""
    return rf"replace({column}, '\u0000', '\u0001')::json"


def _where_named(column: str, name: str, condition: str) -> str:
    return f"case when strpos({column}, '\"{name}\":') > 0 then {condition} else false end"


DIALECT = Dialect(
    integers="(select unnest(?::bigint[]) as value)",
    texts="(select unnest(?::text[]) as value)",
    pairs="(select (value ->> 0)::bigint as after, (value ->> 1)::bigint as upto"
    " from json_array_elements(?::json))",
    numbers="(select key, value::bigint as value from json_each_text(?::json))",
    among=lambda table, alias, column: (
        f"{table} {alias} where {alias}.{column} = any(?) order by {alias}.{column}"
    ),
    find="strpos",
    member=lambda column, name: f"({_json(column)} ->> '{name}')",
    kind=lambda column, name, kind: _where_named(
        column, name, f"json_typeof({_json(column)} -> '{name}') = '{kind}'"
    ),
    text_key="digest",
    bytes_of_snapshot="pg_column_size(live)",
    differs="is distinct from",
)


class PostgresPort(SqlPort):
    """The port over one library of a database. One instance belongs to one thread at a time."""

    dialect = DIALECT

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

    @staticmethod
    def is_there(address: str) -> bool:
        """Whether a library is in the database of its address. Raises StoreError."""
        with closing(Session(parse_address(address))) as session:
            return has_schema(session)

    @classmethod
    @contextmanager
    def new(cls, address: str, there_already: StoreError) -> Iterator[PostgresPort]:
        """A library that one transaction makes, which ends with this. Raises `there_already`."""
        with closing(Session(parse_address(address))) as session, session.writing():
            if has_schema(session):
                raise there_already
            yield cls(session, create=True)

    def members(self) -> PostgresMembers:
        """Who may do what in the library."""
        return PostgresMembers(self)

    def close(self) -> None:
        self.session.close()

    @property
    def in_transaction(self) -> bool:
        return self.session.in_transaction

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
        """The end of a transaction. Who listens is told when a library shows something else."""
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

    def rows(self, query: str, values: Values = ()) -> list[Any]:
        return self.session.rows(query, values)

    def row(self, query: str, values: Values = ()) -> Any:
        return self.session.row(query, values)

    def stream(self, query: str, values: Values = ()) -> Generator[Any, None, None]:
        return self.session.stream(query, values)

    def execute(self, query: str, values: Values = ()) -> None:
        self.session.execute(query, values)

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            arrays = ", ".join(f"%s::{type}[]" for type in TYPES[table].split())
            self.session.execute(
                f"insert into @.{table} ({columns}) select * from unnest({arrays})",
                [list(column) for column in zip(*rows, strict=True)],
            )

    def items(self, values: Iterable[int] | Iterable[str]) -> list[int] | list[str]:
        return list(values)  # type: ignore[return-value]

    def packed(self, live: Sequence[int]) -> list[int]:
        return list(live)

    def unpacked(self, column: Any) -> list[int]:
        return list(column)

    def version(self, number: int) -> Version | None:
        return next(iter(self.versions_at([number])), None)

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        wanted = sorted(set(numbers))
        if self.session.in_transaction and not self._reading:  # some may yet be rolled back
            return super().versions_at(wanted)
        there = self._versions  # which never change, so a history is walked again for nothing
        if len(there) > REMEMBERED:
            there.clear()
        if missing := [number for number in wanted if number not in there]:
            query = f"select {VERSION_COLUMNS} from @.versions where number = any(?)"
            there.update((row[0], row) for row in self.rows(query, (missing,)))
        return [version_of(there[number]) for number in wanted if number in there]

    @cached_property
    def redactions(self) -> PostgresRedactions:
        return PostgresRedactions(self)

    @cached_property
    def counts(self) -> PostgresCounts:
        return PostgresCounts(self)

    @cached_property
    def storage(self) -> PostgresStorage:
        return PostgresStorage(self)

    @cached_property
    def records(self) -> PostgresRecords:
        return PostgresRecords(self)


class PostgresCounts(SqlCounts):
    """What there is in a library, counted."""

    _port: PostgresPort

    def size(self) -> int:
        return self._port.number(
            "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = ? and c.relkind = 'r'",
            (self._port.address.schema,),
        )


class PostgresRedactions(SqlRedactions):
    """Redactions in a library, made by functions of its schema's own role."""

    _port: PostgresPort

    def blank(self, row: int) -> None:
        self._port.rows("select @.blank_event(?)", (row,))

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        query = "select row, text, reason from @.events order by row"
        return [
            row
            for row, *texts in self._port.stream(query)
            if any(pattern.search(text or "") for text in texts)
        ]

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        return list(occurrences.occurrences(self._port.session, pattern))

    def replace(self, pattern: re.Pattern[str]) -> None:
        self._port.moved()
        occurrences.replace(self._port.session, pattern)

    def rewrite(self) -> bool:
        return occurrences.rewrite(self._port.session)

    def needs_rewrite(self) -> bool:
        return occurrences.needs_rewrite(self._port.session)


class PostgresStorage:
    """The library's schema itself."""

    def __init__(self, port: PostgresPort) -> None:
        self._port = port
        self._locks: dict[str, Session] = {}

    def recorder(self, number: int) -> str | None:
        query = "select recorded_by from @.versions where number = ?"
        return str(self._port.row(query, (number,))[0])

    def evaluated(self) -> bool:
        return self._port.row("select 1 from @.evaluations limit 1") is not None

    def content(self) -> bytes:
        raise StoreError(
            "a store in a database is no file",
            hint=f"copy it into one: `tfgrpo clone '{self._port.address.text}' FOLDER`",
        )

    def check(self) -> list[Defect]:
        return checks.check_storage(self._port)

    def checking(self) -> Callable[[], list[Defect]]:
        return self.check

    def rebuild(self) -> None:
        with self._port.transaction():
            checks.rebuild(self._port.session)

    def drop_snapshots(self) -> None:
        with self._port.transaction():
            self._port.execute("delete from @.snapshots")

    def hold(self, name: str) -> AbstractContextManager[bool]:
        return hold(self._port.address, name, self._locks)

    def is_ours(self, name: str) -> bool:
        return is_ours(name, self._locks)

    def is_held(self, name: str) -> bool:
        return is_held(self._port.session, name)
