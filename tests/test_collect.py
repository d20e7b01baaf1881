"""Which attempts a step makes, and what each of them is shown."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from desk import Desk, libraries
from desk import made as made_desk
from scripted import (
    Numbered,
    Reply,
    ScriptedEndpoint,
    restless,
    stage,
)

from tfgrpo.data.problems import Problem
from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.assign import PAIR, TURNS
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.policies.paper import Published
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.rollout.attempt import CONFIRMING, Group, Rollout
from tfgrpo.store import Store
from tfgrpo.store.activity.runs import RolloutRow


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


@pytest.mark.parametrize("cut", [3, 9, 17, 26])
@pytest.mark.parametrize("policy", ["paper", "probation"])
def test_a_run_that_was_cut_off_makes_the_attempts_of_an_undisturbed_one(
    make: Callable[..., Desk], cut: int, policy: str
) -> None:
    whole, parts = make("whole", policy=policy), make("parts", policy=policy)
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

    async def one_by_one(self: Collector, *arguments: Any) -> list[Group]:
        *arguments, on_group = arguments
        groups_of_step = await groups(self, *arguments)
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
    monkeypatch.setattr(Published, "_compare", refused)
    there = make(count=12, batch_size=12)
    there.prepare()
    with (
        ScriptedEndpoint(restless) as server,
        pytest.raises(EndpointError, match="refused the key"),
    ):
        there.train(server)


def test_each_attempt_goes_without_a_random_part_which_is_recorded(
    make: Callable[..., Desk],
) -> None:
    shown: list[set[str]] = []

    def watch(request: dict[str, Any]) -> str:
        if stage(request) == "rollout":
            system = request["messages"][0]["content"]
            shown.append(set(re.findall(r"^\[G\d+\] (.*)$", system, re.M)))
        return restless(request)

    there = make(policy="probation", epochs=4, count=9, group_size=4)
    made = [row for row in trained(there, watch) if row.sample < CONFIRMING]
    with Store.open(there.path) as store:
        candidates = {e.id: e.text for v in store.log("run/candidates") for e in store.library(v)}
    expected = Counter(
        frozenset(candidates[id] for id in belongs if id not in row.verdict.get("without", ()))
        for row in made
        for belongs in [[id for id in row.verdict.get("belongs", ()) if id in candidates]]
    )
    assert not expected - Counter(map(frozenset, shown))
    parts = [
        len(row.verdict.get("without", ())) / len(there) - (1 - 1 / (TURNS if there[1:] else PAIR))
        for row in made
        if (there := row.verdict.get("belongs"))
    ]
    assert fmean(parts) == pytest.approx(0, abs=0.1)
