"""Semantic advantage: what made the winners of a group beat its losers, in words.

Training-Free GRPO (arXiv 2510.08191, section 2) puts a natural-language advantage where GRPO
has a number: every trajectory of a mixed group is summarised, then the group is compared in the
light of the ground truth and the library, which gives lessons, not yet operations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import BaseModel, Field

from tfgrpo.domains.base import sample_seed
from tfgrpo.model import structured
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed, Request
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.templates import Template
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Library

SUMMARY_TOKENS = 400
COMPARISON_TOKENS = 1200
MOST_LESSONS = 2
"""The most lessons of one comparison."""
ANSWER_SHOWN = 300
"""The characters of an attempt's answer that stand beside what is said of it."""
UNKNOWN = "(not given)"


@dataclass(frozen=True, slots=True)
class Reflection:
    """How reflection is asked for: its prompts, objectives and sampling.

    `max_words` is the most words of an experience; without `ground_truth` the comparison is not
    shown the right answer; attempts of at most `summarise_over` characters are not summarised
    but compared as they are. With `reconcile`, what a group taught is brought in line with the
    library before the batch is decided about. `library_tokens` is the most tokens of a library,
    and `prune` asks what to give up when it has no room.
    """

    summary: Template
    comparison: Template
    controller: Template
    strategies: Template
    agent_objective: str
    learning_objective: str
    max_words: int = 32
    ground_truth: bool = True
    summarise_over: int = 0
    temperature: float = 0.2
    seed: int = 0
    reconcile: Template | None = None
    single: Template | None = None
    direct: Template | None = None
    prune: Template | None = None
    library_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """A candidate for the library, with the group and the calls that taught it."""

    text: str
    reason: str
    group: Group
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A reflection that could not be had, for the record."""

    stage: str
    problem: str
    reason: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one group taught. `repaired` says that its JSON had to be mended."""

    group: Group
    lessons: tuple[Lesson, ...]
    failures: tuple[Failure, ...] = ()
    repaired: bool = False


class _Lesson(BaseModel):
    reason: str = Field(max_length=2000)
    text: str = Field(min_length=1, max_length=2000)


class Lessons(BaseModel):
    """Lessons, each with its reason."""

    lessons: list[_Lesson]

    def of(
        self, stage: str, group: Group, calls: tuple[str, ...]
    ) -> tuple[tuple[Lesson, ...], tuple[Failure, ...]]:
        """Returns the lessons of a group, the first that there may be, and those beyond as
        failures of that stage."""
        said = [lesson for lesson in self.lessons if lesson.text.strip()]
        kept = tuple(
            Lesson(" ".join(lesson.text.split()), lesson.reason.strip(), group, calls)
            for lesson in said[:MOST_LESSONS]
        )
        return kept, tuple(
            Failure(stage, group.problem.id, f"more than {MOST_LESSONS} lessons: {lesson.text}")
            for lesson in said[MOST_LESSONS:]
        )


class _Comparison(Lessons):
    right_did: str = ""
    wrong_did: str = ""


LESSONS = {
    "type": "array",
    "maxItems": MOST_LESSONS,
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["reason", "text"],
        "properties": {
            "reason": {"type": "string", "maxLength": 160},
            "text": {"type": "string", "maxLength": 220},
        },
    },
}
SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["right_did", "wrong_did", "lessons"],
    "properties": {
        "right_did": {"type": "string", "maxLength": 240},
        "wrong_did": {"type": "string", "maxLength": 240},
        "lessons": LESSONS,
    },
}
RECONCILED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["lessons"],
    "properties": {"lessons": LESSONS},
}


async def compare(
    calls: Calls, reflection: Reflection, group: Group, library: Library, *, step: int
) -> Comparison:
    """Summarises a mixed group's trajectories and compares them.

    What cannot be had is in the result's `failures`; EndpointError is let through.
    """
    judged = (*group.winners, *group.losers)
    outcomes = await asyncio.gather(
        *(summarised(calls, reflection, rollout, step) for rollout in judged)
    )
    failures = tuple(o for o in outcomes if isinstance(o, Failure))
    said = {
        rollout.sample: outcome
        for rollout, outcome in zip(judged, outcomes, strict=True)
        if isinstance(outcome, str)
    }
    winners = [r for r in group.winners if r.sample in said]
    losers = [r for r in group.losers if r.sample in said]
    if not winners or not losers:
        return Comparison(group, (), failures)
    request = Request(
        stage="comparison",
        messages=reflection.comparison.render(
            {
                "agent_objective": reflection.agent_objective,
                "learning_objective": reflection.learning_objective,
                "max_words": str(reflection.max_words),
                "library": prompt_text(library),
                "problem": group.problem.problem,
                "ground_truth": (reflection.ground_truth and group.problem.answer) or UNKNOWN,
                "winners": _listed(winners, said),
                "losers": _listed(losers, said),
            }
        ),
        temperature=reflection.temperature,
        max_tokens=COMPARISON_TOKENS,
        seed=sample_seed(reflection.seed, "comparison", step, group.problem.id),
        schema=SCHEMA,
    )
    try:
        typed = await structured.ask(
            calls, request, _Comparison, call_path=(step, group.problem.id)
        )
    except CallFailed as error:
        failure = Failure("comparison", group.problem.id, str(error))
        return Comparison(group, (), (*failures, failure))
    failures += tuple(Failure("comparison", group.problem.id, what) for what in typed.lost)
    lessons, beyond = typed.value.of("comparison", group, (typed.key,))
    failures += beyond
    repaired = typed.repaired
    if reflection.reconcile is not None and lessons:
        try:
            found = await _reconciled(calls, reflection, lessons, library, step=step)
            lessons, beyond = found.value.of("reconcile", group, (*lessons[0].calls, found.key))
            failures += beyond
            failures += tuple(Failure("reconcile", group.problem.id, what) for what in found.lost)
            repaired = repaired or found.repaired
        except CallFailed as error:  # they stay as they were
            failures = (*failures, Failure("reconcile", group.problem.id, str(error)))
    return Comparison(group, lessons, failures, repaired)


async def _reconciled(
    calls: Calls,
    reflection: Reflection,
    lessons: Sequence[Lesson],
    library: Library,
    *,
    step: int,
) -> structured.Typed[Lessons]:
    """Returns one group's lessons as the model brings them in line with the library."""
    assert reflection.reconcile is not None
    group = lessons[0].group
    request = Request(
        stage="reconcile",
        messages=reflection.reconcile.render(
            {
                "learning_objective": reflection.learning_objective,
                "max_words": str(reflection.max_words),
                "library": prompt_text(library),
                "lessons": "\n".join(f"- {lesson.text}" for lesson in lessons),
            }
        ),
        temperature=reflection.temperature,
        max_tokens=COMPARISON_TOKENS,
        seed=sample_seed(reflection.seed, "reconcile", step, group.problem.id),
        schema=RECONCILED,
    )
    return await structured.ask(calls, request, Lessons, call_path=(step, group.problem.id))


async def summarised(
    calls: Calls, reflection: Reflection, rollout: Rollout, step: int
) -> str | Failure:
    if len(rollout.transcript) <= reflection.summarise_over:
        return " ".join(rollout.transcript.split())
    request = Request(
        stage="summary",
        messages=reflection.summary.render(
            {
                "agent_objective": reflection.agent_objective,
                "problem": rollout.problem.problem,
                "response": rollout.transcript,
                "verdict": verdict_words(rollout) + details_words(rollout, "\n- "),
            }
        ),
        temperature=reflection.temperature,
        max_tokens=SUMMARY_TOKENS,
        seed=sample_seed(reflection.seed, "summary", step, rollout.problem.id, rollout.sample),
    )
    try:
        recorded = await calls.ask(
            request, call_path=(step, rollout.problem.id), sample=rollout.sample
        )
    except CallFailed as error:
        return Failure("summary", rollout.problem.id, str(error))
    return recorded.answer.content.strip() or rollout.transcript[:600]


def verdict_words(rollout: Rollout) -> str:
    """Returns a reward as the reflection model reads it: right, wrong, or the number."""
    if rollout.reward in (0.0, 1.0):
        return "right" if rollout.reward else "wrong"
    return f"reward {rollout.reward:g} of 1"


def details_words(rollout: Rollout, before: str) -> str:
    """Returns what a reward is made of, each part after `before`; nothing where it has no parts."""
    return "".join(f"{before}{name}: {value}" for name, value in rollout.details.items())


def _listed(rollouts: Sequence[Rollout], said: dict[int, str]) -> str:
    lines = []
    for number, rollout in enumerate(rollouts, 1):
        answer = "no answer" if rollout.answer is None else f"answer {rollout.answer}"
        answer = answer[:ANSWER_SHOWN]
        told = verdict_words(rollout) + details_words(rollout, "; ")
        lines.append(f"{number}. ({told}, {answer}) {said[rollout.sample]}")
    return "\n".join(lines)
