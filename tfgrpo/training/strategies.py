"""Strategies for problems that nothing has solved yet.

More of the same teaches nothing about a problem that no attempt solves. So the reflection model
proposes strategies, each distinct, and one attempt is made under each (XRPO, arXiv 2510.06672;
NudgeRL, arXiv 2605.15726). A success under a strategy may be owed to the strategy alone: what is
learned from it counts only once an attempt with the lesson, and without the strategy, succeeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, Field

from tfgrpo.data.problems import Problem
from tfgrpo.model import structured
from tfgrpo.model.client import Calls
from tfgrpo.model.structured import text_field
from tfgrpo.rendering.templates import Message
from tfgrpo.rollout.attempt import Rollout
from tfgrpo.training.reflection import Question, Reflection

TOKENS = 800
SHOWN = 600
"""The characters of a failed attempt that are shown."""


class _Strategies(BaseModel):
    strategies: list[Annotated[str, text_field(240)]] = Field(min_length=1)


async def propose(
    calls: Calls,
    reflection: Reflection,
    problem: Problem,
    failed: Sequence[Rollout],
    count: int,
    *,
    step: int,
) -> list[str]:
    """Returns up to `count` distinct strategies. Raises CallFailed where none can be had."""
    listed = "\n".join(f"{n}. {_short(r.response)}" for n, r in enumerate(failed, 1))
    items = structured.schema(_Strategies)["properties"]["strategies"]
    question = Question(
        prompt=reflection.strategies,
        values={"count": str(count), "problem": problem.problem, "losers": listed},
        max_tokens=TOKENS,
        call_path=(step, problem.id),
        narrowed={"strategies": {**items, "minItems": count, "maxItems": count}},
    )
    typed = await reflection.ask(calls, question, _Strategies)
    texts = (" ".join(text.split()) for text in typed.value.strategies)
    return list(dict.fromkeys(text for text in texts if text))[:count]


def hinted(messages: Sequence[Message], hint: str) -> tuple[Message, ...]:
    """Returns the prompt of an attempt with a strategy at its end."""
    *before, (role, content) = messages
    return (*before, (role, f"{content}\n\nTry this strategy: {hint}"))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN else "… " + text[-SHOWN:]
