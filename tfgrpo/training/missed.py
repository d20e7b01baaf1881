"""Problems that every attempt got wrong: where a model knows least.

Such a group has no winner to compare with, but where there is a ground truth it shows what was
missed. A lesson from it is a guess, which is measured like any other.
"""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from tfgrpo.model import structured
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import text_field
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.records import Library
from tfgrpo.training.reflection import (
    COMPARISON_TOKENS,
    UNKNOWN,
    Advantage,
    Failure,
    Question,
    ReflectedLesson,
    Reflection,
    drawn,
    lessons_of,
    listed_attempts,
    summarise,
)


class Missed(BaseModel):
    """What all attempts got wrong, written down before the lesson that follows from it."""

    wrong_did: str = text_field(240, default="")
    right_takes: str = text_field(240, default="")
    lessons: list[ReflectedLesson] = Field(json_schema_extra={"maxItems": 1})


def is_all_wrong(group: Group) -> bool:
    """Returns whether every attempt of a group that could be judged got nothing."""
    return bool(group.rewards) and set(group.rewards) == {0.0}


async def reflect_on_failure(
    calls: Calls,
    reflection: Reflection,
    group: Group,
    library: Library,
    *,
    step: int,
    draw: int = 0,
) -> Advantage:
    """Asks what every attempt of a group has missed, in the light of the ground truth.

    What cannot be had is in the result's `failures`; where there is no ground truth to see, there
    is nothing to learn. EndpointError is let through.
    """
    if reflection.truth(group.problem) == UNKNOWN:
        return Advantage(group, ())
    judged = [rollout for rollout in group.rollouts if rollout.reward is not None]
    outcomes = await asyncio.gather(
        *(summarise(calls, reflection, rollout, step) for rollout in judged)
    )
    failures = tuple(one for one in outcomes if isinstance(one, Failure))
    summaries = {
        rollout.sample: outcome
        for rollout, outcome in zip(judged, outcomes, strict=True)
        if isinstance(outcome, str)
    }
    known = [rollout for rollout in judged if rollout.sample in summaries]
    if not known:
        return Advantage(group, (), failures)
    question = Question(
        prompt=reflection.missed,
        values={
            "library": prompt_text(library),
            "problem": group.problem.problem,
            "ground_truth": reflection.truth(group.problem),
            "losers": listed_attempts(known, summaries),
        },
        max_tokens=COMPARISON_TOKENS,
        call_path=drawn((step, group.problem.id), draw),
        stage="comparison",
        problems=(group.problem,),
    )
    try:
        typed: structured.Typed[Missed] = await reflection.ask(calls, question, Missed)
    except CallFailed as error:
        failure = Failure("comparison", group.problem.id, str(error))
        return Advantage(group, (), (*failures, failure))
    lessons, unused = lessons_of(typed, "comparison", group)
    return Advantage(group, lessons[:1], (*failures, *unused), typed.repaired)
