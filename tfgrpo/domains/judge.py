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


async def ask_question(context: Context, text: str, question: str, *, number: int = 0) -> YesNo:
    """Asks the judge one question about an answer. Raises CallFailed and EndpointError."""
    values = {"problem": context.problem.problem, "response": text, "question": question}
    return await ask_judge(context, "question", values, YesNo, (number,))


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
    prompt, times = ("compare", 2 * file.repeat) if file.compare else ("grade", file.repeat)

    async def verify(context: Context, trajectory: Trajectory) -> Verdict:
        problem, text = context.problem, trajectory.response
        common = {"problem": problem.problem, "scale": file.scale}
        grades: list[float] = []
        reasons: list[str] = []
        for turn in range(times):
            is_second = file.compare and turn % 2 == 1
            first, second = (problem.answer, text) if is_second else (text, problem.answer)
            texts = {"first": first, "second": second} if file.compare else {"response": text}
            given = await ask_judge(context, prompt, common | texts, OneGrade, (turn,))
            grades.append(10 - given.grade if is_second else given.grade)
            reasons.append(given.why)
        details = {"grades": grades, "spread": round(pstdev(grades), 3), "why": reasons[0]}
        return Verdict(fmean(grades) / 10, None, f"graded {fmean(grades):.1f} of 10", details)

    def load(source: str, fields: Mapping[str, str]) -> tuple[Problem, ...]:
        return conversation.load(source, fields, ground_truth=file.compare)

    return Domain(
        name="judge",
        verify=verify,
        load=load,
        extra=conversation.FIELDS,
        ground_truth=file.compare,
        rollout=conversation.converse,
        judge_calls=lambda _: times,
        agent_objective=file.agent_objective,
        learning_objective=file.learning_objective,
        identity=identity,
    )
