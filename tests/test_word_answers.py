"""Labels, texts and objects: what a response says beside its answer counts."""

from __future__ import annotations

from functools import cache

import pytest
from json_answers import labels_in_objects, objects
from layouts import layouts
from second_answers import second_numbers, second_words
from word_answers import Case, ignored_punctuation, signed_labels, signed_texts

from tfgrpo.data.problems import Problem
from tfgrpo.domains import Domain, find

KINDS = {
    "signed labels": signed_labels,
    "signed texts": signed_texts,
    "ignored punctuation": ignored_punctuation,
    "objects": objects,
    "labels in objects": labels_in_objects,
    "second numbers": second_numbers,
    "second words": second_words,
    "layouts": layouts,
}
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


def test_a_problem_may_name_the_key_that_holds_the_label() -> None:
    verify = domain('choice:["good","bad"]').function
    assert verify is not None
    asked = Problem("p", 'Answer with {"mood": …, "urgent": …}.', "good")
    assert verify(asked, '{"mood": "good", "urgent": false}').reward == 1.0
    assert verify(asked, '{"rejected": "good"}').reward == 0.0
    assert verify(Problem("p", "Which mood?", "good"), '{"mood": "good"}').reward == 0.0
