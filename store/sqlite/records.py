"""Runs, rollouts, calls and evaluations in a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfgrpo.store.row_checks import damage_error
from tfgrpo.store.runs import Call
from tfgrpo.store.sql.records import Since, SqlRecords
from tfgrpo.store.sqlite.packing import define_plain, unpack_text

if TYPE_CHECKING:
    from tfgrpo.store.sqlite.journal import SqliteWriter
    from tfgrpo.store.sqlite.port import SqlitePort

KEYS = (256, 64, 16, 4, 1)
"""Keys that a query asks for: few sizes, so that each is prepared once."""


class SqliteRecords(SqlRecords):
    """The records of a file, whose long texts are packed."""

    _port: SqlitePort

    def writer(self) -> SqliteWriter:
        from tfgrpo.store.sqlite.journal import SqliteWriter

        return SqliteWriter(self._port.path)

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        calls: list[Call] = []
        start = 0
        while start < len(keys):
            left = len(keys) - start
            size = next(size for size in KEYS if size <= left)
            places = ",".join("?" * size)
            calls += self.calls_where(f"where key in ({places})", keys[start : start + size])
            start += size
        return calls

    def since(self, table: str, run: int, after: int) -> Since:
        # The plus has the rows found by their number: those of the run before it are not read.
        of_run = "+run = ?" if after else "run = ?"
        return Since("id", (), f"{of_run} and id > ?", (run, after), "id")

    def plain(self, column: str) -> str:
        define_plain(self._port.connection)
        return f"plain({column})"

    def unpacked_call(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        try:
            return (*row[:5], unpack_text(row[5]), unpack_text(row[6]), *row[7:])
        except ValueError:
            raise damage_error("a call has a text that cannot be read") from None
