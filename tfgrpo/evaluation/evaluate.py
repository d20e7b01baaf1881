"""Evaluation: how good a library is on problems it did not learn from.

Several libraries are evaluated in one go, sample by sample side by side, so that whatever
drifts on the machine or the endpoint meets all of them alike. The control is v0, the empty
library in the same prompt. An evaluation is kept against its version; made again under the
same conditions it is read, not repeated, and one that was cut off goes on from the journal.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfgrpo.connect import Endpoints
from tfgrpo.data import problems as datasets
from tfgrpo.data.problems import Problem
from tfgrpo.domains import math
from tfgrpo.domains.base import Context, Domain, Sampling
from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation import statistics
from tfgrpo.model.budget import Budget
from tfgrpo.model.client import CallConditions, Calls, Meter
from tfgrpo.model.endpoint import Endpoint, EndpointError
from tfgrpo.model.gather import gather_all
from tfgrpo.model.prices import Price
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rollout.agent import equipped
from tfgrpo.rollout.attempt import Rollout, attempt
from tfgrpo.settings import EvalSettings
from tfgrpo.store.canonical import digest
from tfgrpo.store.find import project_root
from tfgrpo.store.journal import Journal
from tfgrpo.store.records import Library, Version
from tfgrpo.store.runs import Evaluation, Run, Score
from tfgrpo.store.store import Store
from tfgrpo.tools.record import ToolRecord


@dataclass(slots=True)
class EvalProgress:
    """Where an evaluation is, for whoever wants to show it."""

    total: int
    done: int = 0
    meter: Meter = field(default_factory=Meter)
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest may take; None at the start."""
        if self.done < 3:
            return None
        return (time.monotonic() - self.started) * (self.total - self.done) / self.done


@dataclass(frozen=True, slots=True)
class Figures:
    """What an evaluation came to. `unscored` counts the samples that could not be judged."""

    problems: int
    samples: int
    mean: statistics.Estimate
    passes: Mapping[int, statistics.Estimate]
    majority: statistics.Estimate
    unscored: int


def conditions(
    dataset: Sequence[Problem], settings: EvalSettings, domain: Domain = math.DOMAIN
) -> dict[str, Any]:
    """Returns all that a score depends on beside the library."""
    prompts = Path(settings.prompts) if settings.prompts else None
    found: dict[str, Any] = {}
    if domain is not math.DOMAIN:  # what was recorded before there were others stays valid
        found = {"domain": domain.name}
        if domain.identity:
            found["identity"] = domain.identity
        if domain.judge is not None:
            found["judge"] = settings.models.reflection_model or settings.models.model
    if settings.mode != "prompt":
        tools = settings.tools.model_dump(mode="json", exclude_defaults=True)
        found |= {"mode": settings.mode, "tools": tools, "turns": settings.turns}
    if settings.injected is not None:
        found |= {"inject": settings.inject, "top_k": settings.top_k}
    if settings.skipped:
        found |= {"skipped": list(settings.skipped["data"])}
    return found | {
        "dataset": datasets.digest(dataset),
        "problems": len(dataset),
        "model": settings.models.model,
        "prompt": domain.template("rollout", prompts).digest,
        "agent_objective": settings.agent_objective,
        "samples": settings.samples,
        "temperature": settings.temperature,
        "max_tokens": settings.max_tokens,
        "seed": settings.seed,
    }


async def evaluate(
    store: Store,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    endpoints: Endpoints,
    verifier: Verifier,
    journal: Journal,
    *,
    domain: Domain = math.DOMAIN,
    price: Price | None = None,
    reflection_price: Price | None = None,
    budget: Budget | None = None,
    run: Run | None = None,
    progress: EvalProgress | None = None,
) -> list[Evaluation]:
    """Returns the evaluation of each version, making those that are not there yet.

    `run` is the one whose costs it belongs to. The endpoints are closed.
    """
    key = digest(conditions(dataset, settings, domain)).hex()
    distinct = {version.number: version for version in versions}.values()
    missing = [v for v in distinct if store.runs.evaluation(v.number, key) is None]
    try:
        scores = await examine(
            store,
            [store.library(version) for version in missing],
            dataset,
            settings,
            endpoints,
            verifier,
            journal,
            domain=domain,
            price=price,
            reflection_price=reflection_price,
            budget=budget,
            run=run,
            progress=progress,
        )
    finally:
        await endpoints.policy.close()
        await endpoints.reflection.close()
    for version, rows in zip(missing, scores, strict=True):
        record(store, version, dataset, settings, rows, domain)
    found = [store.runs.evaluation(version.number, key) for version in versions]
    return [evaluation for evaluation in found if evaluation is not None]


async def examine(
    store: Store,
    libraries: Sequence[Library],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    endpoints: Endpoints,
    verifier: Verifier,
    journal: Journal,
    *,
    domain: Domain = math.DOMAIN,
    price: Price | None = None,
    reflection_price: Price | None = None,
    budget: Budget | None = None,
    run: Run | None = None,
    progress: EvalProgress | None = None,
) -> list[list[Score]]:
    """Returns the scores of each library, which need not be a version's.

    Answers come from the journal where the same prompt was answered under the same conditions.
    Nothing else is recorded. Raises EndpointError when no attempt under one could be scored.
    """
    if not libraries:
        return []
    progress = progress or EvalProgress(0)
    progress.total += len(libraries) * len(dataset) * settings.samples
    scope = f"evaluation/{digest(conditions(dataset, settings, domain)).hex()}"

    def asking(endpoint: Endpoint, price: Price | None) -> Calls:
        return Calls(
            endpoint,
            journal,
            store.runs,
            CallConditions(
                scope,
                run=run,
                concurrency=endpoints.concurrency,
                timeout=settings.task_timeout,
                price=price,
                meter=progress.meter,
                budget=budget,
            ),
        )

    calls = asking(endpoints.policy, price)
    same = endpoints.reflection is endpoints.policy
    judge = calls if same else asking(endpoints.reflection, reflection_price)
    prompts = Path(settings.prompts) if settings.prompts else None
    template = domain.template("rollout", prompts)

    async def one(library: Library, problem: Problem, sample: int) -> Rollout:
        library = relevant(library, problem.problem, settings.injected)
        context = Context(
            problem=problem,
            messages=domain.render(template, library, problem, settings.agent_objective),
            calls=calls,
            judge=judge,
            verifier=verifier,
            sampling=Sampling(settings.temperature, settings.max_tokens, settings.seed),
            sample=sample,
            call_path=(problem.id,),
        )
        rollout = await attempt(acting, context)
        progress.done += 1
        return rollout

    order = [
        (number, problem, sample)
        for sample in range(settings.samples)
        for problem in dataset
        for number in range(len(libraries))
    ]
    try:
        record = ToolRecord(journal, store.runs, scope=scope, run=run)
        folder = project_root(store.path)
        async with equipped(domain, settings, record, folder) as (acting, _):
            rollouts = await gather_all(
                one(libraries[number], problem, sample) for number, problem, sample in order
            )
    finally:
        await calls.finish_in_flight()
        await judge.finish_in_flight()
    scores: list[list[Score]] = [[] for _ in libraries]
    for (number, problem, sample), rollout in zip(order, rollouts, strict=True):
        call = bytes.fromhex(rollout.call) if rollout.call else None
        scores[number].append(Score(problem.id, sample, call, rollout.reward, rollout.answer))
    for rows in scores:
        if all(row.reward is None for row in rows):
            raise EndpointError(
                f"none of the attempts could be scored: {rollouts[0].reason}",
                hint="check --max-tokens, --task-timeout and the model",
            )
    return scores


def record(
    store: Store,
    version: Version,
    dataset: Sequence[Problem],
    settings: EvalSettings,
    scores: Sequence[Score],
    domain: Domain = math.DOMAIN,
) -> Evaluation:
    """Keeps scores with a version, as its evaluation; one that is there already is returned."""
    asked = conditions(dataset, settings, domain)
    return store.runs.put_evaluation(
        version.number,
        settings.data,
        digest(asked).hex(),
        asked,
        summary(figures(scores)),
        scores,
    )


def rewards(scores: Sequence[Score]) -> dict[str, list[float]]:
    """Returns problem → rewards, leaving out samples that could not be judged."""
    found: dict[str, list[float]] = {}
    for score in scores:
        if score.reward is not None:
            found.setdefault(score.problem, []).append(score.reward)
    return found


def figures(scores: Sequence[Score]) -> Figures:
    """Returns mean@k, pass@k for powers of two and maj@k over the scores of an evaluation."""
    by_problem = rewards(scores)
    votes: dict[str, list[tuple[str | None, float]]] = {}
    for score in scores:
        if score.reward is not None:
            votes.setdefault(score.problem, []).append((score.answer, score.reward))
    fewest = min(len(samples) for samples in by_problem.values())
    powers = [2**n for n in range(12) if 2**n <= fewest]
    return Figures(
        problems=len(by_problem),
        samples=max(len(samples) for samples in by_problem.values()),
        mean=statistics.mean_at_k(by_problem),
        passes={k: statistics.pass_at_k(by_problem, k) for k in powers},
        majority=statistics.maj_at_k(votes),
        unscored=sum(score.reward is None for score in scores),
    )


def summary(found: Figures) -> dict[str, Any]:
    """Returns figures as the JSON that is kept with an evaluation."""

    def listed(estimate: statistics.Estimate) -> list[float | None]:
        return [None if abs(v) == float("inf") else round(v, 6) for v in estimate[:3]]

    return {
        "problems": found.problems,
        "samples": found.samples,
        "mean": listed(found.mean),
        "pass": {str(k): listed(estimate) for k, estimate in found.passes.items()},
        "maj": listed(found.majority),
        "unscored": found.unscored,
    }


def difference(store: Store, a: Evaluation, b: Evaluation) -> statistics.Difference:
    """Returns how much better evaluation `b` is than `a`, paired by problem."""
    return statistics.paired(rewards(store.runs.scores(a)), rewards(store.runs.scores(b)))
