"""Which proposals go on probation: as many as the attempts to come can tell apart.

A lesson that repeats an experience is a vote for it; what a person turned down stays out. The other
lessons are first tried at their own problem, those that are like no other before the rest: most
lessons that do nothing for a hard problem lose this race of one to three attempts. As many races
are run at once as there are free places, each independent of the others.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from tfgrpo.data.problems import batches
from tfgrpo.learn.advantage import Effect
from tfgrpo.learn.assign import CANDIDATES
from tfgrpo.learn.collector import Collector, Race
from tfgrpo.learn.examples import (
    Example,
    add_examples,
    are_answers_alone,
    redacted_problems,
    right_examples,
    winning_attempts,
)
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.policies.protocol import Refusal, Step, evidence_of
from tfgrpo.learn.pool import Pool
from tfgrpo.learn.reflection import Advantage, Lesson
from tfgrpo.learn.rivals import Rivals, is_like
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.model.gather import gather_all
from tfgrpo.rendering.experience_texts import EXAMPLES, is_example
from tfgrpo.rendering.near_duplicates import repeats
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation

NEEDED = 60
"""Attempts with and without a candidate that tell an effect of .3 from none with a power of 72 %
(variance .24, P ≥ .95): what the number of candidates is chosen by."""
EACH = 16
"""Attempts with and without a candidate that a step brings each: fewer tell a step nothing."""
FEWEST, MOST = 2, 24
"""Candidates that are on probation at least, and at most."""
RACES = 2
"""How many lessons are tried at their own problem for each place that is free."""
TRIES = 3
"""The attempts of a race, which together have to beat the mean of the lesson's group."""
PATIENCE = 120
"""Up to how many attempts with examples lessons wait for them: as many tell an effect of .15 from
none, where it is as different between problems as answers are that are mostly always the same."""
LOST = "more attempts with it at its own problem are not better than the group"
CROWDED = "there is no place: so many candidates cannot be decided about"
DECLINED = "a person has turned it down"


class Entering(NamedTuple):
    """The operations on the branch of candidates, the KEEPs on the run's, and what stays out."""

    candidates: tuple[Operation, ...]
    votes: tuple[Operation, ...]
    refused: tuple[Refusal, ...]


def capacity(attempts: int, of_step: int) -> int:
    """How many candidates can be decided about by so many attempts, `of_step` in each step."""
    decidable = min(attempts * CANDIDATES // NEEDED, of_step * CANDIDATES // EACH)
    return max(FEWEST, min(MOST, decidable))


def free_places(step: Step, pool: Pool, size: int, decided: Container[str] = ()) -> int:
    """How many more lessons have a place on probation, in groups of `size` attempts; candidates
    that were `decided` about have freed theirs."""
    there = [e for e in pool.candidates if e.id not in decided and not is_example(e.text)]
    return max(0, capacity(step.attempts_left, len(step.batch) * size) - len(there))


def ranked(
    advantages: Iterable[Advantage], there: Iterable[str] = ()
) -> list[tuple[Lesson, list[str]]]:
    """Lessons, each once with the problems that taught it. Those that are nearly like none of the
    texts `there` come first; within both parts, those that most groups taught come first."""
    texts: dict[str, str] = {}
    first: dict[str, tuple[Lesson, dict[str, None]]] = {}
    for number, lesson in enumerate(x for one in advantages for x in one.lessons):
        alike = repeats(lesson.text, texts)
        key = alike[0][0] if alike else str(number)
        texts.setdefault(key, lesson.text)
        first.setdefault(key, (lesson, {}))[1][lesson.group.problem.id] = None
    seen, groups = list(there), []
    for lesson, problems in sorted(first.values(), key=lambda one: -len(one[1])):
        groups.append((is_like(lesson.text, seen), lesson, list(problems)))
        seen.append(lesson.text)
    return [(lesson, problems) for _, lesson, problems in sorted(groups, key=lambda one: one[0])]


class Proposals:
    """Puts lessons and examples of one run on probation."""

    def __init__(self, parts: RunParts, collector: Collector) -> None:
        self._store, self._run, self._parts = parts.session.store, parts.run, parts
        self._collector = collector

    async def enter(
        self,
        step: Step,
        pool: Pool,
        rivals: Rivals,
        advantages: Sequence[Advantage],
        leaving: Sequence[Operation],
    ) -> Entering:
        """What becomes of a step's lessons. Each is tried without the experiences that it is nearly
        like; `leaving` says what was decided about candidates, whose places are free. Raises
        EndpointError, BudgetReached."""
        decided = {operation.experience for operation in leaving if operation.experience}
        places = {
            str((one.evidence or {})["candidate"]): str(one.experience)
            for one in leaving
            if one.op == "MODIFY"
        }
        gone = {one.experience for one in leaving if one.op == "DELETE"} - places.keys()
        texts = {e.id: e.text for e in pool.library.readable}
        declined = turned_down(self._store, step.base, before=self._run.time)
        free = free_places(step, pool, self._parts.settings.group_size, decided)
        races = RACES * free
        operations: list[Operation] = []
        votes: list[Operation] = []
        refused: list[Refusal] = []
        new: list[tuple[int, Lesson, dict[str, Any]]] = []
        for number, (lesson, taught_by) in enumerate(ranked(advantages, texts.values())):
            problem = lesson.group.problem.id
            evidence = {**step.origin.evidence, **evidence_of(lesson)}
            if len(taught_by) > 1:
                evidence["problems"] = taught_by
            alike = [id for id, _ in repeats(lesson.text, texts) if id not in gone]
            known = [places.get(id, id) for id in alike]  # of a challenger: whose place it takes
            if known:
                vote = Operation("KEEP", known[0], None, lesson.reason, evidence)
                (votes if known[0] in pool.in_force.by_id else operations).append(vote)
            elif repeats(lesson.text, declined):
                refused.append(Refusal(lesson.text, problem, DECLINED))
            else:
                new.append((number, lesson, evidence))
        while racing := new[: min(free, races)]:
            new, races = new[len(racing) :], races - len(racing)
            wins = await gather_all(
                self._wins(step, pool.in_force.less(frozenset(rivals.like(x.text))), x, number)
                for number, x, _ in racing
            )
            for won, (number, lesson, evidence) in zip(wins, racing, strict=True):
                if not won:
                    refused.append(Refusal(lesson.text, lesson.group.problem.id, LOST))
                    continue
                free -= 1
                id = derived_id(step.origin.uid, step.number, number)
                operations.append(Operation("ADD", id, lesson.text, lesson.reason, evidence))
        refused += [Refusal(one.text, one.group.problem.id, CROWDED) for _, one, _ in new]
        self._parts.progress.decided = self._parts.progress.lessons
        return Entering(tuple(operations), tuple(votes), tuple(refused))

    async def _wins(self, step: Step, library: Library, lesson: Lesson, number: int) -> bool:
        mean = fmean(lesson.group.rewards)
        race = Race(step.number, lesson.group, number, lesson.text, library, TRIES, mean)
        return await self._collector.wins(race)

    def awaits_examples(self, step: Step, pool: Pool, effects: Mapping[str, Effect]) -> bool:
        """Whether lessons have to wait for examples: right answers are on probation and too few
        attempts had them, by the `effects` so far; or they are known and come after this step."""
        if EXAMPLES in pool.names[0]:
            return EXAMPLES not in effects or effects[EXAMPLES].shown < PATIENCE
        reflection = self._parts.reflection
        return reflection.shared_answers and reflection.ground_truth and self._come(step, pool)

    def _come(self, step: Step, pool: Pool) -> bool:
        wanted = self._parts.settings.examples and EXAMPLES not in pool.factors
        return wanted and not step.number and step.attempts_left >= NEEDED

    def examples(self, step: Step, pool: Pool, groups: Sequence[Group]) -> list[Operation]:
        """The ADDs of examples. They come once, after the first step, where there are none yet and
        enough attempts follow to measure them. A right answer needs no attempt, so those of later
        steps are among them."""
        if not self._come(step, pool):
            return []
        ground_truth = self._parts.reflection.ground_truth
        redacted = redacted_problems(self._store)
        short = self._parts.reflection.shared_answers or are_answers_alone(groups, self._store)
        shown: Iterable[Example] = winning_attempts(groups)
        if short and ground_truth:
            size, seed = self._parts.settings.batch_size, self._parts.settings.seed
            shown = right_examples(groups, *batches(self._parts.problems, size, epoch=1, seed=seed))
        there = (e.text for e in pool.library.readable)
        usable = (one for one in shown if one.problem.id not in redacted)
        return add_examples(usable, there, step.number, step.origin)
