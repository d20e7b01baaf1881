"""From operations to event rows: what is checked, sealed and pointed at before it is appended.

Everything here is decided against the library that an append builds on, so that a row knows the
event it follows on and the experience's birth, and replay needs no search.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from tfgrpo.store.canonical import SALT_BYTES, EventContent, canonical, is_id, new_id, seal
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.history import contains_row
from tfgrpo.store.port import EVENT_SCHEMA, Deletion, EventRow, Port
from tfgrpo.store.records import Op, Operation


class LiveRow(NamedTuple):
    """The row of the event that last shaped a live experience, and the experience's birth."""

    row: int
    birth: int


class Placement(NamedTuple):
    """Where an event goes: its row and experience, what it follows on, the birth it repeats."""

    row: int
    experience: str
    replaces: int | None
    birth: int | None


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
        if op in ("ADD", "MODIFY") and (text is None or not text.strip()):
            raise InvalidOperation(f"{op} needs a text", hint="give the text of the experience")
    placements, changes = place(port, position, live, ((o.op, o.experience) for o in operations))
    rows: list[EventRow] = []
    new = tuple.__new__  # what EventRow() calls, by way of Python
    salts = os.urandom(SALT_BYTES * len(operations))
    at = 0
    for placement, operation in zip(placements, operations, strict=True):
        row, experience, replaces, birth = placement
        op, _, text, reason, evidence = operation
        if op not in ("ADD", "MODIFY"):
            text = None
        reason = reason or None  # an empty one says nothing, and there is nothing to seal
        salt = sealed = None
        if text or reason:
            salt = salts[at : at + SALT_BYTES]
            sealed = _sealed(op, salt, text, reason)
        at += SALT_BYTES
        grounds = canonical(evidence).decode() if evidence else None
        fields = (
            *(row, op, experience, text, reason, grounds),
            *(replaces, birth, sealed, salt, EVENT_SCHEMA),
        )
        rows.append(new(EventRow, fields))
    return rows, changes


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
    new = tuple.__new__
    operations = list(operations)
    deletions = _deletions(
        port, position, [id for op, id in operations if op == "ADD" and id and is_id(id)]
    )
    for row, (op, id) in enumerate(operations, position + 1):
        if op == "ADD":
            placement = _place_add(row, live, changes, deletions, id)
        elif op not in ("MODIFY", "DELETE", "KEEP"):
            raise InvalidOperation(f"there is no operation {op!r}", hint="ADD MODIFY DELETE KEEP")
        else:
            shaped_by = (changes[id] if id in changes else live.get(id)) if id else None
            if id is None or shaped_by is None:
                raise InvalidOperation(
                    f"{op} of {id or 'nothing'}: the library has no such experience",
                    hint="`tfgrpo show HEAD` lists them",
                )
            placement = new(Placement, (row, id, *shaped_by))
        placements.append(placement)
        if op == "DELETE":
            changes[placement.experience] = None
        elif op != "KEEP":
            changes[placement.experience] = new(LiveRow, (row, placement.birth or row))
    return placements, changes


def _deletions(port: Port, position: int, ids: Sequence[str]) -> dict[str, Deletion]:
    """Returns, of the experiences that were deleted in the history up to `position`, the last
    deletion."""
    if not ids:
        return {}
    deletions = port.deletions_of(ids)
    return {d.experience: d for d in deletions if contains_row(port, d.row, position)}


def _place_add(
    row: int,
    live: dict[str, LiveRow],
    changes: Changes,
    deletions: dict[str, Deletion],
    id: str | None,
) -> Placement:
    """Returns where an ADD goes; one that takes back a DELETE inherits the birth."""
    if id is None:
        return Placement(row, new_id(), None, None)
    if not is_id(id):
        raise InvalidOperation(f"{id!r} is not an experience id", hint="omit it to get a new one")
    if (changes[id] if id in changes else live.get(id)) is not None:
        raise InvalidOperation(
            f"experience {id} is already in the library", hint="MODIFY changes its text"
        )
    if id in changes:
        raise InvalidOperation(f"experience {id} is both deleted and added in one version")
    deleted = deletions.get(id)
    if deleted is None:
        return Placement(row, id, None, None)
    return Placement(row, id, deleted.row, deleted.birth)


def _sealed(op: str, salt: bytes, text: str | None, reason: str | None) -> bytes:
    """Returns the seal. Raises InvalidOperation for half a character, which has no bytes."""
    try:
        return seal(salt, text, reason)
    except UnicodeEncodeError as error:
        raise InvalidOperation(
            f"{op}: the text is not valid Unicode ({error.reason})",
            hint="part of a character is missing (a lone surrogate)",
        ) from None
