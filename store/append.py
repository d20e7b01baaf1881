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
from tfgrpo.store.port import EVENT_SCHEMA, EventRow, Port
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


def event_content(row: EventRow) -> EventContent:
    """Returns what an event contributes to its version's digest."""
    return (
        row.op,
        row.experience,
        None if row.seal is None else row.seal.hex(),
        row.evidence,
        row.schema,
    )


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
    salts = os.urandom(SALT_BYTES * len(operations))
    for i, (placement, operation) in enumerate(zip(placements, operations, strict=True)):
        op, _, text, reason, evidence = operation
        text = text if op in ("ADD", "MODIFY") else None
        reason = reason or None  # an empty one says nothing, and there is nothing to seal
        salt = salts[i * SALT_BYTES : (i + 1) * SALT_BYTES] if text or reason else None
        rows.append(
            EventRow(
                row=placement.row,
                op=op,
                experience=placement.experience,
                text=text,
                reason=reason,
                evidence=canonical(evidence).decode() if evidence else None,
                replaces=placement.replaces,
                birth=placement.birth,
                seal=_sealed(op, salt, text, reason) if salt else None,
                salt=salt,
                schema=EVENT_SCHEMA,
            )
        )
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
    for row, (op, id) in enumerate(operations, position + 1):
        if op == "ADD":
            placement = _place_add(port, row, position, live, changes, id)
        elif op not in ("MODIFY", "DELETE", "KEEP"):
            raise InvalidOperation(f"there is no operation {op!r}", hint="ADD MODIFY DELETE KEEP")
        else:
            shaped_by = (changes[id] if id in changes else live.get(id)) if id else None
            if id is None or shaped_by is None:
                raise InvalidOperation(
                    f"{op} of {id or 'nothing'}: the library has no such experience",
                    hint="`tfgrpo show HEAD` lists them",
                )
            placement = Placement(row, id, *shaped_by)
        placements.append(placement)
        if op == "DELETE":
            changes[placement.experience] = None
        elif op != "KEEP":
            changes[placement.experience] = LiveRow(row, placement.birth or row)
    return placements, changes


def _place_add(
    port: Port,
    row: int,
    position: int,
    live: dict[str, LiveRow],
    changes: Changes,
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
    deleted = None
    for event in port.events_of(id):
        if event.op == "DELETE" and contains_row(port, event.row, position):
            deleted = event
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
