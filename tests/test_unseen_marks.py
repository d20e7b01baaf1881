"""Marks that nobody sees, in an answer or in a ground truth, change no verdict."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tfgrpo.data.problems import Problem
from tfgrpo.domains import choice, exact, json_fields
from tfgrpo.domains.base import Verdict
from tfgrpo.domains.mathematics.answers import judge

MARKS = {
    "soft hyphen": "\xad",
    "Arabic letter mark": "\u061c",
    "space of no width": "\u200b",
    "left to right": "\u200e",
    "right to left": "\u200f",
    "embedding": "\u202a",
    "end of an embedding": "\u202c",
    "word joiner": "\u2060",
    "isolate": "\u2068",
    "end of an isolate": "\u2069",
    "byte order mark": "\ufeff",
}
RULES = json_fields.FieldRules()
JUDGES: dict[str, Callable[[str, str], Verdict]] = {
    "math": judge,
    "choice": lambda gold, said: choice.verify(
        Problem("p", "?", gold), said, choice.Labels(("card lost", "refund"))
    ),
    "exact": lambda gold, said: exact.verify(Problem("p", "?", gold), said),
    "json": lambda gold, said: json_fields.verify(Problem("p", "?", gold), said, RULES),
}
CASES = [
    ("math", "-12", "-12", "So it is \\boxed{%s}."),
    ("math", "-12", "12", "So it is \\boxed{%s}."),
    ("math", "5 km", "5 km", "The answer is \\boxed{%s}"),
    ("math", "x + 1", "x + 1", "<answer>%s</answer>"),
    ("choice", "card lost", "card lost", "Label: %s"),
    ("choice", "card lost", "refund", "Label: %s"),
    ("choice", "card lost", "card lost", "%s."),
    ("exact", "São Paulo", "São Paulo", "Answer: %s"),
    ("exact", "São Paulo", "Sao Paulo", "Answer: %s"),
    ("exact", "2.5", "2.5", "**%s**"),
    ("json", '{"name": "Ann Lee", "n": 12}', '{"name": "Ann Lee", "n": 12}', "%s"),
    ("json", '{"name": "Ann Lee", "n": 12}', '{"name": "Ann Lee", "n": 13}', "```json\n%s\n```"),
]


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(("domain", "gold", "answer", "words"), CASES)
def test_an_unseen_mark_changes_no_verdict(
    mark: str, domain: str, gold: str, answer: str, words: str
) -> None:
    verify, sign = JUDGES[domain], MARKS[mark]
    plain = verify(gold, words % answer)
    assert (plain.reward == 1.0) is (gold == answer)
    marked = [f"{answer[:at]}{sign}{answer[at:]}" for at in range(len(answer) + 1)]
    changed = [one for one in marked if verify(gold, words % one).reward != plain.reward]
    golds = [f"{gold[:at]}{sign}{gold[at:]}" for at in range(len(gold) + 1)]
    changed += [one for one in golds if verify(one, words % answer).reward != plain.reward]
    assert changed == []


def test_marks_that_turn_digits_or_mean_something_stay() -> None:
    assert judge("12", "\\boxed{\u202e21}").reward == 0.0, "it is seen as 12, and says 21"
    assert exact.verify(Problem("p", "?", "می\u200cخواهم"), "Answer: می خواهم").reward == 0.0
