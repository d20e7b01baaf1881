"""What the version of a step says of the step, as far as it can be read: it may be a stranger's."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store.records import Version
from tfgrpo.store.strange_values import mapping, number, whole


class StepStats(NamedTuple):
    """The mean reward of a step, its groups, the mixed ones of them, and its attempts."""

    reward: float | None
    groups: int | None
    mixed: int | None
    attempts: int | None


def step_stats(version: Version) -> StepStats:
    """The figures of a version's step."""
    given = mapping(version.meta.get("stats"))
    counts = (whole(given.get(name)) for name in ("problems", "mixed", "rollouts"))
    return StepStats(number(given.get("mean_reward")), *counts)


def step_of(version: Version) -> int:
    """The number of a version's step, from 0."""
    return whole(version.meta.get("step")) or 0
