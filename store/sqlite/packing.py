"""The rows of a snapshot as few bytes."""

from __future__ import annotations

import array
import sys
import zlib
from collections.abc import Sequence
from itertools import accumulate


def pack(live: Sequence[int]) -> bytes:
    """Returns ascending row numbers as deltas, 64-bit little endian, compressed with zlib."""
    deltas = array.array("q", [b - a for a, b in zip([0, *live], live, strict=False)])
    if sys.byteorder == "big":
        deltas.byteswap()
    return zlib.compress(deltas.tobytes(), 1)


def unpack(blob: bytes) -> list[int]:
    """Returns the row numbers that `pack` packed. Raises ValueError for anything else."""
    deltas = array.array("q")
    try:
        deltas.frombytes(zlib.decompress(blob))
    except (zlib.error, TypeError) as error:
        raise ValueError(f"no packed rows: {error}") from error
    if sys.byteorder == "big":
        deltas.byteswap()
    return list(accumulate(deltas))
