"""Criteria: what an answer is held to, one by one, each with a score from 0 to 1.

A criterion is a rule (a regular expression, a length, a beginning or an end, JSON), a Python
predicate, or a question to a judge model. Which one it is follows from what it says:

    [[criteria]]
    name = "signed"
    ends_with = "The Sund team"

    [[criteria]]
    name = "kind"
    weight = 2
    question = "Does the answer take the customer's worry seriously?"

    [[criteria]]
    name = "adds up"
    python = "checks:adds_up"          # (problem, response) → bool, or a number from 0 to 1
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.data.problems import Problem

KINDS = (
    "regex",
    "contains",
    "starts_with",
    "ends_with",
    "min_words",
    "max_words",
    "max_sentences",
    "format",
    "python",
    "question",
)
SENTENCE = re.compile(r"[.!?](?=\s|$)")


class Criterion(BaseModel):
    """One thing that an answer is held to.

    `absent` turns a rule round: what it looks for must not be there. `over` is the last answer,
    or everything that the model said in the conversation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    absent: bool = False
    over: Literal["answer", "conversation"] = "answer"
    regex: str | None = None
    contains: str | None = None
    starts_with: str | None = None
    ends_with: str | None = None
    min_words: int | None = None
    max_words: int | None = None
    max_sentences: int | None = None
    format: Literal["json"] | None = None
    python: str | None = None
    question: str | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if not kinds or (len(kinds) > 1 and set(kinds) != {"min_words", "max_words"}):
            raise ValueError(f"criterion {self.name!r} has one of {', '.join(KINDS)}")
        if self.regex is not None:
            try:
                re.compile(self.regex)
            except (re.error, OverflowError, RecursionError) as error:
                raise ValueError(f"criterion {self.name!r}: {error}") from None
        if self.python is not None and not re.fullmatch(r"[\w.]+:[\w.]+", self.python):
            raise ValueError(f"criterion {self.name!r}: python is written module:function")
        return self


def rule(criterion: Criterion, text: str) -> float:
    """Returns what a rule gives: 1.0 where the text keeps to it, else 0.0."""
    words = len(text.split())
    holds = True
    if criterion.regex is not None:
        holds = re.search(criterion.regex, text, re.MULTILINE) is not None
    elif criterion.contains is not None:
        holds = criterion.contains.casefold() in text.casefold()
    elif criterion.starts_with is not None:
        holds = text.strip().startswith(criterion.starts_with)
    elif criterion.ends_with is not None:
        holds = text.strip().endswith(criterion.ends_with)
    elif criterion.max_sentences is not None:
        holds = len(SENTENCE.findall(text)) <= criterion.max_sentences
    elif criterion.format == "json":
        holds = _is_json(text)
    else:
        low, high = criterion.min_words, criterion.max_words
        holds = (low is None or words >= low) and (high is None or words <= high)
    return float(holds != criterion.absent)


def predicate(place: str, folder: str, problem: Problem, text: str) -> float:
    """Returns what a predicate of the user's gives. Runs in a worker process.

    `place` is module:function, `folder` where the module is looked for first. Raises whatever
    the predicate raises, and ValueError for a score out of [0, 1].
    """
    score = float(_imported(place, folder)(problem, text))
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"{place} gave {score}, which is not from 0 to 1")
    return score


def predicate_error(place: str, folder: str) -> str | None:
    """Returns why a predicate cannot be had, or None."""
    try:
        function = _imported(place, folder)
    except (Exception, SystemExit) as error:  # whatever a module of the user's does
        return f"{type(error).__name__}: {error}"
    return None if callable(function) else f"{place} is no function"


def criteria_error(criteria: Sequence[Criterion], folder: str) -> str | None:
    """Returns what is wrong with criteria that are to be weighed together, or None.

    Names that stand twice, as a result would hide another, and predicates that are not there.
    """
    names = [criterion.name for criterion in criteria]
    for criterion in criteria:
        if names.count(criterion.name) > 1:
            return f"the name {criterion.name!r} is used twice: give each its own"
        why = predicate_error(criterion.python, folder) if criterion.python else None
        if why is not None:
            return f"{criterion.name}: {criterion.python}, beside the rubric or in sys.path: {why}"
    return None


def describe_scores(scores: Mapping[str, tuple[float | None, str]]) -> dict[str, Any]:
    """Returns each criterion's result as it is kept: kept, missed, or its score, and why."""
    words = {1.0: "kept", 0.0: "missed", None: "could not be judged"}
    return {
        name: (words.get(score) or f"{score:.2g} of 1") + (f" ({why})" if why else "")
        for name, (score, why) in scores.items()
    }


def _imported(place: str, folder: str) -> Callable[[Problem, str], float]:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module, _, name = place.partition(":")
    with redirect_stdout(sys.stderr):  # what a module prints is no part of what we print
        target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target  # type: ignore[no-any-return]


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_not_json)
    except (ValueError, RecursionError):
        return False
    return True


def _not_json(constant: str) -> None:
    """Python reads NaN and Infinity, which are no JSON."""
    raise ValueError(constant)
