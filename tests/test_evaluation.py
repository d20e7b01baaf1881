"""Evaluation: the figures of a library, made once, gone on with, and compared fairly."""

from __future__ import annotations

import asyncio
import hashlib
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import environment
from scripted import LESSON, Numbered, Reply, ScriptedEndpoint, teachable, write_problems

import tfgrpo
from tfgrpo.connect import CallLimits, Endpoints
from tfgrpo.data import datasets
from tfgrpo.data.problems import Problem
from tfgrpo.display import version_rows
from tfgrpo.domains import math
from tfgrpo.domains.base import Context, Domain, Trajectory, Verdict
from tfgrpo.domains.function import Verify
from tfgrpo.domains.registry import find
from tfgrpo.domains.verifier import Verifier
from tfgrpo.evaluation.scores import LibraryScores, Scores
from tfgrpo.evaluation.scoring import EvalProgress, EvalTask, difference, evaluate, figures, rewards
from tfgrpo.evaluation.statistics import conditions_words
from tfgrpo.model.endpoint import Endpoint, EndpointError
from tfgrpo.session import Session
from tfgrpo.settings import EvalSettings, build
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Evaluation, Score

Script = Callable[[dict[str, Any]], str | Reply]


@dataclass
class Bench:
    """A store whose v1 holds the lesson that makes every answer right, and a dataset."""

    path: Path
    dataset: tuple[Problem, ...]
    verifier: Verifier
    progress: EvalProgress = field(default_factory=lambda: EvalProgress(0))
    domain: Domain = math.DOMAIN

    def evaluate(
        self, server: ScriptedEndpoint, *revisions: str, **values: Any
    ) -> list[Evaluation]:
        """Evaluates versions against a server, as a session of its own."""
        values = {"data": "heldout.jsonl", "samples": 4, "model": "scripted", **values}
        self.progress = EvalProgress(0)
        with Store.open(self.path) as store:
            journal = Journal(store.port.records.writer())
            try:
                endpoint = Endpoint("scripted", server.base_url, None, 20)
                endpoints = Endpoints(endpoint, endpoint, CallLimits(8))
                task = EvalTask(self.dataset, build(EvalSettings, values), self.domain)

                async def evaluated() -> list[Evaluation]:
                    try:
                        return await evaluate(
                            Session(store, journal, endpoints, self.verifier),
                            [store.resolve(revision) for revision in revisions],
                            task,
                            progress=self.progress,
                        )
                    finally:
                        await endpoints.close()

                return asyncio.run(evaluated())
            finally:
                journal.close()

    def scores(self, evaluation: Evaluation) -> list[Score]:
        with Store.open(self.path) as store:
            return store.runs.scores(evaluation)


@pytest.fixture
def bench(tmp_path: Path, verifier: Verifier) -> Bench:
    path = tmp_path / "store.db"
    with Store.init(path) as store:
        store.commit("main", [Operation("ADD", text=LESSON)], message="the lesson")
    return Bench(path, datasets.load(str(write_problems(tmp_path / "p.jsonl", 6))), verifier)


def test_evaluations_that_would_read_alike_say_in_what_they_differ(bench: Bench) -> None:
    checked = replace(bench, domain=find("math:calculation=checked"))
    with ScriptedEndpoint(teachable) as server:
        bench.evaluate(server, "v1")
        with Store.open(bench.path) as store:
            (alone,) = version_rows.scores(store, store.version(1))
        bench.evaluate(server, "v1", seed=7)
        bench.evaluate(server, "v1", temperature=1.0)
        (found,) = checked.evaluate(server, "v1")
    with Store.open(bench.path) as store:
        lines = version_rows.scores(store, store.version(1))
    start = alone.rpartition(", temperature")[0]
    assert all(line.startswith(start) for line in lines)
    assert [line.removeprefix(start) for line in lines] == [
        ", temperature 0.3, seed 0",
        ", temperature 0.3, seed 7",
        ", temperature 1",
        ", temperature 0.3, domain math, calculation=checked, seed 0",
    ]
    assert conditions_words(found.config).endswith("seed 0, domain math (calculation=checked)")


def test_figures_are_those_of_the_scores(bench: Bench) -> None:
    with ScriptedEndpoint(teachable) as server:
        taught, empty = bench.evaluate(server, "v1", "v0")
    assert list(taught.summary["pass"]) == ["1", "2", "4"]
    estimates = (*taught.summary["pass"].values(), taught.summary["mean"], taught.summary["maj"])
    for mean, low, high in estimates:  # all right of six problems is no certainty
        assert (mean, high) == (1.0, 1.0)
        assert 0.0 < low < 1.0
    rows = bench.scores(empty)
    assert len(rows) == 6 * 4
    for row in rows:
        assert row.answer is not None
        number = int(row.problem[1:])
        assert row.reward == float(row.answer == str(2 * number + 4))
        assert row.call is not None
    assert empty.summary["mean"][0] == pytest.approx(sum(r.reward or 0 for r in rows) / len(rows))
    assert empty.summary["mean"][0] < 1.0
    assert (empty.summary["problems"], empty.summary["samples"]) == (6, 4)
    assert bench.progress.done == bench.progress.total == 2 * 6 * 4


def test_the_control_gets_the_same_prompt_with_an_empty_library(bench: Bench) -> None:
    with ScriptedEndpoint(teachable) as server:
        bench.evaluate(server, "v1", "v0", samples=2)
        systems = {r["messages"][0]["content"] for r in server.requests}
        seeds = {
            name: sorted(
                (r["messages"][-1]["content"], r["seed"])
                for r in server.requests
                if (LESSON in r["messages"][0]["content"]) is (name == "v1")
            )
            for name in ("v1", "v0")
        }
    assert len(systems) == 2
    with_lesson, without = sorted(systems, key=lambda text: LESSON not in text)
    assert with_lesson.replace(f"[G0] {LESSON}", "(none yet)") == without
    assert seeds["v1"] == seeds["v0"]
    assert {r["temperature"] for r in server.requests} == {0.3}


def test_an_evaluation_is_made_once_and_then_read(bench: Bench) -> None:
    with ScriptedEndpoint(teachable) as server:
        first = bench.evaluate(server, "v1")
        asked = len(server.requests)
        assert bench.evaluate(server, "v1") == first
        assert bench.evaluate(server, "v1", "v0")[0] == first[0]
        assert len(server.requests) == 2 * asked
        other = bench.evaluate(server, "v1", samples=2)
        assert other[0].digest != first[0].digest
    with Store.open(bench.path) as store:
        assert len(store.runs.evaluations(1)) == 2


@pytest.mark.parametrize("answers", [1, 11, 30])
def test_an_evaluation_that_was_cut_off_goes_on_and_repeats_no_call(
    bench: Bench, answers: int
) -> None:
    script = Numbered(teachable)

    def stopping(request: dict[str, Any]) -> str | Reply:
        if len(script.requests) >= answers:
            return Reply({"error": {"message": "later"}}, status=401)
        return script(request)

    with ScriptedEndpoint(stopping) as server, pytest.raises(EndpointError):
        bench.evaluate(server, "v1", "v0")
    with Store.open(bench.path) as store:
        assert store.runs.evaluations(1) == []
        rows = store.port.connection.execute("select prompt_tokens from journal").fetchall()  # type: ignore[attr-defined]
    paid = [script.requests[number - 1] for (number,) in rows]
    assert paid
    before = len(script.requests)
    with ScriptedEndpoint(script) as server:
        found = bench.evaluate(server, "v1", "v0")
    assert not [request for request in script.requests[before:] if request in paid]
    assert len(script.requests) - before == 2 * 6 * 4 - len(paid)
    assert [evaluation.summary["samples"] for evaluation in found] == [4, 4]


def test_the_same_version_twice_is_evaluated_once(bench: Bench) -> None:
    with ScriptedEndpoint(teachable) as server:
        a, b = bench.evaluate(server, "v0", "v0", samples=2)
        assert a == b
        assert len(server.requests) == 6 * 2


def test_versions_with_the_same_library_share_their_calls(bench: Bench) -> None:
    with Store.open(bench.path) as store:
        store.commit("main", [], message="nothing learned")
    with ScriptedEndpoint(teachable) as server:
        a, b = bench.evaluate(server, "v1", "v2", samples=2)
        assert (a.version, b.version) == (1, 2)
        assert a.summary == b.summary
        assert len(server.requests) == 6 * 2


def test_a_better_library_is_said_to_be_better_and_the_same_one_inconclusive(bench: Bench) -> None:
    with ScriptedEndpoint(teachable) as server:
        taught, empty = bench.evaluate(server, "v1", "v0")
    with Store.open(bench.path) as store:
        assert difference(store, empty, taught).verdict == "better"
        assert difference(store, taught, empty).verdict == "worse"
        assert difference(store, taught, taught).verdict == "inconclusive"
        found = difference(store, empty, taught).estimate
    assert found.mean == pytest.approx(taught.summary["mean"][0] - empty.summary["mean"][0], 1e-5)
    assert found.problems == 6


def test_samples_that_could_not_be_judged_count_for_nothing(bench: Bench) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        user = request["messages"][-1]["content"]
        chance = hashlib.sha256(f"{user}/{request['seed']}".encode()).digest()[0]
        if "What is 1 op" in user or chance % 3 == 0:
            return Reply({"error": {"message": "not allowed"}}, status=400)
        a, b = map(int, re.findall(r"\d+", user))
        return f"\\boxed{{{a + b + 1}}}"

    with ScriptedEndpoint(script) as server:
        (found,) = bench.evaluate(server, "v0", samples=8)
    scores = bench.scores(found)
    missing = [row for row in scores if row.reward is None]
    assert len(missing) > 8
    assert len(scores) == 6 * 8
    assert found.summary["unscored"] == len(missing)
    mean, low, high = found.summary["mean"]
    assert (mean, high) == (1.0, 1.0)
    assert 0.0 < low < 1.0
    assert found.summary["problems"] == 5
    assert "p1" not in rewards(scores)


@pytest.mark.parametrize("unjudged", [0, 1])
def test_a_table_has_a_figure_that_one_library_lacks_for_the_other(
    bench: Bench, unjudged: int
) -> None:
    config = {"samples": 4, "temperature": 0.3, "max_tokens": 9, "seed": 0, "model": "m"}
    scores = [Score(f"p{i}", sample, None, 1.0, "a") for i in range(6) for sample in range(4)]
    less = [scores[0]._replace(reward=None), *scores[1:]]
    with Store.open(bench.path) as store:
        libraries = []
        for version in (store.head.version, store.version(0)):
            given = less if len(libraries) == unjudged else scores
            sums = figures(given)
            one = store.runs.put_evaluation(version.number, "x", "k", config, sums, given)
            libraries.append(LibraryScores(version, one, tuple(given)))
        first, other = (one.evaluation for one in libraries)
        beside = (difference(store, other, first),)
        found = Scores("x", "m", 0.3, tuple(libraries), beside).view()
    assert list(found.header) == ["library", "mean@4", "pass@2", "pass@4", "maj@4"]
    assert [row[3] for row in found.rows] == ["–", "1.000"][:: 1 - 2 * unjudged]


def test_an_evaluation_without_a_single_verdict_is_an_error_and_not_kept(bench: Bench) -> None:
    def script(_: dict[str, Any]) -> Reply:
        return Reply({"error": {"message": "context window exceeded"}}, status=400)

    with ScriptedEndpoint(script) as server:
        with pytest.raises(EndpointError, match="context window exceeded") as caught:
            bench.evaluate(server, "v0")
        assert caught.value.hint
    with Store.open(bench.path) as store:
        assert store.runs.evaluations(0) == []


def scored(*samples: Sequence[tuple[str | None, float | None]]) -> list[Score]:
    return [
        Score(f"p{n}", k, None, reward, answer)
        for n, given in enumerate(samples)
        for k, (answer, reward) in enumerate(given)
    ]


def test_pass_at_k_is_told_for_the_ks_that_every_problem_has_samples_for() -> None:
    found = figures(
        scored([("1", 1.0)] * 5, [("1", 1.0), ("2", 0.0), (None, 0.0), (None, None), (None, None)])
    )
    assert set(found["pass"]) == {"1", "2"}
    assert (found["problems"], found["samples"], found["unscored"]) == (2, 5, 2)
    assert found["pass"]["1"][0] == pytest.approx((1 + 1 / 3) / 2, abs=1e-6)
    assert found["pass"]["2"][0] == pytest.approx((1 + 2 / 3) / 2, abs=1e-6)
    assert found["mean"][0] == pytest.approx((1 + 1 / 3) / 2, abs=1e-6)
    assert found["maj"][0] == pytest.approx((1 + 1 / 2) / 2, abs=1e-6)


# a verifier that is given as a Python object:


class Fixed:
    """A verifier with a state: every answer gets its reward."""

    def __init__(self, reward: float) -> None:
        self.reward = reward
        self.calls = 0

    def __call__(self, problem: Problem, response: str) -> float:
        self.calls += 1
        return self.reward

    def judge(self, problem: Problem, response: str) -> float:
        return self(problem, response)


def fixed(reward: float, problem: Problem, response: str) -> float:
    return reward


def enclosing(reward: float) -> Verify:
    return lambda problem, response: reward


def typed(source: str, **names: object) -> Verify:
    """Returns the function `v` of a source that no file has, as one typed into an interpreter."""
    exec(source, names)
    return cast(Verify, names["v"])


HELPED = "def helper(): return {}\ndef v(problem, response): return helper()"
PAIRS: dict[str, Callable[[float], Verify]] = {
    "partial": lambda reward: partial(fixed, reward),
    "object": Fixed,
    "method": lambda reward: Fixed(reward).judge,
    "closure": enclosing,
    "default": lambda reward: typed("def v(p, r, x=x): return x", x=reward),
    "global": lambda reward: typed("def v(p, r): return REWARD", REWARD=reward),
    "helper": lambda reward: typed(HELPED.format(reward)),
    "typed": lambda reward: typed(f"def v(problem, response): return {reward}"),
    "line": lambda reward: (lambda p, r: 1.0, lambda p, r: 0.0)[reward == 0.0],
}


@pytest.mark.parametrize("kind", PAIRS)
def test_scores_are_those_of_the_verifier_that_gave_them(bench: Bench, kind: str) -> None:
    with ScriptedEndpoint(teachable) as server:

        def mean(verify: Verify) -> float:
            return tfgrpo.evaluate_sync(
                str(bench.path.parent / "p.jsonl"),
                store=bench.path,
                verify=verify,
                samples=1,
                model="m",
                base_url=server.base_url,
            ).mean

        right, wrong = PAIRS[kind](1.0), PAIRS[kind](0.0)
        assert (mean(right), mean(wrong)) == (1.0, 0.0)
        asked = len(server.requests)
        assert (mean(right), mean(PAIRS[kind](0.0))) == (1.0, 0.0)
        assert len(server.requests) == asked, "what is plainly the same is read from the record"


def test_scores_of_a_domain_object_are_those_of_its_functions(bench: Bench) -> None:
    def domain(reward: float) -> Domain:
        async def verify(context: Context, trajectory: Trajectory) -> Verdict:
            return Verdict(reward, None, "")

        return Domain(name="fixed", verify=verify)

    with ScriptedEndpoint(teachable) as server:
        means = [
            tfgrpo.evaluate_sync(
                str(bench.path.parent / "p.jsonl"),
                store=bench.path,
                domain=domain(reward),
                samples=1,
                model="m",
                base_url=server.base_url,
            ).mean
            for reward in (1.0, 0.0)
        ]
    assert means == [1.0, 0.0]


MODULE = """
import functools, re, sys, threading
from tfgrpo.model.caller_functions import identity
WORDS, LOCK, SEEN = {"a", "b", "c"}, threading.Lock(), []
class Grader:
    pattern = re.compile("a+")
    def __init__(self): self.lock = threading.Lock()
    def __call__(self, problem, response): return self.pattern.match(response) is not None
@functools.lru_cache
def helper(text): return text in WORDS
def plain(problem, response):
    SEEN.append(response)
    with LOCK: return helper(response)
def opaque(problem, response): return next(NUMBERS)
NUMBERS = (n for n in ())
print(identity(plain), identity(Grader()), identity(functools.partial(plain, x={1, "y"})))
plain(None, "a"), helper("a")
print(identity(plain)), print(identity(opaque))
"""


def test_a_function_is_the_same_one_in_another_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(MODULE)
    outputs = []
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py"],
            env={**environment(), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.append(done.stdout.splitlines())
    first, second = outputs
    assert first[:2] == second[:2]
    assert first[0].split()[0] == first[1], "what it writes to does not count"
    assert first[2] != second[2], "nothing is known of a generator"
