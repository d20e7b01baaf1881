"""Evaluation: how good libraries are on problems. Samples are made side by side, so that drift of
the endpoint affects all libraries alike. Scores on record under the same conditions are read, and a
process waits for answers that another one is asking for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.data import problems as datasets
from tfgrpo.data.problems import Problem
from tfgrpo.domains import math
from tfgrpo.domains.base import Context, Domain, Sampling
from tfgrpo.evaluation import one_asker, statistics
from tfgrpo.model.client import Meter
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import OnProgress, describe_usage, ignore
from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.retrieve import is_whole, relevant
from tfgrpo.rollout.agent_loop import equipped
from tfgrpo.rollout.attempt import RenderFailed, Rollout, attempt, failed, rendered
from tfgrpo.rollout.exact_rewards import is_exact
from tfgrpo.session import Session
from tfgrpo.settings import EvalSettings
from tfgrpo.store.activity.runs import Evaluation, Run, Score
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store
from tfgrpo.tools.tool_call_record import ToolRecord

Wanted: TypeAlias = tuple[Library, Problem, int]
"""An attempt that is wanted: the library in its prompt, the problem, the number of the sample."""


@dataclass(slots=True)
class EvalProgress:
    """Where an evaluation is, for whoever wants to show it."""

    total: int
    done: int = 0
    waiting: bool = False
    meter: Meter = field(default_factory=Meter)
    started: float = field(default_factory=time.monotonic)
    on_change: Callable[[EvalProgress], None] | None = None

    @classmethod
    def announced(cls, on_progress: OnProgress) -> EvalProgress:
        """The progress of an evaluation that begins, told now and with every attempt."""
        progress = cls(0, on_change=None if on_progress is ignore else on_progress)
        on_progress(progress)
        return progress

    def count_attempt(self) -> None:
        """Notes that one more attempt is done."""
        self.done += 1
        self._tell()

    def wait(self, waiting: bool) -> None:
        """Notes whether it waits for another evaluation that asks for the same answers."""
        self.waiting = waiting
        self._tell()

    def _tell(self) -> None:
        if self.on_change is not None:
            self.on_change(self)

    def __str__(self) -> str:
        if self.waiting:
            return "waiting for another evaluation, which asks for the same answers"
        return f"evaluating {self.done}/{self.total}: {describe_usage(self.meter)}"

    @property
    def seconds_left(self) -> float | None:
        """How long the rest may take; None at the start."""
        if self.done < 3:
            return None
        return (time.monotonic() - self.started) * (self.total - self.done) / self.done


def conditions(
    dataset: Sequence[Problem], settings: EvalSettings, domain: Domain = math.DOMAIN
) -> dict[str, Any]:
    """All that a score depends on beside the library."""
    prompts = Path(settings.prompts) if settings.prompts else None
    terms: dict[str, Any] = {}
    if domain is not math.DOMAIN:  # what was recorded before there were others stays valid
        terms = {"domain": domain.name}
        if domain.identity:
            terms["identity"] = domain.identity
        if domain.judge is not None:
            terms["judge"] = settings.models.reflection_model or settings.models.model
    if settings.mode != "prompt":
        tools = settings.tools.model_dump(mode="json", exclude_defaults=True)
        terms |= {"mode": settings.mode, "tools": tools, "turns": settings.turns}
    if settings.top_k:
        terms |= {"top_k": settings.top_k}
    if is_exact(domain, settings):
        terms |= {"answers": settings.answers, "codes": prompt_templates.load("codes").digest}
    manner = settings.models.manner()
    options = {name: manner[name] for name in ("reasoning_effort", "extra_body") if name in manner}
    if options:
        terms |= {"asked": options}
    if settings.skipped:
        terms |= {"skipped": list(settings.skipped["data"])}
    return terms | {
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


@dataclass(frozen=True, slots=True)
class EvalTask:
    """What libraries are evaluated on: problems, settings and the domain that judges."""

    problems: tuple[Problem, ...]
    settings: EvalSettings
    domain: Domain

    @property
    def conditions(self) -> dict[str, Any]:
        """All that a score depends on beside the library."""
        return conditions(self.problems, self.settings, self.domain)

    def shown(self, library: Library, problem: Problem) -> Library:
        """The part of a library that is in the prompt of a problem."""
        top_k, rank = self.settings.top_k or None, self.domain.retrieve
        return relevant(library, problem.problem, top_k, rank=rank)

    def shares_calls(self, libraries: Iterable[Library]) -> bool:
        """Whether evaluations of these and other libraries may want the same answer of a model: a
        judge sees only an answer, and two libraries may have the same part in a prompt."""
        is_part = self.settings.top_k or not all(is_whole(one, None) for one in libraries)
        return self.domain.judge is not None or bool(is_part)

    @property
    def key(self) -> str:
        """The digest of the conditions, in hex: evaluations under it can be compared."""
        return digest(self.conditions).hex()


async def evaluate(
    session: Session,
    versions: Sequence[Version],
    task: EvalTask,
    *,
    run: Run | None = None,
    progress: EvalProgress | None = None,
) -> list[Evaluation]:
    """An evaluation of each version, on record or made. Raises EndpointError, BudgetReached,
    ToolError."""
    runs, key = session.store.runs, task.key
    distinct = {version.number: version for version in versions}.values()
    missing = [v for v in distinct if runs.evaluation(v.number, key) is None]
    libraries = [session.store.library(version) for version in missing]
    scores = await examine(session, libraries, task, run=run, progress=progress)
    for version, rows in zip(missing, scores, strict=True):
        record(session.store, version, task, rows)
    evaluations = (runs.evaluation(version.number, key) for version in versions)
    return [evaluation for evaluation in evaluations if evaluation is not None]


async def examine(
    session: Session,
    libraries: Sequence[Library],
    task: EvalTask,
    *,
    run: Run | None = None,
    progress: EvalProgress | None = None,
) -> list[list[Score]]:
    """Each library's scores on the problems, side by side; the journal answers what it has, and
    nothing else is recorded. Raises EndpointError when no attempt under one could be scored."""
    if not libraries:
        return []
    order = [
        (library, problem, sample)
        for sample in range(task.settings.samples)
        for problem in task.problems
        for library in libraries
    ]
    rollouts = await _attempt_each(session, order, task, run, progress)
    apart = len(libraries)
    return [_scored(order[n::apart], rollouts[n::apart]) for n in range(apart)]


async def examine_each(
    session: Session,
    wanted: Sequence[Wanted],
    task: EvalTask,
    *,
    progress: EvalProgress | None = None,
) -> list[Score]:
    """The wanted attempts' scores, in order. Raises EndpointError when none could be scored."""
    return _scored(wanted, await _attempt_each(session, wanted, task, None, progress))


async def _attempt_each(
    session: Session,
    wanted: Sequence[Wanted],
    task: EvalTask,
    run: Run | None,
    progress: EvalProgress | None,
) -> list[Rollout]:
    settings, domain = task.settings, task.domain
    progress = progress or EvalProgress(0)
    progress.total += len(wanted)
    session = replace(session, meter=progress.meter)
    scope = f"evaluation/{task.key}"
    policy, reflection = session.model_calls(scope, run)
    prompts = Path(settings.prompts) if settings.prompts else None
    template = domain.template("rollout", prompts)

    async def attempt_once(library: Library, problem: Problem, sample: int) -> Rollout:
        library = task.shown(library, problem)
        try:
            messages = rendered(domain, template, library, problem, settings.agent_objective)
        except RenderFailed as error:
            progress.count_attempt()
            return failed(problem, sample, str(error))
        context = Context(
            problem=problem,
            messages=messages,
            calls=policy,
            judge=reflection,
            verifier=session.verifier,
            sampling=Sampling(settings.temperature, settings.max_tokens, settings.seed),
            sample=sample,
            call_path=(problem.id,),
            library=library,
        )
        rollout = await attempt(acting, context)
        progress.count_attempt()
        return rollout

    runs = session.store.runs
    record = ToolRecord(session.journal, runs, scope=scope, run=run)
    tools = equipped(domain, settings, record, folder=session.folder, functions=session.functions)
    libraries = {library for library, _, _ in wanted}
    whole = [[e.text for e in library] for library in libraries]
    parts = [[]] if task.shares_calls(libraries) else whole
    async with one_asker.alone(runs, scope, parts, progress.wait):
        try:
            async with tools as (acting, _):
                return await gather_all(attempt_once(*one) for one in wanted)
        finally:
            await policy.finish_in_flight()
            await reflection.finish_in_flight()


def _scored(wanted: Sequence[Wanted], rollouts: Sequence[Rollout]) -> list[Score]:
    if all(rollout.reward is None for rollout in rollouts):
        hint = "check --max-tokens, --task-timeout and the model, or the code of the domain"
        if all(one.outcome == "unverifiable" and one.response.strip() for one in rollouts):
            hint = "there are answers, and no verdicts: correct the verifier or the ground truths"
        raise EndpointError(
            f"none of the attempts could be scored: {rollouts[0].reason}", hint=hint
        )
    return [
        Score(
            problem.id,
            sample,
            bytes.fromhex(rollout.call) if rollout.call else None,
            rollout.reward,
            rollout.answer,
        )
        for (_, problem, sample), rollout in zip(wanted, rollouts, strict=True)
    ]


def record(store: Store, version: Version, task: EvalTask, scores: Sequence[Score]) -> Evaluation:
    """Keeps scores with a version, as its evaluation; one that is there already is returned."""
    data, key, terms = task.settings.data, task.key, task.conditions
    summary = figures(scores, are_drawn=not is_exact(task.domain, task.settings))
    return store.runs.put_evaluation(version.number, data, key, terms, summary, scores)


def rewards(scores: Sequence[Score]) -> dict[str, list[float]]:
    """Problem → rewards, leaving out samples that could not be judged."""
    by_problem: dict[str, list[float]] = {}
    for score in scores:
        if score.reward is not None:
            by_problem.setdefault(score.problem, []).append(score.reward)
    return by_problem


def figures(scores: Sequence[Score], *, are_drawn: bool = True) -> dict[str, Any]:
    """Mean@k, pass@k for powers of two and maj@k over the scores of an evaluation, as the JSON that
    is kept with it; None for a maj@k without an answer. Where rewards are means over all answers
    and not of those that were drawn, there is no pass@k and no maj@k. `unscored` counts the samples
    that could not be judged."""
    by_problem = rewards(scores)
    votes: dict[str, list[tuple[str | None, float]]] = {}
    for score in scores:
        if score.reward is not None and are_drawn:
            votes.setdefault(score.problem, []).append((score.answer, score.reward))
    maj = statistics.maj_at_k(votes)
    fewest = min(len(samples) for samples in by_problem.values())
    powers = [2**n for n in range(12) if 2**n <= fewest and are_drawn]
    return {
        "problems": len(by_problem),
        "samples": max(len(samples) for samples in by_problem.values()),
        "mean": [*statistics.mean_at_k(by_problem).recorded],
        "pass": {str(k): [*statistics.pass_at_k(by_problem, k).recorded] for k in powers},
        "maj": None if maj is None else [*maj.recorded],
        "unscored": sum(score.reward is None for score in scores),
    }


def difference(store: Store, a: Evaluation, b: Evaluation) -> statistics.Difference:
    """How much better evaluation `b` is than `a`, paired by problem."""
    return statistics.paired(rewards(store.runs.scores(a)), rewards(store.runs.scores(b)))
