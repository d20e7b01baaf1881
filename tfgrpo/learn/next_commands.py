"""What to do after a run: one or two commands that follow from what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfgrpo.rendering.render import examples_of
from tfgrpo.wording import sampled

if TYPE_CHECKING:
    from tfgrpo.learn.run import TrainResult


def next_steps(result: TrainResult) -> Iterator[str]:
    """Yields what to do next, the most telling first, each with the command that does it."""
    run, branch = result.run.name, result.run.branch
    attempts = f"`tfgrpo rollouts {run} --failed` shows the attempts that went wrong, and why"
    if result.nothing_learned is not None or not len(result.library):
        yield attempts
        return
    comparison = result.comparison
    if comparison is None:
        yield (
            "does it help? `tfgrpo compare HELDOUT` tells, on problems that were not trained on; "
            "--heldout does at the end of a run"
        )
        yield f"`tfgrpo blame {branch}` shows what taught each experience"
        return
    samples = int(comparison.conditions["samples"])
    pair = f"`tfgrpo rollouts --eval {branch} --against v{comparison.control.number}`"
    if comparison.verdict == "better" and examples_of(result.library):
        yield (
            f"it helps: `tfgrpo proxy --library {branch}` puts it into an application's requests, "
            "`tfgrpo.library()` in Python into your prompts: examples as turns, as they were tried"
        )
    elif comparison.verdict == "better":
        yield (
            f"it helps: `tfgrpo export {branch} --format prompt -o prompt.txt` writes it for your "
            "prompts, `tfgrpo.library()` reads it from Python"
        )
    elif comparison.verdict == "worse":
        yield f"it hurts: {pair} shows where; `tfgrpo reset {run}/step_0` goes back, on record"
        yield attempts
        return
    else:
        needed = comparison.difference.problems_needed
        many = f"about {sampled(needed, samples)}" if needed else "more problems"
        yield (
            f"not decided: {many} would decide; `tfgrpo compare MORE` scores it on them, and "
            "`tfgrpo power` counts them for other numbers of samples"
        )
    yield f"{pair} shows which problems it won and lost"
