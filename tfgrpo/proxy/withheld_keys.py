"""Keys of providers in an answer on its way to a caller with a virtual key: each is overwritten.

What stands in the place of a key is as long as it was written, so all around it stays: the length
of the body, a frame around it, a string of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable

from tfgrpo.model.secrets import LONG
from tfgrpo.store.records import REDACTED

FEW = 3
"""Bytes of a key's beginning that say nothing of it."""


class WithheldKeys:
    """Keys that are withheld, and how they are found."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        written = {form for key in keys for form in _forms(key)} - {b""}
        self.keys = tuple(sorted(written, key=len, reverse=True))

    def without(self, data: bytes) -> bytes:
        """Returns bytes that are whole without the keys."""
        for key in self.keys:
            data = data.replace(key, overwritten(key))
        return data

    def begun(self, data: bytes) -> int:
        """Returns how many bytes at the end of some are the beginning of a key."""
        starts = ((n, key[:n]) for key in self.keys for n in range(1, len(key)))
        return max((n for n, start in starts if data.endswith(start)), default=0)


class KeyFilter:
    """An answer's body in pieces, less the keys. What may be the beginning of one waits for the
    next piece, but for a few letters: a frame of a socket that ends with them is not held up."""

    def __init__(self, withheld: WithheldKeys) -> None:
        self._withheld = withheld
        self._before = b""
        self._gone = 0
        """How many bytes of `_before`, which may begin a key, went on already."""

    def passed(self, piece: bytes) -> bytes:
        """Returns what goes on now that a piece is here."""
        data = self._withheld.without(self._before + piece)
        start, begin = self._gone, len(data) - self._withheld.begun(data)
        self._before = data[begin:]
        if len(self._before) <= FEW:
            self._gone = len(self._before)
            return data[start:]
        self._gone = max(0, start - begin)
        return data[start:begin]

    def rest(self) -> bytes:
        """Returns what still waits, as the answer is over. So much of a key that it is no word of
        somebody's is withheld too."""
        data, self._before = self._before, b""
        clean = data if len(data) < LONG else overwritten(data)
        return clean[self._gone :]


def overwritten(written: bytes) -> bytes:
    """Returns what stands in the place of a key."""
    return REDACTED.encode().rjust(len(written), b"*")


def _forms(key: bytes) -> set[bytes]:
    """A key as it is, and as PHP and .NET write some signs in JSON."""
    return {key, key.replace(b"/", b"\\/"), key.replace(b"+", b"\\u002B")}
