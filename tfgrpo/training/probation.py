"""A step that learns what was measured.

    assign → roll out → contrast → propose → measure → decide

Attempts are shown a random part of the candidates that belong to their problem (`assign.py`).
Rewards say what each candidate does (`advantage.py`). The reflection model contrasts the winners of
a mixed group with its losers, and says what a group without a winner has missed; it is asked
several times, and what it says are candidates for the next step. A rule decides by effects alone
(`decide.py`). No text is judged by its words.

What comes of a step are operations on the run's branch (an ADD for what is promoted, a DELETE for
what no longer helps, a KEEP for what a group came to again) and on its branch of candidates
(`pool.py`). The last step proposes nothing: no attempt would measure it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from tfgrpo.model.gather import gather_all
from tfgrpo.rendering.near_duplicates import repeats
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.training.advantage import Advantages, Effect, Observation
from tfgrpo.training.all_wrong import is_all_wrong, reflect_on_failure
from tfgrpo.training.assign import CANDIDATES
from tfgrpo.training.confirmation import CONFIRMATIONS, Confirmation
from tfgrpo.training.controller import BatchPlan, evidence_of
from tfgrpo.training.decide import ByChance, Decisions, Rule
from tfgrpo.training.groups import RunParts
from tfgrpo.training.lookahead import Refusal
from tfgrpo.training.pool import Pool, open_pool, pool_branch
from tfgrpo.training.reflection import Advantage, Lesson, StepOrigin, compare
from tfgrpo.training.rollouts import Collector

NEEDED = 60
"""Attempts with and without a candidate that tell an effect of .3 from none with a power of 80 %
(variance .24, P ≥ .95): what the number of candidates is chosen by."""
FEWEST, MOST = 2, 24
"""Candidates that are on probation at least, and at most."""
RACES = 2
"""How many lessons are tried at their own problem for each place that is free."""
MOST_RACES = RACES * MOST
DIFFERENT = "more attempts with it at its own problem are not better than the group"
CROWDED = "there is no place: so many candidates cannot be decided about"


class Proposed(NamedTuple):
    """What a step's groups came to: one comparison for each that teaches, with all its lessons."""

    comparisons: list[Advantage]

    @property
    def lessons(self) -> list[tuple[Lesson, int]]:
        """The lessons, each once with the groups that came to it, most of them first."""
        texts: dict[str, str] = {}
        first: dict[str, tuple[Lesson, set[str]]] = {}
        for number, lesson in enumerate(x for one in self.comparisons for x in one.lessons):
            alike = repeats(lesson.text, texts)
            key = alike[0][0] if alike else str(number)
            texts.setdefault(key, lesson.text)
            first.setdefault(key, (lesson, set()))[1].add(lesson.group.problem.id)
        return sorted(
            ((lesson, len(groups)) for lesson, groups in first.values()), key=lambda one: -one[1]
        )


class Step(NamedTuple):
    """What a step is about: its number from 0, the pool, where operations come from, and how many
    attempts come after it."""

    number: int
    pool: Pool
    origin: StepOrigin
    attempts_left: int


class Probation:
    """Learns from the steps of one run. `rule` decides what becomes of candidates."""

    def __init__(self, parts: RunParts, collector: Collector, rule: Rule | None = None) -> None:
        self._parts, self._collector = parts, collector
        self._store, self._run, self._settings = parts.session.store, parts.run, parts.settings
        self._rule = rule or ByChance()
        self._advantages = Advantages()
        self._measured = 0
        """Steps whose attempts are in the sums."""

    def pool(self, base: Version) -> Pool:
        """Returns the pool that goes with a version in force."""
        return open_pool(self._store, self._run, base)

    async def learn(self, step: Step, groups: Sequence[Group]) -> tuple[list[Advantage], BatchPlan]:
        """Measures with a step's groups, proposes and decides.

        Raises EndpointError, BudgetReached.
        """
        self._measure(step.number, groups)
        effects = self._advantages.effects()
        decisions = self._rule.decide(
            effects, [e.id for e in step.pool.candidates], step.pool.in_force_ids
        )
        proposed = Proposed([])
        if step.attempts_left:
            library = step.pool.in_force
            comparisons = await gather_all(self._contrast(g, library, step.number) for g in groups)
            proposed = Proposed([one for one in comparisons if one is not None])
        operations, candidates = self._decided(step, decisions, effects)
        more, refused = await self._enter(step, proposed, decisions)
        operations += [o for o in more if o.op == "KEEP" and o.experience in step.pool.in_force_ids]
        candidates += [o for o in more if o not in operations]
        plan = BatchPlan(tuple(operations), tuple(refused), candidates=tuple(candidates))
        self._parts.progress.lessons = len(proposed.lessons)
        self._parts.progress.decided = len(proposed.lessons)
        return proposed.comparisons, plan

    # measure:

    def _measure(self, step: int, groups: Iterable[Group]) -> None:
        """Adds a step's attempts to the sums, and those of the steps before it on resume."""
        while self._measured < step:
            self._advantages.add(self._recorded(self._measured))
            self._measured += 1
        self._advantages.add(
            Observation(f"{step}/{group.problem.id}", r.belongs, _shown(r), r.reward)
            for group in groups
            for r in group.rollouts
            if r.reward is not None
        )
        self._measured = step + 1

    def _recorded(self, step: int) -> Iterable[Observation]:
        for row in self._store.runs.rollouts(self._run, step):
            if row.sample < CONFIRMING and row.reward is not None:
                belongs = tuple(row.verdict.get("belongs", ()))
                shown = frozenset(belongs) - set(row.verdict.get("without", ()))
                yield Observation(f"{step}/{row.problem}", belongs, shown, row.reward)

    # contrast and propose:

    async def _contrast(self, group: Group, library: Library, step: int) -> Advantage | None:
        """Returns all that several askings make of a group; None for one that teaches nothing."""
        missed = self._parts.reflection.missed is not None and is_all_wrong(group)
        if not (group.mixed or missed):
            return None
        library = relevant(library, group.problem.problem, self._settings.injected)
        calls, reflection = self._parts.reflector, self._parts.reflection
        if missed:
            comparing = [
                reflect_on_failure(calls, reflection, group, library, step=step, draw=draw)
                for draw in range(self._settings.proposals)
            ]
        else:
            comparing = [
                compare(calls, reflection, group, library, step=step, draw=draw)
                for draw in range(self._settings.proposals)
            ]
        draws = await gather_all(comparing)
        self._parts.progress.reflected += 1
        self._parts.progress.announce()
        failures = dict.fromkeys(f for one in draws for f in one.failures)
        return replace(
            draws[0],
            lessons=tuple(lesson for one in draws for lesson in one.lessons),
            failures=tuple(failures),
            repaired=any(one.repaired for one in draws),
        )

    async def _enter(
        self, step: Step, proposed: Proposed, decisions: Decisions
    ) -> tuple[list[Operation], list[Refusal]]:
        """Returns the ADDs of new candidates, the KEEPs of what was said again, and the rest."""
        texts = {e.id: e.text for e in step.pool.library.readable}
        gone = {*decisions.retired, *decisions.dropped}
        on_probation = len(step.pool.candidates) - len(decisions.promoted) - len(decisions.retired)
        free = max(0, capacity(step.attempts_left) - on_probation)
        races = RACES * free
        operations: list[Operation] = []
        refused: list[Refusal] = []
        for number, (lesson, _) in enumerate(proposed.lessons):
            evidence = {**step.origin.evidence, **evidence_of(lesson, ())}
            known = [id for id, _ in repeats(lesson.text, texts) if id not in gone]
            if known:
                operations.append(Operation("KEEP", known[0], None, lesson.reason, evidence))
                continue
            if not free or not races:
                refused.append(Refusal(lesson.text, lesson.group.problem.id, CROWDED))
                continue
            races -= 1
            if not await self._survives(step, lesson, number):
                refused.append(Refusal(lesson.text, lesson.group.problem.id, DIFFERENT))
                continue
            free -= 1
            id = derived_id(step.origin.uid, step.number, number)
            texts[id] = lesson.text
            operations.append(Operation("ADD", id, lesson.text, lesson.reason, evidence))
        return operations, refused

    async def _survives(self, step: Step, lesson: Lesson, number: int) -> bool:
        """Returns whether one of two attempts at the lesson's own problem beats its group: a cheap
        race, which most lessons that do nothing for a hard problem lose."""
        wanted = Confirmation(CONFIRMATIONS, 1, fmean(lesson.group.rewards))
        return await self._collector.confirms(
            step.number, lesson.group, number, lesson.text, step.pool.in_force, wanted
        )

    # decide:

    def _decided(
        self, step: Step, decisions: Decisions, effects: dict[str, Effect]
    ) -> tuple[list[Operation], list[Operation]]:
        """Returns the operations on the run's branch, and those on the candidates'."""
        there = step.pool.library.by_id
        events = self._store.events_at(there[id].row for id in decisions.promoted)

        def figures(id: str) -> dict[str, Any]:
            one = effects[id]
            bounds = (one.mean, *one.interval)
            return {
                "effect": [round(value, 6) for value in bounds],
                "chance": round(one.chance, 6),
                "attempts": [one.shown, one.hidden],
            }

        def delete(id: str) -> Operation:
            reason = f"its effect on the reward: {effects[id]}"
            return Operation("DELETE", id, None, reason, {**step.origin.evidence, **figures(id)})

        promoted = []
        for id in decisions.promoted:
            event = events[there[id].row]
            evidence = {**(event.evidence or {}), **figures(id)}
            evidence["candidates"] = pool_branch(self._run)
            promoted.append(Operation("ADD", id, there[id].text, event.reason, evidence))
        dropped = [delete(id) for id in decisions.dropped]
        return [*promoted, *dropped], [*map(delete, decisions.retired), *dropped]


def capacity(attempts: int) -> int:
    """Returns how many candidates so many attempts can decide about."""
    return max(FEWEST, min(MOST, attempts * CANDIDATES // NEEDED))


def _shown(rollout: Rollout) -> frozenset[str]:
    return frozenset(rollout.belongs) - rollout.without
