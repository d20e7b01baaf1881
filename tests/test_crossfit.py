"""What a run gains: measured afresh, with libraries that the other problems chose."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from math import prod
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from conftest import Cli
from desk import Desk, steps
from desk import made as made_desk
from scripted import ScriptedEndpoint, write_problems
from test_probation import planted

from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation.statistics import Estimate
from tfgrpo.learn.advantage import ELSEWHERE, Advantages, Observation, summed
from tfgrpo.learn.assign import Belonging, hidden, tried
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.crossfit import Choosing, choices, folds
from tfgrpo.learn.decide import ByChance
from tfgrpo.learn.in_use import Places
from tfgrpo.learn.own_gain import estimate
from tfgrpo.model.budget import Budget, BudgetReached
from tfgrpo.rollout.attempt import MEASURING
from tfgrpo.runs.attempts import run_attempts
from tfgrpo.runs.run_versions import Gain, recorded_gain
from tfgrpo.store import Store
from tfgrpo.store.records import read_evidence

pytestmark = pytest.mark.usefixtures("spoken")

GROUP, LEAK, SAMPLES = 6, 0.3, 2


def everywhere(problems: Collection[str]) -> Callable[[Collection[str]], Places]:
    """A library of which every prompt gets all."""
    return lambda taken: dict.fromkeys(taken, problems)


class PlayedRun:
    """A run by the product's own parts, with lessons of planted worth at one kind of problems of
    four. A lesson gives away the answer of the problem that taught it."""

    def __init__(
        self,
        seed: int,
        helpful: float,
        harmful: float,
        *,
        problems: int = 24,
        epochs: int = 4,
        same: bool = False,
    ) -> None:
        self._same = same
        self._dice = random.Random(seed)
        self._base = {f"p{n}": self._dice.betavariate(2, 3) for n in range(problems)}
        self._kind = {problem: n % 4 for n, problem in enumerate(self._base)}
        self._worth: dict[str, float] = {}
        self._teacher: dict[str, str] = {}
        self._attempts: dict[str, list[Observation]] = {problem: [] for problem in self._base}
        batches = problems // 12
        self._last = batches * epochs - 1
        self._in_force: list[str] = []
        pool: list[str] = []
        sums, effects = Advantages(), {}
        for step in range(self._last + 1):
            if step % batches == 0:
                order = self._dice.sample(list(self._base), len(self._base))
            batch = order[12 * (step % batches) :][:12]
            for problem in batch:
                texts = {c: chr(0x4E00 + int(c)) * 8 for c in pool if self.is_near(c, problem)}
                there = Belonging(
                    tuple(self._in_force), tried(texts, effects, seed, (step, problem)), {}
                )
                self._attempts[problem] += self._group(step, problem, there, seed)
            sums.add(o for p in batch for o in self._attempts[p][-GROUP:])
            effects = sums.effects()
            decided = self._rule(step).decide(effects, pool, self._in_force)
            pool = [c for c in pool if c not in decided.promoted + decided.retired]
            self._in_force = [c for c in self._in_force if c not in decided.dropped]
            self._in_force += decided.promoted
            for _ in range(3):
                name, roll = str(len(self._worth)), self._dice.random()
                self._worth[name] = 0.3 * ((roll < helpful) - (roll > 1 - harmful))
                self._teacher[name] = self._dice.choice(batch)
                pool.append(name)

    def _rule(self, step: int) -> ByChance:
        return ByChance(promote=0.8) if step == self._last else ByChance()

    def _group(self, step: int, problem: str, there: Belonging, seed: int) -> list[Observation]:
        made = []
        for sample in range(GROUP):
            shown = set(there.factors) - hidden(there, seed, (step, problem), sample)
            reward = float(self._dice.random() < self._chance(problem, shown, LEAK))
            own = {c: c if self.is_near(c, problem) else c + ELSEWHERE for c in there.factors}
            names = frozenset(own[c] for c in shown)
            made.append(Observation(f"{step}/{problem}", tuple(own.values()), names, reward))
        return made

    def _chance(self, problem: str, shown: Sequence[str] | set[str], leak: float = 0.0) -> float:
        missing, left = [1.0], [1.0]
        for one in sorted(shown):
            own = leak if self._teacher[one] == problem else 0.0
            worth = self._worth[one] if self.is_near(one, problem) else 0.0
            missing.append(1 - max(worth, own, 0.0))
            left.append(1 - max(-worth, 0.0))
        whole = min if self._same else prod
        return (1 - (1 - self._base[problem]) * whole(missing)) * whole(left)

    def is_near(self, experience: str, problem: str) -> bool:
        return self._kind[self._teacher[experience]] == self._kind[problem]

    def taught_by(self, experience: str) -> list[str]:
        return [self._teacher[experience]]

    def share(self, experience: str, problems: Collection[str]) -> float:
        return fmean(self.is_near(experience, problem) for problem in problems)

    @property
    def gain(self) -> float:
        """What is in force in the end adds to the chance of a reward, without what it gives
        away."""
        rewards = (self._chance(p, self._in_force) - base for p, base in self._base.items())
        return fmean(rewards)

    @property
    def estimate(self) -> Estimate:
        groups = {problem: summed(there) for problem, there in self._attempts.items()}
        choosing = Choosing(self._rule, set, everywhere(self._base))
        taken = choices(groups, list(self._worth), choosing, self, 0)
        own = {p: {one for one in names if self._teacher[one] == p} for p, names in taken.items()}
        known = {
            problem: self._fresh(problem, set(names)) - self._fresh(problem, set())
            if names
            else 0.0
            for problem, names in taken.items()
            if not own[problem]
        }
        stand_in = [
            [known[id] for id in known if any(self.is_near(x, id) for x in mine & set(taken[id]))]
            for mine in own.values()
            if mine
        ]
        return estimate(list(known.values()), stand_in)

    def _fresh(self, problem: str, shown: set[str]) -> float:
        chance = self._chance(problem, shown, LEAK)
        return fmean(float(self._dice.random() < chance) for _ in range(SAMPLES))


def test_where_nothing_helps_the_interval_covers_nothing_at_its_level() -> None:
    estimates = [PlayedRun(seed, 0.0, 0.2).estimate for seed in range(160)]
    covered = sum(one.low <= 0 <= one.high for one in estimates)
    assert covered >= 0.95 * 160
    assert abs(fmean(one.mean for one in estimates)) < 0.003


def test_where_lessons_help_its_mean_is_near_what_they_gain() -> None:
    runs = [PlayedRun(seed, 0.3, 0.2, problems=48, epochs=6) for seed in range(20)]
    estimates = [run.estimate.mean for run in runs]
    true = fmean(run.gain for run in runs)
    assert true > 0.1
    assert 0.85 * true < fmean(estimates) < 1.05 * true


@pytest.mark.parametrize(("helpful", "same"), [(0.3, False), (0.6, True)])
def test_the_interval_covers_what_a_run_gained_that_took_something(
    same: bool, helpful: float
) -> None:
    runs = [PlayedRun(seed, helpful, 0.2, same=same) for seed in range(60)]
    known = [(run.gain, run.estimate) for run in runs if run._in_force]
    assert len(known) > 20
    assert sum(one.low <= true <= one.high for true, one in known) >= 0.88 * len(known)


def test_what_a_run_began_with_and_that_harms_is_in_no_choice() -> None:
    dice, worth = random.Random(1), {"helps": 0.3, "harms": -0.3}
    found: dict[str, list[Observation]] = {str(n): [] for n in range(24)}
    for step in range(4):
        for problem, there in found.items():
            for sample in range(GROUP):
                belong = Belonging(tuple(worth), (), {})
                shown = set(worth) - hidden(belong, 1, (step, problem), sample)
                reward = float(dice.random() < 0.5 + sum(worth[one] for one in shown))
                there.append(
                    Observation(f"{step}/{problem}", tuple(worth), frozenset(shown), reward)
                )

    class Everywhere:
        def is_near(self, experience: str, problem: str) -> bool:
            return True

        def share(self, experience: str, problems: Collection[str]) -> float:
            return 1.0

    groups = {problem: summed(there) for problem, there in found.items()}
    choosing = Choosing(lambda _: ByChance(), set, everywhere(found), tuple(worth))
    taken = choices(groups, [], choosing, Everywhere(), 0)
    assert taken == dict.fromkeys(found, ("helps",))


def test_every_problem_is_in_one_fold_by_the_seed() -> None:
    problems = [f"p{n}" for n in range(50)]
    dealt = folds(problems, 1)
    assert sorted(one for fold in dealt for one in fold) == sorted(problems)
    assert {len(fold) for fold in dealt} <= {2, 3}
    assert dealt == folds(problems[::-1], 1)
    assert dealt != folds(problems, 2)
    assert folds(problems[:2], 1) in ([["p0"], ["p1"]], [["p1"], ["p0"]])


# runs:


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    values = {"policy": "probation", "count": 16, "batch_size": 8, "group_size": 6, "epochs": 4}
    return partial(made_desk, tmp_path, verifier, **values)


def gain_of(path: Path) -> Gain | None:
    with Store.open(path) as store:
        return recorded_gain(store, store.runs.get("run"))


def test_the_last_version_of_a_run_has_its_gain_on_record(make: Callable[..., Desk]) -> None:
    desk = make()
    desk.prepare()
    with ScriptedEndpoint(planted) as server:
        desk.train(server)
        calls = len(server.requests)
    *before, last = steps(desk.path)
    assert not any("gain" in version.meta for version in before)
    assert last.meta["gain"]["problems"] == 16
    with Store.open(desk.path) as store:
        run = store.runs.get("run")
        gain = recorded_gain(store, run)
        assert gain is not None
        assert 0.1 < gain.estimate.mean < 0.7
        assert sum(usage.calls for usage in store.runs.usage(run).values()) == calls
        listed = run_attempts(store, run)
        fresh = [one for group in listed.measuring() for one in group]
        assert {one.step for one in fresh} == {len(before) + 1}
        assert {one.sample - MEASURING for one in fresh} == {0, 1, 2, 3}
        assert f"{len(fresh)} attempts to measure the run's gain are of no group" in " ".join(
            listed.by_problem().notes
        )
        assert {len(group) for group in listed.groups()} == {6}
        values = {
            group[0].problem: fmean(one.reward * (-1, 1)[one.sample % 2] for one in group) * 2
            for group in listed.measuring()
        }
        (lesson,) = store.library(last)
        first = read_evidence(store.history(lesson.id)[0].evidence)
        assert {f"p{n + 1}" for n in range(16)} == {*values, *first.problems}
        assert values.keys().isdisjoint(first.problems), "it may give away their answers"
        assert abs(gain.estimate.mean - fmean(values.values())) < 0.15


@pytest.mark.parametrize("most", [1, 11])
def test_a_run_that_is_stopped_while_it_measures_its_gain_asks_for_nothing_twice(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    mean, left = Collector.mean, [most]

    async def stopped(self: Collector, *given: Any) -> float | None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("stopped")
        return await mean(self, *given)

    whole, broken = make(name="whole"), make(name="broken")
    with ScriptedEndpoint(planted) as server:
        whole.prepare()
        whole.train(server)
        calls = len(server.requests)
        broken.prepare()
        with monkeypatch.context() as patch:
            patch.setattr(Collector, "mean", stopped)
            with pytest.raises(OSError, match="stopped"):
                broken.train(server)
        assert len(server.requests) < 2 * calls
        broken.train(server)
        assert len(server.requests) == 2 * calls
    assert gain_of(broken.path) == gain_of(whole.path) is not None


def test_a_run_whose_budget_does_not_pay_for_its_gain_says_so(make: Callable[..., Desk]) -> None:
    desk, budget = make(epochs=2), Budget(10**9, in_tokens=True)
    desk.prepare()
    with ScriptedEndpoint(planted) as server, pytest.MonkeyPatch.context() as patch:

        async def broke(*_: object) -> float | None:
            raise BudgetReached("the budget is used up")

        patch.setattr(Collector, "mean", broke)
        desk.train(server, budget=budget)
    assert steps(desk.path)[-1].message.startswith("step 4 of 4")
    assert gain_of(desk.path) is None


def test_a_doubtful_gain_is_told_as_such() -> None:
    assert str(Gain(Estimate(0.1, -0.1, 0.3, 24))).startswith("the run gains +0.100 [-0.100")
    for one in (Estimate(0.0, 0.0, 0.0, 24), Estimate(-0.2, -0.3, -0.1, 24)):
        assert str(Gain(one)).startswith("warning: not shown to help")


def test_train_tells_the_gain_where_nothing_else_does(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 16)
    write_problems(tmp_path / "heldout.jsonl", 4, start=40)
    sizes = ("--batch-size", "8", "--group-size", "6", "--epochs", "4")
    with ScriptedEndpoint(planted) as server:
        model = ("--model", "m", "--base-url", server.base_url)

        def told(*more: str) -> list[str]:
            done = cli("train", "problems.jsonl", *model, *sizes, "--new", *more)
            return [one for one in done.stdout.splitlines() if "in fresh attempts at" in one]

        (line,) = told("--run", "alone", "--policy", "probation")
        assert "the run gains " in line
        asked = len(server.requests)
        assert told("--run", "held", "--policy", "probation", "--heldout", "heldout.jsonl") == []
        held = cli("rollouts", "held", "--by-problem").stdout
        assert "measure the run's gain" not in held
        assert len(server.requests) > asked
        assert told("--run", "published", "--policy", "paper") == []
    shown = cli("runs", "alone").stdout
    assert " ".join(line.split()) in " ".join(shown.split())
    objects = {
        name: json.loads(cli("runs", name, "--json").stdout) for name in ("alone", "published")
    }
    assert objects["alone"]["gain"]["problems"] == 16
    assert objects["published"]["gain"] is None
    assert "to measure the run's gain" in cli("rollouts", "alone", "--by-problem").stdout
