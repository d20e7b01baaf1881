"""Locks over a whole library: PostgreSQL's advisory ones, each in a transaction of its own
connection, which the database gives back when the process or its machine is gone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfgrpo.store.postgres.session import Session, lost_error

if TYPE_CHECKING:
    from tfgrpo.store.address import Address

GONE = 30
"""Seconds after which the database asks a silent machine whether it is there; it does so four times
at most."""


@contextmanager
def hold(address: Address, name: str, ours: dict[str, Session]) -> Iterator[bool]:
    """Tries to take the lock of that name; yields whether it was free, and has its connection in
    `ours` meanwhile. Raises StoreError."""
    session = Session(address)
    try:
        free = _take(session, name)
        if free:
            ours[name] = session
        yield free
    finally:
        if ours.get(name) is session:
            del ours[name]
        session.roll_back()  # the database notices a closed connection some time later
        session.close()


def is_ours(name: str, ours: dict[str, Session]) -> bool:
    """Whether the lock of that name, which was taken, is held still. One whose connection
    was lost is taken again where nobody else has it by now. Raises StoreError."""
    session = ours.get(name)
    if session is None:
        return False
    opened = session.opened
    session.row("select 1")
    return session.opened == opened or _take(session, name)


def _take(session: Session, name: str) -> bool:
    """Takes a lock for its connection's life; returns whether it was free. Raises StoreError."""
    session.close()
    session.execute(
        f"begin; set local idle_in_transaction_session_timeout = 0;"
        f" set local tcp_keepalives_idle = {GONE};"
        f" set local tcp_keepalives_interval = {GONE // 3};"
        f" set local tcp_keepalives_count = 3"
    )
    opened = session.opened
    (free,) = session.row(f"select pg_try_advisory_xact_lock({_key(session, name)})")
    if session.opened != opened:  # outside of the transaction, then: given back at once
        raise lost_error(session.address)
    return bool(free)


def is_held(session: Session, name: str) -> bool:
    """Whether some process holds the lock of that name. Raises StoreError."""
    key = _key(session, name) & (1 << 64) - 1
    (there,) = session.row(
        "select exists (select 1 from pg_locks l join pg_database d on d.oid = l.database"
        " where d.datname = current_database() and l.locktype = 'advisory' and l.granted"
        " and l.objsubid = 1 and l.classid::bigint = %s and l.objid::bigint = %s)",
        (key >> 32, key & (1 << 32) - 1),
    )
    return bool(there)


def _key(session: Session, name: str) -> int:
    text = f"{session.address.schema}/{name}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)
