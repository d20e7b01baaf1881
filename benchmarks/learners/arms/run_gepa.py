"""GEPA with its defaults: a reflecting model rewrites the system text, Pareto parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gepa
from gepa import EvaluationBatch
from racing import (
    Attempt,
    BudgetSpent,
    Job,
    Row,
    ask,
    attempt_all,
    feedback,
    leave,
    main,
    prompt_of,
)

TEXT = "system_prompt"
REFLECTION_TOKENS = 1024


class SystemText:
    """What GEPA asks for of a system: attempts with their scores, and what to reflect on."""

    propose_new_texts = None

    def __init__(self, job: Job) -> None:
        self.job, self.turn, self.is_over = job, 0, False

    def evaluate(
        self, batch: list[Row], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Attempt, str]:
        """Attempts a batch with a candidate's text."""
        self.turn += 1
        try:
            prompt = prompt_of(candidate[TEXT])
            attempts = attempt_all(self.job, prompt, batch, self.turn)
        except BudgetSpent:
            self.is_over = True
            raise
        return EvaluationBatch(
            [one.response for one in attempts],
            [one.reward for one in attempts],
            attempts if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[Attempt, str],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Returns the attempts with what is said of each."""
        shown = [
            {
                "Inputs": one.row["problem"],
                "Generated Outputs": one.response,
                "Feedback": feedback(self.job.kind, one),
            }
            for one in eval_batch.trajectories or ()
        ]
        return dict.fromkeys(components_to_update, shown)


def optimise(job: Job) -> None:
    """Leaves the best candidate by validation, and the last one."""
    system, turns = SystemText(job), iter(range(10**9))

    def reflect(prompt: Any) -> str:
        messages = prompt if isinstance(prompt, list) else [{"role": "user", "content": prompt}]
        try:
            seed = job.seed * 100_003 + next(turns)
            return ask(job, messages, seed=seed, max_tokens=REFLECTION_TOKENS).text
        except BudgetSpent:
            system.is_over = True
            raise

    seed = {TEXT: job.seed_text}
    try:
        result = gepa.optimize(
            seed,
            job.train,
            job.validation,
            adapter=system,
            reflection_lm=reflect,
            stop_callbacks=lambda state: system.is_over or job.spent >= 1.0,
            run_dir=str(job.folder / "gepa"),
            seed=job.seed,
            raise_on_exception=False,
        )
        candidates = result.candidates
        best, scores = result.candidates[result.best_idx], result.val_aggregate_scores
    except BudgetSpent:  # before the seed itself was scored
        candidates, best, scores = [seed], seed, []
    leave(
        job,
        prompt_of(candidates[-1][TEXT]),
        prompt_of(best[TEXT]),
        ended="budget",
        notes={"candidates": len(candidates), "validation": list(scores)},
    )


if __name__ == "__main__":
    main(optimise)
