"""Attempts that code of the user's makes: `concurrency` bounds them, not their calls, and what
`Context.record` tells is kept. Under a budget they begin one at a time until it is known whether
they ask models elsewhere; then each sets aside what the dearest took."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tfgrpo.domains.base import Context, Domain, Elsewhere, Trajectory, answer_once
from tfgrpo.model.endpoint import Answer, Request
from tfgrpo.rollout.attempt import make_trajectory

STAGE = "rollout"


def bounded(domain: Domain, concurrency: int) -> Domain:
    """A domain with `concurrency` attempts at once at most, where one is more than a call."""
    if domain.rollout is answer_once:
        return domain
    return replace(domain, rollout=_Bounded(domain, concurrency).rollout)


class _Bounded:
    """A rollout, and the attempts that are under way."""

    def __init__(self, domain: Domain, concurrency: int) -> None:
        self._domain = domain
        self._free = asyncio.Semaphore(concurrency)
        self._first = asyncio.Lock()
        self._dearest: Answer | None = None

    async def rollout(self, context: Context) -> Trajectory:
        """Makes one attempt. Raises what the rollout raises, and BudgetReached."""
        async with self._free:
            if self._dearest is None and context.calls.is_bounded:
                async with self._first:
                    if self._dearest is None:
                        return await self._counted(context, Answer("", ""))
            return await self._counted(context, self._dearest or Answer("", ""))

    async def _counted(self, context: Context, likely: Answer) -> Trajectory:
        give_back = await context.calls.set_aside(likely)
        keys: list[str] = []
        try:
            trajectory = await make_trajectory(self._domain, context)
        finally:
            try:
                keys = [await _note(context, one) for one in context.elsewhere]
            finally:
                give_back()
            self._learn(context.elsewhere)
        return replace(trajectory, calls=(*keys, *trajectory.calls)) if keys else trajectory

    def _learn(self, reported: Sequence[Elsewhere]) -> None:
        """Takes note of what an attempt took elsewhere, for those that follow."""
        before = self._dearest or Answer("", "")
        self._dearest = Answer(
            "",
            "",
            max(before.prompt_tokens, sum(one.prompt_tokens for one in reported)),
            0,
            max(before.completion_tokens, sum(one.completion_tokens for one in reported)),
        )


async def _note(context: Context, one: Elsewhere) -> str:
    request = Request(STAGE, one.messages, 0.0, one.completion_tokens)
    answer = Answer(one.answer, "stop", one.prompt_tokens, one.cached_tokens, one.completion_tokens)
    return await context.calls.note(request, answer, call_path=(*context.call_path, context.sample))
