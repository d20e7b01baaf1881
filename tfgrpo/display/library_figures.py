"""A library with who taught each experience, its confirmations, effect and share of the traffic."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.evaluation.measured_runs import measures
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.activity.traffic_figures import experience_uses
from tfgrpo.store.history.blame import Blame, blame
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.evaluation.presence_effects import Credit


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
    credits: Mapping[str, Credit] | None = None,
) -> list[KnownExperience]:
    """What is known of each experience (in `only`), in order; `credits` if read before."""
    if credits is None:
        credits = credits_of(store, version)
    label_of = store.library(version).label_of
    return [
        KnownExperience(label_of[one.experience.id], one, credits.get(one.experience.id))
        for one in blame(store, version, only=only)
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
