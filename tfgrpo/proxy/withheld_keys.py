"""Keys of providers in an answer on its way to a caller with a virtual key: each is overwritten.

What stands in the place of a key is as long as it was written, so all around it stays: the length
of the body, a frame around it, a string of JSON. A key is found as it is, and as JSON may write it,
in strings within strings too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from tfgrpo.model.secrets import LONG
from tfgrpo.model.wire_formats import is_stream
from tfgrpo.store.records import REDACTED

_begun_escape = re.compile(rb"\\+(?:u(?:0(?:0[2-7]?)?)?)?\Z")
ESCAPE, LONGEST_ESCAPE = 6, 64
"""Bytes of an escape from its last backslash on, and those of a piece's end that it may be in."""

_member = re.compile(rb'"([^"\\]{1,64})"\s*:\s*"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
"""A member of JSON whose value is a text."""
LONGEST_WAIT = 64 << 10
"""Bytes of a stream that wait at most until a key that has begun goes on."""
FEW = 3
"""Bytes of a key's beginning that say nothing of it."""
LOOKED_FOR = 24
"""Letters of a key that are looked for, one by one, where a text ends."""


class Begun(NamedTuple):
    """The beginning of a key: its letters, and where in the stream each is written."""

    letters: bytes
    places: list[tuple[int, int]]


class WithheldKeys:
    """Keys that are withheld, and how they are found."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        plain = {key.replace(b"\\", b"") for key in keys} - {b""}
        self.keys = tuple(sorted(plain, key=len, reverse=True))
        letters = sorted({*b"".join(self.keys)})
        self.ends = frozenset(letters) | frozenset(b"\\u0234567")
        """Bytes that a piece ends with where a key may go on in the next."""
        self.most = 2 * ESCAPE * max(map(len, self.keys), default=0)
        """Bytes that a key is written in at most, but for strings deep in others."""
        escaped = b"|".join(_hex(letter) for letter in letters)
        signs = b"".join(re.escape(b"%c" % one) for one in letters if not chr(one).isalnum())
        self.may_be_escaped = re.compile(rb"\\(?:u00(?:%b)|[\\%b])" % (escaped, signs)).search
        self._escape = re.compile(rb"\\u00(%b)" % escaped)
        self._letter = re.compile(rb"\\+(?:u00(?:%b)|.)|." % escaped, re.DOTALL)
        """What stands for one letter."""

    @cached_property
    def _written(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(map(_pattern, self.keys)))

    @cached_property
    def may_go_on(self) -> re.Pattern[bytes]:
        """Finds a text that may end with the beginning of a key, alone or among others in JSON."""
        ends = b"|".join(map(_beginning, self.keys))
        return re.compile(rb'\\u00|(?:%b)(?:\Z|"\s*[,}\]])' % ends)

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
            return self.letters_in(data[:end])[-letters][0]
        return end - letters

    def letters_in(self, data: bytes) -> list[tuple[int, int]]:
        """Returns where each letter of what `plain` returns is written."""
        return [one.span() for one in self._letter.finditer(data)]

    def begun(self, plain: bytes) -> int:
        """Returns how many letters at the end of a text are the beginning of a key."""
        longest = 0
        for key in self.keys:
            tail = plain[1 - len(key) :]
            at = tail.find(key[:1])
            while at >= 0 and not key.startswith(tail[at:]):
                at = tail.find(key[:1], at + 1)
            longest = max(longest, 0 if at < 0 else len(tail) - at)
        return longest


class KeyFilter:
    """An answer's body in pieces, less the keys. What may be the beginning of one waits for the
    next piece, but for a few letters: a frame of a socket that ends with them is not held up. Of
    `streamed` ones the events are read too."""

    def __init__(self, withheld: WithheldKeys, *, streamed: bool | None = None) -> None:
        """With None as `streamed`, the first piece shows whether they are events."""
        self._withheld = withheld
        self._streamed = streamed
        self._events: EventFilter | None = None
        self._before = b""
        self._gone = 0
        """How many bytes of `_before`, which may begin a key, went on already."""

    def passed(self, piece: bytes) -> bytes:
        """Returns what goes on now that a piece is here."""
        if self._streamed is not False:
            streamed, self._streamed = self._streamed or is_stream(piece), False
            if streamed and piece[:1] != b"\0":  # frames have sums of what is in them
                self._events = EventFilter(self._withheld)
        clean = self._clean(piece)
        return clean if self._events is None else self._events.passed(clean)

    def _clean(self, piece: bytes) -> bytes:
        withheld = self._withheld
        if not self._before and piece and piece[-1] not in withheld.ends:
            for key in withheld.keys:
                if key in piece:
                    break
            else:
                if not withheld.may_be_escaped(piece):
                    return piece
        data = withheld.without(self._before + piece)
        start, begin = self._gone, withheld.begins_in(data)
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
        clean = clean[self._gone :]
        return clean if self._events is None else self._events.passed(clean) + self._events.rest()


class EventFilter:
    """A stream of events in pieces, less keys whose letters several events bring, each a few in a
    member of the same name. Events that bring so much of one wait until it goes on otherwise."""

    def __init__(self, withheld: WithheldKeys) -> None:
        self._withheld = withheld
        self._line = b""
        """One that is not whole yet."""
        self._held = bytearray()
        self._at = 0
        """Where in the stream what is held begins."""
        self._begun: dict[bytes, Begun] = {}
        """By the name of a member: the beginning of a key that its last values brought."""

    def passed(self, piece: bytes) -> bytes:
        """Returns what goes on now that a piece is here."""
        may_go_on = self._withheld.may_go_on.search
        is_plain = not (self._line or self._held or self._begun) and piece.endswith(b"\n")
        if is_plain and not may_go_on(piece):
            self._at += len(piece)
            return piece
        data = self._line + piece
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        lines, self._line = data[:end], data[end:]
        start = self._at + len(self._held)
        self._held += lines
        for match in _member.finditer(lines):
            if match[1] in self._begun or may_go_on(match[2]):
                self._look(match, start)
        waiting = (one.places[0][0] for one in self._begun.values() if len(one.letters) > FEW)
        stop = self._at + len(self._held)
        begin = max(min(waiting, default=stop), self._at)
        if stop - begin > LONGEST_WAIT:
            begin = stop
            self._begun.clear()
        return self._go_on(begin)

    def rest(self) -> bytes:
        """Returns what still waits, as the answer is over; so much of a key that it is no word of
        somebody's is withheld too."""
        for one in self._begun.values():
            if len(one.letters) >= LONG:
                self._overwrite(one.places)
        return self._go_on(self._at + len(self._held)) + self._line

    def _look(self, member: re.Match[bytes], start: int) -> None:
        """Takes a member as what follows those before it of its name. Of a long value its ends are
        looked at: what has all of a key was seen already."""
        name, value = member.groups()
        at, most = start + member.start(2), self._withheld.most
        self._add(name, value[:most], at)
        if len(value) > most:
            self._begun.pop(name, None)
            self._add(name, value[-most:], at + len(value) - most)

    def _add(self, name: bytes, value: bytes, at: int) -> None:
        withheld = self._withheld
        letters, places = self._begun.pop(name, Begun(b"", []))
        letters += withheld.plain(value)
        places = places + [(at + a, at + b) for a, b in withheld.letters_in(value)]
        for key in withheld.keys:
            while (where := letters.find(key)) >= 0:
                self._overwrite(places[where : where + len(key)])
                letters = letters.replace(key, b"\0" * len(key), 1)
        if many := withheld.begun(letters):
            self._begun[name] = Begun(letters[-many:], places[-many:])

    def _overwrite(self, places: list[tuple[int, int]]) -> None:
        for start, end in places:
            if start >= self._at:
                self._held[start - self._at : end - self._at] = b"*" * (end - start)

    def _go_on(self, begin: int) -> bytes:
        many = begin - self._at
        data = bytes(self._held[:many])
        del self._held[:many]
        self._at = begin
        return data


def overwritten(written: bytes) -> bytes:
    """Returns what stands in the place of a key."""
    return REDACTED.encode().rjust(len(written), b"*")


def _letter_of(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 16)])


def _hex(letter: int) -> bytes:
    return b"(?i:%02x)" % letter


def _beginning(key: bytes) -> bytes:
    pattern = rb'[^"\\]*'
    for letter in reversed(key[:LOOKED_FOR]):
        pattern = b"%b(?:%b)?" % (re.escape(b"%c" % letter), pattern)
    return b"(?:%b)" % pattern


def _pattern(key: bytes) -> bytes:
    first, *others = ((re.escape(b"%c" % one), b"u00" + _hex(one)) for one in key)
    begins = rb"(?:%b|(?<!\\)\\++%b)" % first
    return begins + b"".join(rb"\\*+(?:%b|(?<=\\)%b)" % one for one in others)
