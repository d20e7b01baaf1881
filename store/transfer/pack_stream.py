"""The written form of packed versions: a stream of JSON lines, and a bundle when it is a file.

A header has the names and what the reader must have; then come the versions, parents first; a
trailer counts them and holds the SHA-256 of all lines before it. `docs/format.md` specifies it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, NamedTuple, NoReturn

from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import PushRefused, TfgrpoError, TransferError, upgrade_hint
from tfgrpo.store.records import Redaction
from tfgrpo.store.transfer.pack import PackedEvent, PackedVersion

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
        names = {
            name: self._digest(value) for name, value in read.table("names").items()
        }  # what stands there is checked when it is used
        return Header(Names(read.text_or_none("head"), names), read.digests("needs"))

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

    def _digest(self, value: object) -> bytes:
        return _bytes(value, 32, self._called)


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
    """The fields of a JSON object that somebody else wrote. Each is what it should be, or
    TransferError is raised."""

    def __init__(self, value: object, called: str) -> None:
        if not isinstance(value, dict):
            raise damaged(called, "has a line that is no object")
        self._fields: dict[str, Any] = value
        self._called = called

    def get(self, key: str) -> object:
        """A field whatever it is; None when it is not there."""
        return self._fields.get(key)

    def text(self, key: str) -> str:
        """A text."""
        value = self._fields.get(key)
        if not isinstance(value, str):
            raise damaged(self._called, f"has no text {key!r} where there should be one")
        return value

    def text_or_none(self, key: str) -> str | None:
        """A text, or None when it is null or not there."""
        return None if self._fields.get(key) is None else self.text(key)

    def number(self, key: str) -> int:
        """A whole number that a store can hold."""
        value = self._fields.get(key)
        if type(value) is not int or not 0 <= value <= LARGEST:
            raise damaged(self._called, f"has no number {key!r} where there should be one")
        return value

    def items(self, key: str) -> list[object]:
        """A list."""
        value = self._fields.get(key)
        if not isinstance(value, list):
            raise damaged(self._called, f"has no list {key!r} where there should be one")
        return value

    def table(self, key: str) -> dict[str, object]:
        """An object."""
        value = self._fields.get(key)
        if not isinstance(value, dict):
            raise damaged(self._called, f"has no object {key!r} where there should be one")
        return value

    def digest(self, key: str) -> bytes:
        """32 bytes written as hex."""
        return _bytes(self._fields.get(key), 32, self._called)

    def digests(self, key: str) -> tuple[bytes, ...]:
        """Digests written as hex."""
        return tuple(_bytes(value, 32, self._called) for value in self.items(key))

    def bytes_or_none(self, key: str, length: int) -> bytes | None:
        """Bytes written as hex, or None when it is null or not there."""
        value = self._fields.get(key)
        return None if value is None else _bytes(value, length, self._called)


def read_version(value: object, called: str) -> PackedVersion:
    """The version that a line describes. Raises TransferError when it is none."""
    fields = WireFields(value, called)
    return PackedVersion(
        digest=fields.digest("version"),
        parents=fields.digests("parents"),
        schema=fields.number("schema"),
        author=fields.text("author"),
        time=fields.number("time"),
        message=fields.text("message"),
        meta=fields.text_or_none("meta"),
        events=tuple(_event(WireFields(event, called)) for event in fields.items("events")),
    )


def _event(fields: WireFields) -> PackedEvent:
    redactions = fields.items("redactions") if fields.get("redactions") is not None else []
    return PackedEvent(
        op=fields.text("op"),  # type: ignore[arg-type]  # `receive` knows which there are
        experience=fields.text("experience"),
        text=fields.text_or_none("text"),
        reason=fields.text_or_none("reason"),
        evidence=fields.text_or_none("evidence"),
        seal=fields.bytes_or_none("seal", 32),
        salt=fields.bytes_or_none("salt", 16),
        schema=fields.number("schema"),
        redactions=tuple(
            Redaction(r.text("author"), r.number("time"), r.text("reason"))
            for r in (WireFields(redaction, "a redaction") for redaction in redactions)
        ),
    )


def _written(version: PackedVersion) -> dict[str, object]:
    return {
        "version": version.digest.hex(),
        "parents": [digest.hex() for digest in version.parents],
        "schema": version.schema,
        "author": version.author,
        "time": version.time,
        "message": version.message,
        "meta": version.meta,
        "events": [_written_event(event) for event in version.events],
    }


def _written_event(event: PackedEvent) -> dict[str, object]:
    written: dict[str, object] = {
        "op": event.op,
        "experience": event.experience,
        "text": event.text,
        "reason": event.reason,
        "evidence": event.evidence,
        "seal": None if event.seal is None else event.seal.hex(),
        "salt": None if event.salt is None else event.salt.hex(),
        "schema": event.schema,
        "redactions": [redaction._asdict() for redaction in event.redactions],
    }
    return {key: value for key, value in written.items() if value not in (None, [])}


def _bytes(value: object, length: int, called: str) -> bytes:
    try:
        decoded_bytes = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        decoded_bytes = b""
    if len(decoded_bytes) != length:
        raise damaged(called, f"has no {length} bytes in hex where there should be some")
    return decoded_bytes
