"""What a step's attempts teach: groups made, compared, and their lessons decided about.

A group is compared as soon as it is whole, while others are still attempted, and lessons are
decided about as they come, in the order of the batch. Where groups wait for each other, or one
local model answers everything in a row, the parts follow one another. Either way the same is asked
and the same comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tfgrpo.data.problems import Problem
from tfgrpo.model.embeddings import Embeddings
from tfgrpo.model.gather import gather_all
from tfgrpo.model.prices import LOCAL
from tfgrpo.rendering.render import rules_of
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rendering.templates import Template
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.training import ablations, controller, pruning
from tfgrpo.training.all_wrong import is_all_wrong, reflect_on_failure
from tfgrpo.training.batch_controller import plan_batch
from tfgrpo.training.blame import Mark
from tfgrpo.training.confirmation import ONE_OF_TWO, Confirmation, better_than, half_of
from tfgrpo.training.draft import Draft
from tfgrpo.training.exemplars import (
    FIRST_EXAMPLES,
    Example,
    add_examples,
    are_answers_alone,
    redacted_problems,
    right_examples,
    winning_attempts,
)
from tfgrpo.training.gate_words import rejections
from tfgrpo.training.groups import RunParts
from tfgrpo.training.lookahead import LessonStream
from tfgrpo.training.notes import Notes
from tfgrpo.training.probation import Probation, Step
from tfgrpo.training.reflection import Advantage, Failure, Lesson, StepOrigin, compare
from tfgrpo.training.retries import rejected_examples, waiting
from tfgrpo.training.rollouts import Collector
from tfgrpo.training.turned_down import turned_down


class Reflected(NamedTuple):
    """What a step's attempts came to: groups in the order of the batch, what each of those that
    teach taught, and what is to be done to the library."""

    groups: list[Group]
    comparisons: list[Advantage]
    plan: controller.BatchPlan


class LearningStep(NamedTuple):
    """A step to learn from: its number, its problems and the run's, the version in force with its
    library, whether it is the run's last, and how many attempts come after it."""

    number: int
    batch: Sequence[Problem]
    dataset: Sequence[Problem]
    base: Version
    library: Library
    is_last: bool
    attempts_left: int = 0


class Learner:
    """Learns from the steps of one run. `embeddings` tell what is close in meaning, and
    `note_prompts` put what the controller is told beside."""

    def __init__(
        self,
        parts: RunParts,
        collector: Collector,
        embeddings: Embeddings | None,
        note_prompts: dict[str, Template],
    ) -> None:
        self._parts, self._collector = parts, collector
        self._settings, self._progress = parts.settings, parts.progress
        self._reflection, self._reflector = parts.reflection, parts.reflector
        self._store, self._run = parts.session.store, parts.run
        self._embeddings, self._note_prompts = embeddings, note_prompts
        on_probation = self._settings.learner == "probation"
        self._probation = Probation(parts, collector) if on_probation else None
        self._is_local = parts.reflector.endpoint.model.startswith(LOCAL)

    async def learn(self, step: LearningStep) -> Reflected:
        """Makes a step's rollouts, compares its groups and decides about their lessons.

        Raises EndpointError, BudgetReached, StoppedEarly and LibraryTooLong.
        """
        settings, library = self._settings, step.library
        origin = StepOrigin(self._run.uid, step.number, self._evidence(step.number))
        initial = await pruning.bring_under(self._reflector, self._reflection, library, origin)
        pruned = Draft(library).after(initial.operations).library
        undecided: list[Operation] = []
        if step.base.meta.get("run") == self._run.name:  # another run's are not this one's to try
            undecided = waiting(self._store, step.base, pruned, settings.library_tokens)
        initial += pruning.Pruning(tuple(undecided))
        if not step.batch:  # examples are tried before the first attempt
            plan = controller.BatchPlan(initial.operations, (), initial.repaired)
            return self._completed(Reflected([], [], plan), step, origin)
        self._enter("rollouts")
        if self._probation is not None:
            return await self._measured(self._probation, step, origin, initial)
        if settings.direct:
            written = await ablations.write_directly(
                self._reflector, self._reflection, step.batch, library, settings.direct, origin
            )
            return Reflected([], [], written)
        return self._completed(await self._reflect(step, origin, initial), step, origin)

    async def _measured(
        self,
        probation: Probation,
        step: LearningStep,
        origin: StepOrigin,
        initial: pruning.Pruning,
    ) -> Reflected:
        """Returns what a step comes to by what its attempts measured. A promotion that has no room
        under the cap waits as a candidate."""
        pool = probation.pool(step.base)
        groups = await self._collector.groups(
            step.number, step.batch, pool.library, last=step.is_last, base=step.base.number
        )
        self._enter("reflection")
        measured = Step(step.number, pool, origin, step.attempts_left)
        comparisons, plan = await probation.learn(measured, groups)
        under = Draft(step.library).after(initial.operations).library
        there = under.by_id
        wanted = [o for o in plan.operations if o.op == "ADD" or o.experience in there]
        fitting, _ = pruning.split_fitting(wanted, under, self._settings.library_tokens)
        operations = (*initial.operations, *fitting)
        return Reflected(
            groups,
            comparisons,
            replace(plan, operations=operations, repaired=initial.repaired),
        )

    async def _reflect(
        self, step: LearningStep, origin: StepOrigin, initial: pruning.Pruning
    ) -> Reflected:
        settings, library, number = self._settings, step.library, step.number
        loop = asyncio.get_running_loop()
        arrivals: list[asyncio.Future[Group]] = [loop.create_future() for _ in step.batch]
        stream = LessonStream()
        overlapping = settings.rollouts != "adaptive" and settings.quorum == 1.0
        overlapping = overlapping and not self._is_local

        def arrive(place: int, group: Group) -> None:
            if not arrivals[place].done():  # whoever waits for it may have been ended by an error
                arrivals[place].set_result(group)

        async def collect() -> list[Group]:
            watch = arrive if overlapping else None
            groups = await self._collector.groups(
                number, step.batch, library, last=step.is_last, on_group=watch
            )
            self._enter("reflection")
            return groups

        async def compare_one(coming: asyncio.Future[Group]) -> Advantage | None:
            group = await coming
            if not self._teaches(group):
                return None
            comparison = await self._compare(group, library, number)
            self._progress.reflected += 1
            return comparison

        async def compare_all(coming: Sequence[asyncio.Future[Group]]) -> list[Advantage]:
            comparisons: list[Advantage] = []
            async with asyncio.TaskGroup() as tasks:
                for task in [tasks.create_task(compare_one(one)) for one in coming]:
                    if (comparison := await task) is not None:
                        comparisons.append(comparison)
                        self._progress.lessons += len(comparison.lessons)
                        stream.add(comparison.lessons)
            stream.close()
            self._enter("controller")
            return comparisons

        async def decide() -> controller.BatchPlan:
            return await self._decide(step, origin, initial, stream)

        if overlapping:
            work: list[Coroutine[Any, Any, Any]] = [collect(), compare_all(arrivals), decide()]
            return Reflected(*await gather_all(work))
        groups = await collect()
        arrivals = [loop.create_future() for _ in groups]
        for place, group in enumerate(groups):
            arrive(place, group)
        (comparisons,) = await gather_all([compare_all(arrivals)])
        return Reflected(groups, comparisons, await decide())

    def _enter(self, phase: str) -> None:
        self._progress.enter(phase)
        self._progress.announce()

    # what a group teaches:

    def _teaches(self, group: Group) -> bool:
        """Returns whether a group teaches: it is mixed, or its one attempt is looked at alone, or
        it has no right attempt where those teach too."""
        if group.mixed or (self._reflection.single is not None and bool(group.rewards)):
            return True
        return self._reflection.missed is not None and is_all_wrong(group)

    async def _compare(self, group: Group, library: Library, step: int) -> Advantage:
        rules = rules_of(library)
        arguments = (self._reflector, self._reflection, group, rules)
        if self._reflection.single is not None:
            return await ablations.reflect_alone(*arguments, step=step)
        if not group.mixed:
            return await self._learn_from_failure(group, library, step)
        shown = relevant(rules, group.problem.problem, self._settings.injected)
        comparison = await compare(*arguments, step=step, shown=shown)
        if self._settings.confirm:
            wanted = better_than(group.rewards, self._settings.confirm)
            few = f"fewer than {wanted.right} of {wanted.attempts} attempts"
            why = f"{few} with it beat the group's {wanted.above:.2f}"
            return await self._confirmed(comparison, library, step, wanted, why)
        if all(winner.hint for winner in group.winners):
            why = "no success without a strategy followed"
            return await self._confirmed(comparison, library, step, ONE_OF_TWO, why)
        return comparison

    async def _learn_from_failure(self, group: Group, library: Library, step: int) -> Advantage:
        """Returns what a group without a right attempt teaches, as far as attempts with it at the
        very problem come out right."""
        arguments = (self._reflector, self._reflection, group, rules_of(library))
        missed = await reflect_on_failure(*arguments, step=step)
        wanted = half_of(self._settings.all_wrong)
        for lesson in missed.lessons:
            if not await self._collector.confirms(step, group, 0, lesson.text, library, wanted):
                why = f"fewer than {wanted.right} of {wanted.attempts} attempts with it are right: "
                failure = Failure("confirmation", group.problem.id, why + lesson.text)
                return replace(missed, lessons=(), failures=(*missed.failures, failure))
        return missed

    async def _confirmed(
        self, comparison: Advantage, library: Library, step: int, wanted: Confirmation, why: str
    ) -> Advantage:
        """Returns a comparison with the lessons that attempts at its problem confirm, or that are
        in the library word for word, and the others as failures, for that reason."""
        group = comparison.group
        known = {experience.text for experience in library}
        lessons: list[Lesson] = []
        failures = list(comparison.failures)
        for number, lesson in enumerate(comparison.lessons):
            if lesson.text in known or await self._collector.confirms(
                step, group, number, lesson.text, library, wanted
            ):
                lessons.append(lesson)
            else:
                reason = f"{why}: {lesson.text}"
                failures.append(Failure("confirmation", group.problem.id, reason))
        return replace(comparison, lessons=tuple(lessons), failures=tuple(failures))

    # what becomes of lessons:

    async def _decide(
        self,
        step: LearningStep,
        origin: StepOrigin,
        initial: pruning.Pruning,
        stream: LessonStream,
    ) -> controller.BatchPlan:
        if self._settings.controller_sees_credit:  # which all attempts of the step tell of
            await stream.first()
        notes = self._notes(step.base, step.number)
        deciding = controller.Controller(
            self._reflector,
            self._reflection,
            self._embeddings,
            notes,
            self._lessons_ahead,
            self._settings.max_edits,
            self._count_decided,
        )
        origin = replace(origin, evidence=self._evidence(step.number, notes))
        if (prompt := self._reflection.plan) is not None:
            lessons = await stream.first()
            return await plan_batch(deciding, prompt, lessons, step.library, origin, initial)
        return await deciding.plan(stream, step.library, origin, initial)

    @property
    def _lessons_ahead(self) -> int:
        """How many lessons are asked about at a time, by the record: what is decided depends on it,
        and a run may be resumed at another pace. A local model answers one after the other."""
        if self._is_local:
            return 1
        return min(self._settings.lessons_ahead, int(self._run.config["concurrency"]))

    def _completed(self, reflected: Reflected, step: LearningStep, origin: StepOrigin) -> Reflected:
        """Returns a step with what follows without asking in its plan: experiences that attempts
        followed are kept, and winning attempts become examples."""
        plan, settings = reflected.plan, self._settings
        now = Draft(step.library).after(plan.operations)
        before = Draft(step.library).texts
        confirmed = [
            operation
            for comparison in reflected.comparisons
            for mark in comparison.marks
            if mark.role == "followed"
            and before.get(mark.experience) == now.texts.get(mark.experience) is not None
            for operation in [_confirming(mark, comparison, origin)]
        ]
        dropped = self._harmful(step, now, origin) if settings.drop_harmful else []
        now = now.after(dropped)
        added: list[Operation] = []
        if settings.exemplars and (self._probation is None or not step.batch):
            added = add_examples(
                self._examples(reflected.groups, step, now.library),
                now.library,
                settings.exemplars * (1 if step.batch else FIRST_EXAMPLES),
                settings.library_tokens,
                origin.evidence,
                (origin.uid, origin.step),
            )
        operations = (*plan.operations, *confirmed, *dropped, *added)
        return reflected._replace(plan=replace(plan, operations=operations))

    def _examples(
        self, groups: Sequence[Group], step: LearningStep, library: Library
    ) -> Sequence[Example]:
        """Returns what a step may add as examples, the first to be added first."""
        redacted = redacted_problems(self._store)
        is_short = self._reflection.shared_answers or are_answers_alone(groups, self._store)
        if not (is_short and self._reflection.ground_truth):
            if self._settings.exemplars_from == "answers":
                return []
            return [one for one in winning_attempts(groups) if one.problem.id not in redacted]
        attempted = {group.problem.id for group in groups}
        others = [one for one in step.dataset if one.id not in attempted]
        proposed = right_examples(groups, others, library, self._settings.agent_objective)
        rejected = redacted | rejected_examples(self._store, step.base, self._run.name)
        return [one for one in proposed if one.problem.id not in rejected]

    def _harmful(self, step: LearningStep, now: Draft, origin: StepOrigin) -> list[Operation]:
        """Returns the DELETEs of experiences that harm with confidence, as far as this step has
        left them as they were."""
        from tfgrpo.evaluation.credit import credits

        before = Draft(step.library).texts
        return [
            Operation(
                "DELETE",
                one.experience.id,
                None,
                f"its effect on the reward: {one}",
                {**origin.evidence, "credit": [one.credit.effect, one.credit.low, one.credit.high]},
            )
            for one in credits(self._store, step.base, upto=(self._run, step.number))
            if one.credit is not None
            and one.credit.verdict == "harmful"
            and before.get(one.experience.id) == now.texts.get(one.experience.id) is not None
        ]

    def _count_decided(self) -> None:
        self._progress.decided += 1
        self._progress.announce()

    def _notes(self, base: Version, step: int) -> Notes:
        credit: dict[str, str] = {}
        if self._settings.controller_sees_credit:
            from tfgrpo.evaluation.credit import credits

            known = credits(self._store, base, upto=(self._run, step))
            credit = {one.experience.id: one.in_prompt for one in known if one.credit}
        declined = tuple(turned_down(self._store, base, before=self._run.time))
        rejected = tuple(rejections(self._store, base))
        return Notes(self._note_prompts, rejected, credit, declined)

    def _evidence(self, step: int, notes: Notes = controller.NOTHING) -> dict[str, Any]:
        parts, reflection = self._parts, self._reflection
        used = [parts.template, reflection.summary, reflection.comparison, reflection.controller]
        used += [one for one in (reflection.missed, reflection.blame) if one is not None]
        used += notes.used(misled=reflection.blame is not None)
        return {
            "run": self._run.name,
            "step": step,
            "model": parts.policy.endpoint.model,
            "reflection_model": self._reflector.endpoint.model,
            "prompts": {template.name: template.digest[:16] for template in used},
        }


def _confirming(mark: Mark, comparison: Advantage, origin: StepOrigin) -> Operation:
    """Returns the KEEP of an experience that right attempts of a group followed."""
    group = comparison.group
    evidence = {
        **origin.evidence,
        "problem": group.problem.id,
        "rollouts": [[rollout.sample, rollout.reward] for rollout in group.rollouts],
        "calls": [comparison.call[:16]],
        "blame": mark.role,
    }
    return Operation("KEEP", mark.experience, None, "right attempts followed it", evidence)
