"""Finding a text in every column of every table, and replacing it where that may be done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from psycopg import errors

from tfgrpo.store.text_occurrences import REPLACED, Occurrence, clean_json, cleaned, reason_to_stay

if TYPE_CHECKING:
    from tfgrpo.store.postgres.session import Session

TABLES = ["events", *sorted({table for table, _ in REPLACED})]
"""The tables that a redaction takes a text out of."""

KEYS = {
    "versions": "number",
    "events": "row",
    "reflog": "row",
    "redactions": "row",
    "run_states": "row",
    "decisions": "row",
    "runs": "id",
    "journal": "id",
    "rollouts": "id",
    "evaluations": "id",
    "scores": "evaluation",
}


def occurrences(session: Session, pattern: re.Pattern[str]) -> Iterator[Occurrence]:
    """Yields the places that hold the pattern: every text column of every table is read. The
    events' own texts and reasons are left to `redact.py`."""
    columns = session.rows(
        "select table_name::text, column_name::text from information_schema.columns"
        " where table_schema = %s and data_type = 'text' order by table_name, ordinal_position",
        (session.address.schema,),
    )
    for table, column in columns:
        if table == "events" and column in ("text", "reason"):
            continue
        key = KEYS.get(table, "0::bigint")
        query = f'select {key}, "{column}" from @.{table} where "{column}" is not null'
        for row, text in session.stream(query):
            if pattern.search(text):
                yield Occurrence(table, column, row, reason_to_stay(table, column))


def replace(session: Session, pattern: re.Pattern[str]) -> None:
    """Replaces the pattern wherever that may be done. Only inside a transaction."""
    for table, column in REPLACED:
        if table == "texts":  # below
            continue
        keys = "evaluation, problem, sample" if table == "scores" else KEYS[table]
        query = f"select {keys}, {column} from @.{table} where {column} is not null"
        held = [row for row in session.stream(query) if pattern.search(row[-1])]
        for *key, value in held:
            value = cleaned(table, column, value, pattern)
            place = (f"{table}.{column}", [str(part) for part in key], value)
            session.rows("select @.put_redacted(%s, %s::text[], %s)", place)
    query = "select digest, text from @.texts"
    for digest, text in [row for row in session.stream(query) if pattern.search(row[1])]:
        new = clean_json(text, pattern)
        # The old digest has no salt: a short secret could be guessed from it.
        session.rows(
            "select @.put_redacted_request(%s, %s, %s)",
            (digest, hashlib.sha256(new.encode()).digest(), new),
        )


def needs_rewrite(session: Session) -> bool:
    """Whether a table of this role's was not written anew since the last redaction: its
    `relfrozenxid` is no later than the transaction that put that on record."""
    row = session.row(
        "with done as ("
        " (select xmin from @.redactions order by row desc limit 1) union all"
        " (select xmin from @.decisions where kind = 'redaction' order by row desc limit 1))"
        " select exists (select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and c.relname = any(%s)"
        " and pg_has_role(session_user, c.relowner, 'MEMBER')"
        " and age(c.relfrozenxid) >= (select min(age(xmin)) from done))",
        (session.address.schema, TABLES),
    )
    return row is not None and bool(row[0])


def rewrite(session: Session) -> bool:
    """Writes the tables anew, so that nothing blanked or replaced is left in them; returns whether
    that could be done, for which nobody may be reading and which takes their owner."""
    owner = session.row(
        "select pg_has_role(session_user, c.relowner, 'MEMBER') from pg_class c"
        " join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and c.relname = 'events'",
        (session.address.schema,),
    )
    if owner is None or not owner[0]:
        return False
    connection = session.connection
    with session.translating():
        connection.execute("set lock_timeout = '2s'")
        try:
            for table in TABLES:
                connection.execute(session.sql(f"vacuum (full) @.{table}"))
        except errors.LockNotAvailable:
            return False
        finally:
            connection.execute("reset lock_timeout")
    return not needs_rewrite(session)  # as it does where somebody reads what was there before
