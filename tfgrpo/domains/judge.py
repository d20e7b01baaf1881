"""Graded answers: a judge model gives 0 to 10 on a stated scale. `--domain judge:scale.toml`

    scale = "10: solves the request in full. 5: half of it. 0: nothing, or wrong."
    repeat = 3          # grades an answer; their spread is kept
    compare = true      # beside the row's answer, in both orders, instead of alone

The reward is the mean grade over ten. Every judgement is a journalled call with a prompt of its
own. Grades may be repeated with other seeds, which shows how much a judge wavers; comparisons are
made in both orders and averaged, as judges favour a place (Wang et al., arXiv 2305.17926).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tfgrpo.data.problems import Problem
from tfgrpo.domains import conversation
from tfgrpo.domains.base import Context, Domain, Trajectory, Verdict, sample_seed
from tfgrpo.domains.conversation import AGENT_OBJECTIVE, LEARNING_OBJECTIVE
from tfgrpo.domains.domain_options import read_toml
from tfgrpo.model import structured_answers
from tfgrpo.model.endpoint import Request
from tfgrpo.model.structured_answers import text_field
from tfgrpo.rendering import prompt_templates

T = TypeVar("T", bound=BaseModel)
TOKENS = 400


def normalized_word(value: object) -> object:
    """Returns a word of a judge's without case, marks and stops: `**Yes.**` is yes."""
    return value.strip(" \n*`'\".!").casefold() if isinstance(value, str) else value


def _number(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a grade is a number")
    return value


class YesNo(BaseModel):
    """A judge's answer to a question."""

    why: str = text_field(300, 1000, default="")
    verdict: Annotated[Literal["yes", "no"], BeforeValidator(normalized_word)]


class OneGrade(BaseModel):
    """A judge's grade."""

    why: str = text_field(300, 1000, default="")
    grade: Annotated[float, BeforeValidator(_number)] = Field(ge=0, le=10)


@dataclass(frozen=True, slots=True)
class Grade:
    """What a judge's grades come to: their mean and spread (standard deviation), 0 to 10."""

    mean: float
    spread: float
    grades: tuple[float, ...]
    why: str


async def ask_question(context: Context, text: str, question: str, *, number: int = 0) -> YesNo:
    """Asks the judge one question about an answer. Raises CallFailed and EndpointError."""
    values = {"problem": context.problem.problem, "response": text, "question": question}
    return await ask_judge(context, "question", values, YesNo, (number,))


async def grade_answer(context: Context, text: str, scale: str, *, repeat: int = 1) -> Grade:
    """Grades an answer `repeat` times on a scale in words. Raises CallFailed and EndpointError."""
    values = {"problem": context.problem.problem, "response": text, "scale": scale}
    grades = [await ask_judge(context, "grade", values, OneGrade, (n,)) for n in range(repeat)]
    return _combined(grades)


async def grade_beside(
    context: Context, text: str, other: str, scale: str, *, repeat: int = 1
) -> Grade:
    """Grades an answer beside another, 10 for far better and 5 for as good, in both orders."""
    grades = []
    for turn in range(2 * repeat):
        first, second = (other, text) if turn % 2 else (text, other)
        values = {"problem": context.problem.problem, "scale": scale}
        values |= {"first": first, "second": second}
        grade = await ask_judge(context, "compare", values, OneGrade, (turn,))
        if turn % 2:
            grade = grade.model_copy(update={"grade": 10 - grade.grade})
        grades.append(grade)
    return _combined(grades)


async def ask_judge(
    context: Context,
    prompt: str,
    values: Mapping[str, str],
    shape: type[T],
    turn: tuple[int, ...] = (),
    tokens: int = TOKENS,
) -> T:
    """Returns what the judge says to a prompt; every turn but the first is sampled as attempts are.
    Raises CallFailed and EndpointError."""
    call_path = (*context.call_path, context.sample, prompt, *turn)
    request = Request(
        "judge",
        prompt_templates.load(prompt).render(values),
        temperature=context.sampling.temperature if any(turn) else 0.0,
        max_tokens=tokens,
        schema=structured_answers.schema(shape),
        seed=sample_seed(context.sampling.seed, *call_path),
    )
    return (await structured_answers.ask(context.judge, request, shape, call_path=call_path)).value


def _combined(given: list[OneGrade]) -> Grade:
    grades = tuple(one.grade for one in given)
    return Grade(fmean(grades), pstdev(grades), grades, given[0].why)


class Scale(BaseModel):
    """A scale file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    scale: str = Field(min_length=10)
    repeat: int = Field(default=1, ge=1, le=20)
    compare: bool = False
    agent_objective: str = AGENT_OBJECTIVE
    learning_objective: str = LEARNING_OBJECTIVE


def make_domain(argument: str) -> Domain:
    """Makes the domain of a scale file. Raises DomainError."""
    file, identity = read_toml(Path(argument), Scale)

    async def verify(context: Context, trajectory: Trajectory) -> Verdict:
        text, other = trajectory.response, context.problem.answer
        if file.compare:
            grade = await grade_beside(context, text, other, file.scale, repeat=file.repeat)
        else:
            grade = await grade_answer(context, text, file.scale, repeat=file.repeat)
        details = {"grades": list(grade.grades), "spread": round(grade.spread, 3), "why": grade.why}
        return Verdict(grade.mean / 10, None, f"graded {grade.mean:.1f} of 10", details)

    def load(source: str, fields: Mapping[str, str]) -> tuple[Problem, ...]:
        return conversation.load(source, fields, ground_truth=file.compare)

    return Domain(
        name="judge",
        verify=verify,
        load=load,
        extra=conversation.FIELDS,
        ground_truth=file.compare,
        rollout=conversation.converse,
        judge_calls=lambda _: file.repeat * (2 if file.compare else 1),
        agent_objective=file.agent_objective,
        learning_objective=file.learning_objective,
        identity=identity,
    )
