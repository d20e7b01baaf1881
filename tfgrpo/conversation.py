"""Conversations: a rollout in which a simulated user answers back.

A problem with a `persona` in its `meta` opens with the problem as the user's first message. After
each answer the persona, played by the reflection model, says what such a person would say next,
or that it is done. Everything said is in the trajectory; the last answer is the response.
"""

from __future__ import annotations

from tfgrpo import templates
from tfgrpo.domain import Context, Trajectory, answer_once
from tfgrpo.store.records import Json

DONE = "[done]"
TURNS = 4
PERSONA_TOKENS = 300


async def converse(context: Context) -> Trajectory:
    """Talks to the persona for up to `turns` answers of the model; plain problems are asked once.

    Raises CallFailed and EndpointError.
    """
    persona = context.problem.meta.get("persona")
    if not isinstance(persona, str) or not persona.strip():
        return await answer_once(context)
    turns = context.problem.meta.get("turns", TURNS)
    turns = turns if isinstance(turns, int) and turns > 0 else TURNS
    messages = list(context.messages)
    said: list[Json] = []
    calls: list[str] = []
    while True:
        recorded = await context.ask(messages, turn=len(calls))
        answer = recorded.answer
        calls.append(recorded.key)
        messages.append(("assistant", answer.content))
        said.append({"role": "assistant", "content": answer.content})
        if len(calls) >= turns:
            break
        reply = await _reply(context, persona, said, len(calls))
        if reply is None:
            break
        messages.append(("user", reply))
        said.append({"role": "user", "content": reply})
    return Trajectory(answer.content, tuple(calls), answer.truncated, tuple(said))


async def _reply(context: Context, persona: str, said: list[Json], turn: int) -> str | None:
    """Returns what the persona says next, or None when it is done."""
    opening = f"You: {context.problem.problem}"
    lines = [f"{'You' if m['role'] == 'user' else 'Assistant'}: {m['content']}" for m in said]
    recorded = await context.ask(
        templates.load("persona").render(
            {"persona": persona, "conversation": "\n\n".join([opening, *lines]), "done": DONE}
        ),
        stage="persona",
        model=context.judge,
        turn=turn,
        max_tokens=PERSONA_TOKENS,
    )
    text = recorded.answer.content.strip().removeprefix("You:").strip()
    return None if not text or DONE in text else text
