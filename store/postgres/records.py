"""Runs, rollouts, calls and evaluations in a database: what `runs.py` asks of PostgreSQL.

Writers of the journal take no turns, so the rows of one may be committed after rows of another
with higher numbers. What tells where a watcher was is therefore the transaction that wrote a
row (`tx`), and only rows are read that none which is still being written can come before: a
writer holds its table before it has a transaction's number, and both are seen in `pg_locks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfgrpo.store.runs import Call
from tfgrpo.store.sql.records import Since, SqlRecords

if TYPE_CHECKING:
    from tfgrpo.store.postgres.journal import PostgresWriter
    from tfgrpo.store.postgres.port import PostgresPort

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


class PostgresRecords(SqlRecords):
    """The records of a library."""

    _port: PostgresPort

    def writer(self) -> PostgresWriter:
        from tfgrpo.store.postgres.journal import PostgresWriter

        return PostgresWriter(self._port.address)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        return self.calls_where("where key = any(?)", (list(keys),)) if keys else []

    def since(self, table: str, run: int, after: int) -> Since:
        # The place that follows is below `open`, so nothing that comes later is missed.
        open = self._port.number(OPEN, (f"{self._port.session.quoted}.{table}",))
        return Since("least(tx, ? - 1)", (open,), SINCE, (run, after, open, after), "tx, id")
