"""One value is the same in every notation, and another value is wrong in all of them."""

from __future__ import annotations

import pytest
from notation_pairs import NOTATIONS, notation_pairs

from tfgrpo.domains.mathematics.answers import check_gold, judge

ALL = list(notation_pairs())


@pytest.mark.parametrize("kind", NOTATIONS)
def test_a_notation_says_what_it_means(kind: str) -> None:
    found = [
        (pair, judge(pair.gold, rf"\boxed{{{pair.answer}}}")) for pair in ALL if pair.kind == kind
    ]
    assert [(pair, verdict) for pair, verdict in found if verdict.reward != pair.right] == []


def test_every_ground_truth_of_them_can_be_judged() -> None:
    golds = dict.fromkeys(pair.gold for pair in ALL)
    assert {gold: why for gold in golds if (why := check_gold(gold))} == {}


def test_there_are_hundreds_of_both_sorts() -> None:
    rights = [pair for pair in ALL if pair.right]
    assert len(rights) > 350
    assert len(ALL) - len(rights) > 100
