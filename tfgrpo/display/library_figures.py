"""A library with who taught each experience, its confirmations, effect and share of the traffic."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.evaluation.measured_runs import measures
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.activity.traffic_figures import experience_uses
from tfgrpo.store.history.blame import Blame, blame
from tfgrpo.store.history.walks import first_parents, whole_history
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import Version, lane_of, lane_start
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.evaluation.presence_effects import Credit
    from tfgrpo.store.history.blame import Ranges


class KnownExperience(NamedTuple):
    """An experience of a library: its label there, who gave it its text and how often that was
    confirmed (`blame`), and its effect on the reward, None where nothing has measured it."""

    label: str
    blame: Blame
    credit: Credit | None


def known_experiences(
    store: Store,
    version: Version,
    *,
    only: Collection[str] | None = None,
    histories: Histories | None = None,
    credits: Mapping[str, Credit] | None = None,
) -> list[KnownExperience]:
    """What is known of each experience (in `only`), in order; `histories` and `credits` if read
    before."""
    ranges = histories.ranges(store, version) if histories else None
    if credits is None:
        credits = credits_of(store, version)
    label_of = store.library(version).label_of
    return [
        KnownExperience(label_of[one.experience.id], one, credits.get(one.experience.id))
        for one in blame(store, version, only=only, ranges=ranges)
    ]


def credits_of(store: Store, version: Version) -> Mapping[str, Credit]:
    """Experience → its effect, where it is known. Nothing is imported where no run looked."""
    if not any(measures(run) for run in store.runs.all()):
        return {}
    from tfgrpo.evaluation.credit import credits

    return {one.experience.id: one.credit for one in credits(store, version) if one.credit}


def uses_of(store: Store, since: int) -> Mapping[str, int] | None:
    """Experience → recorded calls with it since then (microseconds); None without traffic."""
    path = traffic_path(store.path)
    if not os.path.isfile(path):
        return None

    def ids(digest: str) -> Sequence[str]:
        return [e.id for e in store.library(digest)]

    with closing(open_traffic(path)) as traffic:
        return experience_uses(traffic, since, ids)


def effect_object(credit: Credit | None) -> dict[str, Any] | None:
    """An effect with its interval as JSON for programs."""
    from tfgrpo.evaluation.statistics import interval_object

    if credit is None:
        return None
    effect = interval_object(credit.effect, credit.low, credit.high)
    return {"effect": effect, "verdict": credit.verdict}


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
