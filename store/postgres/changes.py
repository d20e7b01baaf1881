"""Knowing that somebody else has committed: whoever moves a name says so by `NOTIFY`, and every few
seconds the database is asked, because a notice can be missed."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from psycopg import Notify

    from tfgrpo.store.postgres.session import Session

EVERY = 2.0
"""Seconds after which the database is asked, whatever was or was not heard."""

NEWEST = """
select (select max(number) from @.versions), (select max(row) from @.reflog),
    (select max(row) from @.redactions), (select max(row) from @.decisions)
"""


class Changes:
    """Counts what others have committed, as far as this connection has heard or asked."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._channel = "tfgrpo_" + hashlib.sha256(session.address.schema.encode()).hexdigest()[:24]
        self._listening = 0  # which connection of the session listens
        self._polled_at = 0.0
        self._newest: Any = None
        self._count = 0
        self._news = False  # by somebody else, while a query ran

    @property
    def notice(self) -> str:
        """The statement that tells everybody who listens, when the transaction is committed."""
        return f"notify {self._channel}"

    def count(self) -> int:
        """A number that is another one after anybody else has committed."""
        session = self._session
        if session.in_transaction:
            return self._count
        now = time.monotonic()
        if self._lost():
            session.execute(f"listen {self._channel}")
            session.connection.add_notify_handler(self._hear)
            self._listening = session.opened
            self._polled_at = 0.0
        elif self._heard():
            self._count += 1
        if now - self._polled_at >= EVERY:
            newest = session.row(NEWEST)
            if newest != self._newest:
                self._count += 1
            self._newest, self._polled_at = newest, now
        return self._count

    def _lost(self) -> bool:
        connection = self._session.held
        return connection is None or connection.closed or self._listening != self._session.opened

    def _hear(self, notice: Notify) -> None:
        connection = self._session.held
        if connection is None or notice.pid != connection.pgconn.backend_pid:
            self._news = True

    def _heard(self) -> bool:
        """Takes what has arrived on the connection; returns whether another one committed."""
        connection = self._session.connection.pgconn
        news, self._news = self._news, False
        try:
            connection.consume_input()
            while (notice := connection.notifies()) is not None:
                news = news or notice.be_pid != connection.backend_pid
        except psycopg.OperationalError:  # the database went away: the next count asks it
            self._session.close()
            self._polled_at = 0.0
            return True
        return news
