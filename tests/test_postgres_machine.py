"""The verbs in any order, as in test_store_machine.py, on a library of a PostgreSQL database."""

from __future__ import annotations

import pytest
from conftest import LIBRARIES, LONG
from hypothesis import HealthCheck, Phase, settings
from postgres import cluster, missing
from test_store_machine import StoreMachine

from tfgrpo.store import Store


class SharedStoreMachine(StoreMachine):
    """One library of a database seen through two connections."""

    def place(self) -> str:
        return cluster().address(f"m{next(LIBRARIES)}")

    def opened(self) -> Store:
        return Store.open(self.path, author="tester", now=self.now)

    def damage(self) -> list[str]:
        return []


@pytest.mark.postgres
@pytest.mark.skipif(bool(missing()), reason=missing() or "PostgreSQL is there")
class TestSharedStoreMachine(SharedStoreMachine.TestCase):  # type: ignore[misc,name-defined]
    settings = settings(
        max_examples=300 if LONG else 6,
        stateful_step_count=60 if LONG else 20,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
