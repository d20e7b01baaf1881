"""The policy `base-prompt`: probation that also rewrites the base prompt and the descriptions of an
agent's tools.

The reflection model is shown the words that `agent_objective` stands for, or a tool's description,
and what attempts under them came to, and writes others. These are candidates like any other
(`[objective] …`, `[tool NAME] …`, `rendering/experience_texts.py`) that belong to every problem.
Where a library has such words already, a candidate takes their place, and becomes a MODIFY of them
(`learn/rivals.py`). No code checks whether the form of an answer was lost: attempts that lose it
are wrong. Tools that attempts call most come first, then the others in turn.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

from pydantic import BaseModel

from tfgrpo.learn.candidates import DECLINED, NEEDED
from tfgrpo.learn.collector import Collector
from tfgrpo.learn.decide import Rule
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.policies.probation import Probation
from tfgrpo.learn.policies.protocol import Learned, Refusal, Step
from tfgrpo.learn.pool import Pool, open_pool
from tfgrpo.learn.propose import teaches
from tfgrpo.learn.reflection import (
    UNKNOWN,
    Failure,
    Question,
    TextCheck,
    listed_attempts,
    summaries_of,
)
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.gather import gather_all
from tfgrpo.model.structured_answers import Typed, unbounded_text
from tfgrpo.rendering.experience_texts import (
    OBJECTIVE,
    instruction,
    instruction_text,
    instructions,
)
from tfgrpo.rendering.near_duplicates import repeats
from tfgrpo.rendering.prompt_templates import Template
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Operation
from tfgrpo.tools.tool import ToolSpec

PLACES = 2
"""Base prompts on probation at once, and tools with new words: more take attempts from each."""
SHOWN = 4
"""Groups that the model is shown, each with an attempt that was right and one that was not."""
FEWEST_TOKENS, MOST_TOKENS = 400, 4000
"""The tokens that new words may take: twice as many as those before, within these bounds."""
LONGEST = 16_000
"""The most characters of new words."""


class Instructions(BaseModel):
    """The words of a base prompt, or of a tool's description."""

    instructions: str = unbounded_text(LONGEST)


class BasePrompt(Probation):
    """The policy. See `Policy`."""

    prompts: ClassVar[tuple[str, ...]] = (*Probation.prompts, "objective", "description")

    def __init__(self, parts: RunParts, collector: Collector, rule: Rule | None = None) -> None:
        super().__init__(parts, collector, rule)
        self._prompt = parts.domain.template("objective", parts.prompts)
        self._of_tools = parts.domain.template("description", parts.prompts)

    async def learn(self, step: Step) -> Learned:
        """Learns from one step, and adds words to the candidates. See `Policy`."""
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
        shown = [group for group in groups if teaches(group, self._parts.reflection)]
        shown = sorted(shown, key=lambda group: not group.mixed)[:SHOWN]
        enough = shown and step.attempts_left >= NEEDED
        askings = await self._askings(step, pool, groups) if enough else []
        if not askings:
            return Learned()
        failures: list[Failure] = []
        listed = await gather_all(self._listed(step, group, failures) for group in shown)
        about = ("\n\n".join(listed), shown[0].problem.id)
        answers = await gather_all(self._ask(step, about, one) for one in askings)
        there = {e.id: e.text for e in pool.library.readable}
        there |= {one.of: instruction_text(one.of, one.words) for one in askings}
        declined = turned_down(self._store, step.base, before=self._run.time)
        is_shared = self._parts.reflection.shared_answers
        check = TextCheck(tuple(group.problem for group in shown), is_shared)
        operations, refused = list[Operation](), list[Refusal]()
        for one, answer in zip(askings, answers, strict=True):
            if isinstance(answer, Failure):
                failures.append(answer)
                continue
            new = answer.value.instructions.strip()
            text = instruction_text(one.of, new)
            if not new or repeats(text, there):
                continue
            wrong = DECLINED if repeats(text, declined) else check(new)
            if wrong is not None:
                refused.append(Refusal(text, "", wrong))
                continue
            id = derived_id(step.origin.uid, step.number, *one.path)
            there[id] = text
            evidence = {
                **step.origin.evidence,
                "prompts": {one.prompt.name: one.prompt.digest[:16]},
                "groups": [group.problem.id for group in shown],
                "calls": [answer.key[:16]],
            }
            operations.append(Operation("ADD", id, text, None, evidence))
        return Learned(
            candidates=tuple(operations), refused=tuple(refused), failures=tuple(failures)
        )

    async def _askings(self, step: Step, pool: Pool, groups: Sequence[Group]) -> list[_Asking]:
        """What is asked for: base prompts, and what is said of tools of which nothing new is on
        probation."""
        words = (instruction(e.text) for e in pool.candidates.readable)
        tried = Counter(one[0] for one in words if one is not None)
        there = instructions(pool.in_force)
        objective = there.get(OBJECTIVE, self._settings.agent_objective)
        values = {"agent_objective": objective}
        askings = [
            _Asking(OBJECTIVE, objective, self._prompt, values, draw)
            for draw in range(PLACES - tried.pop(OBJECTIVE, 0))
        ]
        specs = [one for one in await self._tools(step, groups) if not tried[one.name]]
        for spec in specs[: max(PLACES - tried.total(), 0)]:
            description = there.get(spec.name, spec.description)
            parameters = json.dumps(spec.parameters, ensure_ascii=False)
            values = {"tool": spec.name, "parameters": parameters, "description": description}
            askings.append(_Asking(spec.name, description, self._of_tools, values))
        return askings

    async def _tools(self, step: Step, groups: Sequence[Group]) -> list[ToolSpec]:
        """An agent's tools in the order in which they are described anew: those first that attempts
        call most, and from step to step others."""
        rollouts = (rollout for group in groups for rollout in group.rollouts)
        called = Counter(message.get("name") for one in rollouts for message in one.messages)
        specs = sorted(await self._collector.here.tools(), key=lambda spec: -called[spec.name])
        turn = step.number * PLACES % max(len(specs), 1)
        return [*specs[turn:], *specs[:turn]]

    async def _listed(self, step: Step, group: Group, failures: list[Failure]) -> str:
        """A group as the model reads it: its problem, an attempt of either side, and the right
        answer where it is known. What cannot be summarised is one of the `failures`."""
        reflection, calls = self._parts.reflection, self._parts.reflector
        judged = [one for one in group.rollouts if one.own_reward is not None]
        attempts = [*(group.losers if group.mixed else judged)[:1], *group.winners[:1]]
        summaries, missing = await summaries_of(calls, reflection, attempts, step.number)
        failures += missing
        read = [one for one in attempts if one.sample in summaries]
        lines = [f"Problem: {group.problem.problem}", listed_attempts(read, summaries)]
        if (truth := reflection.truth(group.problem)) != UNKNOWN:
            lines.append(f"Right answer: {truth}")
        return "\n".join(lines)

    async def _ask(
        self, step: Step, about: tuple[str, str], one: _Asking
    ) -> Typed[Instructions] | Failure:
        most = min(MOST_TOKENS, max(FEWEST_TOKENS, 2 * count_tokens(one.words)))
        question = Question(
            prompt=one.prompt,
            values={**one.values, "groups": about[0]},
            max_tokens=most,
            call_path=(step.number, *one.call_path),
            stage="comparison",
        )
        try:
            return await self._parts.reflection.ask(self._parts.reflector, question, Instructions)
        except CallFailed as error:
            return Failure("comparison", about[1], str(error))


class _Asking(NamedTuple):
    """An asking for new words: whose they are (`OBJECTIVE` or a tool's name), what they are now,
    the prompt with what fills it, and which of several for the same words it is."""

    of: str
    words: str
    prompt: Template
    values: Mapping[str, str]
    draw: int = 0

    @property
    def path(self) -> tuple[str | int, ...]:
        """The part of its id that follows neither from the run nor from the step."""
        return ("tool", self.of) if self.of else ("objective", self.draw)

    @property
    def call_path(self) -> tuple[str, ...]:
        """The part of its call's key that differs from other calls of the step."""
        if self.of:
            return ("description", self.of)
        return ("objective", *([f"draw {self.draw}"] if self.draw else ()))
