"""Appending to the journal: one statement a batch, and no lock that another writer waits for.

A row that is there stays as it is, so a batch of an unknown fate is simply sent again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors

from tfgrpo.store.activity.runs import Call
from tfgrpo.store.errors import RowRefused, StoreError
from tfgrpo.store.port_records import CallValues, RolloutValues
from tfgrpo.store.postgres.session import Session, lost_error, translated
from tfgrpo.store.sql.runs import CALL_COLUMNS, ROLLOUT_COLUMNS, Since, SqlRecords

if TYPE_CHECKING:
    from tfgrpo.store.address import Address
    from tfgrpo.store.postgres.port import PostgresPort


PATIENCE = 90.0
"""Seconds for which a batch is sent again while the database is away."""
PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0)
"""Seconds between two attempts; the last is for all that follow."""

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


class PostgresWriter:
    """A journal's writer with a connection of its own, opened when there is something to write."""

    def __init__(self, address: Address) -> None:
        self._session = Session(address)

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        if not calls and not rollouts:
            return
        values = _values(calls, rollouts)
        deadline = time.monotonic() + PATIENCE
        attempt = 0
        while not self._append(values, deadline):
            time.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1

    def _append(self, values: list[list[Any]], deadline: float) -> bool:
        """Sends a batch once; returns whether it is recorded. Raises what waiting cannot mend."""
        address = self._session.address
        passing = (errors.DeadlockDetected, errors.SerializationFailure)
        try:
            connection = self._session.connection
            connection.execute(self._session.sql(APPEND), values)
        except passing:  # two writers met with the same rows
            pass
        except psycopg.OperationalError as error:
            if not self._session.broken:
                raise translated(error, address) from error
            self._session.close()
            if time.monotonic() > deadline:
                raise lost_error(address) from error
        except (psycopg.Error, UnicodeError) as error:
            raise translated(error, address) from error
        except RowRefused:
            raise
        except StoreError:  # no connection
            if not self._session.opened or time.monotonic() > deadline:
                raise
        else:
            return True
        return False

    def close(self) -> None:
        self._session.close()


def _values(calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> list[list[Any]]:
    """A batch as columns. Texts, which writers share, are in one order for all of them, so
    that no two wait for each other."""
    texts: dict[str, bytes] = {}
    for call in calls:
        texts.setdefault(call[5], hashlib.sha256(call[5].encode()).digest())
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
        open = self._port.number(OPEN, (f"{self._port.session.quoted}.{table}",))
        return Since("least(tx, ? - 1)", (open,), SINCE, (run, after, open, after), "tx, id")
