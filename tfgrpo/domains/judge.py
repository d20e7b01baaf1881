"""Graded answers: a judge model gives 0 to 10 on a stated scale. `--domain judge:scale.toml`

    scale = "10: solves the request in full. 5: half of it. 0: nothing, or wrong."
    repeat = 3          # grades an answer; their spread is kept
    compare = true      # beside the row's answer, in both orders, instead of alone

The reward is the mean grade over ten.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tfgrpo.data.problems import Problem
from tfgrpo.domains import conversation, judge_calls
from tfgrpo.domains.base import Context, Domain, Trajectory, Verdict
from tfgrpo.domains.from_toml import read
from tfgrpo.domains.rubric import AGENT_OBJECTIVE, LEARNING_OBJECTIVE


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
    scale, identity = read(Path(argument), Scale)

    async def verify(context: Context, trajectory: Trajectory) -> Verdict:
        text = trajectory.response
        if scale.compare:
            other = context.problem.answer
            grade = await judge_calls.grade_beside(
                context, text, other, scale.scale, repeat=scale.repeat
            )
        else:
            grade = await judge_calls.grade_answer(context, text, scale.scale, repeat=scale.repeat)
        details = {"grades": list(grade.grades), "spread": round(grade.spread, 3), "why": grade.why}
        return Verdict(grade.mean / 10, None, f"graded {grade.mean:.1f} of 10", details)

    def load(source: str, fields: Mapping[str, str]) -> tuple[Problem, ...]:
        return conversation.load(source, fields, ground_truth=scale.compare)

    return Domain(
        name="judge",
        verify=verify,
        load=load,
        extra=conversation.FIELDS,
        ground_truth=scale.compare,
        rollout=conversation.converse,
        judge_calls=lambda _: scale.repeat * (2 if scale.compare else 1),
        agent_objective=scale.agent_objective,
        learning_objective=scale.learning_objective,
        identity=identity,
    )
