"""The port's contract, on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from port_contract import PortContract
from port_rows import Another
from test_store_turns import until_waiting

from tfgrpo.store.sql.port import Port
from tfgrpo.store.sqlite.packed_texts import LEAST_EVENT, pack, unpack
from tfgrpo.store.sqlite.port import SqlitePort


class TestSqlitePort(PortContract):
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "store.db"

    @pytest.fixture
    def port(self, path: Path) -> Iterator[Port]:
        port = SqlitePort(path, create=True)
        yield port
        port.close()

    @pytest.fixture
    def another(self, path: Path) -> Another:
        return lambda: SqlitePort(path)

    def until_one_waits(self, port: Port) -> bool:
        until_waiting(port.path, 1)  # type: ignore[attr-defined]
        return True


@pytest.mark.parametrize("rows", [[], [1], [1, 2, 3, 1 << 40, (1 << 62) + 5], list(range(5000))])
def test_packed_rows_are_unpacked_as_they_were(rows: list[int]) -> None:
    assert unpack(pack(rows), LEAST_EVENT * len(rows)) == rows
