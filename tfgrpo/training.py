"""Training: batches of problems in, versions of the library out.

    problem → rollout → reward → semantic advantage → operation → event → version

A step takes a batch, rolls out a group for each problem under the library in force, compares
the mixed groups, lets the controller decide, and appends one version tagged `<run>/step_N`.
Every call is journalled, every rollout recorded as it is judged, and a version lands whole, so
a run that was killed goes on from the call it was in. What is decided follows from the answers
in the order of the batch, never from the order in which they came.
"""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from tfgrpo import controller, problems
from tfgrpo.advantage import Comparison, Reflection, compare
from tfgrpo.budget import Budget
from tfgrpo.calls import Calls
from tfgrpo.domain import Context, Domain, Sampling
from tfgrpo.domains import math
from tfgrpo.endpoint import Answer, Endpoint, EndpointError
from tfgrpo.prices import Price
from tfgrpo.problems import Problem
from tfgrpo.progress import Progress
from tfgrpo.rollout import Group, Rollout, attempt, mean_reward
from tfgrpo.serving import Endpoints
from tfgrpo.settings import TrainSettings
from tfgrpo.store.errors import StaleVersion, StoreError, TfgrpoError
from tfgrpo.store.journal import Journal
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.store.runs import RolloutRow, Run
from tfgrpo.store.store import Store
from tfgrpo.verify import Verifier

T = TypeVar("T")
Watch = Callable[[Version], None]
"""Told of every version as it is made."""


def plan_steps(
    dataset: Sequence[Problem], settings: TrainSettings
) -> list[tuple[int, tuple[Problem, ...]]]:
    """Returns the run's steps: the epoch (from 1) and the batch of each."""
    return [
        (epoch, batch)
        for epoch in range(1, settings.epochs + 1)
        for batch in problems.batches(dataset, settings.batch_size, epoch=epoch, seed=settings.seed)
    ]


def begin(
    store: Store,
    settings: TrainSettings,
    *,
    name: str | None = None,
    stem: str | None = None,
    resume: str | None = None,
    new: bool = False,
) -> tuple[Run, bool]:
    """Returns the run to work on, and whether it goes on from where it was.

    An unfinished run with the very same settings is gone on with, unless `new`; `resume` names
    one, whose frozen settings then count. Otherwise a run is made on the branch that the
    settings name, which is made at HEAD when there is none. Without a `name` it is called after
    `stem`, or the data, with a number where that is taken.
    """
    if resume is not None:
        return store.runs.get(resume), True
    config = settings.model_dump(mode="json")
    if not new:
        unfinished = [r for r in store.runs.like(config) if store.runs.state(r) != "finished"]
        if unfinished and name in (None, unfinished[-1].name):
            return unfinished[-1], True
    name = name or _free_name(store, stem or Path(settings.data).stem)
    with store.port.transaction():
        if settings.branch not in store.branches():
            store.create_branch(settings.branch)
        base = store.tip(settings.branch)
        run = store.runs.create(
            name, uuid.uuid4().hex, settings.branch, base.number, config, store.author
        )
        store.create_tag(f"{name}/step_0", base)
    return run, False


def _free_name(store: Store, stem: str) -> str:
    stem = re.sub(r"[^A-Za-z0-9_+-]+", "-", stem).strip("-") or "run"
    taken = {run.name for run in store.runs.all()}
    numbers = (f"{stem}-{n}" for n in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbers) if name not in taken)


def reflection_of(settings: TrainSettings, domain: Domain, prompts: Path | None) -> Reflection:
    """Returns how a run with these settings reflects; `prompts` is a folder of other prompts."""
    return Reflection(
        summary=domain.template("summary", prompts),
        comparison=domain.template("comparison", prompts),
        controller=domain.template("controller", prompts),
        agent_objective=settings.agent_objective,
        learning_objective=settings.learning_objective,
        max_words=settings.max_words,
        ground_truth=settings.ground_truth,
        summarise_over=settings.summarise_over,
        temperature=settings.reflection_temperature,
        seed=settings.seed,
    )


class Training:
    """One run at work. `run()` does what is left of it and returns the versions it made."""

    def __init__(
        self,
        store: Store,
        run: Run,
        dataset: Sequence[Problem],
        endpoints: Endpoints,
        verifier: Verifier,
        journal: Journal,
        *,
        domain: Domain = math.DOMAIN,
        prompts: Path | None = None,
        price: Price | None = None,
        reflection_price: Price | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.settings = TrainSettings(**run.config)
        self.steps = plan_steps(dataset, self.settings)
        self.progress = Progress(run.name, len(self.steps), self.settings.epochs)
        self._store, self._run, self._domain = store, run, domain
        self.watch: Watch = lambda _: None
        self._verifier, self._journal = verifier, journal
        if prompts is None and self.settings.prompts:
            prompts = Path(self.settings.prompts)
        self._template = domain.template("rollout", prompts)
        self._reflection = reflection_of(self.settings, domain, prompts)

        def calls(endpoint: Endpoint, price: Price | None) -> Calls:
            return Calls(
                endpoint,
                journal,
                store.runs,
                scope=run.uid,
                run=run,
                concurrency=endpoints.concurrency,
                timeout=self.settings.task_timeout,
                price=price,
                meter=self.progress.meter,
                budget=budget,
            )

        self._policy = calls(endpoints.policy, price)
        self._reflector = (
            self._policy
            if endpoints.reflection is endpoints.policy
            else calls(endpoints.reflection, reflection_price)
        )

    async def run(self, *, finish: bool = True) -> list[Version]:
        """Does the steps that are left. The run's last state says how it ended, whatever comes.

        Without `finish` it is left to the caller to note that the run is finished, after the
        comparison that still belongs to it.
        """
        runs, run = self._store.runs, self._run
        self.progress.first = self._done()
        runs.note(run, "resumed" if runs.states(run) else "started")
        try:
            versions = [await self._step(number) for number in range(self._done(), len(self.steps))]
        except BaseException as error:
            told = error if isinstance(error, TfgrpoError) else None
            self.progress.phase = "stopping"
            await asyncio.gather(self._policy.settle(), self._reflector.settle())
            with suppress(StoreError):  # the disk may be full; `error` is what matters
                runs.note(run, "stopped" if told else "interrupted", str(told) if told else None)
            raise
        finally:
            await self._policy.endpoint.close()
            await self._reflector.endpoint.close()
        if finish:
            runs.note(run, "finished")
        self.progress.phase = "finished"
        return versions

    def _done(self) -> int:
        tags = self._store.tags()
        return next(
            n for n in range(len(self.steps) + 1) if f"{self._run.name}/step_{n + 1}" not in tags
        )

    async def _step(self, step: int) -> Version:
        epoch, batch = self.steps[step]
        progress, settings = self.progress, self.settings
        base = self._in_force(step)
        library = self._store.library(base)
        progress.step, progress.epoch, progress.library = step, epoch, len(library)
        progress.groups, progress.groups_done, progress.mixed = len(batch), 0, 0
        progress.attempts, progress.attempts_done = len(batch) * settings.group_size, 0
        progress.reflected, progress.rewards = 0, []

        self._enter("rollouts")
        started = time.monotonic()
        groups = await self._rollouts(step, batch, library)
        self._enter("reflection", started)
        started = time.monotonic()
        mixed = [group for group in groups if group.mixed]
        comparisons = await gathered(self._compare(group, library, step) for group in mixed)
        self._enter("controller", started)
        started = time.monotonic()
        plan = await controller.plan(
            self._reflector,
            self._reflection,
            [lesson for comparison in comparisons for lesson in comparison.lessons],
            library,
            step=step,
            uid=self._run.uid,
            evidence=self._evidence(step),
        )
        for rollout in (r for group in groups for r in group.rollouts if r.outcome == "failed"):
            await self._journal.rollout(self._row(step, rollout, base))
        version = self._commit(step, base, groups, comparisons, plan)
        self._enter("rollouts", started, after="controller")
        self.progress.step = step + 1
        return version

    def _enter(self, phase: str, since: float | None = None, *, after: str | None = None) -> None:
        if since is not None:
            self.progress.seconds[after or self.progress.phase] += time.monotonic() - since
        self.progress.phase = phase

    def _in_force(self, step: int) -> Version:
        """Returns the library this step works under, and makes sure that `step_N` names it.

        A person may have moved the branch since the last step; their version is then the one
        that this step is about, unless the step had already begun.
        """
        tag = f"{self._run.name}/step_{step}"
        if tag not in self._store.tags():  # somebody deleted the name
            self._store.create_tag(tag, self._store.version(self._run.base))
        tagged = self._store.version(self._store.tags()[tag])
        tip = self._store.tip(self._run.branch)
        if tagged.number != tip.number and not self._store.runs.rollouts(self._run, step):
            return self._store.create_tag(tag, tip, force=True)
        return tagged

    async def _rollouts(self, step: int, batch: Sequence[Problem], library: Library) -> list[Group]:
        recorded = {(r.problem, r.sample): r for r in self._store.runs.rollouts(self._run, step)}

        async def group(problem: Problem) -> Group:
            rollouts = await gathered(
                self._rollout(step, problem, sample, library, recorded.get((problem.id, sample)))
                for sample in range(self.settings.group_size)
            )
            found = Group(problem, tuple(rollouts))
            self.progress.groups_done += 1
            self.progress.mixed += found.mixed
            return found

        groups = await gathered(group(problem) for problem in batch)
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        if all(rollout.outcome == "failed" for rollout in rollouts):
            raise EndpointError(
                f"every attempt of step {step} failed: {rollouts[0].reason}",
                hint="check --max-tokens, --task-timeout and the model; nothing was learned",
            )
        return groups

    async def _rollout(
        self, step: int, problem: Problem, sample: int, library: Library, row: RolloutRow | None
    ) -> Rollout:
        rollout = self._recalled(problem, row) if row else None
        if rollout is None:
            rollout = await attempt(
                self._domain, self._context(problem, library, sample, (step, problem.id))
            )
            if rollout.outcome != "failed":  # what failed may succeed when the run goes on
                await self._journal.rollout(self._row(step, rollout, library.version))
        self.progress.attempts_done += 1
        if rollout.reward is not None:
            self.progress.rewards.append(rollout.reward)
        return rollout

    def _context(
        self, problem: Problem, library: Library, sample: int, place: tuple[str | int, ...]
    ) -> Context:
        settings = self.settings
        return Context(
            problem=problem,
            messages=self._domain.render(
                self._template, library, problem, settings.agent_objective
            ),
            calls=self._policy,
            judge=self._reflector,
            verifier=self._verifier,
            sampling=Sampling(settings.temperature, settings.max_tokens, settings.seed),
            sample=sample,
            place=place,
        )

    def _recalled(self, problem: Problem, row: RolloutRow) -> Rollout | None:
        """Returns a rollout that was recorded before the run was interrupted.

        One that failed is not: what failed then may well succeed now.
        """
        if row.outcome == "failed":
            return None
        calls = [self._store.runs.call(bytes.fromhex(key)) for key in row.calls]
        response = ""
        for call in calls:
            if call is None:
                return None
            answer = Answer(**call.answer)
            response = answer.content
            self._policy.recount("rollout", answer)
        return Rollout(
            problem=problem,
            sample=row.sample,
            response=row.verdict.get("response", response),
            outcome=row.outcome,
            reward=row.reward,
            answer=row.verdict.get("answer"),
            reason=row.verdict.get("reason", ""),
            calls=row.calls,
            details=row.verdict.get("details", {}),
            messages=tuple(row.verdict.get("messages", ())),
        )

    def _row(self, step: int, rollout: Rollout, version: Version) -> RolloutRow:
        verdict: dict[str, Any] = {"answer": rollout.answer, "reason": rollout.reason}
        if rollout.details:
            verdict["details"] = dict(rollout.details)
        if rollout.messages:
            verdict["messages"] = list(rollout.messages)
        if rollout.messages or len(rollout.calls) > 1:  # else it is what the call says
            verdict["response"] = rollout.response
        return RolloutRow(
            run=self._run.id,
            step=step,
            problem=rollout.problem.id,
            sample=rollout.sample,
            version=version.number,
            calls=rollout.calls,
            outcome=rollout.outcome,
            reward=rollout.reward,
            verdict=verdict,
            time=time.time_ns() // 1000,
        )

    async def _compare(self, group: Group, library: Library, step: int) -> Comparison:
        comparison = await compare(self._reflector, self._reflection, group, library, step=step)
        self.progress.reflected += 1
        return comparison

    def _evidence(self, step: int) -> dict[str, Any]:
        reflection = self._reflection
        used = (self._template, reflection.summary, reflection.comparison, reflection.controller)
        return {
            "run": self._run.name,
            "step": step,
            "model": self._policy.endpoint.model,
            "reflection_model": self._reflector.endpoint.model,
            "prompts": {template.name: template.digest[:16] for template in used},
        }

    def _commit(
        self,
        step: int,
        base: Version,
        groups: Sequence[Group],
        comparisons: Sequence[Comparison],
        plan: controller.Plan,
    ) -> Version:
        """Appends the step's version.

        When somebody else has moved the branch meanwhile, operations that no longer apply are
        refused on record, and the others go onto what is there now.
        """
        store, run = self._store, self._run
        failures = [asdict(failure) for c in comparisons for failure in c.failures]
        refused = [asdict(refusal) for refusal in plan.refused]
        while True:
            tip = store.tip(run.branch)
            operations = list(plan.operations)
            lost: list[dict[str, Any]] = []
            if tip.number != base.number:
                operations, lost = _still_apply(operations, store.library(base), store.library(tip))
            meta: dict[str, Any] = {
                "run": run.name,
                "step": step,
                "epoch": self.steps[step][0],
                "stats": self._stats(groups),
            }
            if refused or lost:
                meta["refused"] = refused + lost
            if failures:
                meta["failed"] = failures
            repaired = plan.repaired + sum(c.repaired for c in comparisons)
            if repaired:
                meta["repaired"] = repaired
            try:
                version = store.commit(
                    run.branch,
                    operations,
                    message=_message(step, len(self.steps), groups, operations),
                    author=f"tfgrpo ({self._reflector.endpoint.model})",
                    meta=meta,
                    expected=tip,
                    tags=[f"{run.name}/step_{step + 1}"],
                )
            except StaleVersion:
                continue
            self.progress.library = len(store.library(version))
            self.watch(version)
            return version

    def _stats(self, groups: Sequence[Group]) -> dict[str, Any]:
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        counts = {
            outcome: sum(rollout.outcome == outcome for rollout in rollouts)
            for outcome in ("truncated", "unverifiable", "failed")
        }
        mean = mean_reward(groups)
        return {
            "problems": len(groups),
            "rollouts": len(rollouts),
            "mixed": sum(group.mixed for group in groups),
            "mean_reward": None if mean is None else round(mean, 6),
        } | {outcome: count for outcome, count in counts.items() if count}


def _message(
    step: int, steps: int, groups: Sequence[Group], operations: Sequence[Operation]
) -> str:
    mean, mixed = mean_reward(groups), sum(group.mixed for group in groups)
    scored = "nothing could be scored" if mean is None else f"mean reward {mean:.2f}"
    told = f"step {step + 1} of {steps}: {scored}, {mixed} of {len(groups)} groups mixed"
    return told if operations else told + "; nothing learned"


def _still_apply(
    operations: Sequence[Operation], base: Library, tip: Library
) -> tuple[list[Operation], list[dict[str, Any]]]:
    """Returns what fits a library that has moved on from `base` to `tip`, and a record of the rest.

    A text that somebody else has changed meanwhile is neither changed nor deleted; one that
    somebody else has added is confirmed.
    """
    before = {e.id: e.text for e in base}
    there = {e.id: e.text for e in tip}
    moved = {id for id in before | there if before.get(id) != there.get(id)}
    fit: list[Operation] = []
    lost: list[dict[str, Any]] = []
    for operation in operations:
        op, id, text = operation[:3]
        assert id is not None
        known = next((i for i, t in there.items() if t == text), None)
        if op == "ADD" and known is not None:
            fit.append(operation._replace(op="KEEP", experience=known, text=None))
            continue
        gone = id not in there if op != "ADD" else id in there
        if gone or (id in moved and op in ("MODIFY", "DELETE")):
            problem = (operation.evidence or {}).get("problem", "")
            reason = f"{op} of {id}: somebody else changed it meanwhile"
            lost.append({"text": text or "", "problem": problem, "reason": reason})
            continue
        fit.append(operation)
        if op == "DELETE":
            del there[id]
        elif op != "KEEP":
            there[id] = text or ""
    return fit, lost


async def gathered(awaitables: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Returns the results in order. The first error ends the others and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(awaitable) for awaitable in awaitables]
    except BaseExceptionGroup as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None
    return [task.result() for task in tasks]
