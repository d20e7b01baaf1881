"""The record of redactions in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfgrpo.store.port import Redaction

if TYPE_CHECKING:
    from tfgrpo.store.sql.port import SqlPort


class SqlRedactions:
    """Which events were redacted, by whom and why."""

    def __init__(self, port: SqlPort) -> None:
        self._port = port

    def of(self, row: int) -> list[Redaction]:
        query = "select author, time, reason from @.redactions where event = ? order by row"
        return list(map(Redaction._make, self._port.rows(query, (row,))))

    def append(self, row: int, redactions: Sequence[Redaction]) -> None:
        self._port.moved()
        first = self.last() + 1
        rows = [(first + i, row, *redaction) for i, redaction in enumerate(redactions)]
        self._port.insert("redactions", "row, event, author, time, reason", rows)

    def last(self) -> int:
        return self._port.number("select max(row) from @.redactions")

    def rows(self) -> list[int]:
        return self._port.column("select distinct event from @.redactions order by event")
