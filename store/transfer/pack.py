"""Versions as they travel between stores: what is missing over there, how it is exported, and the
written form: a stream of JSON lines, a bundle when it is a file.

A packed version is what its digest covers, with parents named by their digests: no number, row or
lane. A stream begins with a header of the names and what the reader must have; then come the
versions, parents first; a trailer counts them and holds the SHA-256 of all lines before it.
`docs/format.md` specifies it, `receive.py` is the other direction.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from itertools import islice
from typing import IO, Any, NamedTuple, NoReturn, TypeAlias

from tfgrpo.store.canonical import SALT_BYTES, canonical
from tfgrpo.store.errors import PushRefused, TfgrpoError, TransferError, upgrade_hint
from tfgrpo.store.history.walks import ancestors, version_at
from tfgrpo.store.records import EventRow, Op, Redaction, Version
from tfgrpo.store.sql.port import Port

FIRST_CHUNK, LAST_CHUNK = 64, 8192
FSCK_THERE = "that store is damaged or cannot be trusted: run `tfgrpo fsck` there"

AncestryLink: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""A version's digest, and its parents'."""
KnownDigests: TypeAlias = Callable[[Sequence[bytes]], AbstractSet[bytes]]
"""Asks a store which of these digests it has; to have a version is to have its whole history."""
History: TypeAlias = Callable[[Sequence[bytes], int], Sequence[AncestryLink]]
"""Asks a store for the history of these digests, newest first, of at most so many versions."""


class PackedEvent(NamedTuple):
    """An event as it travels. `evidence` is the JSON that is stored; no salt: it was redacted."""

    op: Op
    experience: str
    text: str | None
    reason: str | None
    evidence: str | None
    seal: bytes | None
    salt: bytes | None
    schema: int
    redactions: tuple[Redaction, ...]


class PackedVersion(NamedTuple):
    """A version as it travels. `meta` is the JSON that is stored, time is microseconds, UTC."""

    digest: bytes
    parents: tuple[bytes, ...]
    schema: int
    author: str
    time: int
    message: str
    meta: str | None
    events: tuple[PackedEvent, ...]


def find(port: Port, digest: bytes) -> Version | None:
    """The version of that digest, if it is here."""
    return next(iter(port.versions_by_digest(digest.hex(), 1)), None)


def known(port: Port, digests: Iterable[bytes]) -> set[bytes]:
    """Those of these digests that are here."""
    return {digest for digest in digests if find(port, digest) is not None}


def history(port: Port, tips: Sequence[bytes], limit: int) -> list[AncestryLink]:
    """The history of these digests, newest first, up to `limit` versions. Raises TransferError."""
    numbers = [here(port, digest).number for digest in tips]
    digest = _digest_reader(port)
    return [
        (version.digest, tuple(map(digest, version.parents)))
        for version in islice(ancestors(port, numbers), limit)
    ]


def boundary(wants: Sequence[bytes], history: History, known: KnownDigests) -> list[bytes]:
    """Where a walk from `wants` meets what the other store has. The two sides are asked in turns,
    for more each time, so that few turns are needed and little is said."""
    met: dict[bytes, None] = {}
    tips, limit = list(dict.fromkeys(wants)), FIRST_CHUNK
    open_ends = set(tips)
    while tips:
        links = history(tips, limit)
        had = known([digest for digest, _ in links])
        before_this = set(tips)
        for digest, before in links:  # newest first: what leads to a version stands before it
            if digest not in open_ends:
                continue
            open_ends.discard(digest)
            if digest in had:
                met[digest] = None
            else:
                open_ends.update(before)
        if open_ends >= before_this:
            raise TransferError("that store's history is incomplete", hint=FSCK_THERE)
        tips = sorted(open_ends)
        limit = min(limit * 4, LAST_CHUNK)
    return list(met)


def missing(port: Port, wants: Sequence[bytes], stops: Sequence[bytes]) -> list[int]:
    """The numbers of what is in the history of `wants` and not of `stops`, ascending. Stops that
    are not here are passed over. Raises TransferError for a want that is not."""
    tips = [here(port, digest).number for digest in wants]
    ends = [version.number for digest in stops if (version := find(port, digest)) is not None]
    return [version.number for version in ancestors(port, tips, ends)][::-1]


def exported(port: Port, numbers: Iterable[int]) -> Iterator[PackedVersion]:
    """These versions packed, in this order."""
    digest = _digest_reader(port)
    for number in numbers:
        version, schema, meta = next(port.chain([number]))
        rows = port.events(version.position - version.events, version.position)
        parents = tuple(map(digest, version.parents))
        events = tuple(_packed(port, row) for row in rows)
        author, time, message = version[6:9]
        yield PackedVersion(version.digest, parents, schema, author, time, message, meta, events)


def between(port: Port, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
    """The history of `wants` as far as `known` has not got it, parents first."""
    stops = boundary(wants, lambda tips, limit: history(port, tips, limit), known)
    return exported(port, missing(port, wants, stops))


def here(port: Port, digest: bytes) -> Version:
    """The version of that digest. Raises TransferError when it is not here."""
    version = find(port, digest)
    if version is None:
        raise TransferError(
            f"there is no version {digest.hex()[:12]} in that store",
            hint="its names have just moved: run the same command again",
        )
    return version


def _packed(port: Port, row: EventRow) -> PackedEvent:
    redacted = row.seal is not None and row.salt is None
    redactions = tuple(port.redactions.of(row.row)) if redacted else ()
    return PackedEvent._make((*row[1:6], *row[8:], redactions))


def _digest_reader(port: Port) -> Callable[[int], bytes]:
    return cache(lambda number: version_at(port, number).digest)


FORMAT = 1
TRAILER, ERROR = b'{"end":', b'{"error":'
LARGEST = (1 << 63) - 1
LONGEST = 256 << 20
"""Bytes of a line at most: what a value of a store may have."""
SPOOLED = 8 << 20
"""So many bytes of a stream are held in memory, more of them in a temporary file."""


class Names(NamedTuple):
    """What a store's names stand for: `heads/…` and `tags/…` → digest, and HEAD's branch."""

    head: str | None
    at: Mapping[str, bytes]


class Header(NamedTuple):
    """What a pack begins with. `needs`: versions that it builds on and does not hold."""

    names: Names
    needs: tuple[bytes, ...]


def whole_line(stream: IO[bytes], called: str) -> bytes:
    """The next line, empty at the end. Raises TransferError for one without an end."""
    encoded = stream.readline(LONGEST)
    if len(encoded) == LONGEST:
        raise damaged(called, f"has a line of more than {LONGEST >> 20} MB")
    return encoded


def line(value: object) -> bytes:
    """A value as one line of canonical JSON."""
    return canonical(value) + b"\n"


def lines(header: Header, versions: Iterable[PackedVersion]) -> Iterator[bytes]:
    """The lines of a pack, header to trailer."""
    hashed = hashlib.sha256()
    count = 0
    first = {
        "tfgrpo": "bundle",
        "format": FORMAT,
        "head": header.names.head,
        "names": {name: digest.hex() for name, digest in header.names.at.items()},
        "needs": [digest.hex() for digest in header.needs],
    }
    encoded = line(first)
    hashed.update(encoded)
    yield encoded
    for version in versions:
        encoded = line(_written(version))
        hashed.update(encoded)
        count += 1
        yield encoded
    yield line({"end": count, "sha256": hashed.hexdigest()})


class Pack:
    """A pack that came in whole. Raises TransferError when it did not, or is none at all."""

    def __init__(self, file: IO[bytes], called: str) -> None:
        """Reads `file` once to its end; `called` is what errors call it."""
        self._file = file
        self._called = called
        self.count = self._checked()

    @classmethod
    def from_stream(cls, stream: IO[bytes], called: str) -> Pack:
        """Takes a pack from a stream, up to its trailer and not a byte further."""
        spool = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115 - it lives as the pack does
        while encoded := whole_line(stream, called):
            spool.write(encoded)
            if encoded.startswith((TRAILER, ERROR)):
                break
        spool.seek(0)
        return cls(spool, called)

    @property
    def header(self) -> Header:
        """Whose names stand where, and what has to be there already."""
        self._file.seek(0)
        read = WireFields(decoded(self._file.readline(), self._called), self._called)
        return Header(read.names(), read.digests("needs"))

    def versions(self) -> Iterator[PackedVersion]:
        """The versions, as they claim to be: `receive` checks them."""
        self._file.seek(0)
        self._file.readline()
        for _ in range(self.count):
            yield read_version(decoded(self._file.readline(), self._called), self._called)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _checked(self) -> int:
        first = whole_line(self._file, self._called)
        if first.startswith(ERROR):
            raise_error(decoded(first, self._called))
        head = WireFields(decoded(first, self._called), self._called)
        if head.get("tfgrpo") != "bundle":
            raise TransferError(
                f"{self._called} is not a bundle", hint="create one with `tfgrpo bundle create`"
            )
        if head.number("format") > FORMAT:
            raise TransferError(
                f"{self._called} has format {head.number('format')}; this tfgrpo reads {FORMAT}",
                hint=upgrade_hint(),
            )
        hashed = hashlib.sha256(first)
        count = 0
        while encoded := whole_line(self._file, self._called):
            if encoded.startswith(TRAILER):
                end = WireFields(decoded(encoded, self._called), self._called)
                right = (count, hashed.hexdigest()) == (end.get("end"), end.get("sha256"))
                if right and not self._file.readline():
                    return count
                raise damaged(self._called, "is not what its last line says")
            if encoded.startswith(ERROR):
                raise_error(decoded(encoded, self._called))
            hashed.update(encoded)
            count += 1
        raise damaged(self._called, f"ends after {count} versions, before its last line")


def decoded(encoded: bytes, called: str) -> object:
    """The value of a line. Raises TransferError when it is cut short or no JSON."""
    if not encoded.endswith(b"\n"):
        raise damaged(called, "ends in the middle of a line" if encoded else "is empty")
    try:
        value: object = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise damaged(called, "has a line that is no JSON") from error
    return value


def damaged(called: str, what: str) -> TransferError:
    """The error for something that did not arrive as it was sent."""
    return TransferError(
        f"{called} {what}; nothing was recorded", hint="get it again, or from another source"
    )


def complaint(error: TfgrpoError) -> dict[str, object]:
    """An error as it travels."""
    kind = "refused" if isinstance(error, PushRefused) else "failed"
    return {"error": str(error), "hint": error.hint, "kind": kind}


def raise_error(value: object) -> NoReturn:
    """Raises what another store complained about, as it put it."""
    fields = WireFields(value, "the other store")
    hint = fields.get("hint")
    kind = PushRefused if fields.get("kind") == "refused" else TransferError
    raise kind(
        printable(str(fields.get("error"))), hint=printable(hint) if isinstance(hint, str) else None
    )


def printable(text: str) -> str:
    """A peer's words without what could move a terminal's cursor, and not without end."""
    return "".join(c if c.isprintable() else " " for c in text[:500])


class WireFields:
    """The fields of a JSON object that somebody else wrote. Each may raise TransferError."""

    def __init__(self, value: object, called: str) -> None:
        if not isinstance(value, dict):
            raise damaged(called, "has a line that is no object")
        self._fields: dict[str, Any] = value
        self._called = called

    def get(self, key: str) -> object:
        """A field whatever it is; None when it is not there."""
        return self._fields.get(key)

    def _of(self, kind: type, what: str, key: str) -> Any:
        value = self._fields.get(key)
        if not isinstance(value, kind):
            raise damaged(self._called, f"has no {what} {key!r} where there should be one")
        return value

    def text(self, key: str) -> str:
        """A text."""
        return str(self._of(str, "text", key))

    def text_or_none(self, key: str) -> str | None:
        """A text, or None when it is null or not there."""
        return None if self._fields.get(key) is None else self.text(key)

    def number(self, key: str) -> int:
        """A whole number that a store can hold."""
        value = self._fields.get(key)
        if type(value) is not int or not 0 <= value <= LARGEST:
            raise damaged(self._called, f"has no number {key!r} where there should be one")
        return value

    def items(self, key: str) -> list[Any]:
        """A list."""
        return list(self._of(list, "list", key))

    def digest(self, key: str) -> bytes:
        """32 bytes written as hex."""
        return _bytes(self._fields.get(key), 32, self._called)

    def digests(self, key: str) -> tuple[bytes, ...]:
        """Digests written as hex."""
        return tuple(_bytes(value, 32, self._called) for value in self.items(key))

    def bytes_or_none(self, key: str, length: int = 32) -> bytes | None:
        """Bytes written as hex, or None when it is null or not there."""
        value = self._fields.get(key)
        return None if value is None else _bytes(value, length, self._called)

    def names(self) -> Names:
        """The names of a store, under `head` and `names`."""
        at = self._of(dict, "object", "names")
        whole = {name: _bytes(digest, 32, self._called) for name, digest in at.items()}
        return Names(self.text_or_none("head"), whole)

    def redactions(self, key: str) -> tuple[Redaction, ...]:
        """The redactions of an event; none when they are null or not there."""
        listed = [] if self._fields.get(key) is None else self.items(key)
        fields = (WireFields(one, "a redaction") for one in listed)
        return tuple(
            Redaction(r.text("author"), r.number("time"), r.text("reason")) for r in fields
        )

    def events(self, key: str) -> tuple[PackedEvent, ...]:
        """The events of a version; `receive` knows which operations there are."""
        events = (WireFields(one, self._called) for one in self.items(key))
        return tuple(
            PackedEvent._make([read(event, name) for name, read in EVENT]) for event in events
        )


VERSION: tuple[tuple[str, Callable[[WireFields, str], Any]], ...] = (
    ("version", WireFields.digest),
    ("parents", WireFields.digests),
    ("schema", WireFields.number),
    ("author", WireFields.text),
    ("time", WireFields.number),
    ("message", WireFields.text),
    ("meta", WireFields.text_or_none),
    ("events", WireFields.events),
)
EVENT: tuple[tuple[str, Callable[[WireFields, str], Any]], ...] = (
    ("op", WireFields.text),
    ("experience", WireFields.text),
    ("text", WireFields.text_or_none),
    ("reason", WireFields.text_or_none),
    ("evidence", WireFields.text_or_none),
    ("seal", WireFields.bytes_or_none),
    ("salt", lambda event, name: event.bytes_or_none(name, SALT_BYTES)),
    ("schema", WireFields.number),
    ("redactions", WireFields.redactions),
)
"""What the fields of a packed version and event are called in a line, and how each is read."""


def read_version(value: object, called: str) -> PackedVersion:
    """The version that a line describes. Raises TransferError when it is none."""
    fields = WireFields(value, called)
    return PackedVersion._make([read(fields, name) for name, read in VERSION])


def _written(version: PackedVersion) -> dict[str, object]:
    values = (*version[:-1], [_written_event(event) for event in version.events])
    return {name: _as_json(value) for (name, _), value in zip(VERSION, values, strict=True)}


def _written_event(event: PackedEvent) -> dict[str, object]:
    values = (*event[:-1], [redaction._asdict() for redaction in event.redactions])
    return {
        name: _as_json(value)
        for (name, _), value in zip(EVENT, values, strict=True)
        if value not in (None, [])
    }


def _as_json(value: object) -> object:
    if isinstance(value, tuple):
        return [digest.hex() for digest in value]
    return value.hex() if isinstance(value, bytes) else value


def _bytes(value: object, length: int, called: str) -> bytes:
    try:
        decoded_bytes = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        decoded_bytes = b""
    if len(decoded_bytes) != length:
        raise damaged(called, f"has no {length} bytes in hex where there should be some")
    return decoded_bytes
