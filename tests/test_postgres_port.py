"""The port's contract on a library of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest
from port_contract import PortContract
from port_rows import Another

from tfgrpo.store.postgres.port import PostgresPort
from tfgrpo.store.sql.port import Port

pytestmark = pytest.mark.postgres


class TestPostgresPort(PortContract):
    news_takes: ClassVar[float] = 10.0

    @pytest.fixture
    def port(self, shared: str) -> Iterator[Port]:
        port = PostgresPort(shared, create=True)
        yield port
        port.close()

    @pytest.fixture
    def another(self, shared: str) -> Another:
        return lambda: PostgresPort(shared)
