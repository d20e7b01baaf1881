"""Letters of options: with their text, on the last line, beside a formula's box."""

from __future__ import annotations

import pytest

from tfgrpo.data.problems import Problem
from tfgrpo.domains.choice import with_options

LETTERS = with_options('["A", "B", "C", "D"]')


@pytest.mark.parametrize(
    ("gold", "response", "reward"),
    [
        ("D", r"So $\boxed{v=4.5}$ holds." + "\n\nLabel: D", 1),
        ("D", r"So $\boxed{v=4.5}$ holds." + "\n\n**Answer: D**", 1),
        ("D", "Label: D. 4.5 J", 1),
        ("D", "<answer>D. 4.5 J</answer>", 1),
        ("D", "Label：D", 1),
        ("D", "**Label：** D", 1),
        ("D", r"\boxed{D. 4.5\,\text{J}}", 1),
        ("D", r"\boxed{\text{(D) } 4.5 J}", 1),
        ("D", '{"answer": "D. 4.5 J"}', 1),
        ("D", '{"label": "D) 4.5 J"}', 1),
        ("D", "D) 4.5 J", 1),
        ("D", "(D) 4.5 J", 1),
        ("D", "D: the fourth", 1),
        ("D", "Label: C. 4.5 J", 0),
        ("D", "Label: C or D", 0),
        ("D", "Label: D. or C.", 0),
        ("D", "Label: D. no, C. yes", 0),
        ("D", "D. is wrong", 0),
        ("D", "Label: D. not 4.5 J", 0),
        ("D", r"\boxed{C}" + "\nLabel: D", 0),
        ("D", r"\boxed{v=1}" + "\nLabel: C", 0),
        ("D", r"\boxed{v=1}" + "\nD is wrong", 0),
        ("D", r"Label: D" + "\n" + r"\boxed{v=1}", 0),
        ("D", "A. 3 J\nLabel: D", 1),
        ("D", r"\boxed{D. 4.5 J}" + "\nLabel: C", 0),
        ("D", '{"answer": "D. 4 J or C. 3 J"}', 0),
        ("D", r"\boxed{v=1}" + "\nThe label is D", 1),
        ("D", "D. A cat or B", 0),
        ("A", "A. b", 0),
        ("D", r"\boxed{4.5", 0),
    ],
)
def test_a_letter_counts_with_its_text_and_a_formula_does_not_stand_in_its_way(
    gold: str, response: str, reward: float
) -> None:
    problem = Problem("1", "Which?", gold)
    assert LETTERS.verify(problem, response).reward == reward


def test_words_keep_what_stands_behind_them() -> None:
    words = with_options('["A", "late", "lost"]')
    assert words.verify(Problem("1", "Which?", "A"), "Label: A. late").reward == 0.0
