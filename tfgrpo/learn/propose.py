"""Lessons as candidates: the rule that right answers follow, as the reflection model reads it.

A group is put to the model beside those of its batch that are most like it: many rules fit one
problem, few fit several. The model is asked more than once, since a prompt that was read once is
cheap and one answer is often wrong. Whether a rule helps is measured, so no answer has to be
believed.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Sequence

from pydantic import BaseModel

from tfgrpo.data.problems import Problem
from tfgrpo.learn.collector import Contrast
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.parting import parted
from tfgrpo.learn.policies.protocol import Step
from tfgrpo.learn.reflection import (
    LETTERS,
    MOST_WORDS,
    UNKNOWN,
    Advantage,
    Failure,
    Lesson,
    Question,
    Reflection,
    listed_attempts,
    summaries_of,
)
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.gather import gather_all
from tfgrpo.model.structured_answers import text_field
from tfgrpo.rendering.near_duplicates import NgramIndex
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Library

NEAR = 3
"""Groups that are shown beside one: more crowd a small model's prompt."""
OF_EACH = 2
"""The right and the wrong attempts of the group that are shown, each another text."""
LESSON_TOKENS = 400
NOTHING = "(none)"


ASKINGS = 4
"""How often the reflection model is asked about a group at most: a prompt that was read once is
cheap, and several askings are several lessons."""
PER_PLACE = 4
"""How many lessons are asked for at most for each place that is free: most lose before."""


class Rule(BaseModel):
    """The rule that right answers follow, as the model states it. Since it has to give both parts,
    a small model names what it would leave out of one sentence."""

    when: str = text_field(LETTERS * MOST_WORDS + 1, 2000)  # more is refused
    do: str = text_field(LETTERS * MOST_WORDS + 1, 2000)

    @property
    def text(self) -> str:
        """The rule in one line, in whatever language its parts are; nothing where there is none."""
        when, do = (" ".join(part.split()) for part in (self.when, self.do))
        while when and (when[-1].isspace() or unicodedata.category(when[-1]) == "Po"):
            when = when[:-1]
        return f"{when}: {do}" if when and do else do


def teaches(group: Group, reflection: Reflection) -> bool:
    """Whether a group can teach: its attempts differ in reward, or some are not right and the right
    answer is known and may be shown."""
    missed = any(one.own_reward is not None and one.own_reward < 1 for one in group.rollouts)
    return group.mixed or (missed and reflection.truth(group.problem) != UNKNOWN)


def nearest(batch: Sequence[Problem], *, shared_answers: bool) -> list[list[int]]:
    """Returns, for each problem of a batch, the places of those that are most like it, the most
    like it first. Where answers are few and shared, differences between answers have to be visible:
    up to two of the three problems have the same answer, and the others another one."""
    texts = NgramIndex({str(place): one.problem for place, one in enumerate(batch)})
    places = []
    for place, problem in enumerate(batch):
        order = [n for n in map(int, texts.ranked(problem.problem)) if n != place]
        if shared_answers:
            same = [n for n in order if batch[n].answer == problem.answer][: (NEAR + 1) // 2]
            order = [*same, *(n for n in order if batch[n].answer != problem.answer)]
        places.append(order[:NEAR])
    return places


def askings(free: int, groups: int) -> int:
    """How often the model is asked about each of so many groups: no more than what the free places
    on probation could take."""
    return min(ASKINGS, -(-PER_PLACE * free // groups))


def proposing(parts: RunParts, step: Step, library: Library, free: int) -> Contrast:
    """What makes lessons of a step's groups, for so many `free` places on probation; in the last
    step none, which no attempt follows that would measure them."""
    top_k, rank = parts.settings.top_k or None, parts.domain.retrieve
    near = nearest(step.batch, shared_answers=parts.reflection.shared_answers)
    times = 0 if step.is_last else askings(free, len(step.batch))

    async def contrast(place: int, groups: Sequence[Awaitable[Group]]) -> Advantage | None:
        if not times:
            return None
        group = parted(await groups[place], parts.reflection.manner.summarise_over)
        beside = [await groups[other] for other in near[place]]
        known = relevant(library, group.problem.problem, top_k, rank=rank)
        return await propose(parts, group, beside, known, (step.number, times))

    return contrast


async def propose(
    parts: RunParts, group: Group, near: Sequence[Group], library: Library, path: tuple[int, int]
) -> Advantage | None:
    """The lessons that a group teaches, or None for one that teaches nothing. `path` is the step
    and how often the model is asked. What cannot be had is in the result's `failures`. Raises
    EndpointError, BudgetReached."""
    step, times = path
    calls, reflection = parts.reflector, parts.reflection
    if not teaches(group, reflection):
        return None
    winners = _distinct(group.winners)
    losers = _distinct(group.losers if group.mixed else group.rollouts)
    summaries, failures = await summaries_of(calls, reflection, [*winners, *losers], step)
    losers = [one for one in losers if one.sample in summaries]
    if not losers:
        return Advantage(group, (), failures)
    winners = [one for one in winners if one.sample in summaries]
    values = {
        "library": prompt_text(library),
        "others": "\n\n".join(_beside(one, reflection) for one in near[::-1]) or NOTHING,
        "problem": group.problem.problem,
        "ground_truth": reflection.truth(group.problem),
        "winners": listed_attempts(winners, summaries) or NOTHING,
        "losers": listed_attempts(losers, summaries),
    }
    problems = tuple(one.problem for one in (group, *near))
    answers = await gather_all(
        _ask(parts, group, values, problems, (step, draw)) for draw in range(times)
    )
    return Advantage(
        group,
        tuple(lesson for one in answers for lesson in one.lessons),
        tuple(dict.fromkeys((*failures, *(f for one in answers for f in one.failures)))),
        any(one.repaired for one in answers),
    )


async def _ask(
    parts: RunParts,
    group: Group,
    values: dict[str, str],
    problems: tuple[Problem, ...],
    path: tuple[int, int],
) -> Advantage:
    step, draw = path
    question = Question(
        prompt=parts.reflection.lesson,
        values=values,
        max_tokens=LESSON_TOKENS,
        call_path=(step, group.problem.id, *([f"draw {draw}"] if draw else ())),
        stage="comparison",
    )
    try:
        typed = await parts.reflection.ask(parts.reflector, question, Rule)
    except CallFailed as error:
        return Advantage(group, (), (Failure("comparison", group.problem.id, str(error)),))
    text = typed.value.text
    if not text:
        return Advantage(group, (), repaired=typed.repaired)
    if wrong := parts.reflection.text_check(problems)(text):
        failure = Failure("comparison", group.problem.id, f"{wrong}: {text}")
        return Advantage(group, (), (failure,), typed.repaired)
    return Advantage(group, (Lesson(text, "", group, (typed.key,)),), repaired=typed.repaired)


def _distinct(rollouts: Sequence[Rollout]) -> list[Rollout]:
    judged = [one for one in rollouts if one.own_reward is not None]
    return list({one.transcript: one for one in reversed(judged)}.values())[::-1][:OF_EACH]


def _beside(group: Group, reflection: Reflection) -> str:
    """A group as it stands beside another one: its problem, its best attempt if that earned
    anything and is not long, and the right answer where it is known."""
    lines = [f"Problem: {group.problem.problem}"]
    judged = [one for one in group.rollouts if one.own_reward]
    if judged:
        best = max(judged, key=lambda one: one.own_reward or 0.0)
        if len(best.transcript) <= reflection.manner.summarise_over:
            text = " ".join(best.transcript.split())
            lines.append(listed_attempts([best], {best.sample: text}))
    if (truth := reflection.truth(group.problem)) != UNKNOWN:
        lines.append(f"Right answer: {truth}")
    return "\n".join(lines)
