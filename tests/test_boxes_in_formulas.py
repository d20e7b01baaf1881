"""A box is the answer, or a part of a larger formula that is."""

from __future__ import annotations

import re
import time

from boxes_in_formulas import boxes

from tfgrpo.data.problems import Problem
from tfgrpo.domains import math
from tfgrpo.domains.mathematics.answers import at_once, judge

ALL = [*boxes(1), *boxes(2)]


def test_no_box_that_is_a_part_of_a_formula_is_called_right() -> None:
    called_right = [
        (pair.gold, pair.answer)
        for pair in ALL
        if not pair.right and judge(pair.gold, pair.answer).reward != 0.0
    ]
    assert called_right == []


def test_every_box_that_is_the_answer_is_called_right() -> None:
    refused = [
        (pair.kind, pair.gold, pair.answer, verdict.reason)
        for pair in ALL
        if pair.right and (verdict := judge(pair.gold, pair.answer)).reward != 1.0
    ]
    assert refused == []


def test_a_quick_verdict_is_the_slow_one() -> None:
    quick = [(pair, at_once(pair.gold, pair.answer)) for pair in ALL]
    assert [pair for pair, found in quick if found and found.reward != float(pair.right)] == []
    assert sum(found is not None for _, found in quick) > 30


def test_an_application_reads_the_whole_value() -> None:
    assert math.read(Problem("p", "?", "1"), r"so $x = -\boxed{75}$") == "-75"
    assert math.read(Problem("p", "?", "1"), r"$2 + \boxed{3} = 5$") is None


def test_a_long_formula_around_a_box_takes_no_longer() -> None:
    for around in (
        "$",
        "{",
        "(",
        r"\[",
        r"\text{",
        "- ",
        "x = ",
        r"\frac{1}{",
        "1.",
        "\n",
        ".\n",
        "no, ",
        "# ",
    ):
        response = around * 30_000 + r"\boxed{5}" + around * 30_000
        begun = time.process_time()
        judge("5", response)
        assert time.process_time() - begun < 5, around
    assert re.match("box", judge("5", r"$2 + \boxed{3} = 5$").reason)
