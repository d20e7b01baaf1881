"""Rollouts: attempts at a problem, verified; those at one problem in one step are a group."""

from __future__ import annotations

import inspect
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import (
    Context,
    Domain,
    DomainError,
    Trajectory,
    Verdict,
    describe_error,
    describe_value,
)
from tfgrpo.domains.function import number_of
from tfgrpo.model.caller_functions import contained_with_tasks
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.response import as_text, visible
from tfgrpo.model.secrets import scrub
from tfgrpo.rendering.prompt_templates import Message, Template
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json, Library
from tfgrpo.wording import without_middle

CONFIRMING = 1 << 20
"""The sample numbers from which on attempts confirm a lesson instead of filling a group."""
MEASURING = 1 << 21
"""Those from which on they measure what the run gains."""

EXACT = "exact reward"
"""The detail of a verdict that says whether the reward is an expectation, over which chances."""
SHORT = 100_000
"""Characters of a response that is judged at once, where a domain can; others go to a worker."""
LONGEST = 400_000
"""Characters of an attempt that a reflection model reads: several times what agents may write."""


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt. `reward` is None when it failed or could not be judged, `outcome` is
    answered, truncated, unverifiable or failed, `calls` the journal's keys, `messages` what
    followed the prompt where that is more than a response. `belongs` is what it might have been
    shown, `without` what was left out (`learn/assign.py`)."""

    problem: Problem
    sample: int
    response: str
    outcome: str
    reward: float | None
    answer: str | None
    reason: str
    calls: tuple[str, ...] = ()
    details: Json = field(default_factory=dict, hash=False)
    messages: tuple[Json, ...] = field(default=(), hash=False)
    without: frozenset[str] = frozenset()
    belongs: tuple[str, ...] = ()

    @property
    def call(self) -> str | None:
        """The call that gave the response."""
        return self.calls[-1] if self.calls else None

    @property
    def own_reward(self) -> float | None:
        """What its own text earned: the reward, where that is no expectation over answers."""
        return own_reward(self.reward, self.details)

    @property
    def transcript(self) -> str:
        """The attempt as the reflection model reads it: every message, or the response."""
        text = "\n\n".join(map(_message_text, self.messages)) or self.response
        return without_middle(text, LONGEST)


@dataclass(frozen=True, slots=True)
class Group:
    """The attempts at one problem in one step, in sample order. Winners are above the pivot and
    losers below, by what their texts earned: the mean of rewards that are right or wrong alone,
    the median of graded ones (MC-GRPO, arXiv 2601.22582). All alike are neither."""

    problem: Problem
    rollouts: tuple[Rollout, ...]
    version: int = 0

    @property
    def rewards(self) -> tuple[float, ...]:
        """The rewards of the attempts that have one."""
        return tuple(r.reward for r in self.rollouts if r.reward is not None)

    @property
    def winners(self) -> tuple[Rollout, ...]:
        """The attempts above the pivot."""
        return self._beside_pivot(operator.gt)

    @property
    def losers(self) -> tuple[Rollout, ...]:
        """The attempts below the pivot."""
        return self._beside_pivot(operator.lt)

    @property
    def mixed(self) -> bool:
        """Whether it holds both: only such a group has an advantage to speak of."""
        return len(set(self._own_rewards)) > 1

    @property
    def _own_rewards(self) -> list[float]:
        return [r.own_reward for r in self.rollouts if r.own_reward is not None]

    def _beside_pivot(self, apart: Callable[[float, float], bool]) -> tuple[Rollout, ...]:
        middle = pivot(self._own_rewards)
        own = [(r, r.own_reward) for r in self.rollouts] if self.mixed else []
        return tuple(r for r, reward in own if reward is not None and apart(reward, middle))


def own_reward(reward: float | None, details: Mapping[str, Any]) -> float | None:
    """What an attempt's own text earned, of its reward and the details of its verdict; None where
    the reward is an expectation, and nobody noted that."""
    exact = details.get(EXACT)
    if reward is None or not isinstance(exact, Mapping):
        return reward
    own = exact.get("own_reward")
    return None if own is None else float(own)


def pivot(rewards: Sequence[float]) -> float:
    """What winners of a group are above and losers below; 0 where there is no reward."""
    if not rewards:
        return 0.0
    middle = median(rewards)
    graded = not set(rewards) <= {0.0, 1.0}
    return middle if graded and min(rewards) < middle < max(rewards) else fmean(rewards)


class RenderFailed(DomainError):
    """A prompt that a domain's code could not make."""


def rendered(
    domain: Domain, template: Template, library: Library, problem: Problem, objective: str
) -> tuple[Message, ...]:
    """The prompt of a problem as a domain renders it. Raises RenderFailed."""
    try:
        messages = tuple(domain.render(template, library, problem, objective))
    except TfgrpoError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of a domain does
        raise RenderFailed(
            f"render of domain {domain.name}: {describe_error(error)}",
            hint="correct the domain's render",
        ) from error
    for message in messages:
        if not (isinstance(message, tuple) and list(map(type, message)) == [str, str]):
            raise RenderFailed(
                f"render of domain {domain.name} gave {describe_value(message)} as a message",
                hint="a prompt is a tuple of messages, each (role, text)",
            )
    return messages


def failed(problem: Problem, sample: int, reason: str) -> Rollout:
    """An attempt that could not be made, with the reason, of which known secrets are taken out."""
    return Rollout(problem, sample, "", "failed", None, None, scrub(reason))


async def attempt(domain: Domain, context: Context) -> Rollout:
    """Makes one attempt at a problem and judges it, as the domain does both; CallFailed and what
    the domain's code raises make a failed rollout. Raises other TfgrpoErrors, and DomainError
    for a rollout that is not `async` or gives no Trajectory."""
    problem, sample = context.problem, context.sample
    try:
        trajectory = await make_trajectory(domain, context)
    except CallFailed as error:
        return failed(problem, sample, str(error))
    except TfgrpoError:
        raise
    except Exception as error:  # whatever the code of a domain does
        reason = f"rollout of domain {domain.name}: {describe_error(error)}"
        return failed(problem, sample, reason)
    verdict = await judge(domain, context, trajectory)
    if verdict.reward is None:
        outcome = "unverifiable"
    else:
        outcome = "truncated" if trajectory.truncated else "answered"
    reason = verdict.reason
    if not (visible(trajectory.response).strip() or trajectory.messages):
        ended = "cut off at the token limit" if trajectory.truncated else "the model said nothing"
        reason = f"the answer is empty ({ended})"
        context.calls.endpoint.adaptation.note(
            "gave an attempt whose answer is empty: "
            + (f"{ended}; raise max_completion_tokens" if trajectory.truncated else ended)
        )
    return Rollout(
        problem=problem,
        sample=sample,
        response=trajectory.response,
        outcome=outcome,
        reward=verdict.reward,
        answer=verdict.answer,
        reason=reason,
        calls=trajectory.calls,
        details=verdict.details,
        messages=trajectory.messages,
    )


async def make_trajectory(domain: Domain, context: Context) -> Trajectory:
    """What a domain's rollout comes to, without known secrets: its texts are judged, recorded and
    shown to the reflection model. Raises DomainError for what is no Trajectory."""
    with contained_with_tasks():
        outcome = domain.rollout(context)
        if not inspect.isawaitable(outcome):
            raise DomainError(
                f"the rollout of domain {domain.name} is not async",
                hint="define it as `async def rollout(context)`",
            )
        trajectory: object = await outcome
    if not isinstance(trajectory, Trajectory) or not isinstance(trajectory.response, str):
        raise DomainError(
            f"the rollout of domain {domain.name} gave {describe_value(trajectory)}, "
            "and no Trajectory",
            hint="return Trajectory(response, calls), where the response is a text",
        )
    try:
        messages = tuple(scrub(as_recorded(list(trajectory.messages))))
        response = scrub(as_text(trajectory.response))
        return replace(trajectory, response=response, messages=messages)
    except (TypeError, ValueError, RecursionError) as error:
        raise DomainError(
            f"the rollout of domain {domain.name} gave messages that cannot be kept: "
            f"{scrub(str(error))}",
            hint="messages are JSON: texts, numbers, lists and dicts",
        ) from None


async def judge(domain: Domain, context: Context, trajectory: Trajectory) -> Verdict:
    """The domain's verdict, by a worker process or a model; unverifiable where the judge fails.
    Raises DomainError for a reward out of [0, 1] or no verdict, and EndpointError."""
    try:
        with contained_with_tasks():
            verdict = await _verdict(domain, context, trajectory)
    except CallFailed as error:
        return Verdict(None, None, scrub(f"unverifiable: {error}"))
    except TfgrpoError:
        raise
    except Exception as error:  # whatever the code of a domain does
        return Verdict(None, None, f"unverifiable: {describe_error(error)}")
    return checked_verdict(domain, verdict)


async def _verdict(domain: Domain, context: Context, trajectory: Trajectory) -> Verdict:
    if domain.judge is not None:
        return await domain.judge(context, trajectory)
    assert domain.function is not None
    problem, response = context.problem, trajectory.response
    short = len(response) <= SHORT  # the event loop waits for what is judged at once
    quick = domain.at_once(problem, response) if domain.at_once and short else None
    return quick or await context.verifier.verdict(problem, response, domain.function)


def checked_verdict(domain: Domain, verdict: Verdict) -> Verdict:
    """A verdict as its record gives it back, without known secrets. Raises DomainError, for a
    reward out of [0, 1] too."""
    try:
        reward, answer, reason, details = verdict
        number = None if reward is None else number_of(reward)
        if reward is not None and number is None:
            raise TypeError("its reward is no number")
        verdict = Verdict(*scrub(as_recorded([number, answer, reason, details])))
    except (TypeError, ValueError, RecursionError) as error:
        raise DomainError(
            f"domain {domain.name} gave {describe_value(verdict, 200)}, which cannot be kept: "
            f"{scrub(str(error))}",
            hint="a verifier returns a Verdict of numbers, texts, lists and dicts",
        ) from None
    if verdict.reward is not None and not 0.0 <= verdict.reward <= 1.0:
        raise DomainError(
            f"domain {domain.name} gave the reward {verdict.reward}",
            hint="a reward is a number from 0 to 1, or None for what cannot be judged",
        )
    return verdict


def as_recorded(value: list[Any]) -> list[Any]:
    """A list of JSON values as the record gives it back, with names in order, so that models are
    shown the same when a run goes on. Raises TypeError, ValueError and RecursionError."""
    values: list[Any] = json.loads(canonical(value))
    return values


def _message_text(message: Json) -> str:
    text = str(message.get("content") or "")
    for call in message.get("tool_calls") or ():
        text += "\n" + json.dumps(call.get("function", call), ensure_ascii=False)
    return f"{message.get('role')}: {text.strip()}"


def mean_reward(groups: Sequence[Group]) -> float | None:
    """The mean over problems of the mean reward of their attempts that have one."""
    means = [fmean(group.rewards) for group in groups if group.rewards]
    return fmean(means) if means else None
