"""Labels, texts and objects: what a response says beside its answer counts."""

from __future__ import annotations

from functools import cache

import pytest
from word_answers import KINDS, Case

from tfgrpo.data.problems import Problem
from tfgrpo.domains import Domain, find

domain = cache(find)


def judged(case: Case) -> float | None:
    found: Domain = domain(case.spec)
    assert found.function is not None
    reward: float | None = found.function(Problem("p", "?", case.gold), case.response).reward
    return reward


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_answer_of_a_kind_earns_a_reward(kind: str) -> None:
    rewarded = [case for case in KINDS[kind]() if not case.reward and judged(case) != 0.0]
    assert rewarded == []


@pytest.mark.parametrize("kind", KINDS)
def test_every_right_answer_of_a_kind_does(kind: str) -> None:
    refused = [case for case in KINDS[kind]() if case.reward and judged(case) != case.reward]
    assert refused == []
