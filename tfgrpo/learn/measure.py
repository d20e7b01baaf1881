"""What the attempts of a run say of each candidate and experience so far.

Where an experience belongs (`nearness.py`) and elsewhere it may do different things, so these are
two effects. A candidate is tried where it belongs. What is in force is shown everywhere, and what
counts there is the mean of the two, by the shares of problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tfgrpo.learn.advantage import Advantages, Effect, Observation, mean_effect
from tfgrpo.learn.assign import lessons_of, tried
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.nearness import Nearness
from tfgrpo.learn.policies.protocol import Step
from tfgrpo.learn.pool import Pool
from tfgrpo.rollout.attempt import CONFIRMING, Group


class Measurement:
    """The sums over a run's attempts, step by step."""

    def __init__(self, parts: RunParts) -> None:
        self._store, self._run, self._seed = parts.session.store, parts.run, parts.settings.seed
        self._near = Nearness(self._store, parts.run, parts.problems)
        self._advantages, self._steps = Advantages(), 0

    def tried(self, step: Step, pool: Pool) -> dict[str, tuple[str, ...]]:
        """Returns which candidates are tried at each problem of a step, by its id."""
        self._recall(step.number)
        effects, lessons = self._advantages.effects(), lessons_of(pool.candidates)
        chosen = {}
        for one in step.batch:
            there = {id: text for id, text in lessons.items() if self._near.is_near(id, one.id)}
            chosen[one.id] = tried(there, effects, self._seed, (step.number, one.id))
        return chosen

    def add(self, step: int, groups: Iterable[Group]) -> None:
        """Adds a step's attempts, and those of the steps before it on resume."""
        self._recall(step)
        self._advantages.add(
            self._observed(step, r.problem.id, (r.belongs, r.without), r.reward)
            for group in groups
            for r in group.rollouts
            if r.reward is not None
        )
        self._steps = step + 1

    def effects(self, in_force: Sequence[str]) -> dict[str, Effect]:
        """Returns the effect of each factor: where it belongs, and of what is in force overall."""
        known = self._advantages.effects()
        overall = {}
        for name in in_force:
            share = self._near.share(name)
            shares = {name: share, _elsewhere(name): 1 - share}
            there = [(known[one], shares[one]) for one in shares if one in known]
            if there:
                overall[name] = mean_effect(there)
        return known | overall

    def _recall(self, step: int) -> None:
        while self._steps < step:
            self._advantages.add(self._recorded(self._steps))
            self._steps += 1

    def _recorded(self, step: int) -> Iterable[Observation]:
        for row in self._store.runs.rollouts(self._run, step):
            if row.sample < CONFIRMING and row.reward is not None:
                shown = (row.verdict.get("belongs", ()), row.verdict.get("without", ()))
                yield self._observed(step, row.problem, shown, row.reward)

    def _observed(
        self, step: int, problem: str, shown: tuple[Iterable[str], Iterable[str]], reward: float
    ) -> Observation:
        """Returns an attempt with what belonged to its problem and was shown, by where it was."""
        belongs, without = map(frozenset, shown)
        names = {
            name: name if self._near.is_near(name, problem) else _elsewhere(name)
            for name in sorted(belongs)
        }
        there = frozenset(names[name] for name in belongs - without)
        return Observation(f"{step}/{problem}", tuple(names.values()), there, reward)


def _elsewhere(name: str) -> str:
    """Returns what the effect of a factor is called at problems that it does not belong to."""
    return f"{name} elsewhere"
