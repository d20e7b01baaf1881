"""Rows of the tables of versions, events and moves, as the records that they hold."""

from __future__ import annotations

from typing import Any

from tfgrpo.store.damaged_values import as_rows, check_row, check_rows, damage_error, parse_json
from tfgrpo.store.records import OPS, EventRow, RefMove, Version

KNOWN = frozenset(OPS)
VERSION_COLUMNS = "number, digest, parent, merged, position, events, author, time, message, meta"
OF_VERSION = ", ".join(f"v.{column}" for column in VERSION_COLUMNS.split(", "))
EVENT_COLUMNS = "row, op, experience, text, reason, evidence, replaces, birth, seal, salt, schema"
REF_COLUMNS = "row, batch, name, version, symbol, previous, previous_symbol, author, time, action"


def version_of(row: tuple[object, ...]) -> Version:
    """A version from its columns. Raises StoreError."""
    *columns, meta = check_row(row, "ibIIiistsS", "versions")
    version = Version._make((*columns, parse_json(meta, f"the meta of v{columns[0]}")))
    if max(version.parent or -1, version.merged or -1) >= version.number:
        raise damage_error(f"{version.name} builds on a later version")
    return version


def events_of(rows: list[Any]) -> list[EventRow]:
    """Events from their columns. Raises StoreError."""
    return as_rows(EventRow, known(check_rows(rows, "issSSSIIBBi", "events")))


def known(rows: list[Any]) -> list[Any]:
    """Events whose second column is an operation that there is. Raises StoreError."""
    if not KNOWN.issuperset([row[1] for row in rows]):
        raise damage_error("an event has an operation that there is not")
    return rows


def moves_of(rows: list[Any]) -> list[RefMove]:
    """Moves of names from their columns. Raises StoreError."""
    return list(map(RefMove._make, check_rows(rows, "iisISISsts", "moves of names")))
