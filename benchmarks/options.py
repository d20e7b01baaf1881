"""What an edit budget, deletions by credit and leaving out by kind are worth: simulated.

    python -m benchmarks.options   # seconds; writes RESULTS-options.md

The worlds are those of `benchmarks.gates`: ten steps bring lessons that help, do nothing or harm,
and a gate (`one-se`, or none) decides about a step's changes together. Three options are tried in
them. `--max-edits` takes the lessons that most groups came to; two assumptions say what a count of
groups is worth. `--drop-harmful` proposes the deletion of what the dropout of attempts shows to
harm with 95 % confidence. `--inject credited` leaves out, for each of four kinds of problems, what
is a standard error below zero on it; a lesson's effect varies from kind to kind. No model is asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.gates import BETWEEN, REFLECTORS, STEPS, TRIALS, WITHIN, World, cell, draw
from tfgrpo.evaluation.statistics import t_quantile
from tfgrpo.training.gate_rules import passes

RESULTS = Path(__file__).parent / "RESULTS-options.md"
RUNS, TRIAL = 4_000, 192
PROBLEMS, GROUP, DROPOUT = 40, 5, 0.2
"""Problems of a step, attempts at each, and how often an experience is left out of one."""
KINDS, KIND_SPREAD = 4, 0.05
"""Kinds of problems, and the standard deviation of a lesson's effect from kind to kind."""
GROUPS_EACH = {
    "helpful ones twice as often": (1.0, 0.0, 0.0),
    "all alike": (0.5, 0.5, 0.5),
}
"""Groups beyond the first that come to a lesson that helps, does nothing, or harms, on average."""
Array = NDArray[np.float64]


class Case(NamedTuple):
    """What is simulated: the lessons of the steps, and whether a gate decides."""

    world: World
    gated: bool


def let_in(dice: np.random.Generator, case: Case, true: Array, changes: Array) -> NDArray[np.bool]:
    """Returns in which runs a step's changes are accepted: their true effect together, and how
    many they are."""
    if not case.gated:
        return np.ones(true.shape, dtype=bool)
    problems = TRIALS[TRIAL][0]
    error = np.sqrt(4 * WITHIN**2 / TRIAL + np.maximum(changes, 1) * BETWEEN**2 / problems)
    measured = true + dice.normal(0.0, 1.0, true.shape) * error
    estimated = error * np.sqrt(dice.chisquare(problems - 1, true.shape) / (problems - 1))
    accepted = passes("one-se", measured, estimated, t_quantile(0.975, problems - 1))
    return np.asarray(accepted) & (changes > 0)


def with_budget(dice: np.random.Generator, case: Case, most: int, groups: str) -> Array:
    """Returns each run's gain where a step changes at most so many experiences."""
    gain = np.zeros(RUNS)
    for _ in range(STEPS):
        effects = draw(dice, case.world, RUNS)
        kinds = 1 - np.sign(effects).astype(int)  # as GROUPS_EACH has them
        votes = dice.poisson(np.take(GROUPS_EACH[groups], kinds)) + dice.random(kinds.shape)
        rank = (-votes).argsort(axis=1).argsort(axis=1)
        effects = np.where(rank < most, effects, 0.0)
        true = effects.sum(axis=1)
        gain += np.where(
            let_in(dice, case, true, np.full(RUNS, min(most, case.world.lessons))), true, 0
        )
    return gain


def with_credit(dice: np.random.Generator, case: Case, drop: bool) -> tuple[Array, Array]:
    """Returns each run's gain with the whole library in every prompt, and with what harms a
    problem's kind left out of its prompt.

    Every attempt of training goes without each experience now and then; an effect is known as well
    as the attempts since it came in tell it.
    """
    world = case.world
    once = WITHIN**2 / (PROBLEMS * GROUP * DROPOUT * (1 - DROPOUT) * (GROUP - 1) / GROUP)
    once += BETWEEN**2 / PROBLEMS
    size = (RUNS, world.lessons * STEPS, KINDS)
    true, total = np.zeros(size), np.zeros(size)
    there, seen = np.zeros(size[:2], dtype=bool), np.zeros(size[:2])
    for step in range(STEPS):
        new = slice(step * world.lessons, (step + 1) * world.lessons)
        effects = draw(dice, world, RUNS)
        true[:, new] = effects[:, :, None] + dice.normal(
            0.0, KIND_SPREAD, (RUNS, world.lessons, KINDS)
        )
        # a step's attempts, of which each kind has its part
        seen += there
        total += there[:, :, None] * (true + dice.normal(0.0, np.sqrt(once * KINDS), size))
        attempts = np.maximum(seen, 1)
        estimate, error = total.mean(axis=2) / attempts, np.sqrt(once / attempts)
        gone = there & (seen > 0) & (estimate + 1.96 * error < 0) & drop
        added = np.zeros_like(there)
        added[:, new] = True
        change = (true.mean(axis=2) * (added.astype(float) - gone)).sum(axis=1)
        accepted = let_in(dice, case, change, (added | gone).sum(axis=1))[:, None]
        there = (there | (added & accepted)) & ~(gone & accepted)
    attempts = np.maximum(seen, 1)[:, :, None]
    harms = (seen[:, :, None] > 0) & (total / attempts + np.sqrt(once * KINDS / attempts) < 0)
    whole = (true * there[:, :, None]).mean(axis=2).sum(axis=1)
    masked = (true * (there[:, :, None] & ~harms)).mean(axis=2).sum(axis=1)
    return whole, masked


def page(seed: int = 0) -> str:
    """Returns the tables as Markdown."""
    dice = np.random.default_rng(seed)
    lines = [
        "# Options of learning",
        "",
        f"Written by `python -m benchmarks.options`: {RUNS:,} simulated runs a cell, of {STEPS} "
        f"steps, seed {seed}; effects and noise are those of [the gate's](RESULTS-gates.md). The "
        f"gate is `one-se` with {TRIAL} attempts. A cell is the mean true gain of a run, and the "
        "share of runs that end below their start.",
        "",
        "## `--max-edits`",
        "",
        "Eight lessons a step; the groups that come to one beyond the first, by assumption.",
        "",
        "| reflector | gate | groups come to | no budget | 4 | 2 | 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, shares in REFLECTORS.items():
        for gated in (False, True):
            for groups in GROUPS_EACH:
                case = Case(World(shares, 8, TRIAL), gated)
                cells = [cell(with_budget(dice, case, most, groups)) for most in (8, 4, 2, 1)]
                lines.append(f"| {name} | {_gate(gated)} | {groups} | {' | '.join(cells)} |")
    lines += [
        "",
        "## `--drop-harmful` and `--inject credited`",
        "",
        f"Steps of {PROBLEMS} problems × {GROUP} attempts with `--dropout {DROPOUT}`. A lesson's "
        f"effect varies by {KIND_SPREAD} between {KINDS} kinds of problems of equal share.",
        "",
        "| reflector | lessons a step | gate | neither | `--drop-harmful` | `--inject credited` "
        "| both |",
        "|---|---:|---|---|---|---|---|",
    ]
    for name, shares in REFLECTORS.items():
        for lessons in (1, 3):
            for gated in (False, True):
                case = Case(World(shares, lessons, TRIAL), gated)
                plain, masked = with_credit(dice, case, drop=False)
                dropped, both = with_credit(dice, case, drop=True)
                cells = [cell(one) for one in (plain, dropped, masked, both)]
                lines.append(f"| {name} | {lessons} | {_gate(gated)} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _gate(gated: bool) -> str:
    return "`one-se`" if gated else "none"


if __name__ == "__main__":
    text = page()
    print(text)
    RESULTS.write_text(text, encoding="utf-8")
