"""What attempts take before one is made: every problem's prompt, turns and judgements, measured.

A domain says what it asks (`Domain.foresee`, `Domain.judgements`), an agent what its turns may
come to (`agent.foresee`); here that is counted. As an upper bound a prompt has a token for each
of its bytes, and a request with a schema is made twice, since an answer out of shape is asked for
again; as expected, tokens are counted by `tokens.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Literal, TypeAlias

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import (
    QUOTED,
    Domain,
    PlannedAttempt,
    PlannedCalls,
    answer_once,
    plan_answer_once,
)
from tfgrpo.model.budget import most_tokens
from tfgrpo.model.endpoint import Request
from tfgrpo.model.tokens import count
from tfgrpo.rendering.templates import Message, Template
from tfgrpo.rollout import agent, exact
from tfgrpo.rollout.attempt import Rollout, rendered
from tfgrpo.settings import TrainSettings
from tfgrpo.store.records import Json, Library
from tfgrpo.training.groups import GLANCES

Model: TypeAlias = Literal["policy", "reflection", "embedding"]
COMPLAINT = 500.0
"""The most that is said of an answer that cannot be used, beside what is quoted of it."""
DETAIL = 1_000.0
"""The most that a verdict says of what a reward is made of, beside the judge's own words."""
NEXT_ACTIONS = 3
REMEMBERED = 1000
"""The turns whose sizes are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that is not begun: what it would learn from, and from which library on.

    `heldout` and `sealed` are the problems that it is compared on at the end, against the empty
    library, and `gate` those on which each step's candidate is tried; `rejected` is what the
    controller is told of changes that were turned down before.
    """

    dataset: Sequence[Problem]
    settings: TrainSettings
    library: Library
    domain: Domain
    heldout: Sequence[Problem] = ()
    gate: Sequence[Problem] = ()
    sealed: Sequence[Problem] = ()
    rejected: Sequence[str] = ()

    @property
    def prompts(self) -> Path | None:
        """The folder of prompts that take the place of the domain's."""
        return Path(self.settings.prompts) if self.settings.prompts else None

    @property
    def template(self) -> Template:
        """The prompt of a rollout."""
        return self.domain.template("rollout", self.prompts)


@dataclass(frozen=True, slots=True)
class PlannedUsage:
    """Calls with the tokens of their prompts and answers."""

    calls: float = 0.0
    prompt: float = 0.0
    completion: float = 0.0

    def __add__(self, other: PlannedUsage) -> PlannedUsage:
        return PlannedUsage(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.completion + other.completion,
        )

    def times(self, number: float) -> PlannedUsage:
        """Returns what that many of it take."""
        return PlannedUsage(self.calls * number, self.prompt * number, self.completion * number)

    def longer(self, tokens: float) -> PlannedUsage:
        """Returns it with so many more tokens in each prompt."""
        return replace(self, prompt=self.prompt + self.calls * tokens)


Stages: TypeAlias = Mapping[tuple[str, Model], PlannedUsage]


@dataclass(frozen=True, slots=True)
class AttemptCost:
    """What one attempt takes on the average of some problems, and what becomes of it.

    `glances` are next actions that are looked at where attempts branch. `transcript` and
    `details` are the tokens of what reflection reads.
    """

    stages: Stages
    glances: PlannedUsage
    transcript: float
    details: float


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What a run is taken to be like.

    Shares of the groups that are `mixed`, of the lessons that are `new`, of the problems that are
    `unsolved`, of the `turns` that are taken; `lessons` of a comparison, experiences of a
    `library` when it is full, how many times as long as likely answers are (`longer`), and how
    often a structured call is made (`tries`). With `upper` answers and prompts are as long as
    they can be.
    """

    mixed: float
    new: float
    lessons: float
    unsolved: float
    turns: float
    library: float
    longer: float = 1.0
    tries: float = 1.0
    upper: bool = False


class TokenCounter:
    """Sizes of prompts and answers, under assumptions.

    `lengths` is stage → the likely tokens of an answer.
    """

    def __init__(self, assumed: Assumptions, lengths: Mapping[str, float]) -> None:
        upper = assumed.upper
        self.assumed, self.upper, self._lengths = assumed, upper, lengths
        self.quoted = float(QUOTED) if upper else 1.0
        self._turns: dict[int, tuple[Json, float]] = {}

    def messages(self, messages: Sequence[Message]) -> float:
        """Returns a prompt's tokens."""
        return self.prompt(Request("", tuple(messages), 0.0, 0))

    def prompt(self, request: Request) -> float:
        """Returns the tokens of a request's prompt, tools and earlier turns included."""
        return self._count_prompt(replace(request, turns=())) + sum(map(self._turn, request.turns))

    def _turn(self, turn: Json) -> float:
        """Returns the tokens of a turn, which is part of every request after it."""
        if id(turn) not in self._turns:
            if len(self._turns) > REMEMBERED:
                self._turns.clear()
            tokens = self._count_prompt(Request("", (), 0.0, 0, turns=(turn,)))
            self._turns[id(turn)] = turn, tokens  # held, so that no other gets its id
        return self._turns[id(turn)][1]

    def _count_prompt(self, request: Request) -> float:
        if self.upper:
            return float(most_tokens(request))
        text = sum(count(content) + 4 for _, content in request.messages)
        return float(text + sum(_count_json(turn) + 4 for turn in (*request.turns, *request.tools)))

    def text(self, text: str) -> float:
        """Returns the tokens of a text."""
        return float(len(text.encode()) if self.upper else count(text))

    def answer(self, stage: str, most: float) -> float:
        """Returns the tokens of a stage's answer, which may have `most`."""
        likely = self._lengths.get(stage, most) * self.assumed.longer
        return float(most if self.upper else min(likely, most))

    def plain(self, stage: str, prompt: float, most: float) -> PlannedUsage:
        """Returns what one plain call takes."""
        return PlannedUsage(1.0, prompt, self.answer(stage, most))

    def structured(
        self, stage: str, prompt: float, most: float, complaint: float = 0.0
    ) -> PlannedUsage:
        """Returns what a structured call takes: at most it is made again, with the answer and
        what is wrong with it on top."""
        once = self.plain(stage, prompt, most)
        again = 2 * most * self.quoted + COMPLAINT + complaint
        return once + once.longer(again) if self.upper else once.times(self.assumed.tries)


def attempt_cost(
    counter: TokenCounter,
    problems: Sequence[Problem],
    plan: PlannedRun,
    length: float,
) -> AttemptCost:
    """Returns what an attempt at one of the problems takes; nothing where there are none.

    `length` is the likely answer in tokens. Where groups are adaptive, any problem may get the
    attempts of another: the upper figure is then that of the most expensive one.
    """
    costs = [_one(counter, problem, plan, length) for problem in problems]
    worst = counter.upper and plan.settings.rollouts == "adaptive"
    middle: Callable[[Iterable[float]], float] = max if worst else fmean
    if not costs:
        return AttemptCost({}, PlannedUsage(), 0.0, 0.0)

    def mean(usages: Sequence[PlannedUsage]) -> PlannedUsage:
        return PlannedUsage(
            middle(usage.calls for usage in usages),
            middle(usage.prompt for usage in usages),
            middle(usage.completion for usage in usages),
        )

    keys = dict.fromkeys(key for one in costs for key in one.stages)
    return AttemptCost(
        {key: mean([one.stages.get(key, PlannedUsage()) for one in costs]) for key in keys},
        mean([one.glances for one in costs]),
        middle(one.transcript for one in costs),
        middle(one.details for one in costs),
    )


def _one(counter: TokenCounter, problem: Problem, plan: PlannedRun, length: float) -> AttemptCost:
    domain, settings = plan.domain, plan.settings
    messages = rendered(domain, plan.template, plan.library, problem, settings.agent_objective)
    turns = counter.assumed.turns
    attempt = PlannedAttempt(problem, messages, settings.max_tokens, counter.upper, length, turns)
    branches = settings.rollouts == "branch"
    if settings.mode == "agent":
        planned = agent.foresee(attempt, settings, branches=branches)
    else:
        planned = exact.foresee(attempt, domain, settings)
    judgements = domain.judgements(problem, planned.trajectory) if domain.judgements else ()
    stages: dict[tuple[str, Model], PlannedUsage] = {}
    requests: list[tuple[Model, Request]] = [("policy", one) for one in planned.policy]
    requests += [("reflection", one) for one in (*planned.judge, *judgements)]
    for model, request in requests:
        key = (request.stage, model)
        stages[key] = stages.get(key, PlannedUsage()) + _request(counter, request)
    trajectory = planned.trajectory
    rollout = Rollout(
        problem, 0, trajectory.response, "", None, None, "", messages=trajectory.messages
    )
    answers = (counter.answer("judge", one.max_tokens) * counter.quoted for one in judgements)
    return AttemptCost(
        stages,
        _glances(counter, planned) if branches else PlannedUsage(),
        counter.text(rollout.transcript),
        sum(answers) + (DETAIL if counter.upper else 0.0),
    )


def _request(counter: TokenCounter, request: Request) -> PlannedUsage:
    size = counter.plain if request.schema is None else counter.structured
    return size(request.stage, counter.prompt(request), request.max_tokens)


def _glances(counter: TokenCounter, planned: PlannedCalls) -> PlannedUsage:
    """Returns what the next actions take that are looked at along one attempt: at most its
    results come one by one, each a turn later, or in the last turn that has any."""
    last = len(planned.policy) - 1
    if not counter.upper or not last:
        return PlannedUsage()
    after = (planned.policy[min(number, last)] for number in range(1, GLANCES + 1))
    each = (replace(one, stage="next action", max_tokens=agent.GLANCE) for one in after)
    return sum((_request(counter, one).times(NEXT_ACTIONS) for one in each), PlannedUsage())


def _count_json(value: object) -> int:
    return count(json.dumps(value, ensure_ascii=False))


def uncounted(domain: Domain, settings: TrainSettings) -> list[str]:
    """Returns what of a domain's attempts cannot be counted before they are made, in words."""
    reasons = []
    if domain.judge is not None and domain.judgements is None:
        reasons.append(f"the domain {domain.name} may ask a judge, and does not say how often")
    alone = domain.rollout is not answer_once and domain.foresee is plan_answer_once
    if alone and settings.mode == "prompt":
        reasons.append(
            f"the domain {domain.name} does not say what an attempt takes, beside a call"
        )
    if settings.mode == "agent" and settings.tools.mcp:
        reasons.append("what MCP servers say of their tools is known once they are asked")
    return reasons
