"""Which attempts a step makes: fixed and adaptive groups, dropout, strategies, a quorum."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from desk import Desk, libraries, steps
from desk import made as made_desk
from scripted import (
    LESSON,
    Numbered,
    Reply,
    ScriptedEndpoint,
    completion,
    restless,
    stage,
    teachable,
)

from tfgrpo.data.problems import Problem
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Store
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.runs import RolloutRow
from tfgrpo.training.learner import Learner
from tfgrpo.training.rollouts import Collector

HINT = "Count on your fingers"


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    return partial(made_desk, tmp_path, verifier)


def rollouts(path: Path, run: str = "run") -> list[RolloutRow]:
    with Store.open(path) as store:
        return store.runs.rollouts(store.runs.get(run))


def trained(there: Desk, script: Callable[[dict[str, Any]], str | Reply]) -> list[RolloutRow]:
    there.prepare()
    with ScriptedEndpoint(script) as server:
        there.train(server)
    return rollouts(there.path)


def group_of(rewards: list[float]) -> Group:
    problem = Problem("p", "?", "!")
    made = [Rollout(problem, n, "", "answered", r, None, "") for n, r in enumerate(rewards)]
    return Group(problem, tuple(made))


# groups:


@pytest.mark.parametrize(
    ("rewards", "winners", "losers"),
    [
        ([1.0, 0.0, 1.0, 1.0], [0, 2, 3], [1]),
        ([0.0, 0.0, 1.0], [2], [0, 1]),
        ([0.2, 0.5, 0.9], [2], [0]),
        ([0.1, 0.5, 0.6, 0.7, 0.7], [3, 4], [0, 1]),
        ([0.0, 0.9, 1.0, 0.95, 1.0], [2, 4], [0, 1]),  # the mean would make losers of one alone
        ([0.5, 0.5, 0.9], [2], [0, 1]),  # nothing is below the median
        ([0.3, 0.3], [], []),
    ],
)
def test_graded_rewards_contrast_above_and_below_the_median(
    rewards: list[float], winners: list[int], losers: list[int]
) -> None:
    group = group_of(rewards)
    assert [r.sample for r in group.winners] == winners
    assert [r.sample for r in group.losers] == losers


# adaptive groups:


def test_an_adaptive_group_stops_once_it_is_mixed(make: Callable[..., Desk]) -> None:
    there = make(rollouts="adaptive", group_size=5, epochs=1, batch_size=6)
    made = trained(there, teachable)
    groups: dict[str, list[float]] = {}
    for row in made:
        groups.setdefault(row.problem, []).append(row.reward or 0.0)
    assert len(groups) == 6
    for rewards in groups.values():
        first_mixed = next((n for n in range(2, 11) if len(set(rewards[:n])) > 1), None)
        assert len(rewards) == first_mixed or (first_mixed is None and len(rewards) >= 5)
    assert len(made) < 30, "the mixed groups saved something"


def test_problems_that_are_always_solved_are_passed_over(make: Callable[..., Desk]) -> None:
    def easy(request: dict[str, Any]) -> str:
        user = request["messages"][-1]["content"]
        if stage(request) == "rollout":
            a, b = map(int, re.search(r"What is (\d+) op (\d+)\?", user).groups())  # type: ignore[union-attr]
            return f"\\boxed{{{a + b + 1}}}"
        return teachable(request)

    made = trained(make(rollouts="adaptive", group_size=4, epochs=6, count=12, batch_size=12), easy)
    by_step = Counter(row.step for row in made)
    assert by_step[0] == 48, "nothing is known yet"
    assert sum(by_step[step] for step in range(2, 6)) < 48, "and now it is"


def test_adaptive_runs_are_the_same_when_they_are_run_again(make: Callable[..., Desk]) -> None:
    one, two = make("a", rollouts="adaptive"), make("b", rollouts="adaptive")
    first, second = trained(one, restless), trained(two, restless)
    keys = [(r.step, r.problem, r.sample, r.reward) for r in first]
    assert keys == [(r.step, r.problem, r.sample, r.reward) for r in second]
    assert libraries(one.path) == libraries(two.path)


@pytest.mark.parametrize("cut", [3, 9, 17, 26])
@pytest.mark.parametrize("mode", [{"rollouts": "adaptive"}, {"hints": 1}, {"dropout": 0.5}])
def test_a_run_that_was_cut_off_makes_the_attempts_of_an_undisturbed_one(
    make: Callable[..., Desk], cut: int, mode: dict[str, Any]
) -> None:
    whole, parts = make("whole", **mode), make("parts", **mode)
    made = trained(whole, restless)
    parts.prepare()
    counted = Numbered(restless)

    def dies(request: dict[str, Any]) -> str | Reply:
        return Reply(status=401) if len(counted.requests) >= cut else counted(request)

    with ScriptedEndpoint(dies) as server, pytest.raises(Exception, match="refused the key"):
        parts.train(server)
    with ScriptedEndpoint(restless) as server:
        parts.train(server)
    again = rollouts(parts.path)
    assert [r[1:8] for r in made] == [r[1:8] for r in again]
    assert libraries(whole.path) == libraries(parts.path)


def test_groups_that_come_in_while_an_error_ends_a_step_leave_the_error_as_it_is(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = asyncio.Event()
    groups = Collector.groups

    async def one_by_one(self: Collector, *arguments: Any, **named: Any) -> list[Group]:
        on_group = named.pop("on_group")
        groups_of_step = await groups(self, *arguments, **named, on_group=None)
        for place, group in enumerate(groups_of_step):
            on_group(place, group)
            if place == 0:
                await failed.wait()
            await asyncio.sleep(0)
        return groups_of_step

    async def refused(*_: object) -> None:
        failed.set()
        raise EndpointError("the endpoint refused the key")

    monkeypatch.setattr(Collector, "groups", one_by_one)
    monkeypatch.setattr(Learner, "_compare", refused)
    there = make(count=12, batch_size=12)
    there.prepare()
    with (
        ScriptedEndpoint(restless) as server,
        pytest.raises(EndpointError, match="refused the key"),
    ):
        there.train(server)


# dropout:


def test_with_dropout_each_attempt_goes_without_a_random_part_which_is_recorded(
    make: Callable[..., Desk],
) -> None:
    shown: list[set[str]] = []

    def watch(request: dict[str, Any]) -> str:
        if stage(request) == "rollout":
            shown.append(
                set(re.findall(r"^\[G\d+\] (.*)$", request["messages"][0]["content"], re.M))
            )
        return restless(request)

    there = make(dropout=0.5, epochs=4, count=9)
    made = trained(there, watch)
    with Store.open(there.path) as store:
        expected = []
        for row in made:
            library = store.library(store.version(row.version))
            absent = set(row.verdict.get("without", ()))
            assert absent <= {e.id for e in library}
            expected.append({e.text for e in library if e.id not in absent})
        sizes = [
            (len(store.library(store.version(r.version))), len(r.verdict.get("without", ())))
            for r in made
        ]
    assert Counter(map(frozenset, shown)) == Counter(map(frozenset, expected))
    there_were, went = zip(*sizes, strict=True)
    assert fmean(went) / fmean(there_were) == pytest.approx(0.5, abs=0.1)


# strategies for what nothing solves:


def stubborn(request: dict[str, Any], *, confirms: bool = True) -> str:
    """Nothing is solved but under a strategy, or with the lesson where that `confirms`."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    if "Propose" in system:
        return json.dumps({"strategies": [f"{HINT} once.", f"{HINT} twice."]})
    if stage(request) == "rollout":
        a, b = map(int, re.search(r"What is (\d+) op (\d+)\?", user).groups())  # type: ignore[union-attr]
        solved = f"{HINT} twice" in user or (confirms and LESSON in system)
        return f"\\boxed{{{a + b + solved}}}"
    return teachable(request)


def test_what_nothing_solves_is_tried_under_distinct_strategies(make: Callable[..., Desk]) -> None:
    there = make(hints=2, group_size=4, epochs=1, count=3)
    made = trained(there, stubborn)
    for problem in {row.problem for row in made}:
        group = [r for r in made if r.problem == problem and r.sample < CONFIRMING]
        assert [r.verdict.get("hint") for r in group] == [
            None,
            None,
            f"{HINT} once.",
            f"{HINT} twice.",
        ]
        assert [r.reward for r in group] == [0, 0, 0, 1]
    (step,) = steps(there.path)
    assert step.meta["stats"]["hinted"] == 6


def test_a_lesson_from_a_strategy_counts_once_a_success_without_it_follows(
    make: Callable[..., Desk],
) -> None:
    there = make(hints=2, group_size=4, epochs=1, count=3)
    made = trained(there, stubborn)
    confirming = [r for r in made if r.sample >= CONFIRMING]
    assert [r.reward for r in confirming] == [1, 1, 1]
    assert all("hint" not in r.verdict for r in confirming)
    with Store.open(there.path) as store:
        assert [e.text for e in store.library("main")] == [LESSON]
        (added, *_) = store.events(store.tip("main"))
        assert added.evidence is not None
        assert added.evidence["strategies"] == [f"{HINT} twice."]


def test_a_lesson_that_no_success_confirms_is_put_on_record_and_not_learned(
    make: Callable[..., Desk],
) -> None:
    there = make(hints=2, group_size=4, epochs=1, count=3)
    made = trained(there, partial(stubborn, confirms=False))
    assert [r.reward for r in made if r.sample >= CONFIRMING] == [0] * 6
    (step,) = steps(there.path)
    assert libraries(there.path)[-1] == []
    assert {f["stage"] for f in step.meta["failed"]} == {"confirmation"}
    assert LESSON in step.meta["failed"][0]["reason"]


def test_a_problem_that_was_solved_gets_no_strategies(make: Callable[..., Desk]) -> None:
    made = trained(make(hints=1, group_size=3, epochs=2), teachable)
    solved = {(r.step, r.problem) for r in made if r.reward and "hint" not in r.verdict}
    for row in made:
        if "hint" in row.verdict:
            assert (row.step, row.problem) not in {
                key for key in solved if key[1] == row.problem and key[0] <= row.step
            } or row.sample >= CONFIRMING


def test_without_readable_strategies_the_group_stays_as_it_is(make: Callable[..., Desk]) -> None:
    def mute(request: dict[str, Any]) -> str:
        if "Propose" in request["messages"][0]["content"]:
            return "I cannot think of any."
        return stubborn(request)

    made = trained(make(hints=2, group_size=4, epochs=1, count=3), mute)
    assert len(made) == 6
    assert not any("hint" in r.verdict for r in made)


# a quorum:


class Slow:
    """Like `restless`, but the first two attempts at one problem take `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.slowed = 0

    def __call__(self, request: dict[str, Any]) -> str | Reply:
        answer = restless(request)
        wanted = request["messages"][-1]["content"].startswith("What is 1 op ")
        if stage(request) == "rollout" and wanted and self.slowed < 2:
            self.slowed += 1
            return Reply(completion(answer, model="scripted"), stall=self.seconds)
        return answer


def test_a_quorum_goes_on_without_the_late_and_they_come_with_a_later_step(
    make: Callable[..., Desk],
) -> None:
    there = make(quorum=0.6, group_size=5, epochs=3, count=4, batch_size=4)
    made = trained(there, Slow(1.0))
    assert Counter(r.step for r in made) == {0: 20, 1: 20, 2: 20}, "no attempt is lost"
    versions = {r.step: {row.version for row in made if row.step == r.step} for r in made}
    assert all(len(found) == 1 for found in versions.values()), "tagged with their own library"
    stats = [v.meta["stats"]["rollouts"] for v in steps(there.path)]
    assert stats[-1] == 20, "the last step waits for all"
    assert min(stats) >= 12


def test_with_a_quorum_a_step_does_not_wait_for_stragglers(make: Callable[..., Desk]) -> None:
    there = make(quorum=0.6, group_size=5, epochs=2, count=4, batch_size=4)
    made = trained(there, Slow(3.0))
    first = steps(there.path)[0].time
    late = [row for row in made if row.step == 0 and row.time > first]
    assert len(late) == 2, "the first version stands before these are in"
    assert {row.version for row in late} == {0}


def test_an_attempt_with_strategies_beside_it_is_a_group(make: Callable[..., Desk]) -> None:
    there = make(hints=2, group_size=1, epochs=1, count=3)
    made = trained(there, stubborn)
    plain = [row.reward for row in made if row.sample < CONFIRMING]
    assert plain == [0, 0, 1] * 3
    assert [text for _, text in libraries(there.path)[-1]] == [LESSON]


@pytest.mark.parametrize(
    "values",
    [
        {"quorum": 0},
        {"quorum": 1.5},
        {"rollouts": "adaptive", "quorum": 0.5},
        {"dropout": 1.0},
        {"hints": 5, "group_size": 5},
        {"rollouts": "some"},
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        build(TrainSettings, {"data": "x", **values})


def test_runs_of_before_read_as_they_were() -> None:
    now = build(TrainSettings, {"data": "x"})
    unknown = {"rollouts", "quorum", "hints", "dropout", "domain"}
    record = {k: v for k, v in now.model_dump(mode="json").items() if k not in unknown}
    assert TrainSettings(**record) == now


# branches of an agent's attempts:


def wandering(request: dict[str, Any]) -> str | Reply:
    """Uses a tool once or twice, then answers, by a coin that everything it saw turns."""
    if stage(request) != "rollout":
        return restless(request)
    results = [m for m in request["messages"] if m["content"].startswith("Result:")]
    chance = hashlib.sha256(
        json.dumps([request["messages"], request.get("seed")]).encode()
    ).digest()
    if len(results) < 1 + chance[1] % 2:
        call = {"name": "search", "arguments": {"query": f"way {chance[2] % 3}"}}
        return f"Look. <tool>{json.dumps(call)}</tool>"
    a, b = map(int, re.search(r"What is (\d+) op (\d+)\?", str(request["messages"])).groups())  # type: ignore[union-attr]
    return f"\\boxed{{{a + b + chance[0] % 2}}}"


def test_some_attempts_branch_off_others_and_share_their_beginning(
    make: Callable[..., Desk], tmp_path: Path
) -> None:
    corpus = tmp_path / "passages.jsonl"
    corpus.write_text(json.dumps({"title": "way", "text": "this way"}) + "\n")
    tools = {"use": ["search"], "corpus": str(corpus)}
    there = make(
        mode="agent",
        tools=tools,
        rollouts="branch",
        group_size=4,
        epochs=1,
        count=3,
        model="local:scripted",
    )
    made = trained(there, wandering)
    for problem in {row.problem for row in made}:
        group = {row.sample: row for row in made if row.problem == problem}
        assert len(group) == 4
        branches = [row for row in group.values() if "branch" in row.verdict]
        assert 1 <= len(branches) <= 3
        for row in branches:
            parent, at = row.verdict["branch"]
            assert "branch" not in group[parent].verdict
            assert group[parent].verdict["messages"][at]["name"] == "search"
            assert row.verdict["messages"][0]["role"] == "assistant", (
                "the beginning is not repeated"
            )
