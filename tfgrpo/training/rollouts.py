"""Collecting: the rollouts of a step, recorded as they are judged, recalled when they were before.

Which attempts are made follows from the settings, a seed and the rewards of a problem's own
attempts, never from the order in which answers arrive, so a run that is resumed makes the same
ones. The exception is a quorum: who is late is a matter of time, so it is put on record.

Attempts at one problem are numbered. In a fixed group they are 0 to n-1 at once. An adaptive one
begins with two and goes on one by one (`adaptive.py`). A problem that nothing has solved yet
gets its later attempts under strategies that the reflection model proposes (`strategies.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tfgrpo.data.problems import KIND, Problem
from tfgrpo.domains.base import Context, Domain, Sampling
from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.endpoint import Answer, CallFailed, EndpointError
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import NothingToLearn, OnProgress, ignore
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rendering.templates import Template
from tfgrpo.rollout import branching
from tfgrpo.rollout.agent import Agent
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout, attempt
from tfgrpo.rollout.branching import BranchPoint
from tfgrpo.session import Session
from tfgrpo.settings import TrainSettings
from tfgrpo.store.records import Experience, Json, Library
from tfgrpo.store.runs import RolloutRow, Run
from tfgrpo.training import adaptive, first_look, strategies
from tfgrpo.training.ablations import by_majority
from tfgrpo.training.adaptive import Belief
from tfgrpo.training.confirmation import ONE_OF_TWO, TRIAL, Confirmation
from tfgrpo.training.credit import left_out
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

    With `keep_going` a run whose first attempts leave nothing to learn goes on.
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


class Collector:
    """Makes the rollouts of a run, step by step. Close it when the run is done."""

    def __init__(self, parts: RunParts) -> None:
        self._store, self._journal = parts.session.store, parts.session.journal
        self._verifier = parts.session.verifier
        self._run, self._settings, self._domain = parts.run, parts.settings, parts.domain
        self._template, self._reflection = parts.template, parts.reflection
        self._policy, self._reflector = parts.policy, parts.reflector
        self._progress = parts.progress
        self._late: list[Gathering] = []
        self._failures: list[Failure] = []
        self._agent: Agent | None = None
        self._keep_going, self._on_progress = parts.keep_going, parts.on_progress
        self._looked = not first_look.applies(parts.settings)
        self._held: list[Gathering] = []

    def equip(self, domain: Domain, agent: Agent | None) -> None:
        """Has attempts made by an agent from now on; `domain` is the run's with its rollout."""
        self._domain, self._agent = domain, agent

    async def groups(
        self,
        step: int,
        batch: Sequence[Problem],
        library: Library,
        *,
        last: bool = False,
        on_group: Callable[[int, Group], None] | None = None,
    ) -> list[Group]:
        """Returns a group for each problem of the batch that was attempted, in its order.

        `on_group` is called with each as soon as it is whole, and its place in the batch; that
        is for groups that wait for no other, of fixed size or of branches and without a quorum.

        With a quorum, attempts that are late are left out; groups that they make mixed come
        after those of a later step, with the version they ran under in `Group.version`. The
        last step waits for all. Raises EndpointError when every attempt failed, and StoppedEarly
        when the first attempts of the run leave nothing to learn.
        """
        settings, progress = self._settings, self._progress
        rows = self._store.runs.rollouts(self._run)
        recorded = {(r.problem, r.sample): r for r in rows if r.step == step}
        wants_beliefs = settings.rollouts == "adaptive" or settings.hints > 0
        beliefs = self._beliefs(rows, step) if wants_beliefs else {}
        if settings.rollouts == "adaptive":
            names = [problem.id for problem in batch]
            seed = f"{settings.seed}/{step}"
            chosen = set(adaptive.chosen(names, beliefs, settings.group_size, seed=seed))
            batch = [problem for problem in batch if problem.id in chosen]
        progress.groups, progress.groups_done, progress.mixed = len(batch), 0, 0
        progress.attempts, progress.attempts_done = len(batch) * settings.group_size, 0
        progress.rewards = []

        async def fill(gathering: Gathering) -> None:
            await gathering.begin.wait()
            await self._fill(step, gathering, recorded, beliefs)
            progress.groups_done += 1
            progress.mixed += gathering.group.mixed
            if on_group is not None:
                on_group(gatherings.index(gathering), self._scored(gathering.group))

        self._looked = self._looked or step > 0
        self._look_back(batch, recorded)
        gatherings = [Gathering(problem, library) for problem in batch]
        self._hold_back(gatherings)
        for gathering in gatherings:
            gathering.task = asyncio.create_task(fill(gathering))
        await self._until_quorum(gatherings, last)
        if settings.rollouts == "adaptive":
            await self._spend_saved(step, gatherings, recorded, beliefs)
        groups = [gathering.group for gathering in gatherings]
        self._look(gatherings, whole=True)
        self._looked = True
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        if rollouts and all(rollout.outcome == "failed" for rollout in rollouts):
            raise EndpointError(
                f"every attempt in step {step} failed: {rollouts[0].reason}",
                hint="nothing was learned; check --max-tokens, --task-timeout and the model",
            )
        groups += self._arrived(gatherings)
        return [self._scored(group) for group in groups]

    def _scored(self, group: Group) -> Group:
        return by_majority(group) if self._settings.reward == "majority" else group

    async def confirms(
        self,
        step: int,
        group: Group,
        number: int,
        lesson: str,
        library: Library,
        wanted: Confirmation = ONE_OF_TWO,
    ) -> bool:
        """Returns whether attempts with a lesson in the library, and no strategy, succeed.

        `number` is the lesson's among those of its group. Attempts are made one after the other
        until it is known; they are on record like all others, and part of no group.
        """
        trial = Library(library.version, (*library, Experience(TRIAL, lesson, 0)))
        rows = self._store.runs.rollouts(self._run, step)
        recorded = {(r.problem, r.sample): r for r in rows}
        gathering = Gathering(group.problem, trial)
        for left in range(wanted.attempts, 0, -1):
            sample = CONFIRMING + (number + 1) * wanted.attempts - left
            await self._rollout(step, gathering, sample, recorded)
            right = sum(reward > 0 for reward in gathering.rewards)
            if right >= wanted.right or right + left - 1 < wanted.right:
                break
        return sum(reward > 0 for reward in gathering.rewards) >= wanted.right

    async def close(self) -> None:
        """Ends the attempts that are still out."""
        await _cancelled(self._late)
        self._late.clear()

    # how groups are filled:

    async def _fill(
        self,
        step: int,
        gathering: Gathering,
        recorded: Recorded,
        beliefs: Mapping[str, Belief],
    ) -> None:
        settings, problem = self._settings, gathering.problem
        hints = settings.hints if beliefs.get(problem.id, Belief()).wins == 0 else 0
        plain = max(1, settings.group_size - hints)

        if settings.rollouts == "branch":
            await self._branch(step, gathering, recorded)
            return

        async def one(sample: int, hint: str | None = None) -> None:
            await self._rollout(step, gathering, sample, recorded, hint)

        if settings.rollouts == "adaptive":
            await gather_all(one(sample) for sample in range(min(adaptive.FIRST, plain)))
            while not self._enough(gathering, plain):
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

    async def _spend_saved(
        self,
        step: int,
        gatherings: Sequence[Gathering],
        recorded: Recorded,
        beliefs: Mapping[str, Belief],
    ) -> None:
        """Gives the attempts that mixed groups saved to groups that are still all alike."""
        size = self._settings.group_size
        saved = sum(max(0, size - len(gathering.rollouts)) for gathering in gatherings)
        alike = {g.problem.id: g.rewards for g in gatherings if not g.group.mixed}
        given = adaptive.extra(alike, beliefs, saved, size)
        self._progress.attempts += sum(given.values())

        async def more(gathering: Gathering) -> None:
            most = len(gathering.rollouts) + given.get(gathering.problem.id, 0)
            while not self._enough(gathering, most):
                await self._rollout(step, gathering, len(gathering.rollouts), recorded)
            self._progress.attempts -= most - len(gathering.rollouts)

        await gather_all(map(more, gatherings))

    async def _branch(self, step: int, gathering: Gathering, recorded: Recorded) -> None:
        """Fills a group by attempts from the prompt, and others that branch off those."""
        size, agent = self._settings.group_size, self._agent
        assert agent is not None, "settings ensure it"

        async def root(sample: int) -> None:
            await self._rollout(step, gathering, sample, recorded)

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
            self._rollout(step, gathering, count + number, recorded, branch=place)
            for number, place in enumerate(places)
        )

    async def _glances(
        self, step: int, gathering: Gathering, sample: int, recorded: Recorded
    ) -> list[tuple[int, float]]:
        """Returns how much cheap next actions disagree after each tool result of an attempt."""
        assert self._agent is not None
        messages = gathering.rollouts[sample].messages
        call_path = (step, gathering.problem.id)
        context = self._context(gathering.problem, gathering.library, sample, call_path, None)
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

    def _enough(self, gathering: Gathering, most: int) -> bool:
        return len(gathering.rollouts) >= most or gathering.group.mixed

    # a quorum, and who comes late:

    async def _until_quorum(self, gatherings: Sequence[Gathering], last: bool) -> None:
        """Waits until the share of attempts that is asked for is in; on an error ends the rest."""
        share = 1.0 if last else self._settings.quorum
        waited = [*gatherings, *(self._late if last else ())]
        try:
            while tasks := {g.task for g in waited if g.task is not None and not g.done}:
                self._raise_errors(waited)
                if share < 1.0 and self._progress.attempts_done >= share * self._progress.attempts:
                    break
                await asyncio.wait(
                    tasks,
                    timeout=0.05 if share < 1.0 else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                self._look(gatherings)
                if all(gathering.done for gathering in gatherings if gathering.begin.is_set()):
                    self._let_begin(self._first_groups)
            self._raise_errors(waited)
        except BaseException:
            await _cancelled([*gatherings, *self._late])
            raise

    # a look at the first attempts:

    def _hold_back(self, gatherings: Sequence[Gathering]) -> None:
        """Lets groups begin: all, or those that the first look needs where that is to come.

        So what is paid for before a run stops does not depend on how fast verdicts are. The
        others begin as soon as two attempts differ, or when all before them are done.
        """
        self._held = list(gatherings)
        looks = not self._looked and not self._keep_going
        self._let_begin(self._first_groups if looks else len(gatherings))

    @property
    def _first_groups(self) -> int:
        """How many groups a first look takes at the least."""
        return -(-min(first_look.ENOUGH.values()) // self._settings.group_size)

    def _let_begin(self, count: int) -> None:
        for gathering in self._held[:count]:
            gathering.begin.set()
        del self._held[:count]

    def _look(self, gatherings: Sequence[Gathering], *, whole: bool = False) -> None:
        """Says so where nothing can be learned, and raises StoppedEarly unless told otherwise."""
        if self._looked:
            return
        rollouts = [r for gathering in gatherings for r in gathering.group.rollouts]
        problems = [gathering.problem for gathering in gatherings]
        self._tell(first_look.look(rollouts, problems, self._settings, whole=whole))

    def _look_back(self, batch: Sequence[Problem], recorded: Recorded) -> None:
        """The same for attempts on record, before a run that was stopped for them makes others."""
        rewards = {row.reward for row in recorded.values()}
        if self._looked or self._keep_going or not rewards or len(rewards - {None}) > 1:
            return
        by_id = {problem.id: problem for problem in batch}
        recalled = (
            self._recalled(by_id[problem], row, ())
            for (problem, sample), row in recorded.items()
            if problem in by_id and sample < CONFIRMING
        )
        rollouts = [rollout for rollout in recalled if rollout is not None]
        self._tell(first_look.look(rollouts, batch, self._settings))

    def _tell(self, notice: NothingToLearn | None) -> None:
        if notice is None:
            return
        self._looked = True
        self._on_progress(notice)
        if not self._keep_going:
            raise first_look.StoppedEarly(notice, self._run.name)

    def _raise_errors(self, gatherings: Iterable[Gathering]) -> None:
        for gathering in gatherings:
            if gathering.task is not None and gathering.task.done():
                gathering.task.result()

    def _arrived(self, gatherings: Sequence[Gathering]) -> list[Group]:
        """Returns groups of earlier steps that late attempts have made mixed since; notes who is
        late now."""
        groups = [g.group for g in self._late if g.group.mixed and not g.was_mixed]
        self._late = [g for g in (*self._late, *gatherings) if not g.done]
        for gathering in self._late:
            gathering.was_mixed = gathering.group.mixed
        self._progress.late = len(self._late)
        return groups

    # what is known of problems from earlier steps:

    def _beliefs(self, rows: Iterable[RolloutRow], step: int) -> dict[str, Belief]:
        """Returns what the run's earlier steps tell of each problem, fading as libraries change."""
        beliefs: dict[str, Belief] = {}
        library: Library | None = None
        seen: dict[int, dict[str, list[float]]] = {}
        versions: dict[int, int] = {}
        for row in rows:
            plain = row.sample < CONFIRMING and "hint" not in row.verdict
            if row.step < step and row.reward is not None and plain:
                seen.setdefault(row.step, {}).setdefault(row.problem, []).append(row.reward)
                versions[row.step] = row.version
        for earlier in sorted(seen):
            current = self._store.library(self._store.version(versions[earlier]))
            if library is not None and library != current:
                beliefs = {problem: belief.faded() for problem, belief in beliefs.items()}
            library = current
            for problem, rewards in seen[earlier].items():
                beliefs[problem] = beliefs.get(problem, Belief()).after(rewards)
        return beliefs

    # one rollout:

    async def _rollout(
        self,
        step: int,
        gathering: Gathering,
        sample: int,
        recorded: Recorded,
        hint: str | None = None,
        branch: BranchPoint | None = None,
    ) -> None:
        """Makes or recalls one attempt, records it and adds it to its group."""
        problem, library = gathering.problem, gathering.library
        shared = gathering.rollouts[branch.sample].messages[: branch.at + 1] if branch else ()
        row = recorded.get((problem.id, sample))
        rollout = self._recalled(problem, row, shared) if row else None
        if rollout is None:
            call_path = (step, problem.id)
            ids = [experience.id for experience in library]
            absent = left_out(
                ids, self._settings.dropout, self._settings.seed, (*call_path, sample)
            )
            context = self._context(problem, library.less(absent), sample, call_path, hint)
            rollout = await attempt(self._domain, replace(context, prefix=shared))
            rollout = replace(rollout, hint=hint, without=absent, branch=branch)
            if rollout.outcome != "failed":  # what failed may succeed when the run goes on
                await self.record(step, rollout, library)
        gathering.rollouts[sample] = rollout
        self._progress.attempts_done += 1
        if rollout.reward is not None:
            self._progress.rewards.append(rollout.reward)
        self._progress.announce()
        if self._held and len(set(self._progress.rewards)) > 1:
            self._let_begin(len(self._held))

    async def record(self, step: int, rollout: Rollout, library: Library) -> None:
        """Puts a rollout on record, with the library it ran under."""
        await self._journal.rollout(self._row(step, rollout, library))

    def _row(self, step: int, rollout: Rollout, library: Library) -> RolloutRow:
        return _row(self._store.runs.row_id(self._run), step, rollout, library.version.number)

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
        library = relevant(library, problem.problem, settings.injected, always=(TRIAL,))
        messages = self._domain.render(self._template, library, problem, settings.agent_objective)
        return Context(
            problem=problem,
            messages=strategies.hinted(messages, hint) if hint else messages,
            calls=self._policy,
            judge=self._reflector,
            verifier=self._verifier,
            sampling=Sampling(settings.temperature, settings.max_tokens, settings.seed),
            sample=sample,
            call_path=call_path,
        )

    def _recalled(
        self, problem: Problem, row: RolloutRow, shared: tuple[Json, ...]
    ) -> Rollout | None:
        """Returns a rollout that was recorded before the run was interrupted.

        `shared` are the messages it has from the attempt that it branches off.

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
            self._policy.count_replayed("rollout", answer)
        verdict = row.verdict
        return Rollout(
            problem=problem,
            sample=row.sample,
            response=verdict.get("response", response),
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
        )


async def _cancelled(gatherings: Iterable[Gathering]) -> None:
    """Ends the attempts that are out, and waits until they have ended."""
    tasks = [gathering.task for gathering in gatherings if gathering.task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _row(run: int, step: int, rollout: Rollout, version: int) -> RolloutRow:
    verdict: dict[str, Any] = {"answer": rollout.answer, "reason": rollout.reason}
    if rollout.details:
        verdict["details"] = dict(rollout.details)
    if rollout.messages:
        shared = 0 if rollout.branch is None else rollout.branch.at + 1
        verdict["messages"] = list(rollout.messages[shared:])
    if rollout.messages or len(rollout.calls) > 1:  # else it is what the call says
        verdict["response"] = rollout.response
    if rollout.branch is not None:
        verdict["branch"] = list(rollout.branch)
    if rollout.hint is not None:
        verdict["hint"] = rollout.hint
    if KIND in rollout.problem.meta:
        verdict[KIND] = str(rollout.problem.meta[KIND])
    if rollout.without:
        verdict["without"] = sorted(rollout.without)
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
