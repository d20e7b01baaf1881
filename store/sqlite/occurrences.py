"""Finding a text in every column of every table, and replacing it where that may be done."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from collections.abc import Iterator

from tfgrpo.store.sqlite.packed_texts import define_plain, pack_text, unpack_text
from tfgrpo.store.text_occurrences import REPLACED, Occurrence, cleaned, reason_to_stay


def holding(db: sqlite3.Connection, pattern: re.Pattern[str]) -> None:
    """Gives a connection the SQL functions `holds(value)`, whether a text, packed or not, has the
    pattern in it, and `plain(value)`."""

    def holds(value: object) -> bool:
        try:
            return pattern.search(unpack_text(value)) is not None
        except ValueError:  # no text, or a damaged one
            return False

    define_plain(db)
    db.create_function("holds", 1, holds, deterministic=True)


def occurrences(db: sqlite3.Connection, pattern: re.Pattern[str]) -> Iterator[Occurrence]:
    """Yields the places that hold the pattern. Every text column of every table is read, those of
    tables that this module has never heard of as well; the events' own texts and reasons are left
    to `redact.py`."""
    holding(db, pattern)
    tables = db.execute(
        "select name, sql like '%without rowid%' from sqlite_master where type = 'table'"
        " and sql not like 'create virtual%' and name not like 'sqlite_%' order by name"
    ).fetchall()
    for table, without in tables:
        row = "0" if without else "rowid"
        for column in _text_columns(db, table):
            if table == "events" and column in ("text", "reason"):
                continue
            query = f'select {row} from "{table}" where holds("{column}")'
            why = reason_to_stay(table, column)
            for (number,) in db.execute(query).fetchall():
                yield Occurrence(table, column, number, why)


def _text_columns(db: sqlite3.Connection, table: str) -> list[str]:
    columns = db.execute(f'pragma table_info("{table}")').fetchall()
    return [name for _, name, kind, *_ in columns if kind.lower() in ("text", "")]


def replace(db: sqlite3.Connection, pattern: re.Pattern[str]) -> None:
    """Replaces the pattern wherever that may be done. Only inside a transaction."""
    holding(db, pattern)
    for table, column in REPLACED:
        keys = "evaluation, problem, sample" if table == "scores" else "id"
        held = f"select {keys}, plain({column}) from {table} where holds({column})"
        rows = db.execute(held).fetchall()
        for *key, value in rows:
            value = cleaned(table, column, value, pattern)
            if (table, column) == ("texts", "text"):
                _put_text(db, key[0], value)
            else:
                if (table, column) == ("journal", "answer"):
                    value = pack_text(value)
                where = " and ".join(f"{name} = ?" for name in keys.split(", "))
                db.execute(f"update {table} set {column} = ? where {where}", (value, *key))


def _put_text(db: sqlite3.Connection, id: int, text: str) -> None:
    """Gives a text that is kept once another content, and the digest that goes with it. The old
    digest has no salt: a short secret could be guessed from it."""
    key = hashlib.sha256(text.encode()).digest()
    same = db.execute("select id from texts where digest = ? and id <> ?", (key, id)).fetchone()
    if same is None:
        query = "update texts set digest = ?, text = ? where id = ?"
        db.execute(query, (key, pack_text(text), id))
    else:  # two requests that differed in the secret alone are one now
        db.execute("update journal set request = ? where request = ?", (same[0], id))
        db.execute("delete from texts where id = ?", (id,))
