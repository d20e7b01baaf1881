"""Rubrics: answers held to criteria, rule by rule. `--domain rubric:style.toml`

A rubric is a TOML file with a list of criteria (`criteria.py`) and, where wanted, the two
objectives. The reward is the weighted mean of what the criteria gave; each one's result is kept
with the rollout and shown to the reflection model. A problem may bring criteria of its own in a
field `criteria`, and a `persona` makes it a conversation with a simulated user.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tfgrpo.data.problems import DatasetError, Problem
from tfgrpo.domains import conversation, judging
from tfgrpo.domains.base import Context, Domain, DomainError, Trajectory, Verdict
from tfgrpo.domains.criteria import Criterion, described, predicate, rule, wrong
from tfgrpo.domains.files import HINT, read, told
from tfgrpo.domains.verifier import Killed
from tfgrpo.model.endpoint import CallFailed, Request

AGENT_OBJECTIVE = "Answer the message."
LEARNING_OBJECTIVE = "Rules of form, tone and content that make answers better."


class Rubric(BaseModel):
    """A rubric file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    criteria: tuple[Criterion, ...] = Field(min_length=1)
    agent_objective: str = AGENT_OBJECTIVE
    learning_objective: str = LEARNING_OBJECTIVE


def made(argument: str) -> Domain:
    """Makes the domain of a rubric file. Raises DomainError."""
    path = Path(argument)
    rubric, identity = read(path, Rubric)
    folder = str(path.resolve().parent)
    amiss = wrong(rubric.criteria, folder)
    if amiss is not None:
        raise DomainError(f"{path}: {amiss}", hint=HINT)

    def judgements(problem: Problem, trajectory: Trajectory) -> list[Request]:
        return [
            judging.questioned(problem, looked_at(criterion, trajectory), criterion.question)
            for criterion in (*rubric.criteria, *own(problem))
            if criterion.question is not None
        ]

    async def verify(context: Context, trajectory: Trajectory) -> Verdict:
        return await judged(rubric.criteria, folder, context, trajectory)

    def load(source: str, fields: Mapping[str, str]) -> tuple[Problem, ...]:
        found = conversation.load(source, fields, extra=("criteria",), ground_truth=False)
        for problem in found:
            theirs = own(problem)
            amiss = wrong((*rubric.criteria, *theirs), folder) if theirs else None
            if amiss is not None:
                raise DatasetError(f"{source}: {problem.id}: {amiss}", hint=HINT)
        return found

    return Domain(
        name="rubric",
        verify=verify,
        load=load,
        extra=("criteria", *conversation.FIELDS),
        ground_truth=False,
        rollout=conversation.converse,
        foresee=conversation.foresee,
        judgements=judgements,
        agent_objective=rubric.agent_objective,
        learning_objective=rubric.learning_objective,
        identity=identity,
    )


async def judged(
    criteria: tuple[Criterion, ...], folder: str, context: Context, trajectory: Trajectory
) -> Verdict:
    """Returns the verdict of a rubric: the weighted mean, and every criterion's result.

    What no criterion could judge is unverifiable; one that could not counts for nothing.
    """
    criteria = (*criteria, *own(context.problem))
    scores: dict[str, tuple[float | None, str]] = {}
    known: list[tuple[float, float]] = []
    for number, criterion in enumerate(criteria):
        text = looked_at(criterion, trajectory)
        given, why = await score(criterion, number, folder, context, text)
        scores[criterion.name] = (given, why)
        if given is not None:
            known.append((criterion.weight, given))
    if not known:
        return Verdict(None, None, "unverifiable: no criterion could be judged", described(scores))
    reward = sum(weight * given for weight, given in known) / sum(weight for weight, _ in known)
    missed = [name for name, (given, _) in scores.items() if given is not None and given < 1]
    reason = f"missed {', '.join(missed)}" if missed else "kept to everything"
    return Verdict(reward, None, reason, described(scores))


def looked_at(criterion: Criterion, trajectory: Trajectory) -> str:
    """Returns what a criterion is about: the last answer, or all that the model said."""
    said = (m.get("content") or "" for m in trajectory.messages if m.get("role") == "assistant")
    whole = "\n\n".join(map(str, said)) if criterion.over == "conversation" else ""
    return whole or trajectory.response


async def score(
    criterion: Criterion, number: int, folder: str, context: Context, text: str
) -> tuple[float | None, str]:
    """Returns one criterion's score and why; None when it could not be judged."""
    if criterion.question is not None:
        try:
            answer = await judging.question(context, text, criterion.question, number=number)
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


def own(problem: Problem) -> tuple[Criterion, ...]:
    """Returns the criteria that a problem brings. Raises DatasetError."""
    found = problem.meta.get("criteria")
    if found in (None, ""):  # as a table has it where a row has none
        return ()
    try:
        return tuple(Criterion(**criterion) for criterion in found)
    except ValidationError as error:
        raise DatasetError(f"{problem.id}: {told(error)}", hint=HINT) from None
    except TypeError:
        raise DatasetError(f"{problem.id}: criteria are a list of objects", hint=HINT) from None
