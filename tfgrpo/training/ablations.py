"""The paper's ablations (arXiv 2510.08191, table 3): what is left when a part is taken away.

No ground truth: a group's majority answer stands in for it. Groups of one: each attempt is
reflected on by itself, with nothing to compare it with. No rollouts: experiences are written
directly, from the problems alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, Field

from tfgrpo.data.problems import Problem
from tfgrpo.model import structured
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import CheckedText
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.training.controller import BatchPlan
from tfgrpo.training.draft import plain, words
from tfgrpo.training.reflection import (
    COMPARISON_TOKENS,
    Advantage,
    Failure,
    Lessons,
    Question,
    Reflection,
    StepOrigin,
    lessons_of,
    summarise,
    verdict_words,
)

SHOWN = 20
"""The problems that are shown when experiences are written directly."""
TOKENS = 2000


class _Written(BaseModel):
    experiences: list[CheckedText] = Field(min_length=1)


def by_majority(group: Group) -> Group:
    """Returns a group whose rewards are votes: 1 for the answer that most attempts gave, else 0.

    Attempts without an answer get 0. Where answers tie for the most, nothing can be told, and no
    attempt has a reward.
    """
    votes = Counter(r.answer for r in group.rollouts if r.answer is not None).most_common(2)
    tied = not votes or (len(votes) > 1 and votes[0][1] == votes[1][1])
    return replace(
        group,
        rollouts=tuple(
            r
            if r.outcome == "failed"
            else replace(r, reward=None if tied else float(r.answer == votes[0][0]))
            for r in group.rollouts
        ),
    )


async def reflect_alone(
    calls: Calls, reflection: Reflection, group: Group, library: Library, *, step: int
) -> Advantage:
    """Reflects on the one attempt of a group. EndpointError is let through."""
    assert reflection.single is not None
    (rollout,) = group.rollouts
    summary = await summarise(calls, reflection, rollout, step)
    if isinstance(summary, Failure):
        return Advantage(group, (), (summary,))
    question = Question(
        prompt=reflection.single,
        values={
            "library": prompt_text(library),
            "problem": group.problem.problem,
            "ground_truth": reflection.truth(group.problem),
            "attempt": summary,
            "verdict": verdict_words(rollout),
        },
        max_tokens=COMPARISON_TOKENS,
        call_path=(step, group.problem.id),
        stage="comparison",
        problems=(group.problem,),
    )
    try:
        typed = await reflection.ask(calls, question, Lessons)
    except CallFailed as error:
        return Advantage(group, (), (Failure("comparison", group.problem.id, str(error)),))
    lessons, unused = lessons_of(typed, "comparison", group)
    return Advantage(group, lessons, unused, typed.repaired)


async def write_directly(
    calls: Calls,
    reflection: Reflection,
    problems: Sequence[Problem],
    library: Library,
    count: int,
    origin: StepOrigin,
) -> BatchPlan:
    """Has up to `count` experiences written from the problems alone, as ADDs.

    Texts that are too long or there already are left out. Raises CallFailed where the answer
    cannot be read, and EndpointError.
    """
    assert reflection.direct is not None
    listed = "\n".join(f"- {' '.join(p.problem.split())}" for p in problems[:SHOWN])
    items = structured.schema(_Written)["properties"]["experiences"]
    question = Question(
        prompt=reflection.direct,
        values={"count": str(count), "library": prompt_text(library), "problems": listed},
        max_tokens=TOKENS,
        call_path=(0, "direct"),
        seed=("direct",),
        narrowed={"experiences": {**items, "maxItems": count}},
        problems=tuple(problems[:SHOWN]),
    )
    typed = await reflection.ask(calls, question, _Written)
    known = {plain(experience.text) for experience in library}
    operations = []
    for number, text in enumerate(typed.value.experiences[:count]):
        text = " ".join(text.split())
        if not text or plain(text) in known or words(text) > reflection.max_words:
            continue
        known.add(plain(text))
        id = derived_id(origin.uid, "direct", number)
        evidence = {**origin.evidence, "direct": True, "calls": [typed.key[:16]]}
        operations.append(Operation("ADD", id, text, "written without rollouts", evidence))
    return BatchPlan(tuple(operations), (), int(typed.repaired))
