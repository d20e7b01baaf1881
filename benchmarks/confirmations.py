"""What it takes for a lesson to enter that is tried on its own problem first: simulated.

    python -m benchmarks.confirmations   # seconds; writes RESULTS-confirmations.md

Five attempts at a problem were wrong, and the ground truth alone has led to a lesson. It is one of
four kinds: it helps here and elsewhere, it does nothing, it harms, or it helps here alone (it says
what this answer needs) and does a little harm elsewhere. Attempts with it at the very problem
decide whether it enters. Where some of the five were right, each attempt with a lesson from their
comparison has to be right, or more of them than of the group. Reported are, for each rule, the
attempts that a lesson takes, the share of lessons that enter, and what a lesson that was proposed
is worth elsewhere, on average. No model is asked; the chances below are assumptions.
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
HERE_MIXED = (0.4, 0.0, -0.3, 0.4)
"""What a lesson from a comparison adds at its own problem: a wrong rule shows there."""
MOST = 0.90
"""The chance of a right attempt that follows a right rule, as small models follow."""
MIXED_RULES = {
    "no trial": (0, False),
    "1": (1, True),
    "2": (2, True),
    "3": (3, True),
    "4": (4, True),
    "2 of 2": (2, False),
    "3 of 3": (3, False),
}
"""Attempts with a lesson from a comparison, and whether it is enough that they are right more often
than the group was, or all have to be."""
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
    return entering(right, np.full(base.size, wanted), np.take(ELSEWHERE, kind))


def entering(right: NDArray[np.bool_], wanted: NDArray[np.int_], worth: Array) -> Array:
    """Returns for each lesson: attempts that were made until it was known whether so many are
    right, whether it entered, and what that is worth."""
    attempts = right.shape[1]
    so_far = np.cumsum(right, axis=1)
    left = attempts - 1 - np.arange(attempts)
    known = (so_far >= wanted[:, None]) | (so_far + left < wanted[:, None])
    made = known.argmax(axis=1) + 1.0 if attempts else np.zeros(wanted.size)
    entered = right.sum(axis=1) >= wanted
    return np.stack([made, entered, np.where(entered, worth, 0.0)])


def compared(dice: np.random.Generator, shares: tuple[float, ...], rule: tuple[int, bool]) -> Array:
    """Returns the same for each lesson of a group of which some attempts were right, and some not;
    attempts with it stop as soon as it is known."""
    attempts, is_more = rule
    chance = dice.beta(0.7, 0.7, size=4 * RUNS)
    right = (dice.random((chance.size, WRONG)) < chance[:, None]).sum(axis=1)
    mixed = (right > 0) & (right < WRONG)
    base, right = chance[mixed][:RUNS], right[mixed][:RUNS]
    kind = dice.choice(len(KINDS), size=base.size, p=shares)
    added = np.take(HERE_MIXED, kind)
    chance = np.where(added > 0, np.clip(base + added, base, np.maximum(base, MOST)), base + added)
    passed = dice.random((base.size, attempts)) < chance[:, None]
    wanted = right * attempts // WRONG + 1 if is_more else np.full(base.size, attempts)
    return entering(passed, wanted, np.take(ELSEWHERE, kind))


def row(name: str, shares: tuple[float, ...], rule: str, lessons: Array) -> str:
    """Returns a line of a table."""
    made, entered, worth = lessons
    listed = " / ".join(f"{share:.0%}" for share in shares)
    each = worth.sum() / max(1.0, entered.sum())
    return (
        f"| {name} ({listed}) | {rule} | {made.mean():.2f} | {entered.mean():.0%} |"
        f" {worth.mean():+.4f} | {each:+.4f} |"
    )


HEAD = [
    "",
    "| reflector | rule | attempts a lesson | enter | worth of a proposed lesson | of one "
    "that enters |",
    "|---|---|---:|---:|---:|---:|",
]


def page(seed: int = 0) -> str:
    """Returns the tables as Markdown."""
    dice = np.random.default_rng(seed)
    lines = [
        "# Lessons that are tried on their own problems",
        "",
        f"Written by `python -m benchmarks.confirmations`: {RUNS:,} simulated lessons a cell at "
        f"most, seed {seed}. Shares of lessons that help, do nothing, harm, and help at their own "
        "problem alone; they are worth .05, 0, −.05 and −.02 elsewhere.",
        "",
        "## From problems that nothing solved (`--all-wrong`)",
        *HEAD,
    ]
    for name, shares in REFLECTORS.items():
        lines += [row(name, shares, rule, tried(dice, shares, of)) for rule, of in RULES.items()]
    lines += [
        "",
        "## From comparisons (`--confirm`)",
        "",
        "At its own problem a lesson adds .4 (up to .9), 0, −.3 and .4 to the chance of a right "
        "attempt. Of the attempts with it a larger share than of the group has to be right, or "
        "where the rule says so all of them.",
        *HEAD,
    ]
    for name, shares in REFLECTORS.items():
        lines += [
            row(name, shares, rule, compared(dice, shares, of)) for rule, of in MIXED_RULES.items()
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page()
    print(text)
    RESULTS.write_text(text, encoding="utf-8")
