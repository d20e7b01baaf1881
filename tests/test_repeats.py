"""What repeats a text: in five languages, without knowing one of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rendering.near_duplicates import near_duplicates, repeats, similarity
from tfgrpo.store import ROOT, Experience, Library

PAIRS = Path(__file__).with_name("fixtures") / "repeats.jsonl"
"""Pairs of texts, whether the second one repeats the first, and what is different."""


def pairs() -> list[Any]:
    rows = [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]
    return [
        pytest.param(row, id=f"{row['language']}-{row['why']}-{number}")
        for number, row in enumerate(rows)
    ]


@pytest.mark.parametrize("pair", pairs())
def test_a_repeat_is_told_from_another_text_in_both_directions(pair: dict[str, Any]) -> None:
    one, other = pair["one"], pair["other"]
    assert bool(repeats(one, {"x": other})) is pair["repeat"]
    assert bool(repeats(other, {"x": one})) is pair["repeat"]


def test_the_closest_repeat_comes_first() -> None:
    texts = {
        "far": "When a price is in cents, round down to tens.",
        "other": "Check the sign.",
        "near": "Round down to tens, when a price is in cents!",
        "same": "round DOWN to tens, when a price is in cents.",
    }
    found = repeats("Round down to tens, when a price is in cents.", texts)
    assert [id for id, _ in found] == ["same", "near", "far"]
    assert found[0][1] == 1.0


@given(st.text(max_size=60), st.text(max_size=60))
def test_similarity_is_a_share_and_knows_no_first_text(one: str, other: str) -> None:
    alike = similarity(one, other)
    assert 0 <= alike <= 1
    assert alike == similarity(other, one)
    assert similarity(one, one) == 1


@given(st.text(max_size=60))
def test_every_text_repeats_itself_however_it_is_spaced(text: str) -> None:
    assert repeats(text, {"x": f"\n{text}  "}) == [("x", 1.0)]


def test_another_number_is_no_repeat_in_any_script_of_digits() -> None:
    for seven, eight in (("7", "8"), ("７", "８"), ("٧", "٨"), ("७", "८")):
        texts = {
            "seven": f"Multiply the days by {seven}.",
            "eight": f"Multiply the days by {eight}.",
        }
        assert [id for id, _ in repeats("multiply the days by 7", texts)] in (["seven"], [])
        assert [id for id, _ in repeats(texts["eight"], texts)] == ["eight"]


def test_a_merge_is_told_each_pair_that_it_brought_together_once() -> None:
    texts = {"a": "Check each sign.", "b": "核对符号。", "c": "check each signs", "d": "核对符号！"}
    whole = Library(ROOT, tuple(Experience(id, t, n) for n, (id, t) in enumerate(texts.items())))
    found = near_duplicates(whole.less(["c", "d"]), whole)
    assert [pair[:2] for pair in found] == [("c", "a"), ("d", "b")]
    assert all(60 <= pair.likeness <= 100 for pair in found)
    assert near_duplicates(whole, whole) == []


def test_a_text_of_megabytes_is_compared_in_seconds() -> None:
    words = [f"w{number}" for number in range(200_000)]
    texts = {"turned": " ".join([*words[5:], *words[:5]]), "other": "x " * 200_000}
    assert [id for id, _ in repeats(" ".join(words), texts)] == ["turned"]
    assert repeats("x " * 200_000 + "end of it", {"x": "x " * 199_999 + "y end of it"}) == []
