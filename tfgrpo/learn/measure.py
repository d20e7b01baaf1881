"""The effects of candidates and experiences, from a run's attempts so far.

An experience may have another effect where it belongs (`rivals.py`) than elsewhere, so these are
two effects. A candidate is tried where it belongs. An experience in force counts by the mean of the
two, weighted by the shares of the problems where it is shown (`in_use.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import NamedTuple

from tfgrpo.learn.advantage import ELSEWHERE, Advantages, Effect, Observation, problem_of, summed
from tfgrpo.learn.assign import everywhere, factors, texts_of, tried
from tfgrpo.learn.crossfit import Choosing, choices
from tfgrpo.learn.decide import Rule, figures
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.in_use import Choices, effects_in_use, places_in_use
from tfgrpo.learn.own_gain import Pair, measured_at
from tfgrpo.learn.policies.protocol import Step
from tfgrpo.learn.pool import Pool
from tfgrpo.learn.rivals import Nearness, Rivals, of_name, replaced, tried_at
from tfgrpo.rendering.experience_texts import EXAMPLES, is_example
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.runs.run_record import Candidate, candidates
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.records import Library, Measured, evidence_of, read_evidence
from tfgrpo.store.store import Store


class Measurement:
    """The sums over a run's attempts, step by step."""

    def __init__(self, parts: RunParts) -> None:
        self._parts, self._seed = parts, parts.settings.seed
        self._store, self._run = parts.session.store, parts.run
        self._near = Nearness(self._store, parts.run, parts.problems)
        self._advantages, self._steps = Advantages(), 0
        self._texts: dict[str, str] = {}

    def rivals(self, pool: Pool) -> Rivals:
        """Which candidates of a pool are rivals, and of what."""
        return Rivals(texts_of(pool.candidates), texts_of(pool.in_force), self._near)

    def tried(self, step: Step, pool: Pool, rivals: Rivals) -> dict[str, tuple[str, ...]]:
        """What is tried at each problem of a step, by the problem's id."""
        self.add(step.number - 1)
        texts, always = texts_of(pool.candidates), everywhere(pool.candidates)
        effects, chosen = rivals.known(texts, self._advantages.effects()), {}
        for one in step.batch:
            there = {id: text for id, text in texts.items() if rivals.is_near(id, one.id)}
            ids = tried(there, effects, self._seed, (step.number, one.id))
            chosen[one.id] = (*map(rivals.name, ids), *always)
        return chosen

    def add(self, step: int) -> None:
        """Adds a step's attempts, which are on record, and on resume those of the steps before."""
        versions = dict(self._store.runs.reward_steps(self._run, CONFIRMING, step))
        while self._steps <= step:
            if (version := versions.get(self._steps)) is not None:
                self._begin(self._store.library(self._store.version(version)))
            self._advantages.add(self._recorded(self._steps))
            self._steps += 1

    def _begin(self, library: Library) -> None:
        """Takes note of the library of a step. What was seen of a text tells nothing of another
        that stands in its place."""
        texts = {one.id: one.text for one in library}
        changed = {id for id, text in self._texts.items() if texts.get(id, text) != text}
        for name in self._advantages.names:
            own = name.removesuffix(ELSEWHERE)
            if of_name(own) in changed or replaced(own) in changed:
                self._advantages.set_aside(name)
        self._texts |= texts

    def pairs(self, step: int, rule: Callable[[int], Rule]) -> list[Pair]:
        """Where the run's gain is measured after its last step, and with which libraries; nowhere
        where nothing was tried. `rule` is that of a step (`crossfit.py`)."""
        every = list(chain.from_iterable(map(self._recorded, range(step + 1))))
        there = measured_at(self._parts.settings, self._parts.problems, len(every))
        if not there:
            return []
        attempts: dict[str, list[Observation]] = {}
        for one in every:
            attempts.setdefault(problem_of(one.group), []).append(one)
        base = self._store.library(self._store.version(self._run.base))
        seen = dict.fromkeys(
            name for several in attempts.values() for one in several for name in one.belongs
        )
        of_base = factors(base)
        names = [name for name in seen if of_name(name) not in of_base and self._is_own(name)]
        # Of a text that was changed on the way nothing is known by its name alone: it counts as is.
        changed = {e.id for e in base if self._texts.get(e.id, e.text) != e.text}
        start = tuple(name for name in of_base if name not in changed)
        first = {id: self._store.history(id)[0] for id in map(of_name, names) if id != EXAMPLES}
        rivals = Rivals({id: str(e.text) for id, e in first.items()}, texts_of(base), self._near)
        texts = self._texts | {id: str(event.text) for id, event in first.items()}
        reached = Choices(self._parts, base, start, texts)
        choosing = Choosing(rule, rivals.compatible, reached.in_use, start)
        groups = {problem: summed(several) for problem, several in attempts.items()}
        taken = choices(groups, names, choosing, self._near, self._seed)

        def like(problem: str) -> frozenset[str] | None:
            teaches = {name: self._near.taught_by(of_name(name)) for name in taken[problem]}
            own = [name for name, teachers in teaches.items() if problem in teachers]
            others = (
                id
                for name in own
                for id, names in taken.items()
                if name in names and tried_at(self._near, name, id)
            )
            return frozenset(others) if own else None

        return [
            Pair(one, base, reached.library(taken[one.id]), like(one.id))
            for one in there
            if one.id in taken
        ]

    def _is_own(self, name: str) -> bool:
        events = () if name.endswith(ELSEWHERE) else self._store.history(of_name(name))
        evidence = (events[0].evidence if events else None) or {}
        return name == EXAMPLES or evidence.get("run") == self._run.name

    def effects(self, pool: Pool, rivals: Rivals) -> dict[str, Effect]:
        """The effect of each factor: of a candidate where it is tried, of a challenger compared
        with the experience that it replaces, and of an experience in force where it is shown."""
        known, (candidates, in_force) = self._advantages.effects(), pool.names
        of_all = rivals.known(candidates, known)
        members = {name: pool.factors[name] for name in in_force}
        places = places_in_use(self._parts, pool.in_force, members)
        return of_all | effects_in_use(known, places, self._near)

    def _recorded(self, step: int) -> Iterator[Observation]:
        return recorded(self._store, self._run, step, self._near.is_near)


class Attempt(NamedTuple):
    """One attempt: its step and problem, its number among those, what belonged to the problem, what
    of that it was not shown, and its reward; None where it could not be judged."""

    step: int
    problem: str
    sample: int
    belongs: tuple[str, ...]
    without: frozenset[str]
    reward: float | None


def attempts(store: Store, run: Run, step: int | None = None) -> Iterator[Attempt]:
    """Yields the attempts of a run (of one step) that are on record and fill groups."""
    for row in store.runs.rollouts(run, step):
        if row.sample < CONFIRMING:
            belongs, without = (row.verdict.get(name, ()) for name in ("belongs", "without"))
            place = (row.step, row.problem, row.sample)
            yield Attempt(*place, tuple(belongs), frozenset(without), row.reward)


def recorded(
    store: Store, run: Run, step: int | None, is_near: Callable[[str, str], bool]
) -> Iterator[Observation]:
    """Yields the same as the sums take them. `is_near` says whether an experience belongs to a
    problem, by their ids."""
    for one in attempts(store, run, step):
        there = {name for name in one.belongs if of_name(name) not in one.without}
        there |= {of for name in there if (of := replaced(name))}  # in another wording
        names = {
            name: name if replaced(name) or is_near(name, one.problem) else name + ELSEWHERE
            for name in sorted(set(one.belongs))
        }
        shown = frozenset(names[name] for name in there)
        yield Observation(f"{one.step}/{one.problem}", tuple(names.values()), shown, one.reward)


def in_trial(store: Store, run: Run) -> list[Observation]:
    """The judged attempts of a trial, in which an item on trial is tried only where it belongs."""
    every = recorded(store, run, None, lambda *_: True)
    return [one for one in every if one.reward is not None]


class OnProbation:
    """The candidates of one run with their effects, for viewers: each step is read once, however
    many viewers there are. Which problems an experience in force belongs to is not known here, so
    it has one effect over all problems. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._advantages, self._read = Advantages(), set[int]()
        self._seen: tuple[object, ...] | None = None
        self._listed: list[Candidate] = []

    def candidates(self, store: Store, run: Run, steps: Collection[int]) -> list[Candidate]:
        """The candidates of a run, the last decided first. `steps` are those that are done, from
        0."""
        with self._lock:
            seen = (store.port.names.last_move(), len(steps))
            if seen != self._seen:
                self._listed, self._seen = self._measured(store, run, steps), seen
            return self._listed

    def _measured(self, store: Store, run: Run, steps: Collection[int]) -> list[Candidate]:
        listed = candidates(store, run)
        waiting = [one.experience for one in listed if one.state == "on probation"]
        proposed = [evidence_of(store.history(id)[0]).step for id in waiting]
        first = min((-1 if step is None else step for step in proposed), default=None)
        if first is None:
            return listed
        for step in sorted(set(steps) - self._read):
            if step > first:  # before that none of them was there
                self._advantages.add(recorded(store, run, step, lambda *_: True))
                self._read.add(step)
        known: dict[str, Measured | None] = {
            of_name(name): read_evidence(figures(effect)).measured
            for name, effect in self._advantages.effects().items()  # of two wordings the later one
        }
        return [
            one._replace(measured=known.get(EXAMPLES if is_example(one.text) else one.experience))
            if one.state == "on probation"
            else one
            for one in listed
        ]
