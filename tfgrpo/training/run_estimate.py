"""What a planned run would take, or what is left of one, from what this store has seen so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tfgrpo.connect import local_slots
from tfgrpo.model.prices import LOCAL, Price
from tfgrpo.model.settings import ModelSettings
from tfgrpo.store.runs import Run, Spent
from tfgrpo.store.store import Store
from tfgrpo.training.attempt_cost import Model, PlannedRun
from tfgrpo.training.estimate import RunEstimate, StageEstimate, answer_lengths, estimate
from tfgrpo.training.gate_words import rejections
from tfgrpo.training.run_report import versions_of
from tfgrpo.training.setup import RunPlan
from tfgrpo.training.turned_down import turned_down

HOSTED_LATENCY, HOSTED_SPEED = 0.6, 60.0
"""Seconds until an answer begins, and its tokens a second, before any has been seen."""
LOCAL_PROMPT, LOCAL_SPEED = 100.0, 30.0
"""Tokens a second of prompts and of answers that a local model reads and writes in all."""
READ_ANEW = {"rollout": 0.3, "evaluation": 0.2, "gate": 0.2, "controller": 0.2, "comparison": 0.7}
"""Which part of its prompts a local model has to read, since it has read their beginnings for the
attempt or the lesson before: as three runs on record have it, of 40 to 48 attempts a step."""
ONE_AFTER_ANOTHER = ("prune", "direct")
"""The stages whose calls wait for each other."""
ROUNDS = 4
"""Rounds that the lessons that are asked about together take, more or less, until all stand."""
ONE_STEP, MORE_STEPS = 2.0, 1.5
"""How many times what the steps so far have taken the rest takes at most in most runs: after one
step, and after more."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What says how many calls are made at once: the models, the requests in flight at most, the
    groups of a step with their attempts, and the lessons that are decided about together."""

    models: ModelSettings
    concurrency: int
    groups: int
    group_size: int = 1
    decisions: int = 1


def estimate_run(store: Store, plan: RunPlan, run: Run | None = None) -> RunEstimate:
    """Returns the calls, tokens, dollars and seconds of a run: expected, at most in most runs, and
    in the worst case. Of a `run` that has made a step it is what is left, going by its steps so
    far. Nothing is written."""
    estimate = _planned(store, plan)
    done = len(versions_of(store, run)) if run is not None else 0
    if run is not None and done:
        estimate = _rest(estimate, store.runs.spent(run), done, plan)
    settings = plan.settings
    pace = Pace(
        settings.models,
        settings.concurrency,
        min(settings.batch_size, len(plan.problems.train)),
        settings.group_size,
        max(1, settings.lessons_ahead // ROUNDS),
    )
    times = [seconds_of(stages, store, pace) for stages in (estimate.expected, estimate.most)]
    return replace(estimate, seconds=times[0], most_seconds=times[1])


def _planned(store: Store, plan: RunPlan) -> RunEstimate:
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
        rejected=[*rejections(store, base), *turned_down(store, base, before=store.now())],
    )
    prices = plan.prices
    by_model: dict[Model, Price | None] = {
        "policy": prices.policy,
        "reflection": prices.reflection,
        "embedding": prices.embedding,
    }
    return replace(estimate(planned, by_model, lengths), lengths_seen=bool(lengths))


def _rest(estimate: RunEstimate, spent: Sequence[Spent], done: int, plan: RunPlan) -> RunEstimate:
    """Returns what is left of a run after so many steps. A first step of examples alone says
    nothing of what the others take."""
    left = max(0, estimate.steps - done)
    measured = done - plan.settings.exemplars_first
    so_far = _by_stage((one for one in spent if one.step is not None and one.step < done), plan)
    evaluated = _by_stage((one for one in spent if one.step is None), plan).get("evaluation")
    begun = _by_stage((one for one in spent if one.step is not None and one.step >= done), plan)

    def rest(planned: Sequence[StageEstimate], factor: float) -> tuple[StageEstimate, ...]:
        stages = []
        for name in dict.fromkeys([*so_far, *(one.stage for one in planned)]):
            if name == "evaluation":
                one = next(one for one in planned if one.stage == name)
                stages.append(one if evaluated is None else _less(one, evaluated))
            elif not measured:
                stages += [one for one in planned if one.stage == name]
            elif name in so_far:
                one = _times(so_far[name], left / measured)
                one = _less(one, begun[name]) if name in begun else one
                stages.append(_times(one, factor))
        return tuple(one for one in stages if one.calls > 0)

    total = _by_stage(spent, plan)
    amounts = [one.dollars for one in total.values()]
    known = [amount for amount in amounts if amount is not None]
    return replace(
        estimate,
        expected=rest(estimate.expected, 1.0),
        most=rest(estimate.most, ONE_STEP if measured <= 1 else MORE_STEPS),
        steps=left,
        steps_done=done,
        spent_dollars=sum(known) if len(known) == len(amounts) else None,
        spent_tokens=round(sum(o.prompt_tokens + o.completion_tokens for o in total.values())),
    )


def _by_stage(spent: Iterable[Spent], plan: RunPlan) -> dict[str, StageEstimate]:
    """Returns stage → what its calls have come to."""
    stages: dict[str, StageEstimate] = {}
    for one in spent:
        usage = one.usage
        price = plan.prices.policy
        if one.stage == "embedding":
            price = plan.prices.embedding
        elif one.model == (plan.settings.models.reflection_model or plan.settings.models.model):
            own = one.stage in ("rollout", "next action", "evaluation")
            price = plan.prices.policy if own else plan.prices.reflection
        sizes = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        cost = None if price is None else price.of(*sizes)
        new = StageEstimate(
            one.stage, usage.calls, usage.prompt_tokens, usage.completion_tokens, cost
        )
        old = stages.get(one.stage)
        stages[one.stage] = new if old is None else _less(old, _times(new, -1.0))
    return stages


def _times(one: StageEstimate, factor: float) -> StageEstimate:
    return StageEstimate(
        one.stage,
        one.calls * factor,
        one.prompt_tokens * factor,
        one.completion_tokens * factor,
        None if one.dollars is None else one.dollars * factor,
    )


def _less(one: StageEstimate, other: StageEstimate) -> StageEstimate:
    """Returns what is left of one without another, and nothing below nothing."""
    unknown = one.dollars is None or other.dollars is None
    return StageEstimate(
        one.stage,
        max(0.0, one.calls - other.calls),
        max(0.0, one.prompt_tokens - other.prompt_tokens),
        max(0.0, one.completion_tokens - other.completion_tokens),
        None if unknown else max(0.0, (one.dollars or 0.0) - (other.dollars or 0.0)),
    )


def seconds_of(stages: Sequence[StageEstimate], store: Store, pace: Pace) -> float:
    """Returns how long the calls of these stages take, as many at once as may be."""
    seen = _seconds_a_token(store, pace.models)
    local = pace.models.model.startswith(LOCAL)
    at_once = local_slots(pace.concurrency) if local else pace.concurrency
    total = 0.0
    for one in stages:
        if one.stage == "embedding":
            continue
        if one.stage in seen:
            taken = one.completion_tokens * seen[one.stage]
        elif local:
            read = one.prompt_tokens * READ_ANEW.get(one.stage, 1.0)
            work = read / LOCAL_PROMPT + one.completion_tokens / LOCAL_SPEED
            taken = work * at_once
        else:
            taken = one.calls * HOSTED_LATENCY + one.completion_tokens / HOSTED_SPEED
        wide = pace.groups if one.stage == "comparison" else pace.groups * pace.group_size
        if one.stage == "controller":
            wide = pace.decisions
        alone = one.stage in ONE_AFTER_ANOTHER
        total += taken / (1 if alone and not local else min(at_once, wide))
    return total


def _seconds_a_token(store: Store, models: ModelSettings) -> Mapping[str, float]:
    """Returns stage → seconds for each token of its answers, as this store has seen them from the
    run's models."""
    named = {models.model, models.reflection_model}
    sums: dict[str, tuple[float, int]] = {}
    for spent in store.runs.spent():
        if spent.model in named and spent.usage.completion_tokens:
            seconds, tokens = sums.get(spent.stage, (0.0, 0))
            usage = spent.usage
            sums[spent.stage] = seconds + usage.seconds, tokens + usage.completion_tokens
    return {stage: seconds / tokens for stage, (seconds, tokens) in sums.items()}
