"""The port over one library of a PostgreSQL database, and the journal's writer: one statement a
batch, and no lock that another writer waits for. A row that is there stays as it is, so a batch of
an unknown fate is simply sent again."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any

import psycopg
from psycopg import errors

from tfgrpo.store.activity.runs import Call
from tfgrpo.store.address import Address, parse_address
from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import CallValues, RolloutValues
from tfgrpo.store.postgres.session import (
    Session,
    has_schema,
    prepare,
    translated,
)
from tfgrpo.store.postgres.storage import PostgresMembers, PostgresStorage
from tfgrpo.store.sql.port import Dialect, Port
from tfgrpo.store.sql.port_parts import SqlRedactions
from tfgrpo.store.sql.runs import CALL_COLUMNS, ROLLOUT_COLUMNS, Since, SqlRecords
from tfgrpo.store.text_occurrences import REPLACED

TYPES = {
    "events": "bigint text text text text text bigint bigint bytea bytea bigint",
    "reflog": "bigint bigint text bigint text bigint text text bigint text",
    "redactions": "bigint bigint text bigint text",
    "scores": "bigint text bigint bytea float8 text",
}
"""The types of the columns of a table that rows are appended to."""
REDACTED_TABLES = ["events", *sorted({table for table, _ in REPLACED})]
"""The tables that a redaction takes a text out of."""
ROWS = {
    "versions": "number",
    "runs": "id",
    "journal": "id",
    "rollouts": "id",
    "evaluations": "id",
    "scores": "evaluation",
    **dict.fromkeys(("events", "reflog", "redactions", "run_states", "decisions"), "row"),
}
"""What has a row's number, by table."""


EVERY = 1.0
"""Seconds after which the database is asked whether somebody has committed: a notice can be missed,
and a pooler passes none on."""
NEWEST = """
select (select max(number) from @.versions), (select max(row) from @.reflog),
    (select max(row) from @.redactions), (select max(row) from @.decisions)
"""

CALL_TYPES = (
    "bytea bigint text bigint text bytea text bigint bigint bigint bigint bigint float8 bigint"
)
ROLLOUT_TYPES = "bigint bigint text bigint bigint text text float8 text bigint"
SINCE = """
run = ? and (tx > ? and tx < ?
    or ? = 0 and tx >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint)
"""
"""Rows after a place that no other can come before any more. Numbers that this server has not
reached are of another one, from which the rows were restored: they are read once."""
OPEN = """
select least(next, min(next - ((next %% 4294967296) - xid + 4294967296) %% 4294967296))
from (select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as next) n left join (
    select t.transactionid::text::bigint as xid from pg_locks r join pg_locks t
        on t.virtualtransaction = r.virtualtransaction and t.locktype = 'transactionid'
            and t.mode = 'ExclusiveLock' and t.granted
    where r.locktype = 'relation' and r.relation = ?::regclass and r.mode = 'RowExclusiveLock'
        and r.database = (select oid from pg_database where datname = current_database())
) w on true group by next
"""
"""The first transaction that may still write to a table, here or after this query's moment."""


def _unnested(types: str) -> str:
    return f"select * from unnest({', '.join(f'%s::{type}[]' for type in types.split())})"


APPEND = f"""
with t as (
    insert into @.texts (digest, text) {_unnested("bytea text")} on conflict do nothing
), j as (
    insert into @.journal ({CALL_COLUMNS}) {_unnested(CALL_TYPES)} on conflict do nothing
)
insert into @.rollouts ({ROLLOUT_COLUMNS}) {_unnested(ROLLOUT_TYPES)} on conflict do nothing
"""


def _json(column: str) -> str:
    """A column as JSON. PostgreSQL's own has no NUL, so another character takes its place."""
    return rf"replace({column}, '\u0000', '\u0001')::json"


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
    kind=lambda column, name, kind: (
        f"case when strpos({column}, '\"{name}\":') > 0"
        f" then json_typeof({_json(column)} -> '{name}') = '{kind}' else false end"
    ),
    text_key="digest",
    bytes_of_snapshot="pg_column_size(live)",
    differs="is distinct from",
)


class PostgresPort(Session, Port):
    """The port over one library of a database. One instance belongs to one thread at a time."""

    dialect = DIALECT

    def __init__(
        self,
        place: Address | str,
        *,
        create: bool = False,
        watching: bool = False,
        unprepared: bool = False,
    ) -> None:
        """`unprepared` is for who asks whether the library is there."""
        super().__init__(parse_address(place) if isinstance(place, str) else place)
        self._newest: Any = None
        self._read_at, self._changes, self._listening = -EVERY, 0, 0
        self._reading = False
        if unprepared:
            return
        try:
            prepare(self, create=create, watching=watching)
        except BaseException:
            self.close()
            raise

    @classmethod
    def is_there(cls, address: str) -> bool:
        """Whether a library is in the database of its address. Raises StoreError."""
        with closing(cls(address, unprepared=True)) as port:
            return has_schema(port)

    @classmethod
    @contextmanager
    def new(cls, address: str, there_already: StoreError) -> Iterator[PostgresPort]:
        """A library that one transaction makes, which ends with this. Raises `there_already`."""
        with closing(cls(address, unprepared=True)) as port, port.writing():
            if has_schema(port):
                raise there_already
            prepare(port, create=True)
            yield port

    def members(self) -> PostgresMembers:
        """Who may do what in the library."""
        return PostgresMembers(self)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        assert not self._reading, "nothing is written while one state is read"
        if self.in_transaction:  # joins the one that is open
            yield
            return
        with self.writing():
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        if self.in_transaction:  # joins the one that is open
            yield
            return
        with self.begun("begin isolation level repeatable read read only"):
            self._reading = True
            try:
                yield
            finally:
                self._reading = False

    def changes(self) -> int:
        if self.in_transaction:
            return self._changes
        if self.broken or self._listening != self.opened:
            self.execute(f"listen {self.channel}")
            self._listening, self._read_at = self.opened, -EVERY
        heard = self.again(lambda c: [*c.notifies(timeout=0)])
        self._changes += any(n.pid != self.connection.pgconn.backend_pid for n in heard)
        now = time.monotonic()
        if now - self._read_at >= EVERY:
            newest = self.row(NEWEST)
            self._changes += newest != self._newest
            self._newest, self._read_at = newest, now
        return self._changes

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            arrays = ", ".join(f"%s::{type}[]" for type in TYPES[table].split())
            self.execute(
                f"insert into @.{table} ({columns}) select * from unnest({arrays})",
                [list(column) for column in zip(*rows, strict=True)],
            )

    def items(self, values: Iterable[int] | Iterable[str]) -> list[int] | list[str]:
        return list(values)  # type: ignore[return-value]

    def packed(self, live: Sequence[int]) -> list[int]:
        return list(live)

    def unpacked(self, column: Any) -> list[int]:
        return list(column)

    @cached_property
    def redactions(self) -> PostgresRedactions:
        return PostgresRedactions(self)

    @cached_property
    def storage(self) -> PostgresStorage:
        return PostgresStorage(self)

    @cached_property
    def records(self) -> PostgresRecords:
        return PostgresRecords(self)


class PostgresRedactions(SqlRedactions):
    """Redactions in a library, made by functions of its schema's own role."""

    _port: PostgresPort

    def blank(self, row: int) -> None:
        self._port.rows("select @.blank_event(?)", (row,))

    def text_columns(self) -> Iterator[tuple[str, str, str]]:
        columns = self._port.rows(
            "select table_name::text, column_name::text from information_schema.columns"
            " where table_schema = %s and data_type = 'text' order by table_name, ordinal_position",
            (self._port.address.schema,),
        )
        for table, column in columns:
            yield table, column, ROWS.get(table, "0::bigint")

    def keys(self, table: str) -> str:
        others = {"scores": "evaluation, problem, sample", "texts": "digest"}
        return others.get(table) or ROWS[table]

    def put(self, table: str, column: str, key: Sequence[object], text: str) -> None:
        if table == "texts":
            values = (*key, hashlib.sha256(text.encode()).digest(), text)
            self._port.rows("select @.put_redacted_request(%s, %s, %s)", values)
            return
        place = (f"{table}.{column}", list(map(str, key)), text)
        self._port.rows("select @.put_redacted(%s, %s::text[], %s)", place)

    def needs_rewrite(self) -> bool:
        # Whether a table of this role's was not written anew since the last redaction: its
        # `relfrozenxid` is no later than the transaction that put that on record.
        (due,) = self._port.row(
            "with done as ("
            " (select xmin from @.redactions order by row desc limit 1) union all"
            " (select xmin from @.decisions where kind = 'redaction' order by row desc limit 1))"
            " select exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relname = any(%s)"
            " and pg_has_role(session_user, c.relowner, 'MEMBER')"
            " and age(c.relfrozenxid) >= (select min(age(xmin)) from done))",
            (self._port.address.schema, REDACTED_TABLES),
        )
        return bool(due)

    def rewrite(self) -> bool:
        # Nobody may be reading, and it takes the tables' owner.
        port = self._port
        owner = port.row(
            "select pg_has_role(session_user, c.relowner, 'MEMBER') from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = %s and c.relname = 'events'",
            (port.address.schema,),
        )
        if owner is None or not owner[0]:
            return False
        with port.translating():
            port.connection.execute("set lock_timeout = '2s'")
            try:
                for table in REDACTED_TABLES:
                    port.connection.execute(port.sql(f"vacuum (full) @.{table}"))
            except errors.LockNotAvailable:
                return False
            finally:
                port.connection.execute("reset lock_timeout")
        return not self.needs_rewrite()  # as it does where somebody reads what was there before


class PostgresWriter:
    """A journal's writer with a connection of its own, opened when there is something to write."""

    def __init__(self, address: Address) -> None:
        self._session = Session(address)

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        if not calls and not rollouts:
            return
        try:
            connection = self._session.connection
            connection.execute(self._session.sql(APPEND), _values(calls, rollouts))
        except (psycopg.Error, UnicodeError) as error:
            raise translated(error, self._session.address) from error

    def close(self) -> None:
        self._session.close()


def _values(calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> list[list[Any]]:
    """A batch as columns. Texts, which writers share, are in one order for all of them, so
    that no two wait for each other."""
    texts = {call[5]: hashlib.sha256(call[5].encode()).digest() for call in calls}
    shared = sorted((digest, text) for text, digest in texts.items())
    rows = [(*call[:5], texts[call[5]], *call[6:]) for call in calls]
    return [*_columns(shared, 2), *_columns(rows, 14), *_columns(rollouts, 10)]


def _columns(rows: Sequence[Sequence[Any]], count: int) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * count


class PostgresRecords(SqlRecords):
    """The records of a library."""

    _port: PostgresPort

    def writer(self) -> PostgresWriter:
        return PostgresWriter(self._port.address)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        return self.calls_where("where key = any(?)", (list(keys),)) if keys else []

    def last_key(self, column: str) -> str:
        return f"decode({column}::json ->> -1, 'hex')"

    def since(self, table: str, run: int, after: int) -> Since:
        # The place that follows is below `open`, so nothing that comes later is missed.
        open = self._port.number(OPEN, (f"{self._port.quoted}.{table}",))
        return Since(f"least(tx, {open} - 1)", SINCE, (run, after, open, after), "tx, id")
