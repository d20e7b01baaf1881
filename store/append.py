"""From operations to event rows: what is checked, sealed and pointed at before it is appended.

Everything here is decided against the library that an append builds on, so that a row knows the
event it follows on and the experience's birth, and replay needs no search.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from tfgrpo.store.canonical import SALT_BYTES, EventContent, canonical, is_id, new_id, seal
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.history import contains_row
from tfgrpo.store.port import EVENT_SCHEMA, EventRow, Port
from tfgrpo.store.records import Operation


class Place(NamedTuple):
    """Where a live experience stands: the row that last shaped it, and its birth."""

    row: int
    birth: int


def event_content(row: EventRow) -> EventContent:
    """Returns what an event contributes to its version's digest."""
    return (
        row.op,
        row.experience,
        None if row.seal is None else row.seal.hex(),
        row.evidence,
        row.schema,
    )


def record(
    port: Port, position: int, live: dict[str, Place], operations: Sequence[Operation]
) -> tuple[list[EventRow], dict[str, Place | None]]:
    """Turns operations into event rows after `position`; also returns what they change."""
    changed: dict[str, Place | None] = {}
    rows: list[EventRow] = []
    salts = os.urandom(SALT_BYTES * len(operations))
    for i, operation in enumerate(operations):
        op, id, text, reason, evidence = operation
        reason = reason or None  # an empty one says nothing, and there is nothing to seal
        row = position + 1 + i
        if op in ("ADD", "MODIFY"):
            if text is None or not text.strip():
                raise InvalidOperation(f"{op} needs a text", hint="give the text of the experience")
        elif op not in ("DELETE", "KEEP"):
            raise InvalidOperation(f"there is no operation {op!r}", hint="ADD MODIFY DELETE KEEP")
        else:
            text = None
        if op == "ADD":
            id, replaces, birth = add_follows(port, position, live, changed, id)
        else:
            place = (changed[id] if id in changed else live.get(id)) if id else None
            if id is None or place is None:
                raise InvalidOperation(
                    f"{op} of {id or 'nothing'}: the library has no such experience",
                    hint="`tfgrpo show HEAD` lists them",
                )
            replaces, birth = place
        salt = salts[i * SALT_BYTES : (i + 1) * SALT_BYTES] if text or reason else None
        rows.append(
            EventRow(
                row=row,
                op=op,
                experience=id,
                text=text,
                reason=reason,
                evidence=canonical(evidence).decode() if evidence else None,
                replaces=replaces,
                birth=birth,
                seal=_sealed(op, salt, text, reason) if salt else None,
                salt=salt,
                schema=EVENT_SCHEMA,
            )
        )
        if op == "DELETE":
            changed[id] = None
        elif op != "KEEP":
            changed[id] = Place(row, birth or row)
    return rows, changed


def _sealed(op: str, salt: bytes, text: str | None, reason: str | None) -> bytes:
    """Returns the seal. Raises InvalidOperation for half a character, which has no bytes."""
    try:
        return seal(salt, text, reason)
    except UnicodeEncodeError as error:
        raise InvalidOperation(
            f"{op}: the text is not valid Unicode ({error.reason})",
            hint="part of a character is missing (a lone surrogate)",
        ) from None


def add_follows(
    port: Port,
    position: int,
    live: dict[str, Place],
    changed: dict[str, Place | None],
    id: str | None,
) -> tuple[str, int | None, int | None]:
    """Returns an ADD's id, the DELETE it takes back and the birth it inherits, if any."""
    if id is None:
        return new_id(), None, None
    if not is_id(id):
        raise InvalidOperation(f"{id!r} is not an experience id", hint="omit it to get a new one")
    if (changed[id] if id in changed else live.get(id)) is not None:
        raise InvalidOperation(
            f"experience {id} is already in the library", hint="MODIFY changes its text"
        )
    if id in changed:
        raise InvalidOperation(f"experience {id} is both deleted and added in one version")
    earlier = None
    for event in port.events_of(id):
        if event.op == "DELETE" and contains_row(port, event.row, position):
            earlier = event
    return (id, None, None) if earlier is None else (id, earlier.row, earlier.birth)
