"""Following a run from another process: what is new in the store since the last look, and what
`live_run.py` tells. A figure that is not known is None, never 0."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from tfgrpo.costs.accounts import Pricing, Total, names_endpoints, total
from tfgrpo.evaluation.statistics import Estimate, mean_at_k
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.runs.live_run import LiveFigures, live_path, read_live
from tfgrpo.runs.run_issues import Issue, issues
from tfgrpo.runs.run_versions import gate_of, step_of, step_stats, versions_of
from tfgrpo.store.activity.runs import AttemptMark, Run, RunBudget, RunState, Spent, Usage
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

WINDOW = 60_000_000
"""Microseconds over which calls are counted for the calls of a minute."""


class LearnedStep(NamedTuple):
    """A step's version, library size, events by kind, and what was refused or failed."""

    version: Version
    library: int
    events: Mapping[str, int]
    issues: tuple[Issue, ...]

    @property
    def gate(self) -> str | None:
        """What the gate did with the step's candidate; None where there was no gate."""
        gate = gate_of(self.version)
        return None if gate is None else gate.word


@dataclass(frozen=True, slots=True)
class StepFigures:
    """One step, counted from 1: `reward` with its 95 % interval, how many of its groups are
    `mixed` (None: not known yet), attempts by outcome, those that confirm a lesson too, and what
    was `learned` (None: not done)."""

    step: int
    attempts: int
    groups: int
    mixed: int | None
    reward: Estimate | None
    outcomes: Mapping[str, int]
    tool_calls: int
    spent: Total
    rollouts: Total
    learned: LearnedStep | None

    @property
    def mixed_share(self) -> float | None:
        """The share of groups that have winners and losers; None where there is no group."""
        return self.mixed / self.groups if self.groups and self.mixed is not None else None

    @property
    def library(self) -> int | None:
        """How many experiences the library had after it; None before it has learned."""
        return self.learned and self.learned.library

    @property
    def refused(self) -> int | None:
        """How many operations were refused; None before it has learned."""
        if self.learned is None:
            return None
        return sum(issue.kind == "refused" for issue in self.learned.issues)

    @property
    def tokens_a_rollout(self) -> float | None:
        """The tokens that the model wrote for an attempt, on the average."""
        attempts = sum(self.outcomes.values())
        if not attempts or not self.rollouts.usage.calls:
            return None
        return self.rollouts.usage.completion_tokens / attempts


@dataclass(frozen=True, slots=True)
class RunFigures:
    """A run as it is now. `steps_total` is None where nobody has said how many there will be, and
    `live` where the run is not at work; `calls_a_minute` until a watcher has seen enough of it."""

    run: Run
    state: str
    states: tuple[RunState, ...]
    steps: tuple[StepFigures, ...]
    steps_total: int | None
    spent: Total
    live: LiveFigures | None
    calls_a_minute: float | None
    budget: RunBudget | None = None

    @property
    def budget_spent(self) -> float | None:
        """What counts against the budget, in its unit; None without one, or a price."""
        if self.budget is None:
            return None
        if self.budget.in_tokens:
            usage = self.spent.usage
            return float(usage.prompt_tokens + usage.completion_tokens)
        return self.spent.dollars

    @property
    def is_running(self) -> bool:
        """Whether a process is at work on it."""
        return self.state == "running"

    @property
    def steps_done(self) -> int:
        """How many steps have a version."""
        return sum(step.learned is not None for step in self.steps)

    @property
    def fraction(self) -> float | None:
        """The share of the run that is done; None where that cannot be said."""
        if self.state == "finished":
            return 1.0
        if self.live is not None:
            return self.live.fraction
        return self.steps_done / self.steps_total if self.steps_total else None

    @property
    def issues(self) -> tuple[Issue, ...]:
        """What was refused or failed, newest first."""
        issues = [one for step in self.steps if step.learned for one in step.learned.issues]
        return tuple(reversed(issues))


_Kind: TypeAlias = tuple[str, str, str | None]


@dataclass(slots=True)
class _Step:
    rewards: dict[str, list[float]] = field(default_factory=dict)
    problems: set[str] = field(default_factory=set)
    attempts: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    spent: dict[_Kind, Spent] = field(default_factory=dict)
    learned: LearnedStep | None = None

    def add_attempt(self, mark: AttemptMark) -> None:
        """Counts an attempt; what only confirms a lesson is in no group."""
        self.outcomes[mark.outcome] = self.outcomes.get(mark.outcome, 0) + 1
        if mark.sample >= CONFIRMING:
            return
        self.attempts += 1
        self.problems.add(mark.problem)
        if mark.reward is not None:
            self.rewards.setdefault(mark.problem, []).append(mark.reward)


class RunFollower:
    """Reads a run again and again, at the price of what is new. Belongs to one thread at a time;
    `store` is its own or read by nobody else meanwhile."""

    def __init__(self, store: Store, run: Run, prices: Mapping[str, Any]) -> None:
        """`prices` is the settings file's [prices]."""
        self._store, self._run = store, run
        self._pricing = Pricing(store, prices)
        self._call = self._attempt = 0
        self._moved = -1
        self._seen: tuple[object, ...] | None = None
        self._steps: dict[int, _Step] = {}
        self._others: dict[_Kind, Spent] = {}
        self._pace: list[tuple[int, int]] = []
        self._states: tuple[RunState, ...] = ()

    def look(self) -> RunFigures | None:
        """The run as it is now, None if unchanged. Raises StoreError and PriceInvalid."""
        state = self._store.runs.state(self._run)
        changed = _changed_at(self._store, self._run) if state == "running" else 0
        changes = self._store.port.changes()
        if (changes, changed, state) == self._seen:
            return None
        if self._seen is None or changes != self._seen[0]:
            with self._store.port.reading():
                self._read()
        self._seen = (changes, changed, state)
        live = read_live(self._store, self._run) if state == "running" else None
        return self._figures(state, live)

    def _read(self) -> None:
        runs, run = self._store.runs, self._run
        self._call, calls = runs.spent_since(run, self._call, by_endpoint=names_endpoints(run))
        for spent in calls:
            step = None if spent.step is None else self._step(spent.step)
            sums = self._others if step is None else step.spent
            key = (spent.stage, spent.model, spent.endpoint)
            sums[key] = _sum(sums[key], spent) if key in sums else spent
        self._attempt, attempts = runs.attempts_since(run, self._attempt)
        for mark in attempts:
            self._step(mark.step).add_attempt(mark)
        moved = self._store.port.names.last_move()
        if moved != self._moved:
            self._moved = moved
            self._read_versions()
        self._states = tuple(runs.states(run))

    def _step(self, number: int) -> _Step:
        return self._steps.setdefault(number, _Step())

    def _read_versions(self) -> None:
        for version in versions_of(self._store, self._run):
            step = self._step(step_of(version))
            if step.learned is None or step.learned.version.number != version.number:
                size = len(self._store.library(version))
                counts = {str(op): n for op, n in self._store.counts(version).items()}
                step.learned = LearnedStep(version, size, counts, issues(version))

    def _figures(self, state: str, live: LiveFigures | None) -> RunFigures:
        steps = [self._step_figures(number) for number in sorted(self._steps)]
        sums = (*(step.spent for step in self._steps.values()), self._others)
        spent = total(self._pricing.cost(one) for some in sums for one in some.values())
        return RunFigures(
            self._run,
            state,
            self._states,
            tuple(steps),
            self._steps_total(live),
            spent,
            live,
            self._minute(live, spent.usage.calls),
            self._store.runs.budget(self._run),
        )

    def _step_figures(self, number: int) -> StepFigures:
        step = self._steps[number]
        costs = [self._pricing.cost(spent) for spent in step.spent.values()]
        return StepFigures(
            step=number + 1,
            attempts=step.attempts,
            groups=len(step.problems),
            mixed=self._mixed(step),
            reward=mean_at_k(step.rewards) if step.rewards else None,
            outcomes=dict(step.outcomes),
            tool_calls=sum(one.usage.calls for one in costs if one.stage == "tool"),
            spent=total(costs),
            rollouts=total(one for one in costs if one.stage == "rollout"),
            learned=step.learned,
        )

    def _mixed(self, step: _Step) -> int | None:
        """How many groups are mixed: as the step's version says, else by the rewards, where these
        are what attempts' own texts earned."""
        if step.learned is not None:
            return step_stats(step.learned.version).mixed
        if self._run.config.get("answers") == "exact":
            return None
        return sum(len(set(rewards)) > 1 for rewards in step.rewards.values())

    def _steps_total(self, live: LiveFigures | None) -> int | None:
        if live is not None:
            return live.steps
        learned = [step.learned for step in self._steps.values() if step.learned is not None]
        for one in learned:
            words = one.version.message.split()  # step 2 of 9: …
            if words[:1] == ["step"] and words[2:3] == ["of"] and words[3][:-1].isdigit():
                return int(words[3][:-1])
        return len(learned) if self._states and self._states[-1].state == "finished" else None

    def _minute(self, live: LiveFigures | None, calls: int) -> float | None:
        """The calls of a minute, going by what this watcher has seen; None at first."""
        if live is None:
            self._pace.clear()
            return None
        self._pace.append((live.time, calls))
        while len(self._pace) > 2 and self._pace[0][0] < live.time - WINDOW:
            self._pace.pop(0)
        (first, then), (last, now) = self._pace[0], self._pace[-1]
        return (now - then) * WINDOW / (last - first) if last - first > WINDOW / 12 else None


def run_figures(store: Store, run: Run, prices: Mapping[str, Any]) -> RunFigures:
    """A run as it is now. A read-only operation. Raises StoreError and PriceInvalid."""
    figures = RunFollower(store, run, prices).look()
    assert figures is not None, "the first look always finds something"
    return figures


def _changed_at(store: Store, run: Run) -> int:
    try:
        return os.stat(live_path(store.runs, run)).st_mtime_ns
    except OSError:
        return 0


def _sum(one: Spent, other: Spent) -> Spent:
    usage = Usage._make(a + b for a, b in zip(one.usage, other.usage, strict=True))
    return one._replace(retries=one.retries + other.retries, usage=usage)
