"""The versions of a run, the tags and branches that name them, and what they have on record of
their steps, read as far as it can be, for they may be a stranger's: figures, what the gate did, and
what the run gains at its own problems."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store.activity.runs import Run
from tfgrpo.store.damaged_values import listed, mapping, number, text, whole
from tfgrpo.store.history.revisions import TAG
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Json, Version
from tfgrpo.store.store import Store
from tfgrpo.wording import plural, sampled, with_bounds

if TYPE_CHECKING:
    from tfgrpo.evaluation.statistics import Estimate

BASE = "base"
"""What a version of the pool says of the version in force that it goes with."""


def versions_of(store: Store, run: Run) -> list[Version]:
    """The versions a run made, oldest first."""
    moves = store.port.names.refs(f"{TAG}{run.name}/step_")
    numbers = {move.version for move in moves if move.version is not None}
    versions = [store.version(number) for number in sorted(numbers)]
    return [version for version in versions if version.meta.get("run") == run.name]


def pool_branch(run: Run) -> str:
    """The name of a run's branch of candidates."""
    return f"{run.name}/candidates"


def pool_versions(store: Store, run: Run) -> list[Version]:
    """The versions of a run's pool, oldest first, with what a person added to its branch; none
    where it has no pool."""
    if (name := pool_branch(run)) not in store.branches():
        return []
    listed: list[Version] = []
    for version in first_parents(store, store.tip(name)):
        listed.append(version)
        if BASE in version.meta and version.meta[BASE] == version.parent:
            return listed[::-1]
    return []  # the branch was moved to where no pool is


def base_of_pool(versions: Iterable[Version]) -> int | None:
    """The number of the version in force that the last of a pool's versions goes with."""
    bases = [whole(version.meta.get(BASE)) for version in versions]
    return next((base for base in reversed(bases) if base is not None), None)


class StepStats(NamedTuple):
    """The mean reward of a step, its groups, the mixed ones of them, its attempts, and how many of
    those could not be judged or failed."""

    reward: float | None
    groups: int | None
    mixed: int | None
    attempts: int | None
    without_reward: int = 0


def step_stats(version: Version) -> StepStats:
    """The figures of a version's step."""
    given = mapping(version.meta.get("stats"))
    groups, mixed, attempts = (whole(given.get(n)) for n in ("problems", "mixed", "rollouts"))
    lost = sum(whole(given.get(name)) or 0 for name in ("unverifiable", "failed"))
    return StepStats(number(given.get("mean_reward")), groups, mixed, attempts, lost)


def step_of(version: Version) -> int:
    """The number of a version's step, from 0."""
    return whole(version.meta.get("step")) or 0


class GateFigures(NamedTuple):
    """Mean rewards before and after, their difference, and its bounds, where it has any."""

    before: float
    after: float
    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        gain = with_bounds(self.mean, self.low, self.high)
        return f"{self.before:.3f} → {self.after:.3f}, {gain}"


class GateRecord(NamedTuple):
    """Whether a gate kept a step's candidate, which else stands at the branch `candidate`, by which
    figures; and how many problems and samples would have decided."""

    is_accepted: bool
    figures: GateFigures | None
    is_undecided: bool
    needed: tuple[int, int] | None
    candidate: str

    @property
    def word(self) -> str:
        """What became of the candidate in a word or two. What the trial could not decide is called
        that, and not rejected: nothing was found against it."""
        if self.is_accepted:
            return "kept"
        return "not kept: inconclusive" if self.is_undecided else "rejected"

    @property
    def summary(self) -> str:
        """The same with the figures, where there are any."""
        return f"{self.word} by the gate" + (f": {self.figures}" if self.figures else "")

    def __str__(self) -> str:
        """What was done, and by what: `kept by the gate: 0.350 → 0.440, +0.090 [-0.010, +0.190],
        not significant (about 61 problems × 4 samples would decide)`."""
        words = "kept" if self.is_accepted else "rejected"
        words += " by the gate" + (f": {self.figures}" if self.figures else "")
        if self.is_undecided:
            words += ", not significant"
            words += f" (about {sampled(*self.needed)} would decide)" if self.needed else ""
        return words


def gate_of(version: Version) -> GateRecord | None:
    """What a version has on record of a gate; None where there was none."""
    return read_gate(version.meta.get("gate"))


def read_gate(gate: object) -> GateRecord | None:
    """Reads a gate's record as far as it can be: a stranger's store may hold anything there."""
    given = mapping(gate)
    if not text(given.get("verdict")):
        return None
    needed, samples = whole(given.get("problems_needed")), whole(given.get("samples"))
    figures = [number(one) for one in listed(given.get("difference"))]
    before, after = number(given.get("before")), number(given.get("after"))
    read = None
    if len(figures) == 3 and before is not None and after is not None and figures[0] is not None:
        low, high = figures[1:] if None not in figures else (None, None)
        read = GateFigures(before, after, figures[0], low, high)
    return GateRecord(
        given["verdict"] == "accepted",
        read,
        given.get("difference_is") == "inconclusive",
        (needed, samples) if needed and samples else None,
        text(given.get("candidate")),
    )


OVER = "over"
"""In the meta of a run's version: it is the last, whatever steps were planned."""
GAIN = "gain"
"""In the meta of a run's last version: what the run gains over what it began with."""


class Gain(NamedTuple):
    """What a run gains over what it began with."""

    estimate: Estimate

    @property
    def is_doubtful(self) -> bool:
        """Whether the run may have gained nothing: its mean is no gain, or its whole interval a
        loss."""
        return self.estimate.mean <= 0 or self.estimate.high < 0

    def __str__(self) -> str:
        problems = self.estimate.problems
        figures = with_bounds(self.estimate.mean, *self.estimate.bounds)
        where = f"in fresh attempts at {plural(problems, 'problem')}"
        words = f"the run gains {figures} over the library that it began with, {where}"
        words += ", each with what the others taught"
        return f"warning: not shown to help: {words}" if self.is_doubtful else words


def gain_record(gain: Gain) -> Json:
    """A gain as it stands in a version's record."""
    return {"gain": list(gain.estimate.recorded), "problems": gain.estimate.problems}


def recorded_gain(store: Store, run: Run) -> Gain | None:
    """The gain that a run has on record; None for one that measures nothing, or is at work."""
    from tfgrpo.evaluation.statistics import Estimate

    versions = versions_of(store, run)
    record = versions[-1].meta.get(GAIN) if versions else None
    given = mapping(record)
    figures, problems = listed(given.get("gain")), whole(given.get("problems"))
    mean, low, high = (number(one) for one in figures) if len(figures) == 3 else (None,) * 3
    if mean is None or problems is None:
        return None
    bounds = (-math.inf if low is None else low, math.inf if high is None else high)
    return Gain(Estimate(mean, *bounds, problems))
