"""The record of traffic beside the store that is shown, and the numbers in forms about it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

from tfgrpo.store.activity.traffic import Traffic, traffic_path
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.opening import open_traffic
from tfgrpo.ui.page_visit import BadForm, Visit


@contextmanager
def traffic_of(visit: Visit) -> Iterator[Traffic | None]:
    """Opens the record for a block; gives None where no traffic was recorded."""
    if not has_traffic(visit):
        yield None
        return
    with closing(open_traffic(traffic_path(visit.store.file))) as traffic:
        yield traffic


@contextmanager
def recorded_traffic(visit: Visit) -> Iterator[Traffic]:
    """Opens the record for a block. Raises UnknownRevision where there is none."""
    with traffic_of(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        yield traffic


def has_traffic(visit: Visit) -> bool:
    """Returns whether any traffic was recorded."""
    return os.path.isfile(traffic_path(visit.store.file))


def number_in(value: str) -> float | None:
    """Returns the number that a field says, true and false included. Raises BadForm."""
    if not value:
        return None
    if value.lower() in ("true", "false"):
        return float(value.lower() == "true")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadForm(f"{value[:40]!r} is no number", hint="such as 0.5; true is 1")
    return number
