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
from statistics import fmean
from typing import Literal, TypeAlias

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import QUOTED, Domain, PlannedAttempt, PlannedCalls
from tfgrpo.model.budget import most_tokens
from tfgrpo.model.endpoint import Request
from tfgrpo.model.tokens import count
from tfgrpo.rendering.templates import Message, Template
from tfgrpo.rollout import agent
from tfgrpo.rollout.attempt import Rollout
from tfgrpo.settings import TrainSettings
from tfgrpo.store.records import Json, Library
from tfgrpo.training.rollouts import GLANCES

Model: TypeAlias = Literal["policy", "reflection", "embedding"]
COMPLAINT = 500.0
"""The most that is said of an answer that cannot be used, beside what is quoted of it."""
DETAIL = 1_000.0
"""The most that a verdict says of what a reward is made of, beside the judge's own words."""
NEXT_ACTIONS = 3
REMEMBERED = 1000
"""The turns whose sizes are kept."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Calls with the tokens of their prompts and answers."""

    calls: float = 0.0
    prompt: float = 0.0
    completion: float = 0.0

    def __add__(self, other: Taken) -> Taken:
        return Taken(
            self.calls + other.calls,
            self.prompt + other.prompt,
            self.completion + other.completion,
        )

    def times(self, number: float) -> Taken:
        """Returns what that many of it take."""
        return Taken(self.calls * number, self.prompt * number, self.completion * number)

    def longer(self, tokens: float) -> Taken:
        """Returns it with so many more tokens in each prompt."""
        return replace(self, prompt=self.prompt + self.calls * tokens)


Stages: TypeAlias = Mapping[tuple[str, Model], Taken]


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one attempt takes on the average of some problems, and what becomes of it.

    `glances` are next actions that are looked at where attempts branch. `transcript` and
    `details` are the tokens of what reflection reads.
    """

    stages: Stages
    glances: Taken
    transcript: float
    details: float


class Measure:
    """Sizes of prompts and answers, as expected or as an upper bound.

    `lengths` is stage → the likely tokens of an answer.
    """

    def __init__(self, upper: bool, lengths: Mapping[str, float]) -> None:
        self.upper, self._lengths = upper, lengths
        self.quoted = float(QUOTED) if upper else 1.0
        self._turns: dict[int, tuple[Json, float]] = {}

    def messages(self, messages: Sequence[Message]) -> float:
        """Returns a prompt's tokens."""
        return self.prompt(Request("", tuple(messages), 0.0, 0))

    def prompt(self, request: Request) -> float:
        """Returns the tokens of a request's prompt, tools and earlier turns included."""
        return self._told(replace(request, turns=())) + sum(map(self._turn, request.turns))

    def _turn(self, turn: Json) -> float:
        """Returns the tokens of a turn, which is part of every request after it."""
        if id(turn) not in self._turns:
            if len(self._turns) > REMEMBERED:
                self._turns.clear()
            told = self._told(Request("", (), 0.0, 0, turns=(turn,)))
            self._turns[id(turn)] = turn, told  # held, so that no other gets its id
        return self._turns[id(turn)][1]

    def _told(self, request: Request) -> float:
        if self.upper:
            return float(most_tokens(request))
        text = sum(count(content) + 4 for _, content in request.messages)
        return float(text + sum(_count(turn) + 4 for turn in (*request.turns, *request.tools)))

    def text(self, text: str) -> float:
        """Returns the tokens of a text."""
        return float(len(text.encode()) if self.upper else count(text))

    def answer(self, stage: str, most: float) -> float:
        """Returns the tokens of a stage's answer, which may have `most`."""
        return float(most) if self.upper else min(self._lengths.get(stage, most), most)

    def asked(self, stage: str, prompt: float, most: float) -> Taken:
        """Returns what one plain call takes."""
        return Taken(1.0, prompt, self.answer(stage, most))

    def typed(self, stage: str, prompt: float, most: float, complaint: float = 0.0) -> Taken:
        """Returns what a structured call takes: at most it is made again, with the answer and
        what is wrong with it on top."""
        once = self.asked(stage, prompt, most)
        again = 2 * most * self.quoted + COMPLAINT + complaint
        return once + once.longer(again) if self.upper else once


def attempts(
    measure: Measure,
    problems: Sequence[Problem],
    settings: TrainSettings,
    library: Library,
    domain: Domain,
    template: Template,
    length: float,
) -> Attempt:
    """Returns what an attempt at one of the problems takes; nothing where there are none.

    `length` is the likely answer in tokens. Where groups are adaptive, any problem may get the
    attempts of another: the upper figure is then that of the most expensive one.
    """
    found = [_one(measure, p, settings, library, domain, template, length) for p in problems]
    worst = measure.upper and settings.rollouts == "adaptive"
    middle: Callable[[Iterable[float]], float] = max if worst else fmean
    if not found:
        return Attempt({}, Taken(), 0.0, 0.0)

    def mean(takings: Sequence[Taken]) -> Taken:
        return Taken(
            middle(t.calls for t in takings),
            middle(t.prompt for t in takings),
            middle(t.completion for t in takings),
        )

    keys = dict.fromkeys(key for one in found for key in one.stages)
    return Attempt(
        {key: mean([one.stages.get(key, Taken()) for one in found]) for key in keys},
        mean([one.glances for one in found]),
        middle(one.transcript for one in found),
        middle(one.details for one in found),
    )


def _one(
    measure: Measure,
    problem: Problem,
    settings: TrainSettings,
    library: Library,
    domain: Domain,
    template: Template,
    length: float,
) -> Attempt:
    messages = domain.render(template, library, problem, settings.agent_objective)
    ahead = PlannedAttempt(problem, messages, settings.max_tokens, measure.upper, length)
    branches = settings.rollouts == "branch"
    if settings.mode == "agent":
        seen = agent.foresee(ahead, settings, branches=branches)
    else:
        seen = domain.foresee(ahead)
    judged = domain.judgements(problem, seen.trajectory) if domain.judgements else ()
    stages: dict[tuple[str, Model], Taken] = {}
    asked = [("policy", one) for one in seen.policy]
    asked += [("reflection", one) for one in (*seen.judge, *judged)]
    for model, request in asked:
        key: tuple[str, Model] = (request.stage, "policy" if model == "policy" else "reflection")
        stages[key] = stages.get(key, Taken()) + _request(measure, request)
    rollout = Rollout(
        problem, 0, seen.trajectory.response, "", None, None, "", messages=seen.trajectory.messages
    )
    said = sum(measure.answer("judge", one.max_tokens) * measure.quoted for one in judged)
    return Attempt(
        stages,
        _glances(measure, seen) if branches else Taken(),
        measure.text(rollout.transcript),
        said + (DETAIL if measure.upper else 0.0),
    )


def _request(measure: Measure, request: Request) -> Taken:
    of = measure.asked if request.schema is None else measure.typed
    return of(request.stage, measure.prompt(request), request.max_tokens)


def _glances(measure: Measure, seen: PlannedCalls) -> Taken:
    """Returns what the next actions take that are looked at along one attempt: at most its
    results come one by one, each a turn later, or in the last turn that has any."""
    last = len(seen.policy) - 1
    if not measure.upper or not last:
        return Taken()
    after = (seen.policy[min(number, last)] for number in range(1, GLANCES + 1))
    each = (replace(one, stage="next action", max_tokens=agent.GLANCE) for one in after)
    return sum((_request(measure, one).times(NEXT_ACTIONS) for one in each), Taken())


def _count(value: object) -> int:
    return count(json.dumps(value, ensure_ascii=False))
