"""A symbol is a symbol, whatever a parser calls by its name."""

from __future__ import annotations

import asyncio

import pytest
from answer_pairs import Pair
from symbol_pairs import symbol_pairs, undefined_pairs

from tfgrpo.domains.mathematics.answers import judge
from tfgrpo.domains.verifier import Killed, Verifier

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


def test_no_two_undefined_infinite_or_unevaluated_values_are_equal() -> None:
    some = list(undefined_pairs())[::97]
    assert len(some) > 50

    async def accepted() -> list[Pair]:
        right = []
        with Verifier(workers=1, seconds=3) as verifier:  # sympy takes for ever over some of them
            for pair in some:
                try:
                    verdict = await verifier.run(judge, pair.gold, rf"\boxed{{{pair.answer}}}")
                except Killed:
                    continue
                right += [pair] if verdict.reward == 1.0 else []
        return right

    assert asyncio.run(accepted()) == []
