"""A symbol is a symbol, whatever a parser calls by its name."""

from __future__ import annotations

import pytest
from answer_pairs import Pair
from symbol_pairs import symbol_pairs

from tfgrpo.domains.mathematics.answers import judge

SYMBOLS = list(symbol_pairs())[::7]
"""One of seven pairs: every kind of formula, each with a seventh of the names."""


@pytest.fixture(scope="module")
def accepted() -> list[tuple[Pair, bool]]:
    return [(pair, judge(pair.gold, rf"\boxed{{{pair.answer}}}").reward == 1.0) for pair in SYMBOLS]


def test_no_name_is_read_as_a_function_or_a_constant(accepted: list[tuple[Pair, bool]]) -> None:
    assert len(accepted) > 600
    assert [pair for pair, right in accepted if right and not pair.right] == []


def test_nine_of_ten_formulas_may_be_written_in_another_order(
    accepted: list[tuple[Pair, bool]],
) -> None:
    rights = [right for pair, right in accepted if pair.right]
    assert sum(rights) >= len(rights) * 9 // 10
