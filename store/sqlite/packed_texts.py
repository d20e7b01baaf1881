"""The rows of a snapshot, and the long texts of training, as few bytes; and where a text lies in a
file: in every column of every table, replaced where that may be done."""

from __future__ import annotations

import array
import sys
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from tfgrpo.store.sqlite.checks import LARGEST

if TYPE_CHECKING:
    import re
    import sqlite3

    from tfgrpo.store.text_occurrences import Occurrence

SMALL = 16_384
"""Bytes of a snapshot up to which its rows are remembered: some ten thousand."""
LEAST_EVENT = 32
"""Bytes that an event takes in a file at least: a file has no more of them than that lets in."""
LONG = 256
"""Bytes from which on a text is packed: a shorter one hardly shrinks."""


def pack(live: Sequence[int]) -> bytes:
    """Ascending row numbers as deltas, 64-bit little endian, compressed with zlib."""
    deltas = array.array("q", [b - a for a, b in zip([0, *live], live, strict=False)])
    if sys.byteorder == "big":
        deltas.byteswap()
    return zlib.compress(deltas.tobytes(), 1)


def unpack(blob: bytes, size: int) -> list[int]:
    """The row numbers that `pack` packed in a file of so many bytes, the last few of them
    from memory. Raises ValueError for anything else."""
    small = isinstance(blob, bytes) and len(blob) <= SMALL
    most = 1 << (size // LEAST_EVENT).bit_length()  # which seldom changes
    return list((_unpack_small if small else _unpack)(blob, most))


def _unpack(blob: bytes, most: int) -> tuple[int, ...]:
    deltas = array.array("q")
    try:
        deltas.frombytes(decompress(blob, most * deltas.itemsize))
    except (zlib.error, TypeError) as error:
        raise ValueError(f"no packed rows: {error}") from error
    if sys.byteorder == "big":
        deltas.byteswap()
    return tuple(accumulate(deltas))


_unpack_small = lru_cache(maxsize=16)(_unpack)


def decompress(blob: bytes, most: int) -> bytes:
    """The bytes that zlib packed, if those are so many at most. Raises zlib.error."""
    unpacking = zlib.decompressobj()
    content = unpacking.decompress(blob, most + 1)
    if not unpacking.eof or len(content) > most:
        raise zlib.error("it is not whole, or larger than it can be")
    return content


def pack_text(text: str) -> str | bytes:
    """A text as its column holds it: UTF-8 in zlib where that saves anything, else the text."""
    if len(text) < LONG:
        return text
    plain = text.encode()
    packed = zlib.compress(plain, 6)
    return packed if len(packed) < len(plain) else text


def unpack_text(value: object) -> str:
    """The text that `pack_text` packed. Raises ValueError for anything else."""
    if isinstance(value, str):
        return value
    if not isinstance(value, bytes):
        raise ValueError("neither a text nor a packed one")
    try:
        return decompress(value, LARGEST).decode()
    except zlib.error as error:
        raise ValueError(f"no packed text: {error}") from error


def define_plain(db: sqlite3.Connection) -> None:
    """Gives a connection the SQL function `plain(value)`: the text that a column holds, packed or
    not, and the empty text for what is damaged."""

    def plain(value: object) -> str:
        try:
            return unpack_text(value)
        except ValueError:
            return ""

    db.create_function("plain", 1, plain, deterministic=True)


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
    """Yields the places that hold the pattern, in every text column of any table; the events' own
    texts and reasons are left to `redact.py`."""
    from tfgrpo.store.text_occurrences import Occurrence, reason_to_stay, users_own

    holding(db, pattern)
    tables = db.execute(
        "select name, sql like '%without rowid%' from sqlite_master where type = 'table'"
        " and sql not like 'create virtual%' and name not like 'sqlite_%' order by name"
    ).fetchall()
    for table, without in tables:
        row = "0" if without else "rowid"
        for _, column, kind, *_ in db.execute(f'pragma table_info("{table}")').fetchall():
            is_text = kind.lower() in ("text", "")
            if not is_text or (table == "events" and column in ("text", "reason")):
                continue
            query = f'select {row} from "{table}" where holds("{column}")'
            query += users_own(table, column)
            why = reason_to_stay(table, column)
            for (number,) in db.execute(query).fetchall():
                yield Occurrence(table, column, number, why)


def replace(db: sqlite3.Connection, pattern: re.Pattern[str]) -> None:
    """Replaces the pattern wherever that may be done. Only inside a transaction."""
    from tfgrpo.store.text_occurrences import REPLACED, cleaned, users_own

    holding(db, pattern)
    for table, column in REPLACED:
        keys = "evaluation, problem, sample" if table == "scores" else "id"
        held = f"select {keys}, plain({column}) from {table} where holds({column})"
        held += users_own(table, column)
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
    import hashlib  # which who only reads a snapshot needs not

    key = hashlib.sha256(text.encode()).digest()
    same = db.execute("select id from texts where digest = ? and id <> ?", (key, id)).fetchone()
    if same is None:
        query = "update texts set digest = ?, text = ? where id = ?"
        db.execute(query, (key, pack_text(text), id))
    else:  # two requests that differed in the secret alone are one now
        db.execute("update journal set request = ? where request = ?", (same[0], id))
        db.execute("delete from texts where id = ?", (id,))
