"""Collecting: the rollouts of a step, recorded as they are judged, recalled when they were before.

Which attempts are made follows from the settings, a seed and the rewards of a problem's own
attempts, never from the order in which answers arrive, so a run that is resumed makes the same
ones. The exception is a quorum: who is late is a matter of time, so it is put on record before
anything follows from it: a step that is resumed goes on without the same attempts, and knows of
earlier steps what it knew.

What a step's groups have in common is here: which problems are attempted, when each begins, who is
late, and when enough is in. The attempts of one group are in `groups.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain
from tfgrpo.evaluation.omissions import Omissions, kind_of, left_out_for, predict_harm
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import NothingToLearn, WarningNotice
from tfgrpo.rollout.agent import Agent
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout
from tfgrpo.store.records import Experience, Library
from tfgrpo.store.runs import RolloutRow
from tfgrpo.training import adaptive, first_look
from tfgrpo.training.ablations import by_majority
from tfgrpo.training.adaptive import Belief
from tfgrpo.training.beliefs import Beliefs
from tfgrpo.training.confirmation import ONE_OF_TWO, TRIAL, Confirmation
from tfgrpo.training.groups import Gathering, GroupMaker, GroupTask, Makers, Recorded, RunParts
from tfgrpo.training.reflection import Failure


class Collector:
    """Makes the rollouts of a run, step by step. Close it when the run is done."""

    def __init__(self, parts: RunParts) -> None:
        self._store = parts.session.store
        self._run, self._settings = parts.run, parts.settings
        self._progress = parts.progress
        self._here = GroupMaker(parts, self._note_attempt)
        self._makers: Makers = self._here
        self._beliefs = Beliefs(self._store, self._run)
        self._moved = asyncio.Event()
        self._late: list[Gathering] = []
        self._keep_going, self._on_progress = parts.keep_going, parts.on_progress
        self._looked = not first_look.applies(parts.settings)
        self._first: list[Group] = []
        """Groups of earlier steps, as long as they are too few for a look at them."""
        self._held: list[Gathering] = []
        self.omissions: Omissions = {}
        """What the step at work leaves out for problems of a kind."""

    def hand_out(self, makers: Callable[[Makers], Makers]) -> None:
        """Has groups made by others from now on, who may have them made here after all."""
        self._makers = makers(self._here)

    def equip(self, domain: Domain, agent: Agent | None) -> None:
        """Has attempts made by an agent from now on; `domain` is the run's with its rollout."""
        self._here.equip(domain, agent)

    async def groups(
        self,
        step: int,
        batch: Sequence[Problem],
        library: Library,
        *,
        last: bool = False,
        on_group: Callable[[int, Group], None] | None = None,
        base: int = 0,
    ) -> list[Group]:
        """Returns a group for each problem of the batch that was attempted, in its order.

        `library` may be one of candidates, and `base` is then the version in force.
        `on_group` is called with each as soon as it is whole, and its place in the batch; that
        is for groups that wait for no other, of fixed size or of branches and without a quorum.

        With a quorum, attempts that are late are left out; groups that they make mixed come
        after those of a later step, with the version they ran under in `Group.version`. The
        last step waits for all. Raises EndpointError when every attempt failed, and StoppedEarly
        when the first attempts of the run leave nothing to learn.
        """
        settings, progress = self._settings, self._progress
        if settings.inject == "credited":  # by what was known before the step, so also on resume
            known = (self._run, step - 1)
            self.omissions = predict_harm(self._store, [library.version], upto=known)
        rows = self._store.runs.rollouts(self._run, step)
        recorded = {(r.problem, r.sample): r for r in rows}
        wants_beliefs = settings.rollouts == "adaptive" or settings.hints > 0
        names = [problem.id for problem in batch]
        known_out = self._store.runs.out(self._run, step - 1)
        beliefs = self._beliefs.before(step, names, known_out) if wants_beliefs else {}
        if settings.rollouts == "adaptive":
            seed = f"{settings.seed}/{step}"
            chosen = set(adaptive.chosen(names, beliefs, settings.group_size, seed=seed))
            batch = [problem for problem in batch if problem.id in chosen]
        progress.groups, progress.groups_done, progress.mixed = len(batch), 0, 0
        progress.attempts, progress.attempts_done = len(batch) * settings.group_size, 0
        progress.rewards = []

        async def fill(gathering: Gathering) -> None:
            await gathering.begin.wait()
            never_solved = beliefs.get(gathering.problem.id, Belief()).wins == 0
            hints = settings.hints if never_solved else 0
            if gathering.out:
                await self._here.recall(step, gathering, recorded)
                gathering.recalled = True
                self._moved.set()
                await gathering.went_on.wait()
            task = replace(self._task(step, gathering, hints), base=base)
            await self._makers.make(task, gathering, recorded)
            progress.groups_done += 1
            progress.mixed += gathering.group.mixed
            if on_group is not None:
                on_group(gatherings.index(gathering), self._scored(gathering.group))

        if settings.exemplars_first and library:  # something has been learned already
            self._looked = True
        await self._look_back(batch, recorded)
        out = self._store.runs.out(self._run, step) if settings.quorum < 1.0 else frozenset()
        gatherings = [
            Gathering(
                problem,
                library,
                step=step,
                out=frozenset(n for at, of, n in out if (at, of) == (step, problem.id)),
            )
            for problem in batch
        ]
        self._hold_back(gatherings)
        for gathering in gatherings:
            gathering.task = asyncio.create_task(fill(gathering))
        await self._until_quorum(gatherings, last)
        if settings.rollouts == "adaptive":
            await self._spend_saved(step, gatherings, recorded, beliefs)
        if settings.quorum < 1.0 and not out:
            self._note_out(step, gatherings)
        groups = [gathering.group for gathering in gatherings]
        if not (last and self._first):  # nothing is left to be saved, and the run's end says it
            self._look(gatherings, whole=True)
        if not self._looked:
            self._note_first(groups)
            warning = first_look.missing_work(self._first, settings, self._store)
            if warning is not None:
                self._on_progress(WarningNotice(warning))
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        if rollouts and all(rollout.outcome == "failed" for rollout in rollouts):
            raise EndpointError(
                f"every attempt in step {step + 1} failed: {rollouts[0].reason}",
                hint="nothing was learned; check --max-tokens, --task-timeout and the model, "
                "or the code of the domain",
            )
        groups += self._arrived(gatherings)
        for gathering in gatherings:
            gathering.recalled = False
            gathering.went_on.set()
        return [self._scored(group) for group in groups]

    def _task(self, step: int, gathering: Gathering, hints: int = 0) -> GroupTask:
        run, version = self._run, gathering.library.version.number
        without = tuple(sorted(self._harmful(gathering.problem, gathering.library)))
        problem = gathering.problem.id
        return GroupTask(run.uid, step, problem, version, run.digest, hints, without=without)

    def _harmful(self, problem: Problem, library: Library) -> frozenset[str]:
        return left_out_for(library, kind_of(problem), self.omissions)

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
        """Returns whether so many attempts with a lesson in the library, and no strategy, succeed.

        `number` is the lesson's among those of its group. Attempts are made one after the other
        until it is known; they are on record like all others, and part of no group.
        """
        trial = Library(library.version, (*library, Experience(TRIAL, lesson, 0)))
        rows = self._store.runs.rollouts(self._run, step)
        recorded = {(r.problem, r.sample): r for r in rows}
        gathering = Gathering(group.problem, trial)
        gathering.omitted = self._harmful(group.problem, library)
        right = 0
        for left in range(wanted.attempts, 0, -1):
            sample = CONFIRMING + (number + 1) * wanted.attempts - left
            await self._here.attempt(step, gathering, sample, recorded)
            right = sum(reward > wanted.above for reward in gathering.rewards)
            if right >= wanted.right or right + left - 1 < wanted.right:
                break
        return right >= wanted.right

    def failures(self) -> list[Failure]:
        """Returns what could not be had since this was last asked, by problem."""
        return self._here.failures()

    async def record(self, step: int, rollout: Rollout, library: Library) -> None:
        """Puts a rollout on record, with the library it ran under."""
        await self._here.record(step, rollout, library)

    async def close(self) -> None:
        """Ends the attempts that are still out."""
        await _cancelled(self._late)
        self._late.clear()

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
            count = given.get(gathering.problem.id, 0)
            if count:
                task = replace(self._task(step, gathering), most=len(gathering.rollouts) + count)
                await self._makers.make(task, gathering, recorded)

        await gather_all(map(more, gatherings))

    # a quorum, and who comes late:

    def _note_out(self, step: int, gatherings: Sequence[Gathering]) -> None:
        """Puts on record which attempts the step goes on without, where there are any."""
        samples = range(self._settings.group_size)
        out = [
            (g.step, g.problem.id, sample)
            for g in (*self._late, *gatherings)
            for sample in samples
            if not g.done and sample not in g.rollouts
        ]
        if out:
            self._store.runs.note_out(self._run, step, out)

    async def _until_quorum(self, gatherings: Sequence[Gathering], last: bool) -> None:
        """Waits until the share of attempts that is asked for is in; on an error ends the rest."""
        share = 1.0 if last else self._settings.quorum
        waited = [*gatherings, *(self._late if last else ())]
        try:
            for gathering in waited:
                if gathering.task is not None:
                    gathering.task.add_done_callback(lambda _: self._moved.set())
            again = any(gathering.out for gathering in gatherings)
            while not all(gathering.done or gathering.recalled for gathering in waited):
                self._raise_errors(waited)
                if (
                    not again
                    and share < 1.0
                    and self._progress.attempts_done >= share * self._progress.attempts
                ):
                    break
                await self._moved.wait()
                self._moved.clear()
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
        missing = min(first_look.ENOUGH.values()) - sum(len(one.rollouts) for one in self._first)
        return -(-missing // self._settings.group_size)

    def _note_attempt(self, rollout: Rollout) -> None:
        """Looks whether a quorum is in, and lets those begin that were held back, once two
        attempts differ."""
        if self._settings.quorum < 1.0:  # else groups are waited for, and not their attempts
            self._moved.set()
        if self._held and len(set(self._progress.rewards)) > 1:
            self._let_begin(len(self._held))

    def _let_begin(self, count: int) -> None:
        for gathering in self._held[:count]:
            gathering.begin.set()
        del self._held[:count]

    async def recall(self, batches: Sequence[Sequence[Problem]]) -> None:
        """Takes note of the attempts of a run's steps that are done, for the look at its first."""
        rows: list[RolloutRow] = []
        for step in range(len(batches)):
            self._looked = self._looked or first_look.is_over(rows)
            if self._looked:  # as in most runs: no answer has to be read for it
                return
            there = self._store.runs.rollouts(self._run, step)
            rows += (row for row in there if row.sample < CONFIRMING)
        problems = [problem for batch in batches for problem in batch]
        rollouts = await self._recalled(problems, rows)
        self._note_first([Group(rollout.problem, (rollout,)) for rollout in rollouts])

    def _note_first(self, groups: Iterable[Group]) -> None:
        """Takes note of groups for a look at the first attempts, which is over with enough."""
        self._first += groups
        self._looked = first_look.is_over(r for group in self._first for r in group.rollouts)

    def _look(self, gatherings: Sequence[Gathering], *, whole: bool = False) -> None:
        """Says so where nothing can be learned, and raises StoppedEarly unless told otherwise."""
        if self._looked:
            return
        groups = [*self._first, *(gathering.group for gathering in gatherings)]
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        problems = list({group.problem.id: group.problem for group in groups}.values())
        self._tell(first_look.look(rollouts, problems, self._settings, whole=whole))

    async def _look_back(self, batch: Sequence[Problem], recorded: Recorded) -> None:
        """The same for attempts on record, before a run that was stopped for them makes others."""
        rewards = {row.reward for row in recorded.values()}
        if self._looked or self._keep_going or not rewards or len(rewards - {None}) > 1:
            return
        first = [rollout for group in self._first for rollout in group.rollouts]
        rollouts = [*first, *await self._recalled(batch, recorded.values())]
        self._tell(first_look.look(rollouts, batch, self._settings))

    async def _recalled(
        self, batch: Sequence[Problem], rows: Iterable[RolloutRow]
    ) -> list[Rollout]:
        """Returns the attempts on record at a step's problems, without those that have failed."""
        by_id = {problem.id: problem for problem in batch}
        recalled = await gather_all(
            self._here.recalled(by_id[row.problem], row, ())
            for row in rows
            if row.problem in by_id and row.sample < CONFIRMING
        )
        return [rollout for rollout in recalled if rollout is not None]

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


async def _cancelled(gatherings: Iterable[Gathering]) -> None:
    """Ends the attempts that are out, and waits until they have ended."""
    tasks = [gathering.task for gathering in gatherings if gathering.task is not None]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
