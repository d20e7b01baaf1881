"""Verdicts on siblings of what was reported, and on answers that mean something else."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from other_meanings import FORMULA, WHOLE, other_meanings
from whole_answers import KINDS as DRAWN
from whole_answers import whole_answers

from tfgrpo.data.problems import Problem
from tfgrpo.domains.answer_reading import NoAnswer
from tfgrpo.domains.choice import Labels, read
from tfgrpo.domains.json_reading import last_json
from tfgrpo.domains.mathematics.answers import at_once, judge
from tfgrpo.domains.mathematics.extract import bare

QUESTION = Problem("p", "?", "D")
HERE = Path(__file__).parent
BOX = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
KINDS = (
    *("symbol", "complex", "plain-names", "units", "notation", "begun", "arguments"),
    *("doubt", "other"),
)


def rows(name: str) -> list[dict[str, Any]]:
    """Returns the rows of a corpus: id, gold, pred and what is expected."""
    lines = (HERE / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


SIBLINGS = rows("verdict_siblings.jsonl")


@pytest.mark.parametrize("kind", KINDS)
def test_siblings_of_a_kind_are_judged_right(kind: str) -> None:
    """At least thirty of each kind."""
    own = [row for row in SIBLINGS if row["id"].rpartition("-")[0] == kind]
    assert len(own) >= 30
    failed = [
        row for row in own if (_reward(row["gold"], row["pred"]) == 1.0) is not row["expected"]
    ]
    assert failed == []


def test_every_sibling_is_of_a_kind() -> None:
    assert {row["id"].rpartition("-")[0] for row in SIBLINGS} == set(KINDS)


def test_a_box_is_taken_back_by_what_is_said_of_it_and_at_once_as_later() -> None:
    for row in rows("retractions.jsonl"):
        later, quick = judge(row["gold"], row["pred"]), at_once(row["gold"], row["pred"])
        assert (later.reward == 1.0) is row["expected"], row
        assert quick is None or quick.reward == later.reward, row


@pytest.mark.parametrize("layout", ["{}", "\n```json\n{}\n```\n"])
def test_json_is_taken_back_by_the_same_words_as_a_box(layout: str) -> None:
    compared = 0
    for row in rows("retractions.jsonl"):
        bodies = BOX.findall(row["pred"])
        if len(bodies) == 1 and "<answer>" not in row["pred"]:
            written = layout.format(json.dumps({"value": bodies[0]}))
            response = BOX.sub(lambda _, written=written: written, row["pred"])
            assert isinstance(last_json(response), NoAnswer) is not row["expected"], response
            compared += 1
    assert compared >= 75


def test_labels_are_read_where_the_prompt_asks_for_them() -> None:
    own = rows("label_siblings.jsonl")
    assert len(own) >= 30
    labels = Labels(("A", "B", "C", "D"))
    failed = [
        row for row in own if (read(QUESTION, row["pred"], labels) == "D") is not row["expected"]
    ]
    assert failed == []


def test_no_answer_that_means_something_else_earns_a_reward() -> None:
    sample = list(other_meanings())[::211]
    assert set(Counter(pair.kind for pair in sample)) == FORMULA.keys() | WHOLE.keys()
    rewarded = [pair for pair in sample if _reward(pair.gold, rf"\boxed{{{pair.answer}}}") == 1.0]
    assert rewarded == []


def test_a_whole_response_earns_a_reward_for_the_value_that_it_ends_in_alone() -> None:
    """Words of other languages are refused: names of months, units and numbers."""
    pairs = list(whole_answers(330, seed=7))
    assert {pair.kind.partition(",")[0] for pair in pairs} == DRAWN.keys()
    wrong = [pair for pair in pairs if not pair.right and _reward(pair.gold, pair.answer) == 1.0]
    assert wrong == []
    refused = [pair for pair in pairs if pair.right and _reward(pair.gold, pair.answer) != 1.0]
    assert {pair.kind for pair in refused} <= {"dates", "counted", "units"}
    assert len(refused) <= 330 / 30


def _reward(gold: str, response: str) -> float | None:
    return judge(gold, bare(response)).reward
