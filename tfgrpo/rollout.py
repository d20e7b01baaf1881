"""Rollouts: attempts at a problem, verified; those at one problem in one step are a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfgrpo.calls import Calls
from tfgrpo.endpoint import CallFailed, Request
from tfgrpo.problems import Problem
from tfgrpo.render import rollout_messages
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Library
from tfgrpo.templates import Template
from tfgrpo.verify import Verifier


@dataclass(frozen=True, slots=True)
class Rollout:
    """One attempt. `reward` is None when it failed or could not be judged: it teaches nothing.

    `outcome` is answered, truncated (at the token limit), unverifiable or failed; `call` the
    journal's key of the attempt; `reason` the verifier's, or what failed.
    """

    problem: Problem
    sample: int
    response: str
    outcome: str
    reward: float | None
    answer: str | None
    reason: str
    call: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """The attempts at one problem in one step, in sample order."""

    problem: Problem
    rollouts: tuple[Rollout, ...]

    @property
    def rewards(self) -> tuple[float, ...]:
        """The rewards of the attempts that have one."""
        return tuple(r.reward for r in self.rollouts if r.reward is not None)

    @property
    def winners(self) -> tuple[Rollout, ...]:
        """The attempts above the group's mean reward; none when all are alike."""
        return tuple(r for r in self._scored if r.reward is not None and r.reward > self._mean)

    @property
    def losers(self) -> tuple[Rollout, ...]:
        """The attempts below the group's mean reward; none when all are alike."""
        return tuple(r for r in self._scored if r.reward is not None and r.reward < self._mean)

    @property
    def mixed(self) -> bool:
        """Whether it holds both: only such a group has an advantage to speak of."""
        return len(set(self.rewards)) > 1

    @property
    def _scored(self) -> tuple[Rollout, ...]:
        return self.rollouts if self.mixed else ()

    @property
    def _mean(self) -> float:
        return sum(self.rewards) / len(self.rewards) if self.rewards else 0.0


@dataclass(frozen=True, slots=True)
class Sampling:
    """How attempts are sampled: temperature, the most tokens of an answer, and a seed."""

    temperature: float = 0.7
    max_tokens: int = 16384
    seed: int = 0


async def attempt(
    calls: Calls,
    verifier: Verifier,
    template: Template,
    library: Library,
    problem: Problem,
    *,
    agent_objective: str,
    sampling: Sampling,
    sample: int,
    place: tuple[str | int, ...],
) -> Rollout:
    """Makes one attempt at a problem and judges it.

    A request that cannot be answered gives a failed rollout; EndpointError is let through.
    """
    request = Request(
        stage="rollout",
        messages=rollout_messages(template, library, problem.problem, agent_objective),
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        seed=sample_seed(sampling.seed, *place, sample),
    )
    try:
        recorded = await calls.ask(request, place=place, sample=sample)
    except CallFailed as error:
        return Rollout(problem, sample, "", "failed", None, None, str(error), None)
    answer = recorded.answer
    verdict = await verifier.verdict(problem, answer.content)
    if verdict.reward is None:
        outcome = "unverifiable"
    else:
        outcome = "truncated" if answer.truncated else "answered"
    return Rollout(
        problem=problem,
        sample=sample,
        response=answer.content,
        outcome=outcome,
        reward=verdict.reward,
        answer=verdict.answer,
        reason=verdict.reason,
        call=recorded.key,
    )


def sample_seed(*parts: str | int) -> int:
    """Returns a seed of 31 bits that follows from `parts`, different for every sample."""
    return int.from_bytes(digest(["tfgrpo.seed", *parts])[:4], "big") >> 1


def mean_reward(groups: Sequence[Group]) -> float | None:
    """Returns the mean reward over all attempts that have one."""
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(rewards) / len(rewards) if rewards else None
