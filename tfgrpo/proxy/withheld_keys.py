"""Keys of providers in an answer on its way to a caller with a virtual key: each is overwritten.

What stands in the place of a key is as long as it was written, so all around it stays: the length
of the body, a frame around it, a string of JSON. A key is found as it is, and as JSON may write it,
in strings within strings too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from tfgrpo.model.secrets import LONG
from tfgrpo.store.records import REDACTED

_begun_escape = re.compile(rb"\\+(?:u(?:0(?:0[2-7]?)?)?)?\Z")
ESCAPE, LONGEST_ESCAPE = 6, 64
"""Bytes of an escape from its last backslash on, and those of a piece's end that it may be in."""
FEW = 3
"""Bytes of a key's beginning that say nothing of it."""


class WithheldKeys:
    """Keys that are withheld, and how they are found."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        plain = {key.replace(b"\\", b"") for key in keys} - {b""}
        self.keys = tuple(sorted(plain, key=len, reverse=True))
        letters = sorted({*b"".join(self.keys)})
        escaped = b"|".join(_hex(letter) for letter in letters)
        self._escape = re.compile(rb"\\u00(%b)" % escaped)
        self._letter = re.compile(rb"\\+(?:u00(?:%b)|.)|." % escaped, re.DOTALL)
        """What stands for one letter."""

    @cached_property
    def _written(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(_pattern, self.keys)))

    def without(self, data: bytes) -> bytes:
        """Returns bytes that are whole without the keys."""
        plain = self.plain(data)
        if not any(key in plain for key in self.keys):
            return data
        return self._written.sub(lambda match: overwritten(match[0]), data)

    def plain(self, data: bytes) -> bytes:
        """Returns a text as the strings of JSON in it stand for it, as far as it may be a key."""
        if b"\\" not in data:
            return data
        return self._escape.sub(_letter_of, data).translate(None, b"\\")

    def begins_in(self, data: bytes) -> int:
        """Returns where a key begins, or an escape, that goes on in what follows; the end of the
        data where none does."""
        escape = _begun_escape.search(data, max(0, len(data) - LONGEST_ESCAPE))
        end = len(data) if escape is None else escape.start()
        letters = self.begun(self.plain(data[:end]))
        if letters and b"\\" in data[max(0, end - ESCAPE * letters) : end]:
            return [one.start() for one in self._letter.finditer(data[:end])][-letters]
        return end - letters

    def begun(self, plain: bytes) -> int:
        """Returns how many letters at the end of a text are the beginning of a key."""
        starts = ((n, key[:n]) for key in self.keys for n in range(1, len(key)))
        return max((n for n, start in starts if plain.endswith(start)), default=0)


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
        start, begin = self._gone, self._withheld.begins_in(data)
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
        clean = data if len(self._withheld.plain(data)) < LONG else overwritten(data)
        return clean[self._gone :]


def overwritten(written: bytes) -> bytes:
    """Returns what stands in the place of a key."""
    return REDACTED.encode().rjust(len(written), b"*")


def _letter_of(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])


def _hex(letter: int) -> bytes:
    return b"(?i:%02x)" % letter


def _pattern(key: bytes) -> bytes:
    first, *others = ((re.escape(b"%c" % one), b"u00" + _hex(one)) for one in key)
    begins = rb"(?:%b|(?<!\\)\\++%b)" % first
    return begins + b"".join(rb"\\*+(?:%b|(?<=\\)%b)" % one for one in others)
