"""Appending a version that was made elsewhere, under the digest it has there.

Nothing is taken on trust: the digest is made again from what came, and so is every seal, before
anything is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from tfgrpo.store.append import Place, _birth
from tfgrpo.store.canonical import EventContent, canonical, is_id, seal, version_digest
from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import EVENT_SCHEMA, VERSION_SCHEMA, EventRow, lane_start
from tfgrpo.store.records import OPS, Op, Version
from tfgrpo.store.store import Store


class NotVerified(StoreError):
    """A version from elsewhere is not what its digest says. Nothing of it was recorded."""


class ForeignEvent(NamedTuple):
    """An event as it was recorded elsewhere; `evidence` is canonical JSON. Without salt and text
    it was redacted there."""

    op: Op
    experience: str
    text: str | None
    reason: str | None
    evidence: str | None
    seal: bytes | None
    salt: bytes | None
    schema: int = EVENT_SCHEMA


class ForeignVersion(NamedTuple):
    """A version as it was recorded elsewhere; `meta` is canonical JSON, `time` microseconds."""

    digest: bytes
    parents: tuple[bytes, ...]
    author: str
    time: int
    message: str
    meta: str | None
    events: Sequence[ForeignEvent]
    schema: int = VERSION_SCHEMA

    def computed(self) -> bytes:
        """Returns the digest that this content has."""
        return version_digest(
            schema=self.schema,
            parents=self.parents,
            author=self.author,
            time=self.time,
            message=self.message,
            meta=self.meta,
            events=map(_content, self.events),
        )


def _content(event: ForeignEvent) -> EventContent:
    sealed = None if event.seal is None else event.seal.hex()
    return event.op, event.experience, sealed, event.evidence, event.schema


@contextmanager
def together(store: Store) -> Iterator[None]:
    """Everything that is committed or adopted inside lands whole or not at all."""
    try:
        with store.port.transaction():
            yield
    except BaseException:
        store._live = None  # it may be of a version that is not there now
        raise


def by_digest(store: Store, digest: bytes) -> Version | None:
    """Returns the version of that digest, if it is here."""
    found = store.port.versions_by_digest(digest.hex(), 1)
    return found[0] if found else None


def adopt(store: Store, foreign: ForeignVersion) -> Version:
    """Records a version that was made elsewhere; returns it, or the one that is here already.

    Its parents must be here; no name is moved. Raises NotVerified.
    """
    known = by_digest(store, foreign.digest)
    if known is not None:
        return known
    _verify(foreign)
    with together(store):
        parents = [by_digest(store, digest) for digest in foreign.parents]
        first, second = parents[0], parents[1] if len(parents) > 1 else None
        if first is None or None in parents:
            raise _wrong(foreign, "builds on a version that is not here")
        live = store._live_at(first.position)
        position = first.position
        if foreign.events and not store.port.lane_tip(position):
            position = lane_start(store.port.open_lane(position))
        rows, changed = _rows(store, foreign, position, live)
        version = Version(
            number=store.port.last_version() + 1,
            digest=foreign.digest,
            parent=first.number,
            merged=second.number if second else None,
            position=rows[-1].row if rows else first.position,
            events=len(rows),
            author=foreign.author,
            time=foreign.time,
            message=foreign.message,
            meta=json.loads(foreign.meta) if foreign.meta else {},
        )
        store.port.append_version(version, rows)
        for id, place in changed.items():
            if place is None:
                live.pop(id, None)
            else:
                live[id] = place
        store._live = (version.position, live)
        if rows and store._snapshot_due(version.position):
            store.port.put_snapshot(version.position, sorted(p.row for p in live.values()))
    return version


def _verify(foreign: ForeignVersion) -> None:
    schemas = {foreign.schema - VERSION_SCHEMA, *(e.schema - EVENT_SCHEMA for e in foreign.events)}
    if schemas != {0}:
        raise StoreError(
            f"version {foreign.digest.hex()[:12]} was made by a newer tfgrpo",
            hint="upgrade tfgrpo: `pip install -U tfgrpo`",
        )
    if not 1 <= len(foreign.parents) <= 2:
        raise _wrong(foreign, f"has {len(foreign.parents)} parents")
    if foreign.computed() != foreign.digest:
        raise _wrong(foreign, "is not what its digest says")
    for text in (foreign.meta, *(e.evidence for e in foreign.events)):
        if text is not None and not _is_canonical(text):
            raise _wrong(foreign, "has meta or evidence that is no canonical JSON")
    for event in foreign.events:
        said = event.text is not None or event.reason is not None
        if event.op not in OPS or not is_id(event.experience):
            raise _wrong(foreign, f"has no such operation: {event.op} {event.experience}"[:80])
        if event.salt is None and said:
            raise _wrong(foreign, f"has a text without a seal, of {event.experience}")
        if event.salt is not None and event.seal != seal(event.salt, event.text, event.reason):
            raise _wrong(foreign, f"has a text that is not what was sealed, of {event.experience}")


def _is_canonical(text: str) -> bool:
    try:
        value = json.loads(text)
        return isinstance(value, dict) and canonical(value).decode() == text
    except (ValueError, RecursionError):
        return False


def _rows(
    store: Store, foreign: ForeignVersion, position: int, live: dict[str, Place]
) -> tuple[list[EventRow], dict[str, Place | None]]:
    """Returns the events as rows after `position`, and what they change."""
    rows: list[EventRow] = []
    changed: dict[str, Place | None] = {}
    for row, event in enumerate(foreign.events, position + 1):
        op, id = event.op, event.experience
        if op == "ADD":
            _, replaces, birth = _birth(store.port, position, live, changed, id)
        else:
            place = changed[id] if id in changed else live.get(id)
            if place is None:
                raise _wrong(foreign, f"has {op} of {id}, which is not in its library")
            replaces, birth = place
        rows.append(
            EventRow(
                row,
                op,
                id,
                event.text,
                event.reason,
                event.evidence,
                replaces,
                birth,
                event.seal,
                event.salt,
                event.schema,
            )
        )
        if op == "DELETE":
            changed[id] = None
        elif op != "KEEP":
            changed[id] = Place(row, birth or row)
    return rows, changed


def _wrong(foreign: ForeignVersion, what: str) -> NotVerified:
    return NotVerified(
        f"version {foreign.digest.hex()[:12]} {what}",
        hint="it was changed on the way here; fetch it again from where it was made",
    )
