"""What a text that was learned must not be, in any language: too long, or the answer itself.

No rule here reads words. Whether a text is any good is measured, not read (`advantage.py`).
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from tfgrpo.data.problems import Problem

TELLING = 8
"""Characters from which on an answer that stands in a text is no chance find."""
LETTERS = 16
"""Characters for each word that a text may have: some scripts part no words."""


@dataclass(frozen=True, slots=True)
class TextCheck:
    """The check of texts that were learned from `problems`.

    With `shared_answers` a text may name the answer, which is one of few, as a label is.
    `max_words` is the most words, or sixteen times as many characters; None for no limit.
    """

    problems: tuple[Problem, ...] = ()
    shared_answers: bool = False
    max_words: int | None = None

    def accepted(self, text: str) -> str:
        """Returns a text in one line. Raises ValueError with what is wrong with it."""
        text = " ".join(text.split())
        if wrong := self(text):
            raise ValueError(wrong)
        return text

    def __call__(self, text: str) -> str | None:
        """Returns what is wrong with a text, or None."""
        most = self.max_words
        if most is not None and is_long(text, most):
            return f"the text is too long: {most} words are the most"
        if not self.shared_answers and any(leaks(text, problem) for problem in self.problems):
            return "it gives away the answer of its problem"
        return None


def is_long(text: str, most: int) -> bool:
    """Returns whether a text has more than so many words, or sixteen times as many characters."""
    return len(text.split()) > most or len(text) > LETTERS * most


def leaks(text: str, problem: Problem) -> bool:
    """Returns whether a text is an answer of a problem, or holds one of some length."""
    text = folded(text)
    answers = (folded(answer) for answer in problem.ground_truths)
    return any(
        answer and (answer == text or (len(answer) >= TELLING and answer in text))
        for answer in answers
    )


def folded(text: str) -> str:
    """Returns a text as it is compared: in one Unicode form, one case, and with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def right_answers(problem: Problem) -> tuple[str, ...]:
    """Returns the answers of a problem that are right; none where they are unknown."""
    return tuple(answer for answer in problem.ground_truths if answer.strip())
