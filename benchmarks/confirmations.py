"""What it takes for a lesson from a problem that nothing solved to enter: simulated.

    python -m benchmarks.confirmations   # seconds; writes RESULTS-confirmations.md

Five attempts at a problem were wrong, and the ground truth alone has led to a lesson. It is one of
four kinds: it helps here and elsewhere, it does nothing, it harms, or it helps here alone (it says
what this answer needs) and does a little harm elsewhere. Attempts with it at the very problem
decide whether it enters. Reported are, for each rule, the attempts that a lesson takes, the share
of lessons that enter, and what a lesson that was proposed is worth elsewhere, on average. No
model is asked; the chances below are assumptions.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "RESULTS-confirmations.md"
KINDS = ("helps", "nothing", "harms", "helps here alone")
HERE = (0.55, 0.0, -0.05, 0.55)
"""What a lesson of each kind adds to the chance of a right attempt at its own problem."""
ELSEWHERE = (0.05, 0.0, -0.05, -0.02)
"""What it adds to the mean reward elsewhere."""
REFLECTORS = {
    "strong": (0.35, 0.25, 0.15, 0.25),
    "middling": (0.20, 0.40, 0.20, 0.20),
    "weak": (0.08, 0.47, 0.25, 0.20),
}
RULES = {
    "no trial": (0, 0),
    "1 of 2": (2, 1),
    "2 of 2": (2, 2),
    "2 of 4": (4, 2),
    "3 of 4": (4, 3),
}
"""Attempts with a lesson at its problem, and how many of them have to be right."""
RUNS, WRONG = 200_000, 5
Array = NDArray[np.float64]


def unsolved(dice: np.random.Generator) -> Array:
    """Returns the chance of a right attempt of problems at which five attempts were wrong."""
    chance = dice.beta(0.5, 1.5, size=4 * RUNS)
    return chance[dice.random(chance.size) < (1 - chance) ** WRONG][:RUNS]


def tried(dice: np.random.Generator, shares: tuple[float, ...], rule: tuple[int, int]) -> Array:
    """Returns for each lesson: attempts that were made, whether it entered, what it is worth."""
    base = unsolved(dice)
    kind = dice.choice(len(KINDS), size=base.size, p=shares)
    chance = np.clip(base + np.take(HERE, kind), 0.0, 0.98)
    attempts, wanted = rule
    right = dice.random((base.size, attempts)) < chance[:, None]
    so_far = np.cumsum(right, axis=1)
    left = attempts - 1 - np.arange(attempts)
    known = (so_far >= wanted) | (so_far + left < wanted)
    made = known.argmax(axis=1) + 1.0 if attempts else np.zeros(base.size)
    entered = right.sum(axis=1) >= wanted
    return np.stack([made, entered, np.where(entered, np.take(ELSEWHERE, kind), 0.0)])


def page(seed: int = 0) -> str:
    """Returns the table as Markdown."""
    dice = np.random.default_rng(seed)
    lines = [
        "# Lessons from problems that nothing solved",
        "",
        f"Written by `python -m benchmarks.confirmations`: {RUNS:,} simulated lessons a cell at "
        f"most, seed {seed}. Shares of lessons that help, do nothing, harm, and help at their own "
        "problem alone; they are worth .05, 0, −.05 and −.02 elsewhere.",
        "",
        "| reflector | rule | attempts a lesson | enter | worth of a proposed lesson | of one "
        "that enters |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, shares in REFLECTORS.items():
        told = " / ".join(f"{share:.0%}" for share in shares)
        for rule, numbers in RULES.items():
            made, entered, worth = tried(dice, shares, numbers)
            each = worth.sum() / max(1.0, entered.sum())
            lines.append(
                f"| {name} ({told}) | {rule} | {made.mean():.2f} | {entered.mean():.0%} |"
                f" {worth.mean():+.4f} | {each:+.4f} |"
            )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page()
    print(text)
    RESULTS.write_text(text, encoding="utf-8")
