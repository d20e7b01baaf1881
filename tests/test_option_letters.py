"""Letters of options: with their text, on the last line, beside a formula's box."""

from __future__ import annotations

import pytest

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain
from tfgrpo.domains.choice import with_options
from tfgrpo.domains.math import DOMAIN as MATH

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


ASKED = r"""Is $x$ an integer?
(A) 3 is wrong  (B) cannot be determined
C. The statement is incorrect.
$\textbf{(D)}\ \text{not enough information}$
"""


@pytest.mark.parametrize("domain", [LETTERS, MATH], ids=["choice", "math"])
@pytest.mark.parametrize(
    ("gold", "answer", "reward"),
    [
        ("B", "(B) cannot be determined", 1),
        ("B", r"\text{(B) cannot be determined}", 1),
        ("B", "B. Cannot be determined.", 1),
        ("C", "C. The statement is incorrect.", 1),
        ("D", "(D) not enough information", 1),
        ("A", "A. 3 is wrong", 1),
        ("B", "(B) cannot be right", 0),
        ("B", "(B) cannot be determined, so A", 0),
        ("A", "(A) cannot be determined", 0),
        ("A", "A is wrong", 0),
        ("C", "C. The statement", 1),
        ("C", "C is incorrect.", 0),
        ("A", "B. cannot be determined", 0),
    ],
)
def test_an_options_own_words_take_no_letter_back(
    domain: Domain, gold: str, answer: str, reward: float
) -> None:
    problem = Problem("1", ASKED, gold)
    assert domain.verify(problem, rf"\boxed{{{answer}}}").reward == reward


@pytest.mark.parametrize(
    "response", ["Label: B. cannot be determined", '{"answer": "B) cannot be determined"}']
)
def test_an_options_own_words_count_on_the_last_line_and_in_json(response: str) -> None:
    assert LETTERS.verify(Problem("1", ASKED, "B"), response).reward == 1.0
    assert LETTERS.verify(Problem("1", "Which?", "B"), response).reward == 0.0


def test_words_keep_what_stands_behind_them() -> None:
    words = with_options('["A", "late", "lost"]')
    assert words.verify(Problem("1", "Which?", "A"), "Label: A. late").reward == 0.0


@pytest.mark.parametrize(
    ("labels", "gold", "response", "reward"),
    [
        ('["1", "2", "3", "4"]', "4", '{"label": 4}', 1),
        ('["1", "2", "3", "4"]', "4", '{"label": 4.0}', 1),
        ('["1", "2", "3", "4"]', "4", 'It is:\n```json\n{"class": 4}\n```', 1),
        ('["1", "2", "3", "4"]', "4", '{"stars": 4}', 0),  # nobody named this key
        ('["1", "2", "3", "4"]', "4", "[4]", 1),
        ('["1", "2", "3", "4"]', "4", '{"label": 3}', 0),
        ('["1", "2", "3", "4"]', "4", '{"label": 4.5}', 0),
        ('["1", "2", "3", "4"]', "4", '{"label": true}', 0),
        ('["1", "2", "3", "4"]', "1", '{"label": true}', 0),
        ('["1", "2", "3", "4"]', "4", '{"label": 4, "answer": 3}', 0),
        ('["1", "2", "3", "4"]', "4", '{"label": "4", "class": 3}', 0),
        ('["1", "2", "3", "4"]', "4", "[3, 4]", 0),
        ('["1", "2", "3", "4"]', "4", '{"label": null}', 0),
        ('["1", "2"]', "1", '{"label": 1' + "0" * 400 + "}", 0),
        ('["1", "2"]', "1", '{"label": 1e999}', 0),
        ('["cat", "dog"]', "cat", '{"label": "cat", "class": 1}', 1),
        ('["true", "false"]', "true", '{"label": true}', 1),
        ('["True", "False"]', "False", '{"label": false}', 1),
        ('["true", "false"]', "true", '{"label": false}', 0),
        ('["-1", "0", "1"]', "-1", '{"label": -1}', 1),
        ('["0.5", "1.0"]', "0.5", '{"label": 0.5}', 1),
        ('["0.5", "1.0"]', "1.0", '{"label": 1.0}', 1),
    ],
)
def test_a_label_may_be_a_number_or_a_boolean_of_json(
    labels: str, gold: str, response: str, reward: float
) -> None:
    verdict = with_options(labels).verify(Problem("1", "Which?", gold), response)
    assert verdict.reward == reward
