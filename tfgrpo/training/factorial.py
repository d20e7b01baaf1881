"""A trial that gives each change of a step its own effect, at the cost of a trial of them all.

Every attempt at a held-out problem has a random half of the candidate changes in its prompt, so
each change is there in half of the attempts, whatever the others do. Rewards are regressed on
what was there, within each problem (the estimator of credit.py), which is the analysis of a
randomised factorial experiment; the two attempts of a pair have opposite halves (fold-over; Box,
Hunter and Hunter, Statistics for Experimenters, 2005), so that no problem is unbalanced. A change
is one experience's: what is done to it in a step stands or falls together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from statistics import fmean
from typing import Literal, NamedTuple

from tfgrpo.evaluation import evaluate
from tfgrpo.evaluation.credit import Observation, estimate_effects
from tfgrpo.evaluation.evaluate import EvalProgress, EvalTask
from tfgrpo.evaluation.statistics import t_quantile
from tfgrpo.session import Session
from tfgrpo.settings import GateRule
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Json, Library, Operation
from tfgrpo.store.runs import Run
from tfgrpo.training.draft import Draft
from tfgrpo.training.gate_rules import passes
from tfgrpo.training.pruning import is_prune
from tfgrpo.training.retries import is_undecided


class ChangeEffect(NamedTuple):
    """What the change of one experience does to the reward, and whether it passes the rule.

    The interval is of 95 %; it and the standard `error` are infinite where nothing is known.
    """

    experience: str
    mean: float
    low: float
    high: float
    error: float
    is_kept: bool

    def to_json(self) -> Json:
        """Returns it as it stands in a version's record."""
        bounds = (self.mean, self.low, self.high)
        effect = [None if abs(v) == float("inf") else round(v, 6) for v in bounds]
        return {"experience": self.experience, "effect": effect, "kept": self.is_kept}


class FactorialTrial(NamedTuple):
    """The effects of a step's changes, and the mean reward that they give the library in force
    (`before`) and the one with what is kept (`after`), over so many problems."""

    effects: tuple[ChangeEffect, ...]
    before: float
    after: float
    problems: int

    @property
    def verdict(self) -> Literal["accepted", "rejected"]:
        """Accepted when any change is kept."""
        return "accepted" if any(effect.is_kept for effect in self.effects) else "rejected"

    def keeps(self, operation: Operation) -> bool:
        """Whether an operation enters: its change passed, or was not on trial."""
        rejected = {effect.experience for effect in self.effects if not effect.is_kept}
        return operation.experience not in rejected

    def leaves_open(self, operation: Operation) -> bool:
        """Whether an operation that does not enter may yet be one that helps."""
        return any(
            not effect.is_kept and is_undecided(effect.mean, effect.error)
            for effect in self.effects
            if effect.experience == operation.experience
        )

    def to_json(self) -> Json:
        """Returns the figures as they stand in a version's record."""
        return {
            "trial": "factorial",
            "problems": self.problems,
            "before": round(self.before, 6),
            "after": round(self.after, 6),
            "changes": [effect.to_json() for effect in self.effects],
        }


def changed_experiences(operations: Iterable[Operation]) -> list[str]:
    """Returns the experiences whose text a step changes, in order; KEEP changes none."""
    ids = (o.experience for o in operations if o.op != "KEEP" and not is_prune(o))
    return list(dict.fromkeys(id for id in ids if id is not None))


def can_be_factorial(operations: Sequence[Operation]) -> bool:
    """Whether a step's changes can be tried apart: there are several, and none was made to give
    another one room."""
    has_pruned = any("room_for" in (o.evidence or {}) for o in operations)
    return not has_pruned and len(changed_experiences(operations)) > 1


def left_out_of(changes: Sequence[str], seed: int, problem: str, sample: int) -> frozenset[str]:
    """Returns the changes that one attempt goes without: by coins that follow from the seed, the
    problem and the place of a change; the odd attempt of a pair has what the even one lacks."""
    pair = sample // 2
    coins = (
        digest(["tfgrpo.factorial", seed, problem, pair, place])[0] % 2 == sample % 2
        for place in range(len(changes))
    )
    return frozenset(id for id, coin in zip(changes, coins, strict=True) if coin)


class Changes(NamedTuple):
    """A step's operations on the library in force."""

    library: Library
    operations: Sequence[Operation]


async def try_changes(
    session: Session,
    run: Run,
    task: EvalTask,
    rule: GateRule,
    tried: Changes,
    progress: EvalProgress,
) -> FactorialTrial:
    """Returns what each change does, and which pass the rule.

    Twice the task's samples are drawn at each problem, as many attempts as two libraries would
    take. `progress` is told of each. Raises EndpointError, BudgetReached.
    """
    library, operations = tried
    changes = changed_experiences(operations)
    doubled = task.settings.model_copy(update={"samples": 2 * task.settings.samples})
    task = replace(task, settings=doubled)
    libraries: dict[frozenset[str], Library] = {}
    wanted: list[evaluate.Wanted] = []
    without: list[frozenset[str]] = []
    for sample in range(doubled.samples):
        for problem in task.problems:
            missing = left_out_of(changes, doubled.seed, problem.id, sample)
            if missing not in libraries:
                there = [o for o in operations if o.experience not in missing]
                libraries[missing] = Draft(library).after(there).library
            wanted.append((libraries[missing], problem, sample))
            without.append(missing)
    scores = await evaluate.examine_each(session, wanted, task, run=run, progress=progress)
    observations = [
        Observation(score.problem, score.problem, changes, missing, score.reward)
        for score, missing in zip(scores, without, strict=True)
        if score.reward is not None
    ]
    return _trial(observations, changes, rule)


def _trial(
    observations: Sequence[Observation], changes: Sequence[str], rule: GateRule
) -> FactorialTrial:
    problems = sorted({one.problem for one in observations})
    quantile = t_quantile(0.975, len(problems) - 1) if len(problems) > 1 else 1.0
    known = {credit.experience: credit for credit in estimate_effects(observations)}
    effects = []
    for id in changes:
        mean, low, high = 0.0, -inf, inf
        if id in known:
            mean, low, high = known[id].effect, known[id].low, known[id].high
        error = (high - mean) / quantile
        accepted = passes(rule, mean, error, quantile)
        effects.append(ChangeEffect(id, mean, low, high, error, accepted))
    at_none = {
        problem: fmean(
            one.reward - sum(e.mean for e in effects if e.experience not in one.without)
            for one in observations
            if one.problem == problem
        )
        for problem in problems
    }
    before = fmean(at_none.values())
    after = before + sum(effect.mean for effect in effects if effect.is_kept)
    return FactorialTrial(tuple(effects), before, after, len(problems))
