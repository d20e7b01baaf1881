"""A step that learns what was measured.

    assign → roll out → contrast → propose → measure → decide → commit

Attempts are shown a random part of the candidates that are tried at their problem (`assign.py`),
and rewards say what each does (`measure.py`). The reflection model reads a group beside those most
like it (`propose.py`), and the lessons that it gives are candidates for the next step, as right
answers are. A rule decides by effects alone (`decide.py`); no text is judged by its words.

A step results in operations on the run's branch (an ADD for what is promoted, a DELETE for what no
longer helps, a KEEP for a lesson that a group gave again) and on its branch of candidates
(`pool.py`). The last step proposes nothing: no attempt would measure it. It is the last that is
planned, or the last that the budget pays for (`payable.py`): what was measured is decided about,
and nothing is paid for half of a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tfgrpo.learn.candidates import Proposals, free_places
from tfgrpo.learn.collector import Batch, Collector, contrasted
from tfgrpo.learn.decide import ByChance, Rule, Settling, settle, without_rivals
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.measure import Measurement
from tfgrpo.learn.own_gain import own_gain
from tfgrpo.learn.policies.protocol import Learned, Step
from tfgrpo.learn.pool import Pool, open_pool
from tfgrpo.learn.propose import proposing
from tfgrpo.learn.rivals import Rivals
from tfgrpo.model.budget import BudgetReached
from tfgrpo.notices import WarningNotice
from tfgrpo.runs.run_versions import Gain

AT_THE_END = ByChance(promote=0.80)
"""What decides in a run's last step. Nothing comes after it that could tell more, so what may well
help is taken: in simulations of short runs that gains more than it loses
(`benchmarks/planted.py`)."""


class Probation:
    """The policy `probation`. `rule` decides what becomes of candidates; without one, it is
    `ByChance`, and `AT_THE_END` in the last step."""

    prompts: ClassVar[tuple[str, ...]] = ("summary", "lesson")
    settings: ClassVar[tuple[str, ...]] = ("examples",)

    def __init__(self, parts: RunParts, collector: Collector, rule: Rule | None = None) -> None:
        self._parts, self._collector, self._rule = parts, collector, rule
        self._store, self._run, self._settings = parts.session.store, parts.run, parts.settings
        self._measurement = Measurement(parts)
        self._proposals, self._cap = Proposals(parts, collector), self._settings.library_tokens

    async def learn(self, step: Step) -> Learned:
        """Learns from one step. See `Policy`."""
        pool = open_pool(self._store, self._run, step.base)
        rivals = self._measurement.rivals(pool)
        tried = self._measurement.tried(step, pool, rivals)
        batch = Batch(step.number, step.batch, pool.library, step.is_last, step.base.number, tried)
        free = self._free_places(step, pool, rivals)
        contrast = proposing(self._parts, step, pool.in_force, free)
        groups, contrasts = await contrasted(self._parts, self._collector, batch, contrast)
        self._measurement.add(step.number)
        effects = self._measurement.effects(pool, rivals)

        def rule(number: int) -> Rule:
            is_last = step.is_last and number == step.number
            return self._rule or (AT_THE_END if is_last else ByChance())

        promoted = rule(step.number).decide(effects, *pool.names)
        decided = without_rivals(promoted, effects, rivals)
        about = Settling(pool, effects, rivals, self._cap)
        settled = settle(self._store, about, decided, step.origin)
        operations = settled.operations
        leaving = (*operations, *settled.candidates, *(one for _, one in settled.following))
        self._parts.progress.enter("decide")
        entering = await self._proposals.enter(step, pool, rivals, contrasts, leaving)
        examples = self._proposals.examples(step, pool, groups)
        return Learned(
            tuple(groups),
            tuple(contrasts),
            (*operations, *entering.votes),
            (*settled.candidates, *entering.candidates, *examples),
            entering.refused,
            gain=await self._gain(step.number, rule) if step.is_last else None,
            is_over=step.is_last,
            following=settled.following,
        )

    async def _gain(self, step: int, rule: Callable[[int], Rule]) -> Gain | None:
        """What the run gains, where it is to be measured and the budget pays for that."""
        try:
            pairs = self._measurement.pairs(step, rule)
            self._parts.progress.enter("gain")
            return await own_gain(self._parts, self._collector, step, pairs)
        except BudgetReached:
            text = "what the run gains is not known: the budget did not pay for that"
            self._parts.on_progress(WarningNotice(text))
            return None

    def _free_places(self, step: Step, pool: Pool, rivals: Rivals) -> int:
        """How many lessons are asked for. Right answers cost no call to propose, so where the
        budget is short lessons wait for what is known of those."""
        if step.is_short:
            effects = self._measurement.effects(pool, rivals)
            if self._proposals.awaits_examples(step, pool, effects):
                return 0
        return free_places(step, pool, self._settings.group_size)
