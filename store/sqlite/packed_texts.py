"""The rows of a snapshot, and the long texts of training, as few bytes."""

from __future__ import annotations

import array
import sys
import zlib
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from tfgrpo.store.sqlite.checks import LARGEST

if TYPE_CHECKING:
    import sqlite3

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
