"""A group: the attempts at one problem in one step, made or recalled, verified and recorded.

That is the unit of a run's work, and a `GroupTask` says in plain data which: whoever has the store
(this process, or a worker on another machine) makes the very same attempts of it, with the same
keys in the journal, so that a group that was begun elsewhere is gone on with from there.

Attempts at one problem are numbered. In a fixed group they are 0 to n-1 at once. An adaptive one
begins with two and goes on one by one (`adaptive.py`). A problem that nothing has solved yet
gets its later attempts under strategies that the reflection model proposes (`strategies.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tfgrpo.data.problems import KIND, Problem
from tfgrpo.domains.base import Context, Domain, Sampling, answer_once
from tfgrpo.evaluation.credit import left_out
from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.endpoint import Answer, CallFailed
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import OnProgress, ignore
from tfgrpo.rendering.retrieve import Part, relevant
from tfgrpo.rendering.templates import Template
from tfgrpo.rollout import branching
from tfgrpo.rollout.agent import Agent
from tfgrpo.rollout.attempt import (
    CONFIRMING,
    Group,
    RenderFailed,
    Rollout,
    attempt,
    failed,
    rendered,
)
from tfgrpo.rollout.branching import BranchPoint
from tfgrpo.session import Session
from tfgrpo.settings import TrainSettings
from tfgrpo.store.records import Json, Library
from tfgrpo.store.runs import RolloutRow, Run
from tfgrpo.training import adaptive, strategies
from tfgrpo.training.assign import Belonging, belonging, hidden
from tfgrpo.training.confirmation import TRIAL
from tfgrpo.training.exemplars import of_other_problems
from tfgrpo.training.progress import Progress
from tfgrpo.training.reflection import Failure, Reflection

GLANCES = 4
"""The tool results of an attempt at which next actions are looked at."""

Recorded = Mapping[tuple[str, int], RolloutRow]
"""The rollouts of a step that are recorded already, by problem and sample."""


@dataclass(eq=False, slots=True)
class Gathering:
    """A group that is being filled: the attempts at a problem that are in so far."""

    problem: Problem
    library: Library
    rollouts: dict[int, Rollout] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    was_mixed: bool = False
    begin: asyncio.Event = field(default_factory=asyncio.Event)
    omitted: frozenset[str] = frozenset()
    """The ids of experiences that are predicted to harm problems of this kind."""
    there: Belonging | None = None
    """What belongs to the problem, where attempts are shown a part of that."""
    failed: dict[int, str] = field(default_factory=dict)
    """Attempts that have failed elsewhere, and why: they are not made again."""
    step: int = 0
    out: frozenset[int] = frozenset()
    """The samples that the step went on without before it was interrupted: it does so again."""
    recalled: bool = False
    """Whether the others are in, then."""
    went_on: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def group(self) -> Group:
        """The group as it stands, in sample order."""
        rollouts = tuple(self.rollouts[sample] for sample in sorted(self.rollouts))
        return Group(self.problem, rollouts, self.library.version.number)

    @property
    def rewards(self) -> list[float]:
        """The rewards of the attempts that are in and have one, in sample order."""
        return list(self.group.rewards)

    @property
    def done(self) -> bool:
        """Whether no attempt is out any more."""
        return self.task is None or self.task.done()


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the parts of one run share: its session and settings, prompts, and both models.

    With `keep_going` a run whose first attempts leave nothing to learn goes on. `prompts` is the
    folder of the prompts that take the place of ours.
    """

    session: Session
    run: Run
    settings: TrainSettings
    domain: Domain
    template: Template
    reflection: Reflection
    policy: Calls
    reflector: Calls
    progress: Progress
    keep_going: bool = False
    on_progress: OnProgress = ignore
    prompts: Path | None = None


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Which group is to be made, in plain data that means the same on every machine.

    The run by its uid, the step from 0, the problem by its id, the version whose library is in
    force, and the digest of the run's settings. `hints` is how many strategies a group without a
    success gets. With `most` a group that is there goes on, until it is mixed or has that many.
    `without` are the ids of experiences that are predicted to harm the problem. `base` is the
    version in force where `version` is one of candidates (`pool.py`); 0 for none.
    """

    run: str
    step: int
    problem: str
    version: int
    settings: str
    hints: int = 0
    most: int = 0
    without: tuple[str, ...] = ()
    base: int = 0

    @property
    def lock(self) -> str:
        """What two tasks share that must not be worked on at once."""
        return f"{self.run}/{self.step}/{self.problem}"


class Makers(Protocol):
    """Who makes groups: this process, or workers elsewhere."""

    async def make(self, task: GroupTask, gathering: Gathering, recorded: Recorded) -> None:
        """Fills a gathering with its task's attempts. Raises EndpointError and StoreError."""


class GroupMaker:
    """Makes groups in this process. `on_attempt` is told of each attempt that is in."""

    def __init__(
        self, parts: RunParts, on_attempt: Callable[[Rollout], None] | None = None
    ) -> None:
        self._store, self._journal = parts.session.store, parts.session.journal
        self._verifier = parts.session.verifier
        self._run, self._settings, self._domain = parts.run, parts.settings, parts.domain
        self._template, self._reflection = parts.template, parts.reflection
        self._policy, self._reflector = parts.policy, parts.reflector
        self._progress, self._on_attempt = parts.progress, on_attempt
        self._failures: list[Failure] = []
        self._agent: Agent | None = None

    def equip(self, domain: Domain, agent: Agent | None) -> None:
        """Has attempts made by an agent from now on; `domain` is the run's with its rollout."""
        self._domain, self._agent = domain, agent

    async def make(self, task: GroupTask, gathering: Gathering, recorded: Recorded) -> None:
        """Makes the attempts of a task that are not recorded, and recalls the others.

        A request that cannot be answered gives a failed attempt. Raises EndpointError,
        BudgetReached and StoreError.
        """
        gathering.omitted = frozenset(task.without)
        if self._settings.learner == "probation":
            gathering.there = self._belonging(gathering, task.base)
        if task.most:
            while not _enough(gathering, task.most):
                await self.attempt(task.step, gathering, len(gathering.rollouts), recorded)
            self._progress.attempts -= task.most - len(gathering.rollouts)
            return
        settings, problem, step = self._settings, gathering.problem, task.step
        hints = task.hints
        plain = max(1, settings.group_size - hints)

        if settings.rollouts == "branch":
            await self._branch(step, gathering, recorded)
            return

        async def one(sample: int, hint: str | None = None) -> None:
            await self.attempt(step, gathering, sample, recorded, hint)

        if settings.rollouts == "adaptive":
            await gather_all(one(sample) for sample in range(min(adaptive.FIRST, plain)))
            while not _enough(gathering, plain):
                await one(len(gathering.rollouts))
            self._progress.attempts -= plain - len(gathering.rollouts)
        else:
            await gather_all(one(sample) for sample in range(plain))
        if hints and not any(gathering.rewards):
            failed = gathering.group.rollouts
            proposed = await self._strategies(step, problem, failed, hints)
            await gather_all(one(plain + n, hint) for n, hint in enumerate(proposed))
        elif hints and settings.rollouts == "fixed":
            await gather_all(one(sample) for sample in range(plain, settings.group_size))

    def _belonging(self, gathering: Gathering, base: int) -> Belonging:
        """Returns what belongs to a group's problem: of the version in force, and candidates."""
        pool = base_library = gathering.library
        if base != pool.version.number:
            base_library = self._store.library(self._store.version(base))
        problem = gathering.problem.problem
        return belonging(pool, frozenset(base_library.by_id), problem, self._settings.injected)

    async def _strategies(
        self, step: int, problem: Problem, failed: Sequence[Rollout], count: int
    ) -> list[str]:
        try:
            return await strategies.propose(
                self._reflector, self._reflection, problem, failed, count, step=step
            )
        except CallFailed as error:
            self._failures.append(Failure("strategies", problem.id, str(error)))
            return []

    def failures(self) -> list[Failure]:
        """Returns what could not be had since this was last asked, by problem."""
        failures, self._failures = self._failures, []
        return sorted(failures, key=lambda failure: (failure.problem, failure.stage))

    async def _branch(self, step: int, gathering: Gathering, recorded: Recorded) -> None:
        """Fills a group by attempts from the prompt, and others that branch off those."""
        size, agent = self._settings.group_size, self._agent
        assert agent is not None, "settings ensure it"

        async def root(sample: int) -> None:
            await self.attempt(step, gathering, sample, recorded)

        await root(0)
        first = gathering.rollouts[0].messages
        after_tools = [uncertainty for _, uncertainty in branching.uncertain_results(first)]
        count = branching.count_roots(size, branching.start_uncertainty(first), after_tools)
        await gather_all(root(sample) for sample in range(1, count))
        roots = {sample: rollout.messages for sample, rollout in gathering.rollouts.items()}
        uncertainty: dict[BranchPoint, float] = {}
        for sample, messages in sorted(roots.items()):
            start = branching.start_uncertainty(messages) or 0.0
            for at, value in branching.uncertain_results(messages) or await self._glances(
                step, gathering, sample, recorded
            ):
                uncertainty[BranchPoint(sample, at)] = value - start
        places = branching.choose_branch_points(roots, size - count, uncertainty)
        self._progress.attempts -= size - count - len(places)
        await gather_all(
            self.attempt(step, gathering, count + number, recorded, branch=place)
            for number, place in enumerate(places)
        )

    async def _glances(
        self, step: int, gathering: Gathering, sample: int, recorded: Recorded
    ) -> list[tuple[int, float]]:
        """Returns how much cheap next actions disagree after each tool result of an attempt."""
        assert self._agent is not None
        messages = gathering.rollouts[sample].messages
        call_path = (step, gathering.problem.id)
        library = relevant(
            gathering.library, gathering.problem.problem, self._settings.injected, always=(TRIAL,)
        )
        context = self._context(gathering.problem, library, sample, call_path, None)
        disagreements: list[tuple[int, float]] = []
        for at, message in enumerate(messages):
            if "cached" in message and len(disagreements) < GLANCES:
                try:
                    actions = await self._agent.next_actions(context, messages[: at + 1])
                except CallFailed as error:
                    problem = gathering.problem.id
                    self._failures.append(Failure("next actions", problem, str(error)))
                    continue
                disagreements.append((at, branching.disagreement(actions)))
        return disagreements

    async def recall(self, step: int, gathering: Gathering, recorded: Recorded) -> None:
        """Fills a gathering with what is on record of it, but for the samples that are out."""
        for (problem, sample), row in sorted(recorded.items()):
            if (
                problem == gathering.problem.id
                and sample < CONFIRMING
                and sample not in gathering.out
            ):
                branch = BranchPoint(*row.verdict["branch"]) if "branch" in row.verdict else None
                hint = row.verdict.get("hint")
                await self.attempt(step, gathering, sample, recorded, hint, branch)

    # one attempt:

    async def attempt(
        self,
        step: int,
        gathering: Gathering,
        sample: int,
        recorded: Recorded,
        hint: str | None = None,
        branch: BranchPoint | None = None,
    ) -> None:
        """Makes or recalls one attempt, records it and adds it to its group, unless it is there."""
        if sample in gathering.rollouts:
            return
        problem, library = gathering.problem, gathering.library
        shared = gathering.rollouts[branch.sample].messages[: branch.at + 1] if branch else ()
        row = recorded.get((problem.id, sample))
        rollout = await self.recalled(problem, row, shared) if row else None
        if rollout is None:
            call_path = (step, problem.id)
            ids = [experience.id for experience in library if experience.id != TRIAL]
            there, seed = gathering.there, self._settings.seed
            if there is not None:
                absent = hidden(there, seed, call_path, sample)
                shown: Library = Part(library, {*there.in_force, *there.candidates} - absent)
            else:  # for what harms the coin is turned round
                rate = self._settings.dropout
                absent = gathering.omitted ^ left_out(ids, rate, seed, (*call_path, sample))
                shown = library.less(absent)
            if sample in gathering.failed:
                rollout = failed(problem, sample, gathering.failed[sample])
            else:
                try:
                    top_k = None if there is not None else self._settings.injected
                    shown = relevant(shown, problem.problem, top_k, always=(TRIAL,))
                    context = self._context(problem, shown, sample, call_path, hint)
                    rollout = await attempt(self._domain, replace(context, prefix=shared))
                except RenderFailed as error:
                    rollout = failed(problem, sample, str(error))
            belongs = (*there.in_force, *there.candidates) if there is not None else ()
            rollout = replace(rollout, hint=hint, without=absent, branch=branch, belongs=belongs)
            if rollout.outcome != "failed":  # what failed may succeed when the run goes on
                await self.record(step, rollout, library)
        gathering.rollouts[sample] = rollout
        if sample < CONFIRMING:
            self._progress.attempts_done += 1
            if rollout.reward is not None:
                self._progress.rewards.append(rollout.reward)
        self._progress.announce()
        if self._on_attempt is not None:
            self._on_attempt(rollout)

    async def record(self, step: int, rollout: Rollout, library: Library) -> None:
        """Puts a rollout on record, with the library it ran under."""
        await self._journal.rollout(self._row(step, rollout, library))

    def _row(self, step: int, rollout: Rollout, library: Library) -> RolloutRow:
        run = self._store.runs.row_id(self._run)
        row = _row(run, step, rollout, library.version.number)
        if len(rollout.calls) == 1 and self._domain.rollout is answer_once:
            return row  # what it says is in the call
        return row._replace(verdict={**row.verdict, "response": rollout.response})

    def _context(
        self,
        problem: Problem,
        library: Library,
        sample: int,
        call_path: CallPath,
        hint: str | None,
    ) -> Context:
        settings = self._settings
        library = of_other_problems(library, problem.problem)
        messages = rendered(
            self._domain, self._template, library, problem, settings.agent_objective
        )
        return Context(
            problem=problem,
            messages=strategies.hinted(messages, hint) if hint else messages,
            calls=self._policy,
            judge=self._reflector,
            verifier=self._verifier,
            sampling=Sampling(settings.temperature, settings.max_tokens, settings.seed),
            sample=sample,
            call_path=call_path,
            library=library,
        )

    async def recalled(
        self, problem: Problem, row: RolloutRow, shared: tuple[Json, ...]
    ) -> Rollout | None:
        """Returns a rollout that was recorded before the run was interrupted.

        `shared` are the messages it has from the attempt that it branches off.

        One that failed is not: what failed then may well succeed now.
        """
        if row.outcome == "failed":
            return None
        response: str | None = None
        for call in await self._policy.recorded(row.calls):
            if call is None:
                return None
            answer = Answer(**call.answer)
            response = answer.visible
            self._policy.count_replayed("rollout", answer)
        verdict = row.verdict
        return Rollout(
            problem=problem,
            sample=row.sample,
            response=verdict.get("response", response or ""),
            outcome=row.outcome,
            reward=row.reward,
            answer=verdict.get("answer"),
            reason=verdict.get("reason", ""),
            calls=row.calls,
            details=verdict.get("details", {}),
            messages=(*shared, *verdict.get("messages", ())),
            branch=BranchPoint(*verdict["branch"]) if "branch" in verdict else None,
            hint=verdict.get("hint"),
            without=frozenset(verdict.get("without", ())),
            belongs=tuple(verdict.get("belongs", ())),
        )


def _enough(gathering: Gathering, most: int) -> bool:
    return len(gathering.rollouts) >= most or gathering.group.mixed


def _row(run: int, step: int, rollout: Rollout, version: int) -> RolloutRow:
    verdict: dict[str, Any] = {"answer": rollout.answer, "reason": rollout.reason}
    if rollout.details:
        verdict["details"] = dict(rollout.details)
    if rollout.messages:
        shared = 0 if rollout.branch is None else rollout.branch.at + 1
        verdict["messages"] = list(rollout.messages[shared:])
    if rollout.branch is not None:
        verdict["branch"] = list(rollout.branch)
    if rollout.hint is not None:
        verdict["hint"] = rollout.hint
    if KIND in rollout.problem.meta:
        verdict[KIND] = str(rollout.problem.meta[KIND])
    if rollout.without:
        verdict["without"] = sorted(rollout.without)
    if rollout.belongs:
        verdict["belongs"] = list(rollout.belongs)
    return RolloutRow(
        run=run,
        step=step,
        problem=rollout.problem.id,
        sample=rollout.sample,
        version=version,
        calls=rollout.calls,
        outcome=rollout.outcome,
        reward=rollout.reward,
        verdict=verdict,
        time=time.time_ns() // 1000,
    )
