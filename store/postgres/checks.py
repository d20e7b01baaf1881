"""What no version's digest covers, and how far it can be checked all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.store.checks import Defect

if TYPE_CHECKING:
    from tfgrpo.store.postgres.port import PostgresPort
    from tfgrpo.store.postgres.session import Session


def check_storage(port: PostgresPort) -> list[Defect]:
    return []


def rebuild(session: Session) -> None:
    pass
