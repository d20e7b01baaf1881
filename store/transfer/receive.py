"""Recording versions from another store, believing nothing that can be recomputed: every seal and
digest is made again, and events go through the rules of an append."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from tfgrpo.store.canonical import (
    SALT_BYTES,
    VersionContent,
    canonical,
    is_id,
    seal,
    version_digest,
)
from tfgrpo.store.damaged_values import LATEST, texts
from tfgrpo.store.errors import InvalidOperation, TransferError, upgrade_hint
from tfgrpo.store.history import library_order
from tfgrpo.store.history.append import Changes, TipState, grown, place, tip_state_at, with_lane
from tfgrpo.store.records import (
    EVENT_SCHEMA,
    OPS,
    REDACTS,
    VERSION_SCHEMA,
    EventRow,
    Json,
    Version,
)
from tfgrpo.store.sql.port import Port
from tfgrpo.store.transfer.pack import FSCK_THERE, PackedEvent, PackedVersion, find
from tfgrpo.store.withheld_texts import NOTHING, Withheld

LANES_HELD = 32


class Received(NamedTuple):
    """How much was new."""

    versions: int
    events: int


def receive(
    port: Port, versions: Iterable[PackedVersion], withheld: Withheld = NOTHING
) -> Received:
    """Records versions, parents first; those that are here already are passed over. Only inside a
    transaction, which has to be rolled back when this raises TransferError: for a version that is
    not what its digest says, that cannot apply, whose parents are not here, or that brings back a
    text of `withheld`, which was redacted here."""
    receiver = Receiver(port, withheld)
    new = events = 0
    for packed in versions:
        if not receiver.has(packed.digest):
            receiver.record(packed)
            new += 1
            events += len(packed.events)
    return Received(new, events)


def redacted_there(port: Port, before: int) -> tuple[str, ...]:
    """The experiences that versions after a number, which have arrived, say were redacted where
    they come from, and that have a text in the versions up to it."""
    if before <= 0:  # a clone: nothing was here
        return ()
    arrived = port.versions_at(range(before + 1, port.last_version() + 1))
    ids = dict.fromkeys(id for version in arrived for id in texts(version.meta.get(REDACTS)))

    def is_here(id: str) -> bool:
        rows = [row.row for row in port.events_of(id) if row.text is not None]
        return any(number <= before for number in port.numbers_of_rows(rows).values())

    return tuple(id for id in ids if is_id(id) and is_here(id))


class Receiver:
    """Records one version after another, for as long as nobody else writes: in one transaction."""

    def __init__(self, port: Port, withheld: Withheld = NOTHING) -> None:
        self._port = port
        self._withheld = withheld
        self._versions: dict[bytes, Version] = {}
        self._states: OrderedDict[int, TipState] = OrderedDict()  # by position
        self._next = port.last_version() + 1

    def has(self, digest: bytes) -> bool:
        """Whether the version of that digest is here."""
        return self._find(digest) is not None

    def _find(self, digest: bytes) -> Version | None:
        return self._versions.get(digest) or find(self._port, digest)

    def record(self, packed: PackedVersion) -> Version:
        """Records a version, or returns the one that is here. Raises TransferError."""
        known = self._find(packed.digest)
        if known is not None:
            return known
        parents = self._parents(packed)
        meta = verified(packed)
        self._refuse_withheld(packed)
        wrong = library_order.problem(meta, library_order.source(parents[0]))
        if wrong is not None:
            raise _refused(packed, f"cannot apply: {wrong}")
        state = self._state(parents[0])
        if packed.events:
            state = with_lane(self._port, state)
            self._states.pop(state.position, None)  # it grows past it
        rows, changes = self._rows(packed, state)
        version = Version(
            number=self._next,
            digest=packed.digest,
            parent=parents[0].number,
            merged=parents[1].number if len(parents) == 2 else None,
            position=rows[-1].row if rows else state.position,
            events=len(rows),
            author=packed.author,
            time=packed.time,
            message=packed.message,
            meta=meta,
        )
        self._port.append_version(version, rows)
        self._next += 1
        self._versions[version.digest] = version
        for row, event in zip(rows, packed.events, strict=True):
            if event.redactions:
                self._port.redactions.append(row.row, event.redactions)
        self._keep(grown(self._port, state, version, rows, changes))
        return version

    def _refuse_withheld(self, packed: PackedVersion) -> None:
        """Raises TransferError for a text that was redacted here."""
        for event in packed.events:
            if self._withheld.holds(event.text) or self._withheld.holds(event.reason):
                raise TransferError(
                    f"version {packed.digest.hex()[:12]} brings back, in experience "
                    f"{event.experience}, a text that the store which gets it has redacted; "
                    "nothing was recorded",
                    hint="redact it in the store that sends it, and send it again: "
                    f"`tfgrpo redact {event.experience}`",
                )

    def _rows(self, packed: PackedVersion, state: TipState) -> tuple[list[EventRow], Changes]:
        operations = ((event.op, event.experience) for event in packed.events)
        try:
            placements, changes = place(self._port, state.position, state.live, operations)
        except InvalidOperation as error:
            raise _refused(packed, f"cannot apply: {error}") from error
        rows = [
            EventRow._make((row, *event[:5], replaces, birth, *event[5:8]))
            for (row, _, replaces, birth), event in zip(placements, packed.events, strict=True)
        ]
        return rows, changes

    def _state(self, parent: Version) -> TipState:
        state = self._states.get(parent.position)
        if state is None:
            state = tip_state_at(self._port, parent)
            self._keep(state)
        return state

    def _keep(self, state: TipState) -> None:
        self._states[state.position] = state
        self._states.move_to_end(state.position)
        if len(self._states) > LANES_HELD:
            self._states.popitem(last=False)

    def _parents(self, packed: PackedVersion) -> list[Version]:
        if not 1 <= len(packed.parents) <= 2:
            raise _refused(packed, f"has {len(packed.parents)} parents")
        parents = []
        for digest in packed.parents:
            parent = self._find(digest)
            if parent is None:
                raise _refused(packed, f"builds on {digest.hex()[:12]}, which was not sent")
            parents.append(parent)
        return parents


def verified(packed: PackedVersion) -> Json:
    """A version's meta, once seals and digest were found right. Of what types the fields are was
    checked as they were read. Raises TransferError."""
    schemas = [(packed.schema, VERSION_SCHEMA), *((e.schema, EVENT_SCHEMA) for e in packed.events)]
    if any(schema < 1 for schema, _ in schemas):
        raise _refused(packed, "has a schema that never was")
    times = [packed.time, *(r.time for e in packed.events for r in e.redactions)]
    if any(not 0 <= time < LATEST for time in times):
        raise _refused(packed, "has a time that is none")
    if any(schema > newest for schema, newest in schemas):
        raise TransferError(
            f"version {packed.digest.hex()[:12]} was made by a newer tfgrpo",
            hint=upgrade_hint(),
        )
    try:
        for event in packed.events:
            problem = _problem(event)
            if problem is not None:
                raise _refused(packed, f"{event.op} of {event.experience}: {problem}")
        digest = digest_of(packed)
    except UnicodeEncodeError as error:
        raise _refused(packed, f"is not valid Unicode ({error.reason})") from None
    if digest != packed.digest:
        raise _refused(packed, "is not what its digest says")
    meta = _json(packed.meta)
    if meta is None or (packed.meta is not None and not meta):
        raise _refused(packed, "its meta is not the canonical JSON of an object")
    return meta


def digest_of(packed: PackedVersion) -> bytes:
    """The digest that a version's content has."""
    events = (
        (e.op, e.experience, None if e.seal is None else e.seal.hex(), e.evidence, e.schema)
        for e in packed.events
    )
    return version_digest(VersionContent(packed.schema, packed.parents, *packed[3:7], events))


def _problem(event: PackedEvent) -> str | None:
    has_content = event.text is not None or event.reason is not None
    if event.op not in OPS or not is_id(event.experience):
        return "is no operation on an experience"
    if event.seal is None:
        if has_content or event.salt is not None:
            return "its text has no seal"
        if event.op in ("ADD", "MODIFY"):
            return "it has no text"
    elif event.salt is None:
        if has_content:
            return "its text has no salt"
        if not event.redactions:
            return "its text is gone, and no redaction says why"
    else:
        if len(event.salt) != SALT_BYTES or event.seal != seal(
            event.salt, event.text, event.reason
        ):
            return "its text is not what was sealed"
        if event.op in ("ADD", "MODIFY"):
            if event.text is None or not event.text.strip():
                return "it has no text"
        elif event.text is not None:
            return "it has a text"
    if event.redactions and event.salt is not None:
        return "it is called redacted, and its text is here"
    if _json(event.evidence) is None:
        return "its evidence is not the canonical JSON of an object"
    return None


def _json(text: str | None) -> Json | None:
    """The object that a stored text is, {} for none; None when it is not canonical."""
    if text is None:
        return {}
    try:
        value = json.loads(text)
        same = canonical(value).decode() == text
    except (ValueError, RecursionError):
        return None
    return value if same and isinstance(value, dict) else None


def _refused(packed: PackedVersion, what: str) -> TransferError:
    return TransferError(
        f"version {packed.digest.hex()[:12]} {what}; nothing was recorded",
        hint=FSCK_THERE,
    )
