"""Exact rewards: what an attempt earns on average, where its answer is one of few.

`--answers exact` asks for each answer's probability (`domains/few_answers.py`), and the reward is
the mean by those at the attempt's temperature. One answer is drawn and its reward kept: it tells
winners from losers, since lessons are drawn from texts. Where log-probabilities are missing or hold
too little, the attempt is sampled, and its details say so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tfgrpo.domains.base import Attempt, Context, Domain, Trajectory, Verdict
from tfgrpo.domains.few_answers import (
    CODES,
    LEAST,
    TOP,
    Chances,
    code_answers,
    coded_messages,
    read_chances,
)
from tfgrpo.rollout.attempt import EXACT, judge
from tfgrpo.settings import Settings

NO_CHANCES = "the endpoint returns no log-probabilities"
LETTER_TURN = 1
"""Tells the question for a code from the one that is sampled after it, where both are asked."""


def exactly(domain: Domain, settings: Settings) -> Domain:
    """A domain with exact rewards where settings ask for them and answers are few; else itself."""
    if not is_exact(domain, settings):
        return domain
    exact = _Exact(domain)
    return replace(domain, rollout=exact.rollout, verify=exact.verify)


def is_exact(domain: Domain, settings: Settings) -> bool:
    """Whether attempts at a domain's problems are to have exact rewards."""
    return settings.answers == "exact" and settings.mode == "prompt" and domain.answers is not None


class _Exact:
    """The attempts of a domain, with exact rewards where the endpoint tells enough."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain
        self._first = asyncio.Lock()
        self._known = False

    async def rollout(self, context: Context) -> Trajectory:
        """Makes one attempt. Raises CallFailed and EndpointError."""
        sample: Attempt = self._domain.rollout
        answers = _answers(self._domain, context)
        if not answers:
            return replace(await sample(context), sampled="the answers are not few")
        trajectory: Trajectory | None = None
        if not self._known:
            async with self._first:  # one finds out whether the endpoint can: others wait for it
                if not self._known:
                    trajectory = await self._exact(context, answers)
                    self._known = True
        exact = trajectory or await self._exact(context, answers)
        if exact.chances is not None:
            return exact
        sampled = await sample(context)
        return replace(sampled, calls=(*exact.calls, *sampled.calls), sampled=exact.sampled)

    async def _exact(self, context: Context, answers: Sequence[str]) -> Trajectory:
        """An answer drawn by its chances; without them, and with the reason, if unknown."""
        adaptation = context.calls.endpoint.adaptation
        if not adaptation.tells_chances:
            return Trajectory("", sampled=NO_CHANCES)
        chances, key = await self._ask(context, answers)
        held = 0.0 if chances is None else 1 - chances.outside
        if chances is not None and held >= LEAST:
            return _drawn(context, chances.tempered(context.sampling.temperature), (key,))
        unlikely = f"the letters of the answers have {held:.2f} of the probability"
        return Trajectory("", (key,), sampled=unlikely if adaptation.tells_chances else NO_CHANCES)

    async def _ask(self, context: Context, answers: Sequence[str]) -> tuple[Chances | None, str]:
        """The chances of the answers, where they are told, and the call's key."""
        problem, sample = context.problem, context.sample
        codes = code_answers(answers, (context.sampling.seed, problem.id), sample)
        answer_of = {
            text: answer
            for role, text in context.messages
            if role == "assistant" and (answer := self._read(context, text, answers)) is not None
        }
        recorded = await context.ask(
            coded_messages(context.messages, codes, answer_of),
            turn=LETTER_TURN,
            temperature=0.0,
            max_tokens=1,
            top_logprobs=TOP,
        )
        listed = recorded.answer.first_choices
        if not listed:
            context.calls.endpoint.adaptation.without_chances()
        return read_chances(((token, value) for token, value in listed), codes), recorded.key

    def _read(self, context: Context, text: str, answers: Sequence[str]) -> str | None:
        """Which of the answers a turn gives, as the domain reads it; None for none."""
        quick = self._domain.at_once
        verdict = quick(context.problem, text) if quick is not None else None
        return verdict.answer if verdict is not None and verdict.answer in answers else None

    async def verify(self, context: Context, trajectory: Trajectory) -> Verdict:
        """Judges an attempt: by what its answers earn on average, where their chances are known."""
        own = await judge(self._domain, context, trajectory)
        chances = trajectory.chances
        if chances is None:
            return own._replace(details={**own.details, EXACT: f"no: {trajectory.sampled}"})
        rewards: dict[str, float] = {}
        for answer in chances.by_answer:
            verdict = await judge(self._domain, context, Trajectory(answer))
            if verdict.reward is None:
                return verdict
            rewards[answer] = verdict.reward
        reward = min(1.0, max(0.0, chances.mean(rewards)))
        details = {**own.details, EXACT: {"own_reward": own.reward, **chances.as_json()}}
        reason = f"{own.reason}; exactly {reward:.3f} on average over {len(rewards)} answers"
        return own._replace(reward=reward, reason=reason, details=details)


def _answers(domain: Domain, of: Context) -> Sequence[str]:
    """The answers of a problem, where there are several and a code for each."""
    answers = domain.answers(of.problem) if domain.answers is not None else ()
    return answers if 1 < len(answers) <= len(CODES) else ()


def _drawn(context: Context, chances: Chances, calls: tuple[str, ...]) -> Trajectory:
    seed = (context.sampling.seed, *context.call_path, context.sample)
    answer = chances.drawn(*seed)
    message = {"role": "assistant", "content": answer}  # the call's own answer is a code
    return Trajectory(answer, calls, messages=(message,), chances=chances)
