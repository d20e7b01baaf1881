"""DSPy's MIPROv2 with its light settings: instructions and examples, chosen by validation.

The program asks as every arm does: the instruction is the system text, examples are turns before
the problem, the problem is the user's message, the answer is read by the race's judge. DSPy's own
calls (summaries of the data, proposals) go through its adapters. Its cache is the cell's, so what a
killed cell asked is not asked again.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from racing import (
    PROBLEM,
    Job,
    Prompt,
    is_right,
    leave,
    main,
    prompt_of,
)


def optimise(job: Job) -> None:
    """Leaves the program that was best on all validation problems, and the last of them."""
    os.environ["DSPY_CACHEDIR"] = str(job.folder / "cache")
    import dspy

    class Plain(dspy.Adapter):
        """Asks with the instruction and the problem alone."""

        def format(self, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
            turns = [{"role": "system", "content": signature.instructions}]
            for demo in demos:
                turns.append({"role": "user", "content": demo["problem"]})
                turns.append({"role": "assistant", "content": demo["response"]})
            return [*turns, {"role": "user", "content": inputs["problem"]}]

        def parse(self, signature: Any, completion: str) -> dict[str, str]:
            return {"response": completion}

    adapter, tried, lock = Plain(), dict[str, tuple[Prompt, dict[str, float]]](), threading.Lock()
    signature = dspy.Signature("problem -> response", job.seed_text)
    held = {row["problem"] for row in job.validation}

    class Program(dspy.Module):
        """One call."""

        def __init__(self) -> None:
            super().__init__()
            self.answer = dspy.Predict(signature)

        def forward(self, problem: str) -> Any:
            with dspy.context(adapter=adapter):
                prediction = self.answer(problem=problem)
            prediction.prompt = adapter.format(
                self.answer.signature, self.answer.demos, {"problem": PROBLEM}
            )
            return prediction

    def metric(example: Any, prediction: Any, trace: Any = None) -> bool:
        right = is_right(job.kind, example.answer, prediction.response or "")
        if example.problem in held and trace is None:
            with lock:
                seen = tried.setdefault(repr(prediction.prompt), (prediction.prompt, {}))
                seen[1][example.problem] = float(right)
        return right

    def examples(rows: list[dict[str, Any]]) -> list[Any]:
        return [
            dspy.Example(
                problem=row["problem"], response=f"\\boxed{{{row['answer']}}}", answer=row["answer"]
            ).with_inputs("problem")
            for row in rows
        ]

    lm = dspy.LM(
        f"openai/{job.model}",
        api_base=job.base_url,
        api_key="none",
        temperature=job.temperature,
        max_tokens=max(job.max_tokens, 1024),
        num_retries=2,
    )
    dspy.configure(lm=lm)
    best, ended, notes = None, "done", {}
    try:
        optimiser = dspy.MIPROv2(
            metric=metric,
            auto="light",
            num_threads=job.concurrency,
            seed=job.seed,
            max_errors=3,
            verbose=False,
        )
        program = optimiser.compile(
            Program(), trainset=examples(job.train), valset=examples(job.validation)
        )
        best = adapter.format(program.answer.signature, program.answer.demos, {"problem": PROBLEM})
    except Exception as error:  # whichever of its own a spent budget turns into
        if job.spent < 1.0:
            raise
        ended, notes = "budget", {"stopped": type(error).__name__}
    whole = [
        (sum(right.values()) / len(right), prompt)
        for prompt, right in tried.values()
        if len(right) == len(held)
    ]
    if best is None:
        best = max(whole, key=lambda pair: pair[0])[1] if whole else prompt_of(job.seed_text)
    final = whole[-1][1] if whole else best
    leave(job, final, best, ended=ended, notes={**notes, "tried": len(tried), "whole": len(whole)})


if __name__ == "__main__":
    main(optimise)
