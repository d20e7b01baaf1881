"""From operations to event rows: they are checked, sealed and linked before they are appended.

A row knows the event it follows on and the experience's birth, so replay needs no search.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypedDict

from tfgrpo.store.canonical import (
    SALT_BYTES,
    EventContent,
    VersionContent,
    canonical,
    is_id,
    new_id,
    seal,
    signed_payload,
    version_digest,
)
from tfgrpo.store.errors import HALF_A_CHARACTER, InvalidOperation
from tfgrpo.store.history import replay
from tfgrpo.store.history.walks import rows_contained
from tfgrpo.store.records import (
    EVENT_SCHEMA,
    SIGNATURE,
    VERSION_SCHEMA,
    BranchTip,
    Deletion,
    EventRow,
    Json,
    Op,
    Operation,
    Version,
    lane_of,
    lane_start,
)

if TYPE_CHECKING:
    from tfgrpo.store.sql.port import Port

SAYING = ("ADD", "MODIFY")
"""Operations with a text."""
OTHERS = ("MODIFY", "DELETE", "KEEP")
Placement: TypeAlias = tuple[int, str, int | None, int | None]
"""Where an event goes: its row and experience, what it follows on, the birth it repeats. A bare
tuple, because a batch makes one of each event."""


class LiveRow(NamedTuple):
    """The row of the event that last shaped a live experience, and the experience's birth."""

    row: int
    birth: int


Changes: TypeAlias = dict[str, LiveRow | None]
"""Experience → where it is live after an append; None: no more."""


def event_contents(rows: Iterable[EventRow]) -> list[EventContent]:
    """The part of events that their version's digest covers."""
    return [
        (op, experience, None if sealed is None else sealed.hex(), evidence, schema)
        for _, op, experience, _, _, evidence, _, _, sealed, _, schema in rows
    ]


def content_of(
    version: Version,
    schema: int,
    parents: Sequence[bytes],
    meta: str | None,
    rows: Iterable[EventRow],
) -> VersionContent:
    """What a version's digest covers: beside its own fields its parents' digests and its events."""
    return VersionContent(schema, parents, *version[6:9], meta, event_contents(rows))


def event_rows(
    port: Port,
    position: int,
    live: dict[str, LiveRow],
    operations: Sequence[Operation],
    salts: bytes,
) -> tuple[list[EventRow], Changes]:
    """Turns operations into event rows after `position`, sealed with `salts`, one for each; also
    returns what they change. Raises InvalidOperation."""
    for op, _, text, _, _ in operations:
        if op in SAYING and (not text or text.isspace()):
            raise InvalidOperation(f"{op} needs a text", hint="give the text of the experience")
    placements, changes = place(port, position, live, [(o[0], o[1]) for o in operations])
    rows: list[EventRow] = []
    new = tuple.__new__  # what EventRow() calls, by way of Python
    at = 0
    op = "ADD"
    try:
        for placement, (op, _, text, reason, evidence) in zip(placements, operations, strict=True):
            row, experience, replaces, birth = placement
            if op not in SAYING:
                text = None
            reason = reason or None  # an empty one says nothing, and there is nothing to seal
            salt = sealed = None
            if text or reason:
                salt = salts[at : at + SALT_BYTES]
                at += SALT_BYTES
                sealed = seal(salt, text, reason)
            grounds = canonical(evidence).decode() if evidence else None
            fields = (row, op, experience, text, reason, grounds, replaces, birth, sealed, salt)
            rows.append(new(EventRow, (*fields, EVENT_SCHEMA)))
    except UnicodeEncodeError as error:  # half a character, which has no bytes
        raise InvalidOperation(
            f"{op}: the text is not valid Unicode ({error.reason})",
            hint=HALF_A_CHARACTER,
        ) from None
    return rows, changes


def new_version(
    at: BranchTip,
    rows: Sequence[EventRow],
    message: str,
    details: CommitDetails,
    time: int,
    signature: Callable[[bytes], str | None] | None = None,
) -> Version:
    """The version of these events on top of a branch, with its digest. `details` have its
    author and the whole of its meta, but for what `signature` has for a payload. Raises
    InvalidOperation for a message, author or meta that is not Unicode."""
    tip, merged, meta = at.tip, details.get("merged"), details.get("meta")
    author = details.get("author") or ""
    _stored("message", message)
    _stored("author", author)
    content = VersionContent(
        VERSION_SCHEMA,
        [tip.digest] if merged is None else [tip.digest, merged.digest],
        author,
        time,
        message,
        _stored("meta", meta) if meta else None,
        event_contents(rows),
    )
    digest = version_digest(content)
    signed = None if signature is None else signature(signed_payload(digest))
    if signed is not None:
        meta = {**(meta or {}), SIGNATURE: signed}
        digest = version_digest(content._replace(meta=canonical(meta).decode()))
    return Version(
        number=at.last_version + 1,
        digest=digest,
        parent=tip.number,
        merged=None if merged is None else merged.number,
        position=rows[-1].row if rows else tip.position,
        events=len(rows),
        author=author,
        time=time,
        message=message,
        meta=meta or {},
    )


def _stored(name: str, value: object) -> str:
    try:
        return canonical(value).decode()
    except UnicodeEncodeError as error:  # half a character, which has no bytes
        raise InvalidOperation(
            f"the {name} is not valid Unicode ({error.reason})", hint=HALF_A_CHARACTER
        ) from None


def place(
    port: Port,
    position: int,
    live: dict[str, LiveRow],
    operations: Iterable[tuple[Op, str | None]],
) -> tuple[list[Placement], Changes]:
    """Where events go after `position`, and what they change. An ADD without an experience gets a
    new one. Raises InvalidOperation for an operation that cannot apply to what is live."""
    changes: Changes = {}
    placements: list[Placement] = []
    new = tuple.__new__  # what LiveRow() calls, by way of Python
    operations = list(operations)
    named = {id for op, id in operations if op == "ADD" and id is not None and is_id(id)}
    deletions = _deletions(port, position, named)
    unchanged = LiveRow(0, 0)
    row = position
    for op, id in operations:
        row += 1
        shaped_by = None if id is None else changes.get(id, unchanged)
        if shaped_by is unchanged and id is not None:
            shaped_by = live.get(id)
        if op == "ADD":
            if id is None:
                id = new_id()
            elif shaped_by is not None or id in changes or id not in named:
                raise _refusal(id, shaped_by)
            follows = deletions.get(id)
            birth = None if follows is None else follows.birth
            placements.append((row, id, None if follows is None else follows.row, birth))
            changes[id] = new(LiveRow, (row, birth or row))
        elif op not in OTHERS:
            raise InvalidOperation(f"there is no operation {op!r}", hint="ADD MODIFY DELETE KEEP")
        elif id is None or shaped_by is None:
            raise InvalidOperation(
                f"{op} of {id or 'nothing'}: the library has no such experience",
                hint="`tfgrpo show HEAD` lists them",
            )
        else:
            on, birth = shaped_by
            placements.append((row, id, on, birth))
            if op != "KEEP":
                changes[id] = None if op == "DELETE" else new(LiveRow, (row, birth))
    return placements, changes


def _refusal(id: str, shaped_by: LiveRow | None) -> InvalidOperation:
    if not is_id(id):
        return InvalidOperation(f"{id!r} is not an experience id", hint="omit it to get a new one")
    if shaped_by is not None:
        return InvalidOperation(
            f"experience {id} is already in the library", hint="MODIFY changes its text"
        )
    return InvalidOperation(f"experience {id} is both deleted and added in one version")


def _deletions(port: Port, position: int, ids: Collection[str]) -> dict[str, Deletion]:
    """The last deletion of each of these that was deleted in the history up to `position`."""
    if not ids:
        return {}
    at = {deletion.row: deletion for deletion in port.deletions_of(ids)}
    last: dict[str, Deletion] = {}
    for row in rows_contained(port, sorted(at, reverse=True), position):
        last.setdefault(at[row].experience, at[row])
    return last


class CommitDetails(TypedDict, total=False):
    """What `Store.commit` can be told beside the operations and the message.

    `author` signs in place of the store's. `meta` is in the digest. With `expected` the branch must
    stand at that version; with `onto` the operations were made for that version, and no experience
    that they change may have changed since. `merged` is the second parent, `order` has ids in the
    order of the library, `tags` are put on the version, `also` is called inside the transaction.
    """

    author: str | None
    meta: Json | None
    expected: str | Version | None
    onto: Version | None
    merged: Version | None
    order: Sequence[str] | None
    tags: Sequence[str]
    also: Callable[[Version], None] | None


class TipState(NamedTuple):
    """What is live at a version, where it grows, and the cost of a replay to there, in events."""

    version: Version
    position: int
    live: dict[str, LiveRow]
    cost: int


def tip_state_at(port: Port, version: Version, known: TipState | None = None) -> TipState:
    """The state at a version: from `known`, which is used up, where the version follows on it or a
    few events lie between; else from a replay."""
    if known and (known.version.digest, known.position) == (version.digest, version.position):
        return known
    if known and _follows_shortly(port, version, known):
        for row in port.events(known.position, version.position):
            if row.op == "DELETE":
                known.live.pop(row.experience, None)
            elif row.op != "KEEP":
                known.live[row.experience] = LiveRow(row.row, row.birth or row.row)
        return TipState(version, version.position, known.live, _cost(port, version))
    shapes = replay.shapes_at(port, version)
    live = {id: LiveRow(row, birth) for id, _, row, birth in shapes}
    return TipState(version, version.position, live, _cost(port, version))


def with_lane(port: Port, state: TipState) -> TipState:
    """A state that may grow: itself, or a copy in a new lane. Only inside a transaction."""
    return state if port.lane_tip(state.position) else in_new_lane(port, state)


def in_new_lane(port: Port, state: TipState) -> TipState:
    """A copy of a state, at the beginning of a new lane. Only inside a transaction."""
    position = lane_start(port.open_lane(state.position))
    return TipState(state.version, position, dict(state.live), state.cost + replay.HOP)


def grown(
    port: Port, state: TipState, version: Version, rows: Sequence[EventRow], changes: Changes
) -> TipState:
    """The state after a version was appended to `state`, which is used up. Records a snapshot where
    one is due. Only inside a transaction."""
    live, cost = state.live, state.cost + len(rows)
    for id, shaped_by in changes.items():
        if shaped_by is None:
            live.pop(id, None)
        else:
            live[id] = shaped_by
    if rows and replay.snapshot_due(cost, len(live)):
        port.put_snapshot(version.position, sorted(live_row.row for live_row in live.values()))
        cost = 0
    return TipState(version, version.position, live, cost)


def _follows_shortly(port: Port, version: Version, known: TipState) -> bool:
    if lane_of(version.position) != lane_of(known.position):
        return False
    if not 0 <= version.position - known.position <= replay.SHORT_RANGE:
        return False
    there = port.version(known.version.number)  # another, when a transaction around it failed
    return there is not None and there.digest == known.version.digest


def _cost(port: Port, version: Version) -> int:
    _, ranges = replay.segments(port, version.position)
    return replay.reading(ranges)
