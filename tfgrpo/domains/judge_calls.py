"""Asking a judge model: a question about an answer, a grade from 0 to 10, or which is better.

Every judgement is a journalled call with a prompt of its own. Grades may be repeated with other
seeds, which shows how much a judge wavers; comparisons are made in both orders and averaged, as
judges favour a place (position bias; Wang et al., arXiv 2305.17926).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean, pstdev
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Context, sample_seed
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


def question_request(problem: Problem, text: str, question: str) -> Request:
    """Returns the request of one question about an answer."""
    values = {"problem": problem.problem, "response": text, "question": question}
    return _request("question", values, YesNo)


async def ask_question(context: Context, text: str, question: str, *, number: int = 0) -> YesNo:
    """Asks the judge one question about an answer. Raises CallFailed and EndpointError."""
    request = question_request(context.problem, text, question)
    return await _ask(context, "question", request, YesNo, number)


def grade_requests(problem: Problem, text: str, scale: str, *, repeat: int = 1) -> list[Request]:
    """Returns the requests of the grades of an answer."""
    values = {"problem": problem.problem, "response": text, "scale": scale}
    return repeat * [_request("grade", values, OneGrade)]


async def grade_answer(context: Context, text: str, scale: str, *, repeat: int = 1) -> Grade:
    """Grades an answer `repeat` times on a scale in words. Raises CallFailed and EndpointError."""
    requests = grade_requests(context.problem, text, scale, repeat=repeat)
    return _combined(
        [await _ask(context, "grade", one, OneGrade, turn) for turn, one in enumerate(requests)]
    )


def comparison_requests(
    problem: Problem, text: str, other: str, scale: str, *, repeat: int = 1
) -> list[Request]:
    """Returns the requests of comparisons: each with the answer first, and then with the other."""
    shared = {"problem": problem.problem, "scale": scale}
    return repeat * [
        _request("compare", {**shared, "first": first, "second": second}, OneGrade)
        for first, second in ((text, other), (other, text))
    ]


async def grade_beside(
    context: Context, text: str, other: str, scale: str, *, repeat: int = 1
) -> Grade:
    """Grades an answer beside another, 10 for far better and 5 for as good, in both orders."""
    grades = []
    requests = comparison_requests(context.problem, text, other, scale, repeat=repeat)
    for turn, request in enumerate(requests):
        grade = await _ask(context, "compare", request, OneGrade, turn)
        if turn % 2:
            grade = grade.model_copy(update={"grade": 10 - grade.grade})
        grades.append(grade)
    return _combined(grades)


async def _ask(context: Context, prompt: str, request: Request, shape: type[T], turn: int) -> T:
    call_path = (*context.call_path, context.sample, prompt, turn)
    request = replace(
        request,
        temperature=0.0 if turn == 0 else context.sampling.temperature,
        seed=sample_seed(context.sampling.seed, *call_path),
    )
    return (await structured_answers.ask(context.judge, request, shape, call_path=call_path)).value


def _request(prompt: str, values: Mapping[str, str], shape: type[BaseModel]) -> Request:
    schema = structured_answers.schema(shape)
    messages = prompt_templates.load(prompt).render(values)
    return Request("judge", messages, temperature=0.0, max_tokens=TOKENS, schema=schema)


def _combined(given: list[OneGrade]) -> Grade:
    grades = tuple(one.grade for one in given)
    return Grade(fmean(grades), pstdev(grades), grades, given[0].why)
