"""Rubrics: answers held to criteria, rule by rule. `--domain rubric:style.toml`

A rubric is a TOML file with a list of criteria and, where wanted, the two objectives. The reward is
the weighted mean of what the criteria gave; each one's result is kept with the rollout and shown to
the reflection model. A problem may bring criteria of its own in a field `criteria`, and a `persona`
makes it a conversation with a simulated user.

A criterion is a rule (a regular expression, a length, a beginning or an end, JSON), a Python
predicate, or a question to a judge model, which follows from what it says (docs/conversations.md).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains import conversation
from tfgrpo.domains.base import Context, Domain, DomainInvalid, Trajectory, Verdict, imported
from tfgrpo.domains.conversation import AGENT_OBJECTIVE, LEARNING_OBJECTIVE
from tfgrpo.domains.domain_options import read_toml
from tfgrpo.domains.json_reading import refuse_constant
from tfgrpo.domains.judge import ask_question
from tfgrpo.domains.verifier import Killed
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.settings import first_error
from tfgrpo.trust import trusted_folders
from tfgrpo.trust.permissions import Permissions, of_predicates

HINT = "see docs/conversations.md for an example"
TERMINAL = (
    r"\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d-\u083e\u0964-\u0965"
    r"\u104a-\u104b\u1362\u1367-\u1368\u166e\u1735-\u1736\u17d4-\u17d5\u1803\u1809\u1944-\u1945"
    r"\u1aa8-\u1aab\u1b4e-\u1b4f\u1b5a-\u1b5b\u1b5e-\u1b5f\u1b7d-\u1b7f\u1c3b-\u1c3c\u1c7e-\u1c7f"
    r"\u203c-\u203d\u2047-\u2049\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53-\u2e54\u2e60-\u2e61\u3002\ua4ff"
    r"\ua60e-\ua60f\ua6f3\ua6f7\ua876-\ua877\ua8ce-\ua8cf\ua92f\ua9c8-\ua9c9\uaa5d-\uaa5f"
    r"\uaaf0-\uaaf1\uabeb\ufe12\ufe15-\ufe16\ufe56-\ufe57\uff01\uff1f\uff61"
)
"""Marks that end a sentence whatever follows: Unicode 17's Sentence_Terminal (PropList.txt) in the
first plane, without those of ASCII and other full stops."""
CLOSING = r"""\])}"'’”»›*_`~"""
SENTENCE_END = re.compile(
    rf"(?<![.!?…])[.!?…]+(?:(?=\s|\Z)|[{CLOSING}]+(?=\s+(?P<next>\S)|\s*\Z))"
    rf"|[{TERMINAL}]+|．(?!\d)"
)


class Criterion(BaseModel):
    """One thing that an answer is held to. `absent` turns a rule round: what it looks for must not
    be there. `over` is the last answer, or everything that the model said in the conversation."""

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


KINDS = tuple(Criterion.model_fields)[4:]
"""All that a criterion can be."""


def rule(criterion: Criterion, text: str) -> float:
    """Returns what a rule gives: 1.0 where the text keeps to it, else 0.0."""
    if criterion.regex is not None:
        holds = re.search(criterion.regex, text, re.MULTILINE) is not None
    elif criterion.contains is not None:
        holds = criterion.contains.casefold() in text.casefold()
    elif criterion.starts_with is not None:
        holds = text.strip().startswith(criterion.starts_with)
    elif criterion.ends_with is not None:
        holds = text.strip().endswith(criterion.ends_with)
    elif criterion.max_sentences is not None:
        holds = _sentences(text) <= criterion.max_sentences
    elif criterion.format == "json":
        holds = _is_json(text)
    else:
        low, high, words = criterion.min_words, criterion.max_words, len(text.split())
        holds = (low is None or words >= low) and (high is None or words <= high)
    return float(holds != criterion.absent)


def _sentences(text: str) -> int:
    """Returns the number of sentences in a text, with the last one where nothing ends it."""
    ends = [one for one in SENTENCE_END.finditer(text) if not (one["next"] or "").islower()]
    return len(ends) + bool(re.search(r"\w", text[ends[-1].end() :] if ends else text))


def predicate(place: str, folder: str, problem: Problem, text: str) -> float:
    """Returns what a predicate of the user's gives, in a worker process; `folder` is where its
    module is looked for first. Raises whatever it raises, and ValueError for a score out of [0,
    1]."""
    score = float(_predicate(place, folder)(problem, text))
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"{place} gave {score}, which is not from 0 to 1")
    return score


def criteria_error(criteria: Sequence[Criterion], folder: str) -> str | None:
    """Returns what is wrong with criteria that are to be weighed together, or None. Names that
    stand twice, as a result would hide another, and predicates that are not there."""
    names = [criterion.name for criterion in criteria]
    for criterion in criteria:
        if names.count(criterion.name) > 1:
            return f"the name {criterion.name!r} is used twice: give each its own"
        if criterion.python and (why := _predicate_error(criterion.python, folder)):
            return f"{criterion.name}: {criterion.python}, beside the rubric or in sys.path: {why}"
    return None


def describe_scores(scores: Mapping[str, tuple[float | None, str]]) -> dict[str, Any]:
    """Returns each criterion's result as it is kept: kept, missed, or its score, and why."""
    words = {1.0: "kept", 0.0: "missed", None: "could not be judged"}
    return {
        name: (words.get(score) or f"{score:.2g} of 1") + (f" ({why})" if why else "")
        for name, (score, why) in scores.items()
    }


def _predicate(place: str, folder: str) -> Any:
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return imported(place)


def _predicate_error(place: str, folder: str) -> str:
    try:
        function = _predicate(place, folder)
    except (Exception, SystemExit) as error:  # whatever a module of the user's does
        return f"{type(error).__name__}: {error}"
    return "" if callable(function) else f"{place} is no function"


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        return False
    return True


class Rubric(BaseModel):
    """A rubric file. `predicates` are functions that criteria of its problems may call too."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    criteria: tuple[Criterion, ...] = Field(min_length=1)
    predicates: tuple[str, ...] = ()
    agent_objective: str = AGENT_OBJECTIVE
    learning_objective: str = LEARNING_OBJECTIVE


def make_domain(argument: str) -> Domain:
    """Makes the domain of a rubric file. Raises DomainError."""
    path = Path(argument)
    rubric, identity = read_toml(path, Rubric)
    predicates = _predicates(rubric)
    trusted_folders.require(of_predicates(path, predicates))
    folder = str(path.resolve().parent)
    error = criteria_error(rubric.criteria, folder)
    if error is not None:
        raise DomainInvalid(f"{path}: {error}", hint=HINT)

    def judge_calls(problem: Problem) -> int:
        criteria = (*rubric.criteria, *problem_criteria(problem))
        return sum(criterion.question is not None for criterion in criteria)

    async def verify(context: Context, trajectory: Trajectory) -> Verdict:
        return await judge_rubric(rubric.criteria, folder, context, trajectory)

    def load(source: str, fields: Mapping[str, str]) -> tuple[Problem, ...]:
        problems = conversation.load(source, fields, extra=("criteria",), ground_truth=False)
        for problem in problems:
            own_criteria = problem_criteria(problem)
            error = _unlisted(own_criteria, predicates) or (
                criteria_error((*rubric.criteria, *own_criteria), folder) if own_criteria else None
            )
            if error is not None:
                raise DatasetError(f"{source}: {problem.id}: {error}", hint=HINT)
        return problems

    return Domain(
        name="rubric",
        verify=verify,
        load=load,
        extra=("criteria", *conversation.FIELDS),
        ground_truth=False,
        rollout=conversation.converse,
        judge_calls=judge_calls,
        agent_objective=rubric.agent_objective,
        learning_objective=rubric.learning_objective,
        identity=identity,
    )


def rubric_permissions(path: Path) -> Permissions:
    """Returns what a rubric file needs to be allowed. Raises DomainError."""
    return of_predicates(path, _predicates(read_toml(path, Rubric)[0]))


def _predicates(rubric: Rubric) -> frozenset[str]:
    own = (criterion.python for criterion in rubric.criteria)
    return frozenset((*rubric.predicates, *(place for place in own if place is not None)))


def _unlisted(criteria: tuple[Criterion, ...], predicates: frozenset[str]) -> str | None:
    """Returns what is wrong where a problem's own criteria call what the rubric does not name:
    data runs no code that nobody has named outside of it."""
    for criterion in criteria:
        if criterion.python is not None and criterion.python not in predicates:
            place = criterion.python
            return f'{criterion.name}: the rubric does not list "{place}" under predicates'
    return None


async def judge_rubric(
    criteria: tuple[Criterion, ...], folder: str, context: Context, trajectory: Trajectory
) -> Verdict:
    """Returns the weighted mean, and every criterion's result. What no criterion could judge is
    unverifiable; one that could not counts for nothing."""
    criteria = (*criteria, *problem_criteria(context.problem))
    scores: dict[str, tuple[float | None, str]] = {}
    known: list[tuple[float, float]] = []
    for number, criterion in enumerate(criteria):
        text = criterion_text(criterion, trajectory)
        given, why = await score_criterion(criterion, number, folder, context, text)
        scores[criterion.name] = (given, why)
        if given is not None:
            known.append((criterion.weight, given))
    if not known:
        return Verdict(
            None, None, "unverifiable: no criterion could be judged", describe_scores(scores)
        )
    reward = sum(weight * given for weight, given in known) / sum(weight for weight, _ in known)
    missed = [name for name, (given, _) in scores.items() if given is not None and given < 1]
    reason = f"missed {', '.join(missed)}" if missed else "kept to everything"
    return Verdict(reward, None, reason, describe_scores(scores))


def criterion_text(criterion: Criterion, trajectory: Trajectory) -> str:
    """Returns what a criterion is about: the last answer, or all that the model said."""
    answers = (m.get("content") or "" for m in trajectory.messages if m.get("role") == "assistant")
    whole = "\n\n".join(map(str, answers)) if criterion.over == "conversation" else ""
    return whole or trajectory.response


async def score_criterion(
    criterion: Criterion, number: int, folder: str, context: Context, text: str
) -> tuple[float | None, str]:
    """Returns one criterion's score and why; None when it could not be judged."""
    if criterion.question is not None:
        try:
            answer = await ask_question(context, text, criterion.question, number=number)
        except CallFailed as error:
            return None, str(error)
        return float((answer.verdict == "yes") != criterion.absent), answer.why
    try:
        if criterion.python is not None:
            given = await context.verifier.run(
                predicate, criterion.python, folder, context.problem, text, may_wait=True
            )
            return (1.0 - given if criterion.absent else given), ""
        if criterion.regex is not None:  # an expression may take for ever
            return await context.verifier.run(rule, criterion, text), ""
    except Killed as error:
        return None, str(error)
    return rule(criterion, text), ""


def problem_criteria(problem: Problem) -> tuple[Criterion, ...]:
    """Returns the criteria that a problem brings. Raises DatasetError."""
    listed = problem.meta.get("criteria")
    if listed in (None, ""):  # as a table has it where a row has none
        return ()
    try:
        return tuple(Criterion(**criterion) for criterion in listed)
    except ValidationError as error:
        raise DatasetError(f"{problem.id}: {first_error(error, Criterion)}", hint=HINT) from None
    except TypeError:
        raise DatasetError(f"{problem.id}: criteria are a list of objects", hint=HINT) from None
