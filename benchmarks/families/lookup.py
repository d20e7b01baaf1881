"""What a lookup scores: the answer of the nearest training problem, copied.

A family that a lookup answers measures memory. Two lookups are tried, by character trigrams and by
the numbers that two problems share, and judged as a model's answer would be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from benchmarks.families.family import Family, Row
from benchmarks.families.results import as_text, mean
from benchmarks.learners.arms.racing import by_letters
from tfgrpo.data.problems import Problem
from tfgrpo.domains.registry import find

MARGIN = 0.05
"""How far a lookup may be above the empty library."""
FORMS = {"math": "\\boxed{{{}}}", "choice": "Label: {}", "exact": "Answer: {}", "json": "{}"}
"""How an answer is given, by domain."""
Likeness = Callable[[str, str], float]


def is_usable(best: float, empty: float) -> bool:
    """Returns whether the better lookup leaves a family in use, beside the empty library."""
    return best < empty + MARGIN


def given(family: Family, answer: object) -> str:
    """Returns a response that gives an answer and nothing else."""
    return FORMS[family.domain.partition(":")[0]].format(as_text(answer))


def rewarded(family: Family, row: Row, answer: object) -> float:
    """Returns the reward of an answer to a problem, as the family's domain judges it."""
    problem = Problem(row["id"], row["problem"], as_text(row["answer"]))
    judge = find(family.domain).at_once
    verdict = judge and judge(problem, given(family, answer))
    if verdict is None or verdict.reward is None:
        raise ValueError(f"{family.name}: {family.domain} does not judge {answer!r} at once")
    return verdict.reward


def numbers(text: str) -> set[str]:
    """Returns the numbers in a text."""
    return set(re.findall(r"\d+(?:[.,]\d+)?", text))


def by_numbers(one: str, other: str) -> float:
    """Returns how many numbers two texts share, and of equals the one more alike in letters."""
    return len(numbers(one) & numbers(other)) + by_letters(one, other)


WAYS: dict[str, Likeness] = {"letters": by_letters, "numbers": by_numbers}


def copied(test: Row, train: Sequence[Row], likeness: Likeness) -> object:
    """Returns the answer of the training problem that is most like a problem."""
    return max(train, key=lambda row: likeness(test["problem"], row["problem"]))["answer"]


def lookup_scores(family: Family, seed: int = 0) -> dict[str, float]:
    """Returns what each way of looking up scores on the test problems of a family."""
    train, test = family.draw("train", seed), family.draw("test", seed)
    return {
        name: mean([rewarded(family, row, copied(row, train, way)) for row in test])
        for name, way in WAYS.items()
    }
