"""A group: the attempts at one problem in one step, made or recalled, verified and recorded.

A `GroupTask` says in plain data which: whoever has the store (this process, or a worker on another
machine) makes the very same attempts of it, with the same keys in the journal, so a group that was
begun elsewhere is gone on with from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tfgrpo.data.problems import KIND, Problem
from tfgrpo.domains.base import (
    Context,
    Domain,
    DomainError,
    More,
    Sampling,
    answer_once,
    describe_error,
)
from tfgrpo.learn.assign import PAIR, TURNS, Belonging, belonging, hidden
from tfgrpo.learn.progress import Progress
from tfgrpo.learn.reflection import Reflection
from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.endpoint import Answer
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import OnProgress, ignore
from tfgrpo.rendering.experience_texts import of_other_problems
from tfgrpo.rendering.prompt_templates import Template
from tfgrpo.rendering.retrieve import Part, relevant
from tfgrpo.rollout.agent_loop import Agent
from tfgrpo.rollout.attempt import (
    CONFIRMING,
    Group,
    RenderFailed,
    Rollout,
    attempt,
    failed,
    rendered,
)
from tfgrpo.session import Session
from tfgrpo.settings import TRIAL as POLICY_TRIAL
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import RolloutRow, Run
from tfgrpo.store.records import Library
from tfgrpo.tools.tool import ToolSpec

TRIAL = "lesson"
"""Stands for the id of a lesson that attempts are to confirm."""
Recorded = Mapping[tuple[str, int], RolloutRow]
"""The rollouts of a step that are recorded already, by problem and sample."""


@dataclass(eq=False, slots=True)
class Gathering:
    """A group that is being filled: the attempts at a problem that are in so far."""

    problem: Problem
    library: Library
    rollouts: dict[int, Rollout] = field(default_factory=dict)
    is_whole: bool = False
    begin: asyncio.Event = field(default_factory=asyncio.Event)
    there: Belonging | None = None
    """What belongs to the problem, where attempts are shown a part of that."""
    failed: dict[int, str] = field(default_factory=dict)
    """Attempts that have failed elsewhere, and why: they are not made again."""

    @property
    def group(self) -> Group:
        """The group as it stands, in sample order."""
        rollouts = tuple(self.rollouts[sample] for sample in sorted(self.rollouts))
        return Group(self.problem, rollouts, self.library.version.number)


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the parts of one run share: its session, settings, prompts and both models. With
    `keep_going` a run whose first attempts leave nothing to learn goes on. `prompts` is a folder of
    prompts that replace the built-in ones. `problems` are those that the run learns from, and `new`
    are others whose texts show what new problems are like."""

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
    problems: Sequence[Problem] = ()
    new: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class GroupTask:
    """Which group is to be made, in plain data that means the same on every machine. The run by its
    uid, the step from 0, the problem by its id, the version whose library is in force, and the
    digest of the run's settings. `base` is the version in force where `version` is one of
    candidates (`pool.py`), of which attempts are shown a part; 0 where all see all. `tried` names
    the candidates that are tried at the problem (`rivals.py`), and `usual` is how alike an
    example's problem may be, as those of new problems are (`new_problems.py`)."""

    run: str
    step: int
    problem: str
    version: int
    settings: str
    base: int = 0
    tried: Sequence[str] = ()
    usual: float | None = None

    @property
    def lock(self) -> str:
        """A key that is the same for two tasks that must not be worked on at once."""
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
        self._template = parts.template
        self._policy, self._reflector = parts.policy, parts.reflector
        self._progress, self._on_attempt = parts.progress, on_attempt
        self._agent: Agent | None = None

    def equip(self, domain: Domain, agent: Agent | None) -> None:
        """Has attempts made by an agent from now on; `domain` is the run's with its rollout."""
        self._domain, self._agent = domain, agent

    async def tools(self) -> list[ToolSpec]:
        """What an agent's attempts are told of tools; none where there is no agent."""
        return [] if self._agent is None else await self._agent.specs()

    async def make(self, task: GroupTask, gathering: Gathering, recorded: Recorded) -> None:
        """Makes the attempts of a task that are not recorded, and recalls the others. A request
        that cannot be answered gives a failed attempt. Raises EndpointError, BudgetReached and
        StoreError."""
        if task.base:
            gathering.there = self._belonging(gathering, task)
        size, step = self._settings.group_size, task.step
        if self._domain.group is None:
            await gather_all(self.attempt(step, gathering, n, recorded) for n in range(size))
            return
        while more := _next(self._domain.group, gathering, size):
            first = len(gathering.rollouts)
            await gather_all(
                self.attempt(step, gathering, first + n, recorded) for n in range(more)
            )
        self._progress.attempts -= size - len(gathering.rollouts)

    def _belonging(self, gathering: Gathering, task: GroupTask) -> Belonging:
        pool = base_library = gathering.library
        if task.base != pool.version.number:
            base_library = self._store.library(self._store.version(task.base))
        shown = (self._settings.top_k or None, self._domain.retrieve)
        in_force = frozenset(base_library.by_id)
        text = gathering.problem.problem
        return belonging(pool, in_force, text, shown, task.tried, task.usual)

    # one attempt:

    async def attempt(
        self, step: int, gathering: Gathering, sample: int, recorded: Recorded
    ) -> None:
        """Makes or recalls one attempt, records it and adds it to its group, unless it is there."""
        if sample in gathering.rollouts:
            return
        problem, library = gathering.problem, gathering.library
        row = recorded.get((problem.id, sample))
        rollout = await self.recalled(problem, row) if row else None
        if rollout is None:
            call_path, there = (step, problem.id), gathering.there
            absent: frozenset[str] = frozenset()
            if there is not None:
                is_pair = self._settings.policy == POLICY_TRIAL or len(there.candidates) == 1
                turns = PAIR if is_pair else TURNS
                absent = hidden(there, self._settings.seed, call_path, sample, turns)
                shown: Library = Part(library, there.shown(absent))
            else:
                top_k, rank = self._settings.top_k or None, self._domain.retrieve
                shown = relevant(library, problem.problem, top_k, always=(TRIAL,), rank=rank)
            if sample in gathering.failed:
                rollout = failed(problem, sample, gathering.failed[sample])
            else:
                try:
                    context = self._context(problem, shown, sample, call_path)
                    rollout = await attempt(self._domain, context)
                except RenderFailed as error:
                    rollout = failed(problem, sample, str(error))
            belongs = () if there is None else there.factors
            rollout = replace(rollout, without=absent, belongs=belongs)
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
        row = _row(self._store.runs.row_id(self._run), step, rollout, library.version.number)
        if len(rollout.calls) != 1 or self._domain.rollout is not answer_once:
            row = row._replace(verdict={**row.verdict, "response": rollout.response})
        await self._journal.rollout(row)  # else what it says is in the call

    def _context(
        self, problem: Problem, library: Library, sample: int, call_path: CallPath
    ) -> Context:
        settings = self._settings
        library = of_other_problems(library, problem.problem)
        messages = rendered(
            self._domain, self._template, library, problem, settings.agent_objective
        )
        return Context(
            problem=problem,
            messages=messages,
            calls=self._policy,
            judge=self._reflector,
            verifier=self._verifier,
            sampling=Sampling(settings.temperature, settings.max_tokens, settings.seed),
            sample=sample,
            call_path=call_path,
            library=library,
        )

    async def recalled(self, problem: Problem, row: RolloutRow) -> Rollout | None:
        """A rollout that was recorded before the run was interrupted; None for one that failed,
        since what failed then may well succeed now."""
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
            messages=tuple(verdict.get("messages", ())),
            without=frozenset(verdict.get("without", ())),
            belongs=tuple(verdict.get("belongs", ())),
        )


def _next(group: More, gathering: Gathering, most: int) -> int:
    rewards = [gathering.rollouts[sample].reward for sample in sorted(gathering.rollouts)]
    name = getattr(group, "__name__", type(group).__name__)
    try:
        more = group(rewards, most)
        if isinstance(more, bool) or not isinstance(more, int) or more < 0:
            raise TypeError(f"{more!r} is no number of attempts")
    except (Exception, SystemExit) as error:  # whatever code of the user's does
        raise DomainError(
            f"group {name}: {describe_error(error)}",
            hint="it takes the rewards so far and the most attempts, and returns how many are next",
        ) from error
    return min(more, most - len(rewards))


def _row(run: int, step: int, rollout: Rollout, version: int) -> RolloutRow:
    verdict: dict[str, Any] = {"answer": rollout.answer, "reason": rollout.reason}
    more = {
        "details": dict(rollout.details),
        "messages": list(rollout.messages),
        "without": sorted(rollout.without),
        "belongs": list(rollout.belongs),
    }
    verdict |= {name: value for name, value in more.items() if value}
    if KIND in rollout.problem.meta:
        verdict[KIND] = str(rollout.problem.meta[KIND])
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
