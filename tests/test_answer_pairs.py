"""Near misses: no wrong answer is called right, and hardly a right one is lost."""

from __future__ import annotations

import pytest
from answer_pairs import REFUSED, Pair, generated, pairs

from tfgrpo.domains.base import Verdict
from tfgrpo.domains.mathematics.answers import check_gold, judge

ALL = list(pairs())


def verdict(pair: Pair) -> Verdict:
    boxed = "box{" in pair.answer
    return judge(pair.gold, pair.answer if boxed else rf"\boxed{{{pair.answer}}}")


@pytest.fixture(scope="module")
def verdicts() -> list[tuple[Pair, Verdict]]:
    return [(pair, verdict(pair)) for pair in ALL]


def test_there_are_hundreds_of_pairs_and_about_half_are_generated() -> None:
    assert len(ALL) >= 1000
    assert len(list(generated())) >= 600
    assert len({pair.kind for pair in ALL}) >= 14


def test_no_wrong_answer_is_called_right(verdicts: list[tuple[Pair, Verdict]]) -> None:
    called_right = [
        (pair.gold, pair.answer, found.reason)
        for pair, found in verdicts
        if not pair.right and found.reward != 0.0
    ]
    assert called_right == []


def test_nearly_every_verdict_is_the_expected_one(verdicts: list[tuple[Pair, Verdict]]) -> None:
    other = [
        (pair.gold, pair.answer, found.reason)
        for pair, found in verdicts
        if found.reward != float(pair.right)
    ]
    assert len(other) <= len(ALL) // 100, other


@pytest.mark.parametrize("gold", REFUSED)
def test_a_ground_truth_that_is_no_whole_formula_is_refused(gold: str) -> None:
    assert check_gold(gold)


def test_every_other_ground_truth_can_be_judged() -> None:
    refused = {gold: check_gold(gold) for gold in dict.fromkeys(pair.gold for pair in ALL)}
    assert {gold: why for gold, why in refused.items() if why} == {}
