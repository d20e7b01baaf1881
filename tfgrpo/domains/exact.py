"""Exact: answers that are a text, compared with the ground truth letter by letter.

exact                                    spaces apart, and a full stop or quotes around the answer
exact:case=ignore,punctuation=ignore     other things that do not matter

A mark before an answer or around it is a bullet, bold or a bracket only where what is left cannot
be another answer: a bullet before a word, `- Paris`, and not `- 12` or `24. Dezember`; a bracket
around a name, `[Paris]`, and not `[str]`, `(0, 1)` or `__init__`.

The answer is what the last box or `<answer>` holds, or the last line, alone or after `Answer:`;
a ground truth of several lines is compared with the whole response.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args, get_type_hints

from tfgrpo.data.problems import Problem
from tfgrpo.domains.answer_reading import (
    FEW,
    WORDS,
    GivenAnswer,
    NoAnswer,
    find_answer,
    is_declared,
    is_one_of_several,
    show,
    variants,
    whole_and_first,
)
from tfgrpo.domains.base import Domain, Verdict
from tfgrpo.domains.domain_options import read_options
from tfgrpo.domains.mathematics.extract import spoken, without_unseen
from tfgrpo.domains.punctuation import without_punctuation

AGENT_OBJECTIVE = (
    "Answer the question. Think briefly, then write the answer alone on the last line, "
    "as `Answer: …`."
)
LEARNING_OBJECTIVE = "Rules that make answers to questions like these come out exactly right."
WORD = re.compile(r"[*`\"'“„«_]*[^\W\d_]")
NAME = re.compile(r"(?!.*[\d_])(?=[^\W\d_]{2})[^a-z].*", re.DOTALL)
Keeping: TypeAlias = Literal["keep", "ignore"]


@dataclass(frozen=True, slots=True)
class Normalisation:
    """What matters when texts are compared. Runs of spaces are always one space. With `punctuation`
    ignored, signs that make another answer still matter (-5, C++, $5); with `space` there are no
    spaces at all. `read` says what is compared: the answer that a response gives,
    or the whole response."""

    case: Keeping = "keep"
    accents: Keeping = "keep"
    punctuation: Keeping = "keep"
    space: Keeping = "keep"
    read: Literal["answer", "response"] = "answer"

    def apply(self, text: str) -> str:
        """Returns a text in its normal form, which equal answers share."""
        text = unicodedata.normalize("NFC", without_unseen(text))
        if self.accents == "ignore":
            decomposed = unicodedata.normalize("NFD", text)
            text = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
        if self.case == "ignore":
            text = text.casefold()
        if self.punctuation == "ignore":
            text = without_punctuation(text)
        return re.sub(r"\s+", "" if self.space == "ignore" else " ", text).strip()


USUAL = Normalisation()
CHOICES = {name: get_args(kind) for name, kind in get_type_hints(Normalisation).items()}
"""The options, each with its values, the usual one first."""


def verify(problem: Problem, response: str, rules: Normalisation = USUAL) -> Verdict:
    """Judges a response. Takes microseconds; raises nothing."""
    golds, given = problem.ground_truths, _given(problem, response, rules)
    if isinstance(given, NoAnswer):
        return Verdict(0.0, None, given.reason)
    place, texts, shown = given.place, _texts(given.text), given.text
    right = next((gold for gold in golds if _matching(texts, [gold], rules)), None)
    normal = rules.apply(texts[-1] if texts else "")
    if not normal and right is None:
        return Verdict(0.0, None, f"{place}: there is no text")
    if right is not None:
        return Verdict(1.0, rules.apply(right), f"{place}: equal")
    return Verdict(
        0.0, normal, f"{place}: {show(shown)} is not {show(golds[0])}{_near(texts, golds, rules)}"
    )


def read(problem: Problem, response: str, rules: Normalisation = USUAL) -> str | None:
    """Returns the text that a response gives as its answer; None where it gives none, or two."""
    given = _given(problem, response, rules)
    if isinstance(given, NoAnswer):
        return None
    return [given.text, *_texts(given.text)][-1]  # without the marks around it


def _given(problem: Problem, response: str, rules: Normalisation) -> GivenAnswer | NoAnswer:
    """Returns the answer that a response gives, or why it gives none. A box and another answer
    that is declared behind it are two, and so are two lines that give one alike."""
    if rules.read == "response" or any("\n" in gold.strip() for gold in problem.ground_truths):
        return GivenAnswer(spoken(response).strip(), "whole response")
    given = find_answer(response)
    if isinstance(given, NoAnswer):
        return given
    other = given.after_box if is_declared(given.after_box) else ""
    other = other or (given.line_before if is_one_of_several(given) else "")
    declared = given.place == "box" or is_declared(given.text)
    brief = [text for text in given.others if declared or len(WORDS.findall(text)) <= FEW]
    for text in filter(None, (other, *brief)):
        others = [way for part in whole_and_first(text) for way in _texts(part)]
        if not _matching(_texts(given.text), others, rules):
            return NoAnswer(f"{given.place}: {show(given.text)} and {show(text)} are two answers")
    return given


def _texts(text: str) -> list[str]:
    """Returns the ways to read a text as an answer. A mark before it is a bullet only before a
    word: `- Paris` is Paris, and neither is `- 12` 12 nor `24. Dezember` Dezember."""
    return list(variants(text, _says_nothing))


def _says_nothing(mark: str, rest: str) -> bool:
    if mark in ("__", "(", "[", "<"):  # around a single word it may be code: `__init__`, `[str]`
        return " " in rest if not NAME.fullmatch(rest) else True
    return mark[0] in "•#" or (mark[0] in "-*" and WORD.match(rest) is not None)


def _matching(texts: Sequence[str], golds: Sequence[str], rules: Normalisation) -> bool:
    """Returns whether any of some texts is one of others, in normal form, and says something."""
    known = {rules.apply(gold) for gold in golds} - {""}
    return any(rules.apply(text) in known for text in texts)


def _near(texts: Sequence[str], golds: Sequence[str], rules: Normalisation) -> str:
    """Returns which option would call the answer right, where one alone would."""
    for name in ("case", "punctuation", "accents", "space"):
        values = {key: getattr(rules, key) for key in CHOICES} | {name: "ignore"}
        if getattr(rules, name) == "keep" and _matching(texts, golds, Normalisation(**values)):
            return f" ({name} alone differs: exact:{name}=ignore)"
    return ""


def check(problem: Problem) -> str | None:
    """Returns what is wrong with the ground truth, or None."""
    return None if any(gold.strip() for gold in problem.ground_truths) else "there is none"


def with_options(options: str) -> Domain:
    """Returns the domain under other rules, `case=ignore,space=ignore`. Raises DomainError."""
    rules = Normalisation(**read_options("exact", options, CHOICES))
    if rules == USUAL:
        return DOMAIN
    identity = ",".join(f"{name}={getattr(rules, name)}" for name in CHOICES)
    return _domain(rules, identity)


def _domain(rules: Normalisation, identity: str) -> Domain:
    judge = partial(verify, rules=rules)
    return Domain(
        name="exact",
        verify=judge,
        at_once=judge,
        check=check,
        agent_objective=AGENT_OBJECTIVE,
        learning_objective=LEARNING_OBJECTIVE,
        identity=identity,
        configure=with_options,
        read=partial(read, rules=rules),
    )


DOMAIN = _domain(USUAL, "")
