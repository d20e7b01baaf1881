"""The policy `base-prompt`: probation in which the base prompt is written anew as well.

The reflection model is shown the words that `agent_objective` stands for, and what attempts under
them came to, and writes others. These are candidates like any other (`[objective] …`,
`rendering/instruction_texts.py`): they belong to every problem, an attempt that is not shown one
has the words before, and what is measured to help enters. Where a library has words for the base
prompt already, the candidate stands in their place, and is a MODIFY of them (`learn/rivals.py`). No
code looks whether the form of an answer was lost: attempts that lose it are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from pydantic import BaseModel

from tfgrpo.learn.candidates import DECLINED, NEEDED
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.decide import Rule
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.lesson_check import TextCheck
from tfgrpo.learn.policies.probation import Probation
from tfgrpo.learn.policies.protocol import Learned, Refusal, Step
from tfgrpo.learn.pool import Pool, open_pool
from tfgrpo.learn.propose import teaches
from tfgrpo.learn.reflection import (
    UNKNOWN,
    Failure,
    Question,
    listed_attempts,
    summarise,
)
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.gather import gather_all
from tfgrpo.model.structured_answers import Typed, unbounded_text
from tfgrpo.model.token_counts import count
from tfgrpo.rendering.instruction_texts import OBJECTIVE, instruction, instructions
from tfgrpo.rendering.near_duplicates import repeats
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Operation

PLACES = 2
"""Base prompts on probation at once: one is tried at a problem, so more take attempts from each."""
SHOWN = 4
"""Groups that the model is shown, each with an attempt that was right and one that was not."""
FEWEST_TOKENS, MOST_TOKENS = 400, 4000
"""The tokens that new words may take: twice as many as those before, within these bounds."""
LONGEST = 16_000
"""The most characters of new words."""


class Instructions(BaseModel):
    """The words of a base prompt."""

    instructions: str = unbounded_text(LONGEST)


class BasePrompt(Probation):
    """The policy. See `Policy`."""

    prompts: ClassVar[tuple[str, ...]] = (*Probation.prompts, "objective")

    def __init__(self, parts: RunParts, collector: Collector, rule: Rule | None = None) -> None:
        super().__init__(parts, collector, rule)
        self._prompt = parts.domain.template("objective", parts.prompts)

    async def learn(self, step: Step) -> Learned:
        """Learns from one step, and adds base prompts to the candidates. See `Policy`."""
        learned = await super().learn(step)
        pool = open_pool(self._store, self._run, step.base)
        more = await self._written(step, pool, learned.groups)
        return replace(
            learned,
            candidates=(*learned.candidates, *more.candidates),
            refused=(*learned.refused, *more.refused),
            failures=(*learned.failures, *more.failures),
        )

    async def _written(self, step: Step, pool: Pool, groups: Sequence[Group]) -> Learned:
        """Returns base prompts that go on probation, for as many places as are free."""
        free = PLACES - sum(_is_base_prompt(e.text) for e in pool.candidates.readable)
        shown = [group for group in groups if teaches(group, self._parts.reflection)]
        shown = sorted(shown, key=lambda group: not group.mixed)[:SHOWN]
        if free <= 0 or not shown or step.attempts_left < NEEDED:
            return Learned()
        words = instructions(pool.in_force).get(OBJECTIVE, self._settings.agent_objective)
        failures: list[Failure] = []
        listed = await gather_all(self._listed(step, group, failures) for group in shown)
        about = _Groups(words, "\n\n".join(listed), shown)
        answers = await gather_all(self._ask(step, about, draw) for draw in range(free))
        there = {e.id: e.text for e in pool.library.readable} | {"": f"[objective] {words}"}
        declined = turned_down(self._store, step.base, before=self._run.time)
        is_shared = self._parts.reflection.shared_answers
        check = TextCheck(tuple(group.problem for group in shown), is_shared)
        operations, refused = list[Operation](), list[Refusal]()
        for number, answer in enumerate(answers):
            if isinstance(answer, Failure):
                failures.append(answer)
                continue
            new = answer.value.instructions.strip()
            text = f"[objective] {new}"
            if not new or repeats(text, there):
                continue
            wrong = DECLINED if repeats(text, declined) else check(new)
            if wrong is not None:
                refused.append(Refusal(text, "", wrong))
                continue
            id = derived_id(step.origin.uid, step.number, "objective", number)
            there[id] = text
            evidence = {
                **step.origin.evidence,
                "prompts": {self._prompt.name: self._prompt.digest[:16]},
                "groups": [group.problem.id for group in shown],
                "calls": [answer.key[:16]],
            }
            operations.append(Operation("ADD", id, text, None, evidence))
        return Learned(
            candidates=tuple(operations), refused=tuple(refused), failures=tuple(failures)
        )

    async def _listed(self, step: Step, group: Group, failures: list[Failure]) -> str:
        """Returns a group as the model reads it: its problem, an attempt of either side, and the
        right answer where it is known. What cannot be summarised is one of the `failures`."""
        reflection, summaries = self._parts.reflection, dict[int, str]()
        judged = [one for one in group.rollouts if one.own_reward is not None]
        attempts = [*(group.losers if group.mixed else judged)[:1], *group.winners[:1]]
        for one in attempts:
            summary = await summarise(self._parts.reflector, reflection, one, step.number)
            if isinstance(summary, Failure):
                failures.append(summary)
            else:
                summaries[one.sample] = summary
        read = [one for one in attempts if one.sample in summaries]
        lines = [f"Problem: {group.problem.problem}", listed_attempts(read, summaries)]
        if (truth := reflection.truth(group.problem)) != UNKNOWN:
            lines.append(f"Right answer: {truth}")
        return "\n".join(lines)

    async def _ask(self, step: Step, about: _Groups, draw: int) -> Typed[Instructions] | Failure:
        most = min(MOST_TOKENS, max(FEWEST_TOKENS, 2 * count(about.words)))
        question = Question(
            prompt=self._prompt,
            values={"agent_objective": about.words, "groups": about.groups},
            max_tokens=most,
            call_path=(step.number, "objective", *([f"draw {draw}"] if draw else ())),
            stage="comparison",
        )
        try:
            return await self._parts.reflection.ask(self._parts.reflector, question, Instructions)
        except CallFailed as error:
            return Failure("comparison", about.shown[0].problem.id, str(error))


class _Groups(NamedTuple):
    """What the model is shown: the words so far, groups as text, and these groups."""

    words: str
    groups: str
    shown: Sequence[Group]


def _is_base_prompt(text: str) -> bool:
    words = instruction(text)
    return words is not None and words[0] == OBJECTIVE
