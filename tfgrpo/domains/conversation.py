"""Conversations: a rollout in which a simulated user answers back.

A problem with a `persona` in its `meta` opens with the problem as the user's first message. After
each answer the persona, played by the reflection model, says what such a person would say next,
or that it is done. Everything said is in the trajectory; the last answer is the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfgrpo.data import datasets
from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains.base import Context, Trajectory, answer_once
from tfgrpo.rendering import prompt_templates
from tfgrpo.store.records import Json

AGENT_OBJECTIVE = "Answer the message."
LEARNING_OBJECTIVE = "Rules of form, tone and content that make answers better."
FIELDS = ("persona", "turns")
HINT = "see docs/conversations.md for an example"
DONE = "[done]"
NOTHING = "(nothing yet)"
TURNS = 4
PERSONA_TOKENS = 300


async def converse(context: Context) -> Trajectory:
    """Talks to the persona for up to `turns` answers of the model; plain problems are asked once.
    Raises CallFailed, EndpointError and DatasetError."""
    persona, turns = persona_of(context.problem), turns_of(context.problem)
    if persona is None:
        return await answer_once(context)
    messages = list(context.messages)
    opening = {"role": "user", "content": context.problem.problem}
    transcript: list[Json] = []
    calls: list[str] = []
    while True:
        recorded = await context.ask(messages, turn=len(calls))
        answer = recorded.answer
        calls.append(recorded.key)
        messages.append(("assistant", answer.visible))
        transcript.append({"role": "assistant", "content": answer.visible})
        if len(calls) >= turns:
            break
        next_turn = await reply(context, persona, [opening, *transcript])
        if next_turn is None:
            break
        messages.append(("user", next_turn))
        transcript.append({"role": "user", "content": next_turn})
    return Trajectory(answer.visible, tuple(calls), answer.truncated, tuple(transcript))


def load(
    source: str, fields: Mapping[str, str], *, extra: Sequence[str] = (), ground_truth: bool
) -> tuple[Problem, ...]:
    """Returns the problems of a dataset whose rows may have a persona. Raises DatasetError."""
    problems = datasets.load(source, fields, extra=(*extra, *FIELDS), ground_truth=ground_truth)
    for problem in problems:
        persona_of(problem)
        turns_of(problem)
    return problems


def persona_of(problem: Problem) -> str | None:
    """Returns the user that a problem has simulated, or None. Raises DatasetError."""
    persona = problem.meta.get("persona")
    if not isinstance(persona, str | None):
        raise DatasetError(f"{problem.id}: a persona is a text, not {persona!r}"[:200], hint=HINT)
    return persona if persona and persona.strip() else None


def turns_of(problem: Problem) -> int:
    """Returns how many answers a conversation has at most. Raises DatasetError."""
    turns = problem.meta.get("turns")
    if turns in (None, ""):
        return TURNS
    try:
        number = int(turns)
        if isinstance(turns, bool) or number < 1 or number != float(turns):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise DatasetError(
            f"{problem.id}: turns are a number from 1, not {turns!r}"[:200], hint=HINT
        ) from None
    return number


async def reply(context: Context, persona: str, conversation: Sequence[Json]) -> str | None:
    """Returns what a persona says next in a conversation, played by the reflection model, or None
    when it is done. It hears what a user and an assistant say, and nothing of tools. Raises
    CallFailed, EndpointError and BudgetReached."""
    names = {"user": "You", "assistant": "Assistant"}
    turns = [one for one in conversation if one.get("role") in names and one.get("content")]
    lines = [f"{names[one['role']]}: {one['content']}" for one in turns]
    values = {"persona": persona, "conversation": "\n\n".join(lines) or NOTHING, "done": DONE}
    recorded = await context.ask(
        prompt_templates.load("persona").render(values),
        stage="persona",
        model=context.judge,
        turn=sum(one["role"] == "assistant" for one in turns),
        max_tokens=PERSONA_TOKENS,
    )
    text = recorded.answer.visible.strip().removeprefix("You:").strip()
    return None if not text or DONE in text.casefold() else text
