"""Measures what a run gains at its own problems, where none are set aside for that.

In the end each problem is attempted afresh with the library that the other problems would have
chosen (`crossfit.py`), and with the one that the run began with. Where both show the same, the
difference is 0 without a call. A lesson may give away the answer of the problem that taught it. So
a problem that taught a part of its library is not attempted: the mean over those that the part
belongs to stands in. Examples are hidden as in a run's other attempts (`assign.py`). Attempts that
cannot be judged count as 0: what makes answers unreadable is no gain. A choice from fewer problems
takes less, so the gain is rather too low.

In simulations (`tests/test_crossfit.py`) the interval covers what a run gains in 92 to 98 % of
runs, also where several lessons say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from math import sqrt
from statistics import fmean
from typing import NamedTuple

from tfgrpo.data.problems import Problem
from tfgrpo.evaluation.statistics import APART, Estimate, interval
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.crossfit import folds
from tfgrpo.learn.groups import Gathering, RunParts
from tfgrpo.model.gather import gather_all
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rollout.attempt import MEASURING
from tfgrpo.runs.run_versions import Gain
from tfgrpo.settings import PAPER, TRIAL, TrainSettings
from tfgrpo.store.records import Library

ARMS = 2
"""The attempts at a problem are in two arms: without and with what the run learned."""
SHARE = 0.2
"""How many attempts measure the gain at most, for each of those that the run learned from."""


class Pair(NamedTuple):
    """A problem, with the library that the run began with and the one that others chose. `like` has
    the ids of those that stand in for it, where it taught a part of that; else it is None."""

    problem: Problem
    before: Library
    after: Library
    like: frozenset[str] | None = None


def measured_at(
    settings: TrainSettings, problems: Sequence[Problem], attempts: int
) -> list[Problem]:
    """The problems of a run at which its gain is measured, a part of them by chance where it has
    made few attempts; none where other problems are there for that, or its policy measures
    nothing."""
    others = settings.heldout or settings.sealed or settings.gate
    if others or settings.policy in (PAPER, TRIAL):
        return []
    count = int(SHARE * attempts / (ARMS * settings.heldout_samples))
    most = len(problems) if settings.heldout_problems is None else settings.heldout_problems
    dealt = chain.from_iterable(folds([one.id for one in problems], settings.seed))
    chosen = set(islice(dealt, min(count, most)))
    return [one for one in problems if one.id in chosen]


async def own_gain(
    parts: RunParts, collector: Collector, step: int, pairs: Sequence[Pair]
) -> Gain | None:
    """The gain at these problems, with a 95 % interval over them; None where no attempt could be
    made. The attempts are on record as those of a step. Raises BudgetReached, StoreError."""
    settings, rank = parts.settings, parts.domain.retrieve
    top_k, samples = settings.top_k or None, settings.heldout_samples
    recorded, last = collector.recorded(step), MEASURING + ARMS * samples

    async def mean(problem: Problem, library: Library, arm: int) -> float | None:
        attempts = range(MEASURING + arm, last, ARMS)
        return await collector.mean(step, Gathering(problem, library), attempts, recorded)

    async def difference(pair: Pair) -> float | None:
        problem = pair.problem
        libraries = [collector.unlike(problem, one) for one in (pair.before, pair.after)]
        shown = [relevant(one, problem.problem, top_k, rank=rank) for one in libraries]
        if shown[0] == shown[1]:
            return 0.0
        arms = (mean(problem, library, arm) for arm, library in enumerate(libraries))
        before, after = await gather_all(arms)
        return None if before is None or after is None else after - before

    attempted = [pair for pair in pairs if pair.like is None]
    differences = await gather_all(map(difference, attempted))
    known = {
        pair.problem.id: one
        for pair, one in zip(attempted, differences, strict=True)
        if one is not None
    }
    stand_in = [
        [known[id] for id in pair.like or () if id in known]
        for pair in pairs
        if pair.like is not None
    ]
    return Gain(estimate(list(known.values()), stand_in)) if known else None


def estimate(known: Sequence[float], stand_in: Sequence[Sequence[float]]) -> Estimate:
    """The mean difference with a 95 % interval: over problems of which it is `known`, and others,
    for each of which those of some of these stand in."""
    each = [*known, *(fmean(some) if some else 0.0 for some in stand_in)]
    mean, _, high, problems = interval(each, apart=APART)
    half = (high - mean) * sqrt(problems / len(known))
    return Estimate(mean, mean - half, mean + half, problems)
