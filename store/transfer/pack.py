"""Versions as they travel between stores: what is missing over there, and how it is exported.

A packed version is what its digest covers, with parents named by their digests: no number, row or
lane. `receive.py` is the other direction, `pack_stream.py` the written form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import NamedTuple, TypeAlias

from tfgrpo.store.errors import TransferError
from tfgrpo.store.history.walks import ancestors
from tfgrpo.store.port import Port
from tfgrpo.store.records import EventRow, Op, Redaction, Version

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
    """The history of these digests, newest first, of at most `limit` versions. Raises TransferError
    for a digest that is not here."""
    numbers = [here(port, digest).number for digest in tips]
    digests = _Digests(port)
    return [
        (version.digest, tuple(digests[number] for number in version.parents))
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
    digests = _Digests(port)
    for number in numbers:
        version, schema, meta = next(port.chain([number]))
        digests[number] = version.digest
        rows = port.events(version.position - version.events, version.position)
        yield PackedVersion(
            digest=version.digest,
            parents=tuple(digests[parent] for parent in version.parents),
            schema=schema,
            author=version.author,
            time=version.time,
            message=version.message,
            meta=meta,
            events=tuple(_packed(port, row) for row in rows),
        )


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
    return PackedEvent(
        op=row.op,
        experience=row.experience,
        text=row.text,
        reason=row.reason,
        evidence=row.evidence,
        seal=row.seal,
        salt=row.salt,
        schema=row.schema,
        redactions=tuple(port.redactions.of(row.row)) if redacted else (),
    )


class _Digests(dict[int, bytes]):
    """Version number → digest, read when it is first asked for."""

    def __init__(self, port: Port) -> None:
        super().__init__()
        self._port = port

    def __missing__(self, number: int) -> bytes:
        version = self._port.version(number)
        assert version is not None, "a parent is in the same store"
        self[number] = version.digest
        return version.digest
