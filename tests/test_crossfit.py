"""What a run gains by its own attempts: the estimate knows what was planted, and says so."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, product
from pathlib import Path
from statistics import fmean

import pytest
from conftest import Cli
from desk import Desk, steps
from desk import made as made_desk
from scripted import ScriptedEndpoint, write_problems
from test_probation import planted

from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation.statistics import Estimate
from tfgrpo.learn.advantage import ELSEWHERE, Advantages, GroupSums, Observation, summed
from tfgrpo.learn.assign import Belonging, hidden, tried
from tfgrpo.learn.crossfit import Choosing, crossfitted, folds, gains, within_groups
from tfgrpo.learn.decide import ByChance
from tfgrpo.learn.in_use import Places
from tfgrpo.learn.rivals import challenger
from tfgrpo.runs.run_versions import Gain, recorded_gain
from tfgrpo.store import Store

GROUP, LEAK = 6, 0.3


def everywhere(problems: Collection[str]) -> Callable[[Collection[str]], Places]:
    """A library of which every prompt gets all."""
    return lambda taken: dict.fromkeys(taken, problems)


class PlayedRun:
    """A run by the product's own parts, with lessons of planted worth at one kind of problems of
    four. A lesson gives away the answer of the problem that taught it."""

    def __init__(
        self, seed: int, helpful: float, harmful: float, *, problems: int = 24, epochs: int = 4
    ) -> None:
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
        missing, left = 1 - self._base[problem], 1.0
        for one in sorted(shown):
            own = leak if self._teacher[one] == problem else 0.0
            worth = self._worth[one] if self.is_near(one, problem) else 0.0
            missing *= 1 - max(worth, own, 0.0)
            left *= 1 - max(-worth, 0.0)
        return (1 - missing) * left

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
        choosing = Choosing(self._rule, set, everywhere(self._base))
        return crossfitted(self._attempts, list(self._worth), choosing, self, 0).estimate

    @property
    def flattering(self) -> float:
        """The estimate that takes what is in force for chosen by others."""
        groups = {problem: summed(there) for problem, there in self._attempts.items()}
        return fmean(gains(groups, {}, everywhere(self._base)(self._in_force), self))


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
    assert fmean(run.flattering for run in runs) > true


def test_the_interval_covers_what_a_run_gained_that_took_something() -> None:
    runs = [PlayedRun(seed, 0.3, 0.2) for seed in range(60)]
    known = [(run.gain, run.estimate) for run in runs if run._in_force]
    assert len(known) > 20
    assert sum(one.low <= true <= one.high for true, one in known) >= 0.88 * len(known)
    assert not any(one.low == one.high for _, one in known), "the choice might have been another"


def test_attempts_that_cannot_be_judged_make_no_gain() -> None:
    """A lesson without effect, with which half of what is wrong cannot be judged."""
    dice = random.Random(3)
    found: dict[str, list[Observation]] = {}
    for step, problem, sample in product(range(6), map(str, range(16)), range(6)):
        shown = frozenset({"a"} if (sample + dice.randrange(2)) % 2 else ())
        right = dice.random() < 0.4
        lost = shown and not right and dice.random() < 0.5
        one = Observation(f"{step}/{problem}", ("a",), shown, None if lost else float(right))
        found.setdefault(problem, []).append(one)

    class All(Quarter):
        def is_near(self, experience: str, problem: str) -> bool:
            return True

    def taken(attempts: dict[str, list[Observation]]) -> tuple[bool, Estimate]:
        sums = Advantages()
        sums.add(chain.from_iterable(attempts.values()))
        decided = ByChance().decide(sums.effects(), ["a"], ())
        choosing = Choosing(lambda _: ByChance(), set, everywhere(attempts))
        return "a" in decided.promoted, crossfitted(attempts, ["a"], choosing, All(), 0).estimate

    judged = {p: [one for one in there if one.reward is not None] for p, there in found.items()}
    assert taken(judged)[0], "by what could be judged alone it helps"
    assert taken(judged)[1].low > 0.05
    assert not taken(found)[0]
    assert taken(found)[1].mean < 0.05


def with_base(seed: int, worth: dict[str, float]) -> tuple[float, Estimate, set[str]]:
    """A run that begins with lessons of some worth, which belong to every problem, and tries
    another that does nothing: the true gain, the estimate, and what left the library."""
    dice = random.Random(seed)
    chances = {str(n): dice.betavariate(2, 3) for n in range(24)}
    in_force, sums = list(worth), Advantages()
    found: dict[str, list[Observation]] = {problem: [] for problem in chances}

    def chance(problem: str, shown: Iterable[str]) -> float:
        missing, left = 1 - chances[problem], 1.0
        for one in sorted(shown):
            missing *= 1 - max(worth.get(one, 0.0), 0.0)
            left *= 1 - max(-worth.get(one, 0.0), 0.0)
        return (1 - missing) * left

    for step in range(4):
        for problem, there in found.items():
            tried_there = ("a",) if Quarter().is_near("a", problem) else ()
            belong = Belonging(tuple(in_force), tried_there, {})
            for sample in range(6):
                shown = set(belong.factors) - hidden(belong, seed, (step, problem), sample)
                reward = float(dice.random() < chance(problem, shown))
                names = tuple(belong.factors)
                there.append(Observation(f"{step}/{problem}", names, frozenset(shown), reward))
        sums.add(one for there in found.values() for one in there[-6:])
        dropped = ByChance().decide(sums.effects(), (), in_force).dropped
        in_force = [one for one in in_force if one not in dropped]

    class Everywhere(Quarter):
        def is_near(self, experience: str, problem: str) -> bool:
            return experience in worth or super().is_near(experience, problem)

        def taught_by(self, experience: str) -> list[str]:
            return []

        def share(self, experience: str, problems: Collection[str]) -> float:
            return 1.0 if experience in worth else 0.25

    choosing = Choosing(lambda _: ByChance(), set, everywhere(found), tuple(worth))
    gain = crossfitted(found, ["a"], choosing, Everywhere(), seed).estimate
    true = fmean(chance(p, in_force) - chance(p, worth) for p in chances)
    return true, gain, worth.keys() - set(in_force)


def test_what_a_run_drops_of_the_library_that_it_began_with_counts_in_its_gain() -> None:
    harmful = {"x": 0.1, "y": -0.25, "z": -0.25}
    runs = [with_base(seed, harmful) for seed in range(30)]
    assert fmean(true for true, *_ in runs) > 0.05
    assert not any(one.low == one.high for _, one, dropped in runs if dropped)
    assert sum(one.low <= true <= one.high for true, one, _ in runs) >= 0.6 * len(runs)
    assert sum(one.low > true for true, one, _ in runs) <= 1, "it is rather too low"


def test_what_helped_before_is_seldom_dropped_for_few_attempts() -> None:
    runs = [with_base(seed, {f"h{n}": 0.05 for n in range(10)}) for seed in range(20)]
    assert fmean(len(dropped) for *_, dropped in runs) < 0.5
    assert fmean(true for true, *_ in runs) > -0.01


def test_it_is_told_of_what_nothing_is_known_elsewhere() -> None:
    def rule(step: int) -> ByChance:
        return ByChance() if step else ByChance(promote=2.0)

    found = helping_and_harming(1, 0.6, 0.0)
    early = {problem: [one for one in there if one.group < "2"] for problem, there in found.items()}
    choosing = Choosing(rule, set, everywhere(found))
    gain = crossfitted(early, ["a"], choosing, Quarter(), 0)
    assert (gain.unknown, gain.estimate.mean > 0) == (1, True)
    assert crossfitted(found, ["a"], choosing, Quarter(), 0).unknown == 0


def test_a_challenger_is_known_where_what_it_stands_in_for_belongs() -> None:
    class Places(Quarter):
        def is_near(self, experience: str, problem: str) -> bool:
            return experience == "y" or super().is_near(experience, problem)

    dice, name = random.Random(1), challenger("x", "y", "words")
    found: dict[str, list[Observation]] = {}
    for step, problem, sample in product(range(4), map(str, range(24)), range(6)):
        shown = {name, "y"} if sample % 3 == 0 else {"y"} if dice.random() > 0.15 else set()
        reward = float(dice.random() < (0.8 if name in shown else 0.3))
        one = Observation(f"{step}/{problem}", ("y", name), frozenset(shown), reward)
        found.setdefault(problem, []).append(one)
    choosing = Choosing(lambda step: ByChance(), set, everywhere(found), ("y",))
    gain = crossfitted(found, [name], choosing, Places(), 0)
    assert (gain.estimate.mean > 0.1, gain.unknown) == (True, 0)


def of_part(seed: int, top_k: int, start: tuple[str, ...]) -> Estimate:
    """The gain of three lessons that help everywhere, of which a prompt gets some."""
    dice, names = random.Random(seed), ("a", "b", "c")
    found: dict[str, list[Observation]] = {str(n): [] for n in range(24)}
    for step, problem, _ in product(range(4), found, range(6)):
        shown = frozenset(name for name in names if dice.random() < 0.5)
        reward = float(dice.random() < 0.3 + 0.2 * len(shown))
        found[problem].append(Observation(f"{step}/{problem}", names, shown, reward))

    class Places(Quarter):
        def is_near(self, experience: str, problem: str) -> bool:
            return True

    def in_use(taken: Collection[str]) -> dict[str, list[str]]:
        ranks = {p: sorted(taken, key=lambda name: (int(p) + ord(name)) % 3) for p in found}
        return {name: [p for p in found if name in ranks[p][:top_k]] for name in taken}

    choosing = Choosing(lambda _: ByChance(), set, in_use, start)
    return crossfitted(found, names, choosing, Places(), seed).estimate


@pytest.mark.parametrize("top_k", [1, 2])
def test_of_lessons_that_help_those_count_that_a_prompt_gets(top_k: int) -> None:
    for start in ((), ("a",)):
        estimates = [of_part(seed, top_k, start) for seed in range(80)]
        true = 0.2 * (top_k - len(start))  # one that was there makes room where others fit better
        assert -0.05 < fmean(one.mean for one in estimates) - true < 0.02
        assert fmean(one.low <= true <= one.high for one in estimates) >= 0.85


def test_every_problem_is_in_one_fold_by_the_seed() -> None:
    problems = [f"p{n}" for n in range(50)]
    dealt = folds(problems, 1)
    assert sorted(one for fold in dealt for one in fold) == sorted(problems)
    assert {len(fold) for fold in dealt} <= {2, 3}
    assert dealt == folds(problems[::-1], 1)
    assert dealt != folds(problems, 2)
    assert folds(problems[:2], 1) in ([["p0"], ["p1"]], [["p1"], ["p0"]])


def test_each_attempt_is_read_once_for_all_choices() -> None:
    class Counted(tuple[str, ...]):
        reads = 0

        def __iter__(self) -> Iterator[str]:
            Counted.reads += 1
            return super().__iter__()

    found = {
        problem: [one._replace(belongs=Counted(one.belongs)) for one in there]
        for problem, there in helping_and_harming(1, 0.3, 0.15).items()
    }
    choosing = Choosing(lambda _: ByChance(), set, everywhere(found))
    crossfitted(found, ["a"], choosing, Quarter(), 0)
    assert Counted.reads == sum(map(len, found.values()))


def attempts(*rows: tuple[str, set[str], float]) -> list[GroupSums]:
    return summed(
        Observation(group, ("a", "b"), frozenset(shown), reward) for group, shown, reward in rows
    )


def test_a_problem_measures_what_it_did_not_teach_within_its_groups() -> None:
    first = attempts(
        ("0/p", {"a"}, 1.0), ("0/p", set(), 0.0), ("1/p", {"a"}, 0.0), ("1/p", {"a"}, 0.0)
    )
    assert within_groups(first, "a") == pytest.approx(1.0), "a group that is shown it whole is none"
    assert within_groups(first, "b") is None

    class Near:
        def is_near(self, experience: str, problem: str) -> bool:
            return problem != "away"

        def taught_by(self, experience: str) -> list[str]:
            return ["teacher"]

    there = {"p": first, "teacher": first, "away": attempts(("0/away", set(), 1.0))}
    assert gains(there, {}, {"a": there}, Near()) == [1.0, 1.0, 0.0], (
        "it speaks for the one that taught"
    )
    assert gains(there, {"a": there}, {}, Near()) == [-1.0, -1.0, 0.0]


class Quarter:
    """What a lesson belongs to: one problem of four."""

    def is_near(self, experience: str, problem: str) -> bool:
        return int(problem) % 4 == 0

    def taught_by(self, experience: str) -> list[str]:
        return ["0"]

    def share(self, experience: str, problems: Collection[str]) -> float:
        return 0.25


def helping_and_harming(seed: int, helps: float, harms: float) -> dict[str, list[Observation]]:
    """Attempts at forty problems: for two steps a lesson is tried where it belongs, and for two it
    is in force, hidden from 15 %."""
    dice = random.Random(seed)
    found: dict[str, list[Observation]] = {str(n): [] for n in range(40)}
    for step, (problem, there) in ((step, one) for step in range(4) for one in found.items()):
        near = Quarter().is_near("a", problem)
        name = "a" if near else "a elsewhere"
        belongs = (name,) if near or step > 1 else ()
        for sample in range(6):
            shown = bool(belongs) and (dice.random() > 0.15 if step > 1 else sample % 3 == 0)
            chance = 0.4 + shown * (helps if near else -harms)
            is_there = frozenset(belongs if shown else ())
            there.append(
                Observation(f"{step}/{problem}", belongs, is_there, float(dice.random() < chance))
            )
    return found


def test_what_a_lesson_does_where_it_does_not_belong_counts_too() -> None:
    def gain(seed: int) -> Estimate:
        found = helping_and_harming(seed, 0.3, 0.15)
        choosing = Choosing(lambda _: ByChance(), set, everywhere(found))
        return crossfitted(found, ["a"], choosing, Quarter(), seed).estimate

    true = 0.25 * 0.3 - 0.75 * 0.15
    estimates = [gain(seed) for seed in range(40)]
    assert true < 0
    assert sum(one.low > true for one in estimates) < 0.25 * 40
    assert fmean(one.mean for one in estimates) < 0.01


# runs:


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    values = {"policy": "probation", "count": 16, "batch_size": 8, "group_size": 6, "epochs": 4}
    return partial(made_desk, tmp_path, verifier, **values)


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


def test_a_doubtful_gain_is_told_as_such() -> None:
    assert str(Gain(Estimate(0.1, -0.1, 0.3, 24))).startswith("the run gains +0.100 [-0.100")
    for one in (Estimate(0.0, 0.0, 0.0, 24), Estimate(-0.2, -0.3, -0.1, 24)):
        assert str(Gain(one)).startswith("warning: not shown to help")
    assert str(Gain(Estimate(0.1, -0.1, 0.3, 24), 2)).endswith(
        "; what 2 experiences of it may do at other kinds of problems is not known"
    )


def test_train_tells_the_gain_where_nothing_else_does(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 16)
    write_problems(tmp_path / "heldout.jsonl", 4, start=40)
    sizes = ("--batch-size", "8", "--group-size", "6", "--epochs", "4")
    with ScriptedEndpoint(planted) as server:
        model = ("--model", "m", "--base-url", server.base_url)

        def told(*more: str) -> list[str]:
            done = cli("train", "problems.jsonl", *model, *sizes, "--new", *more)
            return [one for one in done.stdout.splitlines() if "on its own attempts" in one]

        (line,) = told("--run", "alone", "--policy", "probation")
        assert "the run gains " in line
        assert told("--run", "held", "--policy", "probation", "--heldout", "heldout.jsonl") == []
        assert told("--run", "published", "--policy", "paper") == []
    shown = cli("runs", "alone").stdout
    assert " ".join(line.split()) in " ".join(shown.split())
    objects = {
        name: json.loads(cli("runs", name, "--json").stdout) for name in ("alone", "published")
    }
    assert objects["alone"]["gain"]["problems"] == 16
    assert objects["published"]["gain"] is None
