"""Asking a judge model: a question about an answer, a grade from 0 to 10, or which is better.

Every judgement is a journalled call with a prompt of its own. Grades may be repeated with other
seeds, which shows how much a judge wavers; comparisons are made in both orders and averaged, as
judges favour a place (position bias; Wang et al., arXiv 2305.17926).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field

from tfgrpo import structured, templates
from tfgrpo.domain import Context, sample_seed
from tfgrpo.endpoint import Request
from tfgrpo.store.records import Json

T = TypeVar("T", bound=BaseModel)
TOKENS = 400


class Answered(BaseModel):
    """A judge's answer to a question."""

    why: str = Field(default="", max_length=1000)
    verdict: Literal["yes", "no"]


class Graded(BaseModel):
    """A judge's grade."""

    why: str = Field(default="", max_length=1000)
    grade: float = Field(ge=0, le=10)


@dataclass(frozen=True, slots=True)
class Grade:
    """What a judge's grades come to: their mean and spread (standard deviation), 0 to 10."""

    mean: float
    spread: float
    grades: tuple[float, ...]
    why: str


async def question(context: Context, text: str, question: str, *, number: int = 0) -> Answered:
    """Asks the judge one question about an answer. Raises CallFailed and EndpointError."""
    values = {"problem": context.problem.problem, "response": text, "question": question}
    schema = _schema(
        {
            "why": {"type": "string", "maxLength": 300},
            "verdict": {"type": "string", "enum": ["yes", "no"]},
        }
    )
    return await _asked(context, "question", values, schema, Answered, (number,))


async def grade(context: Context, text: str, scale: str, *, repeat: int = 1) -> Grade:
    """Grades an answer `repeat` times on a scale in words. Raises CallFailed and EndpointError."""
    values = {"problem": context.problem.problem, "response": text, "scale": scale}
    found = [await _graded(context, "grade", values, turn) for turn in range(repeat)]
    return _together(found)


async def preferred(
    context: Context, text: str, other: str, scale: str, *, repeat: int = 1
) -> Grade:
    """Grades an answer beside another, 10 for far better and 5 for as good, in both orders."""
    found = []
    for turn in range(repeat):
        for order in (0, 1):
            first, second = (text, other) if order == 0 else (other, text)
            values = {"problem": context.problem.problem, "scale": scale}
            values |= {"first": first, "second": second}
            judged = await _graded(context, "compare", values, 2 * turn + order)
            if order:
                judged = judged.model_copy(update={"grade": 10 - judged.grade})
            found.append(judged)
    return _together(found)


async def _graded(context: Context, prompt: str, values: Mapping[str, str], turn: int) -> Graded:
    schema = _schema(
        {
            "why": {"type": "string", "maxLength": 300},
            "grade": {"type": "number", "minimum": 0, "maximum": 10},
        }
    )
    return await _asked(context, prompt, values, schema, Graded, (turn,))


async def _asked(
    context: Context,
    prompt: str,
    values: Mapping[str, str],
    schema: Json,
    shape: type[T],
    turn: tuple[int, ...],
) -> T:
    place = (*context.place, context.sample, prompt, *turn)
    request = Request(
        stage="judge",
        messages=templates.load(prompt).render(values),
        temperature=0.0 if turn == (0,) else context.sampling.temperature,
        max_tokens=TOKENS,
        seed=sample_seed(context.sampling.seed, *place),
        schema=schema,
    )
    return (await structured.ask(context.judge, request, shape, place=place)).value


def _together(found: list[Graded]) -> Grade:
    grades = tuple(one.grade for one in found)
    return Grade(fmean(grades), pstdev(grades), grades, found[0].why)


def _schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }
