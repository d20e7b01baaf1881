"""What attempts take that are no run: an evaluation's, a comparison's of two models.

The three figures are those of `estimate.py`, and so is what they assume.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, Trajectory
from tfgrpo.evaluation.setup import EvalPlan
from tfgrpo.model.prices import ModelPrices, Price
from tfgrpo.settings import EvalSettings, Settings, TrainSettings
from tfgrpo.store.records import Library
from tfgrpo.store.store import Store
from tfgrpo.training.attempt_cost import (
    Model,
    PlannedRun,
    PlannedUsage,
    TokenCounter,
    attempt_cost,
)
from tfgrpo.training.estimate import (
    ANSWER,
    EXPECTED,
    MOST,
    SEEN_LONGER,
    UPPER,
    RunEstimate,
    StageEstimate,
    answer_lengths,
    attempt_answer,
    stage_estimates,
)
from tfgrpo.training.run_estimate import Pace, seconds_of

Sums: TypeAlias = dict[tuple[str, Model], PlannedUsage]


@dataclass(frozen=True, slots=True)
class PlannedAttempts:
    """Attempts to be made with a library: `samples` at each of some problems."""

    library: Library
    problems: Sequence[Problem]
    samples: int


def estimate_attempts(
    store: Store, plan: EvalPlan, planned: Sequence[PlannedAttempts]
) -> RunEstimate:
    """Returns the calls, tokens, dollars and seconds of attempts under a plan's conditions:
    expected, at most in most cases, and in the worst case. Nothing is written."""
    settings, domain = _as_trained(plan.task.settings), plan.task.domain

    def sums(counter: TokenCounter) -> Sums:
        length = 0.0 if counter.upper else counter.answer("rollout", settings.max_tokens)
        total: Sums = {}
        for one in planned:
            run = PlannedRun(
                dataset=one.problems, settings=settings, library=one.library, domain=domain
            )
            cost = attempt_cost(counter, one.problems, run, length)
            for (stage, model), usage in cost.stages.items():
                key = ("evaluation" if model == "policy" else stage, model)
                times = usage.times(len(one.problems) * one.samples)
                total[key] = total.get(key, PlannedUsage()) + times
        return total

    attempts = sum(len(one.problems) * one.samples for one in planned)
    return _estimated(store, settings, plan.prices, domain, (sums, attempts))


def estimate_evaluation(store: Store, plan: EvalPlan) -> RunEstimate:
    """Returns what an evaluation takes: nothing for versions whose scores are on record."""
    task = plan.task
    missing = [
        PlannedAttempts(store.library(version), task.problems, task.settings.samples)
        for version in plan.versions
        if store.runs.evaluation(version.number, task.key) is None
    ]
    return estimate_attempts(store, plan, missing)


def estimate_judgements(
    store: Store,
    settings: EvalSettings,
    prices: ModelPrices,
    domain: Domain,
    judged: Sequence[tuple[Problem, Trajectory]],
) -> RunEstimate:
    """Returns what a domain's judge takes for answers that are there already, as above."""
    judgements = domain.judgements
    requests = [one for both in judged for one in (judgements(*both) if judgements else ())]

    def sums(counter: TokenCounter) -> Sums:
        total: Sums = {}
        for one in requests:
            size = counter.plain if one.schema is None else counter.structured
            usage = size(one.stage, counter.prompt(one), one.max_tokens)
            key: tuple[str, Model] = (one.stage, "reflection")
            total[key] = total.get(key, PlannedUsage()) + usage
        return total

    return _estimated(store, _as_trained(settings), prices, domain, (sums, len(judged)))


def both(one: RunEstimate, other: RunEstimate) -> RunEstimate:
    """Returns what two things take, one after the other."""

    def added(
        some: Sequence[StageEstimate], more: Sequence[StageEstimate]
    ) -> tuple[StageEstimate, ...]:
        total: dict[str, StageEstimate] = {}
        for stage in (*some, *more):
            before = total.get(stage.stage)
            total[stage.stage] = stage if before is None else _sum(before, stage)
        return tuple(total.values())

    return RunEstimate(
        added(one.expected, other.expected),
        added(one.most, other.most),
        added(one.upper, other.upper),
        tuple(dict.fromkeys((*one.left_out, *other.left_out))),
        one.lengths_seen and other.lengths_seen,
        seconds=one.seconds + other.seconds,
        most_seconds=one.most_seconds + other.most_seconds,
    )


def _sum(one: StageEstimate, other: StageEstimate) -> StageEstimate:
    unknown = one.dollars is None or other.dollars is None
    return StageEstimate(
        one.stage,
        one.calls + other.calls,
        one.prompt_tokens + other.prompt_tokens,
        one.completion_tokens + other.completion_tokens,
        None if unknown else (one.dollars or 0.0) + (other.dollars or 0.0),
    )


def _estimated(
    store: Store,
    settings: TrainSettings,
    prices: ModelPrices,
    domain: Domain,
    work: tuple[Callable[[TokenCounter], Sums], int],
) -> RunEstimate:
    """Returns the three figures of some work, and how long so many pieces of it take."""
    sums, pieces = work
    lengths = answer_lengths(store, settings.models.model)
    if settings.models.reflection_model:
        judge = answer_lengths(store, settings.models.reflection_model).get("judge")
        lengths |= {"judge": judge} if judge else {}
    likely = {**ANSWER, **attempt_answer(settings), **lengths}
    by_model: dict[Model, Price | None] = {
        "policy": prices.policy,
        "reflection": prices.reflection,
        "embedding": prices.embedding,
    }
    most = replace(MOST, longer=SEEN_LONGER) if lengths else MOST
    expected, in_most, worst = (
        stage_estimates(sums(TokenCounter(assumed, likely)), by_model)
        for assumed in (EXPECTED, most, UPPER)
    )
    pace = Pace(settings.models, settings.concurrency, max(1, pieces))
    undeclared = domain.judge is not None and domain.judgements is None
    left_out = f"the domain {domain.name} may ask a judge, and does not say how often"
    return RunEstimate(
        expected,
        in_most,
        worst,
        left_out=(left_out,) if undeclared else (),
        lengths_seen=bool(lengths),
        seconds=seconds_of(expected, store, pace),
        most_seconds=seconds_of(in_most, store, pace),
    )


def _as_trained(settings: EvalSettings) -> TrainSettings:
    """Returns the settings of a run that attempts its problems as an evaluation does."""
    shared = {name: getattr(settings, name) for name in Settings.model_fields}
    return TrainSettings(**shared, data=settings.data, temperature=settings.temperature)
