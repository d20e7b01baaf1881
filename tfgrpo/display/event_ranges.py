"""Where the events of a version's whole history lie, remembered, since versions never change."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from tfgrpo.store.history.walks import first_parents, whole_history
from tfgrpo.store.port import lane_of, lane_start

if TYPE_CHECKING:
    from tfgrpo.store.history.blame import Ranges
    from tfgrpo.store.records import Version
    from tfgrpo.store.store import Store

REMEMBERED = 64
NEAR = 500
"""Versions back along first parents that one is looked for which is remembered."""


class Histories:
    """Remembers the ranges of the versions that were asked for last; threads may share it."""

    def __init__(self) -> None:
        self._ends: dict[bytes, Mapping[int, int]] = {}  # digest → lane → row of its last event
        self._lock = threading.Lock()

    def ranges(self, store: Store, version: Version) -> Ranges:
        """The ranges of a version's whole history, as `whole_history` has them."""
        with self._lock:
            ends = self._ends_of(store, version)
            self._ends.pop(version.digest, None)
            self._ends[version.digest] = ends
            while len(self._ends) > REMEMBERED:
                del self._ends[next(iter(self._ends))]
        return [(lane_start(lane), row) for lane, row in sorted(ends.items())]

    def _ends_of(self, store: Store, version: Version) -> Mapping[int, int]:
        new: list[Version] = []
        for one in islice(first_parents(store, version), NEAR):
            if one.digest in self._ends:
                ends = dict(self._ends[one.digest])
                for later in new:
                    lane = lane_of(later.position)
                    ends[lane] = max(later.position, ends.get(lane, 0))
                return ends
            if one.merged is not None:  # what it brought over lies in other lanes
                break
            new.append(one)
        ranges = whole_history(store.port, version).ranges
        return {lane_of(row): row for _, row in ranges}
