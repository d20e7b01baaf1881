"""Collecting: the rollouts of a step are recorded as they are judged, or recalled where they are on
record, and each group is contrasted as soon as it is whole.

Which attempts are made follows from the settings and a seed, never from the order in which answers
arrive, so a run that is resumed makes the same ones. This module has what a step's groups share:
when each begins, and when nothing can be learned. The attempts of one group are in `groups.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from statistics import fmean
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.costs.prices import LOCAL
from tfgrpo.data.problems import Problem
from tfgrpo.learn import nothing_to_learn
from tfgrpo.learn.assign import examples_too_near
from tfgrpo.learn.groups import TRIAL, Gathering, GroupMaker, GroupTask, Makers, Recorded, RunParts
from tfgrpo.learn.new_problems import NewProblems
from tfgrpo.learn.reflection import Advantage
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.gather import gather_all
from tfgrpo.notices import NothingToLearn, WarningNotice
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout
from tfgrpo.store.activity.runs import RolloutRow
from tfgrpo.store.records import Experience, Library


class Batch(NamedTuple):
    """The problems of a step, and the library that attempts are made under. That may be one of
    candidates: `base` is then the number of the version in force, and `tried` has the candidates
    that are tried at each problem, by its id."""

    step: int
    problems: Sequence[Problem]
    library: Library
    is_last: bool = False
    base: int = 0
    tried: Mapping[str, Sequence[str]] = MappingProxyType({})


class Race(NamedTuple):
    """A lesson that is tried at its own problem: the group that taught it, its number among the
    step's, and the library that it is put into. The mean of `attempts` has to be over `above`."""

    step: int
    group: Group
    number: int
    lesson: str
    library: Library
    attempts: int
    above: float


class Collector:
    """Makes the rollouts of a run, step by step."""

    def __init__(self, parts: RunParts) -> None:
        self._store = parts.session.store
        self._run, self._settings = parts.run, parts.settings
        self._progress = parts.progress
        known = parts.problems if parts.reflection.shared_answers else ()
        self._problems, self._new = parts.problems, parts.new or known
        self.here = GroupMaker(parts, self._note_attempt)
        """Who makes the attempts that are made in this process."""
        self._makers: Makers = self.here
        self._keep_going, self._on_progress = parts.keep_going, parts.on_progress
        self._looked = False
        self._first: list[Group] = []
        """Groups of earlier steps, as long as they are too few for a look at them."""
        self._held: list[Gathering] = []

    @cached_property
    def _alike(self) -> NewProblems:
        return NewProblems(self._problems, self._new)

    def hand_out(self, makers: Callable[[Makers], Makers]) -> None:
        """From now on groups are made by others, who may hand them back to this process."""
        self._makers = makers(self.here)

    async def groups(
        self, batch: Batch, on_group: Callable[[int, Group], None] | None = None
    ) -> list[Group]:
        """A group for each problem of the batch, in its order. `on_group` is called with each as
        soon as it is whole, and its place in the batch. Raises EndpointError when every attempt
        failed, and StoppedEarly when the first attempts of the run leave nothing to learn."""
        settings, progress = self._settings, self._progress
        recorded = self.recorded(batch.step)
        count = len(batch.problems)
        progress.groups, progress.groups_done, progress.mixed = count, 0, 0
        progress.attempts, progress.attempts_done = count * settings.group_size, 0
        progress.rewards = []
        await self._look_back(batch.problems, recorded)
        gatherings = [Gathering(problem, batch.library) for problem in batch.problems]

        async def fill(place: int, gathering: Gathering) -> None:
            await gathering.begin.wait()
            run, version, name = self._run, batch.library.version.number, gathering.problem.id
            usual = self._alike.usual(gathering.problem) if batch.base else None
            shown = (batch.base, tuple(batch.tried.get(name, ())), usual)
            task = GroupTask(run.uid, batch.step, name, version, run.digest, *shown)
            await self._makers.make(task, gathering, recorded)
            progress.groups_done += 1
            progress.mixed += gathering.group.mixed
            if on_group is not None:
                on_group(place, gathering.group)
            gathering.is_whole = True
            self._look(gatherings)
            if all(one.is_whole for one in gatherings if one.begin.is_set()):
                self._let_begin(self._first_groups)

        self._hold_back(gatherings)
        await gather_all(fill(place, gathering) for place, gathering in enumerate(gatherings))
        groups = [gathering.group for gathering in gatherings]
        if not (batch.is_last and self._first):  # else nothing is left to be saved
            self._look(gatherings, whole=True)
        if not self._looked:
            self._note_first(groups)
            warning = nothing_to_learn.missing_work(self._first, settings, self._store)
            if warning is not None:
                self._on_progress(WarningNotice(warning))
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        if rollouts:
            _check_failures(rollouts, f"every attempt in step {batch.step + 1}")
        return groups

    async def wins(self, race: Race) -> bool:
        """Whether a lesson wins its race: the mean reward of judged attempts with it in the library
        is above `above`. Attempts are made one after the other until that is known; they are on
        record like all others, and part of no group."""
        trial = Library(race.library.version, (*race.library, Experience(TRIAL, race.lesson, 0)))
        recorded = self.recorded(race.step)
        gathering = Gathering(race.group.problem, trial)
        for turn in range(race.attempts):
            sample = CONFIRMING + race.number * race.attempts + turn
            await self.here.attempt(race.step, gathering, sample, recorded)
            left = race.attempts - turn - 1
            rewards = gathering.group.rewards
            above = sum(rewards) - (len(rewards) + left) * race.above
            if above > 0 or above + left <= 0:
                return above > 0
        return False

    async def mean(
        self, step: int, gathering: Gathering, samples: Iterable[int], recorded: Recorded
    ) -> float | None:
        """The mean reward of some attempts, which are of no group. One that cannot be judged counts
        as 0; None where all fail."""
        await gather_all(self.here.attempt(step, gathering, n, recorded) for n in samples)
        rollouts = gathering.group.rollouts
        rewards = [one.reward or 0.0 for one in rollouts if one.outcome != "failed"]
        return fmean(rewards) if rewards else None

    def unlike(self, problem: Problem, library: Library) -> Library:
        """A library without the examples that are more like a problem than those of new ones."""
        usual = self._alike.usual(problem)
        return library.less(examples_too_near(library, problem.problem, usual))

    def recorded(self, step: int) -> Recorded:
        """The attempts of a step that are on record."""
        rows = self._store.runs.rollouts(self._run, step)
        return {(row.problem, row.sample): row for row in rows}

    # a look at the first attempts:

    def _hold_back(self, gatherings: Sequence[Gathering]) -> None:
        """Lets groups begin: all, or those that the first look needs where that is to come. So what
        is paid for before a run stops does not depend on how fast verdicts are. The others begin as
        soon as two attempts differ, or when all before them are done."""
        self._held = list(gatherings)
        looks = not self._looked and not self._keep_going
        self._let_begin(self._first_groups if looks else len(gatherings))

    @property
    def _first_groups(self) -> int:
        known = sum(len(one.rollouts) for one in self._first)
        missing = min(nothing_to_learn.ENOUGH.values()) - known
        return max(1, -(-missing // self._settings.group_size))

    def _note_attempt(self, rollout: Rollout) -> None:
        if self._held and len(set(self._progress.rewards)) > 1:
            self._let_begin(len(self._held))

    def _let_begin(self, count: int) -> None:
        for gathering in self._held[:count]:
            gathering.begin.set()
        del self._held[:count]

    async def recall(self, batches: Sequence[Sequence[Problem]]) -> None:
        """Notes the attempts of a run's finished steps, for the look at its first attempts."""
        rows: list[RolloutRow] = []
        for step in range(len(batches)):
            self._looked = self._looked or nothing_to_learn.is_over(rows)
            if self._looked:  # as in most runs: no answer has to be read for it
                return
            there = self._store.runs.rollouts(self._run, step)
            rows += (row for row in there if row.sample < CONFIRMING)
        problems = [problem for batch in batches for problem in batch]
        rollouts = await self._recalled(problems, rows)
        self._note_first([Group(rollout.problem, (rollout,)) for rollout in rollouts])

    def _note_first(self, groups: Iterable[Group]) -> None:
        self._first += groups
        self._looked = nothing_to_learn.is_over(r for group in self._first for r in group.rollouts)

    def _look(self, gatherings: Sequence[Gathering], *, whole: bool = False) -> None:
        if self._looked:
            return
        groups = [*self._first, *(gathering.group for gathering in gatherings)]
        rollouts = [rollout for group in groups for rollout in group.rollouts]
        problems = list({group.problem.id: group.problem for group in groups}.values())
        if not self._keep_going and len(rollouts) >= nothing_to_learn.ENOUGH["unjudged"]:
            _check_failures(rollouts, f"each of the first {len(rollouts)} attempts")
        self._tell(nothing_to_learn.look(rollouts, problems, self._settings, whole=whole))

    async def _look_back(self, batch: Sequence[Problem], recorded: Recorded) -> None:
        """The same for attempts on record, before a run that was stopped for them makes others."""
        rewards = {row.reward for row in recorded.values()}
        if self._looked or self._keep_going or not rewards or len(rewards - {None}) > 1:
            return
        first = [rollout for group in self._first for rollout in group.rollouts]
        rollouts = [*first, *await self._recalled(batch, recorded.values())]
        self._tell(nothing_to_learn.look(rollouts, batch, self._settings))

    async def _recalled(
        self, batch: Sequence[Problem], rows: Iterable[RolloutRow]
    ) -> list[Rollout]:
        by_id = {problem.id: problem for problem in batch}
        recalled = await gather_all(
            self.here.recalled(by_id[row.problem], row)
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
            raise nothing_to_learn.StoppedEarly(notice, self._run)


def _check_failures(rollouts: Sequence[Rollout], which: str) -> None:
    if all(rollout.outcome == "failed" for rollout in rollouts):
        raise EndpointError(
            f"{which} failed: {rollouts[0].reason}",
            hint="nothing was learned; check --max-tokens, --task-timeout and the model, "
            "or the code of the agent or domain",
        )


Contrast: TypeAlias = Callable[[int, Sequence[Awaitable[Group]]], Awaitable[Advantage | None]]
"""From a place in the batch, and its groups as they become whole, to what that place's teaches; it
waits for those that it looks at."""


async def contrasted(
    parts: RunParts, collector: Collector, batch: Batch, contrast: Contrast
) -> tuple[list[Group], list[Advantage]]:
    """A batch's groups, and what `contrast` makes of each, in the order of the batch. A group that
    teaches nothing is a contrast of None, and left out. One local model answers everything in a
    row, so there contrasts follow the attempts. Raises what the collector and `contrast` raise."""
    progress, loop = parts.progress, asyncio.get_running_loop()
    arrivals: list[asyncio.Future[Group]] = [loop.create_future() for _ in batch.problems]
    overlapping = not parts.reflector.endpoint.model.startswith(LOCAL)

    def arrive(place: int, group: Group) -> None:
        if not arrivals[place].done():  # whoever waits for it may have been ended by an error
            arrivals[place].set_result(group)

    async def collect() -> list[Group]:
        groups = await collector.groups(batch, arrive if overlapping else None)
        progress.enter("reflection")
        return groups

    async def one(place: int) -> Advantage | None:
        advantage = await contrast(place, arrivals)
        if advantage is not None:
            progress.reflected += 1
            progress.lessons += len(advantage.lessons)
            progress.announce()
        return advantage

    places = range(len(batch.problems))
    if overlapping:
        both: list[Any] = await gather_all([collect(), gather_all(map(one, places))])
        groups, advantages = both
    else:
        groups = await collect()
        for place, group in enumerate(groups):
            arrive(place, group)
        advantages = await gather_all(map(one, places))
    return groups, [advantage for advantage in advantages if advantage is not None]
