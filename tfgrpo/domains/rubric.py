"""Rubrics: answers held to criteria, rule by rule. `--domain rubric:style.toml`

A rubric is a TOML file with a list of criteria (`rubric_criteria.py`) and, where wanted, the two
objectives. The reward is the weighted mean of what the criteria gave; each one's result is kept
with the rollout and shown to the reflection model. A problem may bring criteria of its own in a
field `criteria`, and a `persona` makes it a conversation with a simulated user.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains import conversation, judge_calls
from tfgrpo.domains.base import Context, Domain, DomainError, Trajectory, Verdict
from tfgrpo.domains.from_toml import HINT, first_error, read
from tfgrpo.domains.rubric_criteria import (
    Criterion,
    criteria_error,
    describe_scores,
    predicate,
    rule,
)
from tfgrpo.domains.verifier import Killed
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.trust import trust_gate
from tfgrpo.trust.permissions import Permissions, of_predicates

AGENT_OBJECTIVE = "Answer the message."
LEARNING_OBJECTIVE = "Rules of form, tone and content that make answers better."


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
    rubric, identity = read(path, Rubric)
    predicates = _predicates(rubric)
    trust_gate.require(of_predicates(path, predicates))
    folder = str(path.resolve().parent)
    error = criteria_error(rubric.criteria, folder)
    if error is not None:
        raise DomainError(f"{path}: {error}", hint=HINT)

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
    return of_predicates(path, _predicates(read(path, Rubric)[0]))


def _predicates(rubric: Rubric) -> frozenset[str]:
    """Returns the functions that a rubric calls, or lets problems call."""
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
    """Returns the verdict of a rubric: the weighted mean, and every criterion's result.

    What no criterion could judge is unverifiable; one that could not counts for nothing.
    """
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
            answer = await judge_calls.ask_question(
                context, text, criterion.question, number=number
            )
        except CallFailed as error:
            return None, str(error)
        return float((answer.verdict == "yes") != criterion.absent), answer.why
    try:
        if criterion.python is not None:
            given = await context.verifier.run(
                predicate, criterion.python, folder, context.problem, text
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
        raise DatasetError(f"{problem.id}: {first_error(error)}", hint=HINT) from None
    except TypeError:
        raise DatasetError(f"{problem.id}: criteria are a list of objects", hint=HINT) from None
