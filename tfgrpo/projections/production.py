"""What the record of traffic says of the versions of a library, where there is one."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

from tfgrpo.store.default import open_traffic
from tfgrpo.store.traffic import LiveFigures, by_version, traffic_path

if TYPE_CHECKING:
    from tfgrpo.store.store import Store


def live_figures(store: Store, since: int) -> list[LiveFigures] | None:
    """Returns the figures of each version that calls since then (microseconds) were answered
    under, the last used first; None where no traffic was ever recorded. Raises StoreError."""
    path = traffic_path(store.file)
    if not os.path.isfile(path):
        return None
    with closing(open_traffic(path)) as traffic:
        return by_version(traffic, since)
