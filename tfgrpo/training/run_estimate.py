"""What a planned run would take, from what this store has seen of its models so far."""

from __future__ import annotations

from dataclasses import replace

from tfgrpo.model.prices import Price
from tfgrpo.store.store import Store
from tfgrpo.training.attempt_cost import Model, PlannedRun
from tfgrpo.training.estimate import RunEstimate, answer_lengths, estimate
from tfgrpo.training.gate import rejections
from tfgrpo.training.setup import RunPlan


def estimate_run(store: Store, plan: RunPlan) -> RunEstimate:
    """Returns the calls, tokens and dollars of a run, likely and at most. Nothing is written."""
    settings, models, problems = plan.settings, plan.settings.models, plan.problems
    lengths = answer_lengths(store, models.reflection_model or models.model)
    for stage, length in answer_lengths(store, models.model).items():
        if stage in ("rollout", "next action"):
            lengths[stage] = length
    base = store.resolve(settings.branch if settings.branch in store.branches() else "HEAD")
    prompts = str(plan.prompts) if plan.prompts else None
    planned = PlannedRun(
        dataset=problems.train,
        settings=settings.model_copy(update={"prompts": prompts}),
        library=store.library(base),
        domain=plan.domain,
        heldout=problems.heldout[: settings.heldout_problems],
        gate=problems.gate[: settings.gate_problems],
        sealed=problems.sealed,
        rejected=rejections(store, base),
    )
    prices = plan.prices
    by_model: dict[Model, Price | None] = {
        "policy": prices.policy,
        "reflection": prices.reflection,
        "embedding": prices.embedding,
    }
    return replace(estimate(planned, by_model, lengths), lengths_seen=bool(lengths))
