"""From operations to event rows: what is checked, sealed and pointed at before it is appended.

Everything here is decided against the library that an append builds on, so that a row knows the
event it follows on and the experience's birth, and replay needs no search.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.store.canonical import (
    SALT_BYTES,
    EventContent,
    VersionContent,
    canonical,
    is_id,
    new_id,
    seal,
    version_digest,
)
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.history import contains_row
from tfgrpo.store.port import (
    EVENT_SCHEMA,
    VERSION_SCHEMA,
    BranchTip,
    Deletion,
    EventRow,
    Port,
)
from tfgrpo.store.records import Op, Operation, Version

if TYPE_CHECKING:
    from tfgrpo.store.commit_details import CommitDetails

SAYING = ("ADD", "MODIFY")
"""Operations with a text."""
OTHERS = ("MODIFY", "DELETE", "KEEP")


class LiveRow(NamedTuple):
    """The row of the event that last shaped a live experience, and the experience's birth."""

    row: int
    birth: int


Placement: TypeAlias = tuple[int, str, int | None, int | None]
"""Where an event goes: its row and experience, what it follows on, the birth it repeats. A bare
tuple, because a batch makes one of each event."""

Changes: TypeAlias = dict[str, LiveRow | None]
"""Experience → where it is live after an append; None: no more."""


def event_contents(rows: Iterable[EventRow]) -> list[EventContent]:
    """Returns what events contribute to their version's digest."""
    return [
        (op, experience, None if sealed is None else sealed.hex(), evidence, schema)
        for _, op, experience, _, _, evidence, _, _, sealed, _, schema in rows
    ]


def event_rows(
    port: Port, position: int, live: dict[str, LiveRow], operations: Sequence[Operation]
) -> tuple[list[EventRow], Changes]:
    """Turns operations into event rows after `position`; also returns what they change.

    Raises InvalidOperation.
    """
    for op, _, text, _, _ in operations:
        if op in SAYING and (not text or text.isspace()):
            raise InvalidOperation(f"{op} needs a text", hint="give the text of the experience")
    placements, changes = place(port, position, live, [(o[0], o[1]) for o in operations])
    rows: list[EventRow] = []
    new = tuple.__new__  # what EventRow() calls, by way of Python
    salts = os.urandom(SALT_BYTES * len(operations))
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
            hint="part of a character is missing (a lone surrogate)",
        ) from None
    return rows, changes


def new_version(
    at: BranchTip, rows: Sequence[EventRow], message: str, details: CommitDetails, time: int
) -> Version:
    """Returns the version of these events on top of a branch, with its digest. `details` have its
    author and the whole of its meta."""
    tip, merged, meta = at.tip, details.get("merged"), details.get("meta")
    author = details.get("author") or ""
    digest = version_digest(
        VersionContent(
            VERSION_SCHEMA,
            [tip.digest] if merged is None else [tip.digest, merged.digest],
            author,
            time,
            message,
            canonical(meta).decode() if meta else None,
            event_contents(rows),
        )
    )
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


def place(
    port: Port,
    position: int,
    live: dict[str, LiveRow],
    operations: Iterable[tuple[Op, str | None]],
) -> tuple[list[Placement], Changes]:
    """Returns where events on experiences go after `position`, and what they change.

    An ADD without an experience gets a new one. Raises InvalidOperation for an operation that
    cannot apply to what is live.
    """
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
    """Returns what is wrong with an ADD under an id that the caller chose."""
    if not is_id(id):
        return InvalidOperation(f"{id!r} is not an experience id", hint="omit it to get a new one")
    if shaped_by is not None:
        return InvalidOperation(
            f"experience {id} is already in the library", hint="MODIFY changes its text"
        )
    return InvalidOperation(f"experience {id} is both deleted and added in one version")


def _deletions(port: Port, position: int, ids: Collection[str]) -> dict[str, Deletion]:
    """Returns, of the experiences that were deleted in the history up to `position`, the last
    deletion."""
    if not ids:
        return {}
    deletions = port.deletions_of(ids)
    return {d.experience: d for d in deletions if contains_row(port, d.row, position)}
