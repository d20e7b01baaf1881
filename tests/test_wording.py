"""Counts as people say them."""

from __future__ import annotations

import pytest

from tfgrpo.wording import plural, sampled


@pytest.mark.parametrize(
    ("count", "noun", "words"), [(1, "group", "1 group"), (0, "reply", "0 replies")]
)
def test_a_count_agrees_with_its_noun(count: int, noun: str, words: str) -> None:
    assert plural(count, noun) == words


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((48, 1), "48 problems × 1 sample"),
        ((1, 8), "1 problem × 8 samples"),
        ((1200, 4, "held-out"), "1,200 held-out problems × 4 samples"),
    ],
)
def test_problems_and_samples_agree_with_their_numbers(
    numbers: tuple[int, int], words: str
) -> None:
    assert sampled(*numbers) == words
