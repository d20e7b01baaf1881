"""Which rule a gate should follow, and what it should try: simulated.

    python -m benchmarks.gates           # a minute; writes RESULTS-gates.md
    python -m benchmarks.gates --quick   # printed only

A run has ten steps. Each brings lessons whose true effects on the reward are drawn: helpful, of no
effect, or harmful, in shares that stand for strong and weak reflectors. A trial on held-out
problems measures effects with the noise that its size leaves, a rule decides, and what was let in
stays. Reported are the mean of the true gain after ten steps and the share of runs that end below
their start. No model is asked, and lessons do not interact unless a row says so.

Two trials of the same cost are compared: the *bundle*, where half of the attempts have all of a
step's lessons and half have none, and the *factorial* one, where each attempt has a random half
of them and a regression gives each lesson its own effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from tfgrpo.evaluation.statistics import t_quantile
from tfgrpo.settings import GateRule
from tfgrpo.training.gate_rules import GATE_RULES, passes
from tfgrpo.training.retries import WORST

RESULTS = Path(__file__).parent / "RESULTS-gates.md"
STEPS, EFFECT, WITHIN, BETWEEN = 10, 0.05, 0.39, 0.10
"""Steps of a run, the size of a lesson's effect, and the standard deviations of a reward: of one
attempt around its problem's mean, and of a lesson's effect from problem to problem."""
REFLECTORS = {
    "strong (40/35/25)": (0.40, 0.35, 0.25),
    "middling (25/50/25)": (0.25, 0.50, 0.25),
    "weak (15/50/35)": (0.15, 0.50, 0.35),
}
SPREADS = ((8, 4), (16, 2), (32, 1), (48, 1), (64, 1))
"""Of a small trial: problems, and attempts at each with either library."""
NOISES = ((0.39, 0.10), (0.39, 0.20), (0.25, 0.30))
"""Standard deviations of an attempt and of a lesson's effect: of a general rule, of one that is
for some problems, and of a rule about one label, which most problems do not meet."""
LOCAL_STEPS = 4
RETRIES = (0, 1, 3, 7)
RETRY_STEPS = 8
TRIALS = {192: (24, 4), 384: (48, 4), 96: (12, 4)}
"""Attempts of a trial → problems, and attempts at each with either library."""
Array = NDArray[np.float64]


class World(NamedTuple):
    """What is simulated: shares of lessons, lessons a step, attempts a trial, pairs or not."""

    shares: tuple[float, float, float]
    lessons: int
    attempts: int
    pairs: bool = False


def draw(dice: np.random.Generator, world: World, runs: int) -> Array:
    """Returns the true effects of a step's lessons: runs x lessons."""
    kinds = dice.choice(3, size=(runs, world.lessons), p=world.shares)
    sizes = dice.gamma(4.0, EFFECT / 4.0, size=kinds.shape)
    return np.choose(kinds, [sizes, np.zeros_like(sizes), -sizes])


def bundle(dice: np.random.Generator, world: World, runs: int, rule: GateRule) -> Array:
    """Returns each run's gain: a step's lessons are let in together or not at all."""
    problems = TRIALS[world.attempts][0]
    gain = np.zeros(runs)
    for _ in range(STEPS):
        effects = draw(dice, world, runs)
        true = effects.sum(axis=1) + (2 * EFFECT if world.pairs else 0.0)
        spread = world.lessons * BETWEEN**2 / problems
        error = np.sqrt(4 * WITHIN**2 / world.attempts + spread)
        gain += np.where(_let_in(dice, rule, true, error, problems - 1), true, 0.0)
    return gain


def factorial(dice: np.random.Generator, world: World, runs: int, rule: GateRule) -> Array:
    """Returns each run's gain: each lesson is let in by its own effect.

    With `pairs`, two more lessons a step help only together; alone each seems to have half of
    what they have together, since the other is there half of the time.
    """
    problems = TRIALS[world.attempts][0]
    error = np.sqrt(4 * WITHIN**2 / world.attempts + BETWEEN**2 / problems)
    freedom = world.attempts - problems - world.lessons
    gain = np.zeros(runs)
    for _ in range(STEPS):
        effects = draw(dice, world, runs)
        gain += np.where(_let_in(dice, rule, effects, error, freedom), effects, 0.0).sum(axis=1)
        if world.pairs:
            seen = np.full((runs, 2), EFFECT)
            gain += 2 * EFFECT * _let_in(dice, rule, seen, error, freedom).all(axis=1)
    return gain


def spread(
    dice: np.random.Generator,
    shares: tuple[float, float, float],
    trial: tuple[int, int],
    noise: tuple[float, float],
    runs: int,
) -> Array:
    """Returns each run's gain over a few steps of three lessons, by how a trial's attempts are
    spread over problems."""
    (problems, samples), (within, between) = trial, noise
    error = np.sqrt(2 * within**2 / (problems * samples) + 3 * between**2 / problems)
    gain = np.zeros(runs)
    for _ in range(LOCAL_STEPS):
        true = draw(dice, World(shares, 3, 0), runs).sum(axis=1)
        gain += np.where(_let_in(dice, "one-se", true, error, problems - 1), true, 0.0)
    return gain


def retried(
    dice: np.random.Generator,
    shares: tuple[float, float, float],
    trial: tuple[int, int],
    noise: tuple[float, float],
    most: int,
    runs: int,
) -> Array:
    """Returns each run's gain over steps of three lessons, where what a trial leaves undecided is
    tried again with the next step's lessons, `most` times.

    As in a run, the library in force keeps its scores from trial to trial, and a candidate that
    enters keeps those that it entered by.
    """
    (problems, samples), (within, between) = trial, noise
    attempts = within / np.sqrt(problems * samples)
    gain, waiting = np.zeros(runs), np.zeros((runs, most + 1))
    luck, lessons = dice.normal(0.0, attempts, runs), np.zeros((runs, most + 1))
    for _ in range(RETRY_STEPS):
        waiting[:, 0] = draw(dice, World(shares, 3, 0), runs).sum(axis=1)
        lessons[:, 0] = 3.0
        true = waiting.sum(axis=1)
        spread = np.sqrt(lessons.sum(axis=1) * between**2 / problems)
        fresh = dice.normal(0.0, attempts, runs)
        measured = true + dice.normal(0.0, spread, runs) + fresh - luck
        estimated = _estimated(dice, np.hypot(np.sqrt(2.0) * attempts, spread), problems - 1)
        enters = passes("one-se", measured, estimated, 0.0)  # type: ignore[arg-type]
        gain += np.where(enters, true, 0.0)
        luck = np.where(enters, fresh, luck)
        stays = ~np.asarray(enters) & (measured > -WORST * estimated)
        for held in (waiting, lessons):
            held[:, 1:] = np.where(stays[:, None], held[:, :-1], 0.0)
    return gain


def ungated(dice: np.random.Generator, world: World, runs: int) -> Array:
    """Returns each run's gain where everything enters."""
    pairs = 2 * EFFECT if world.pairs else 0.0
    return sum((draw(dice, world, runs).sum(axis=1) + pairs for _ in range(STEPS)), np.zeros(runs))


def chosen_at_end(dice: np.random.Generator, world: World, runs: int, rule: GateRule) -> Array:
    """Returns each run's gain where its versions and the empty library are scored once more, on
    fresh attempts at the gate's problems, and the best is taken."""
    problems, samples = TRIALS[world.attempts]
    states = [np.zeros(runs)]
    for _ in range(STEPS):
        states.append(states[-1] + bundle_step(dice, world, runs, rule))
    true = np.stack(states, axis=1)
    error = np.sqrt(WITHIN**2 / (problems * samples))
    scored = true + dice.normal(0.0, error, true.shape)
    same = np.isclose(np.diff(true, axis=1), 0.0)  # a library that did not change is scored once
    for step in range(STEPS):
        scored[same[:, step], step + 1] = scored[same[:, step], step]
    return np.take_along_axis(true, scored.argmax(axis=1)[:, None], axis=1)[:, 0]


def bundle_step(dice: np.random.Generator, world: World, runs: int, rule: GateRule) -> Array:
    """Returns what one gated step adds."""
    problems = TRIALS[world.attempts][0]
    true = draw(dice, world, runs).sum(axis=1)
    error = np.sqrt(4 * WITHIN**2 / world.attempts + world.lessons * BETWEEN**2 / problems)
    return np.where(_let_in(dice, rule, true, error, problems - 1), true, 0.0)


def _let_in(
    dice: np.random.Generator, rule: GateRule, true: Array, error: float, freedom: int
) -> Any:
    """Returns which effects pass, measured with a standard error that is itself estimated."""
    measured = true + dice.normal(0.0, error, true.shape)
    estimated = _estimated(dice, np.full(true.shape, error), freedom)
    return passes(rule, measured, estimated, t_quantile(0.975, freedom))  # type: ignore[arg-type]


def _estimated(dice: np.random.Generator, error: Array, freedom: int) -> Array:
    """Returns standard errors as trials estimate them."""
    estimated: Array = error * np.sqrt(dice.chisquare(freedom, error.shape) / freedom)
    return estimated


def cell(gain: Array) -> str:
    """Returns a mean gain and the share of runs that end below their start."""
    return f"{gain.mean():+.3f} ({(gain < -1e-9).mean():.0%})"


def page(runs: int, seed: int) -> str:
    """Returns the tables as Markdown."""
    dice = np.random.default_rng(seed)
    head, rule_names = ["reflector", "attempts", "lessons"], list(GATE_RULES)
    lines = [
        "# Which rule the gate follows",
        "",
        f"Written by `python -m benchmarks.gates`: {runs:,} simulated runs a cell, "
        f"{STEPS} steps each, seed {seed}. Effects of a lesson around {EFFECT}, an attempt's "
        f"standard deviation {WITHIN}, a lesson's from problem to problem {BETWEEN}. A cell is the "
        "mean true gain of a run, and the share of runs that end below their start.",
        "",
        "## A step's lessons together",
        "",
    ]
    lines += _row([*head, "no gate", *rule_names]) + _row(["---"] * (4 + len(rule_names)))
    for name, shares in REFLECTORS.items():
        for attempts in sorted(TRIALS):
            for lessons in (1, 3, 8):
                world = World(shares, lessons, attempts)
                cells = [ungated(dice, world, runs)]
                cells += [bundle(dice, world, runs, rule) for rule in GATE_RULES]
                lines += _row([name, attempts, lessons, *map(cell, cells)])
    lines += ["", "## The best version chosen at the end, on fresh attempts", ""]
    lines += _row([*head, *rule_names]) + _row(["---"] * (3 + len(rule_names)))
    for name, shares in REFLECTORS.items():
        for lessons in (1, 3, 8):
            world = World(shares, lessons, 192)
            cells = [chosen_at_end(dice, world, runs, rule) for rule in GATE_RULES]
            lines += _row([name, 192, lessons, *map(cell, cells)])
    lines += ["", "## Each lesson by its own effect, at the same cost", ""]
    lines += _row([*head, *rule_names]) + _row(["---"] * (3 + len(rule_names)))
    for name, shares in REFLECTORS.items():
        for attempts in sorted(TRIALS):
            for lessons in (1, 3, 8):
                world = World(shares, lessons, attempts)
                cells = [factorial(dice, world, runs, rule) for rule in GATE_RULES]
                lines += _row([name, attempts, lessons, *map(cell, cells)])
    lines += ["", "## With two more lessons a step that help only together", ""]
    lines += _row([*head, "trial", *rule_names]) + _row(["---"] * (4 + len(rule_names)))
    for name, shares in REFLECTORS.items():
        world = World(shares, 3, 192, pairs=True)
        for trial in (bundle, factorial):
            cells = [trial(dice, world, runs, rule) for rule in GATE_RULES]
            lines += _row([name, 192, "3 + 2", trial.__name__, *map(cell, cells)])
    lines += ["", "## A small trial's attempts, spread over problems", ""]
    lines += [
        f"{LOCAL_STEPS} steps of three lessons with `one-se`. The columns are problems × attempts "
        "at each with either library; the noise is that of an attempt, and of a lesson from "
        "problem to problem.",
        "",
    ]
    lines += _row(["reflector", "noise", *(f"{n} × {s}" for n, s in SPREADS)])
    lines += _row(["---"] * (2 + len(SPREADS)))
    for name, shares in REFLECTORS.items():
        for noise in NOISES:
            cells = [spread(dice, shares, trial, noise, runs) for trial in SPREADS]
            lines += _row([name, "{:.2f}, {:.2f}".format(*noise), *map(cell, cells)])
    lines += ["", "## What a trial left undecided, tried again", ""]
    lines += [
        f"{RETRY_STEPS} steps of three lessons with `one-se`. What is not let in is tried again "
        f"with the next step's lessons, unless it was measured more than {WORST} standard errors "
        "below zero. The library in force keeps its scores from trial to trial, as in a run. The "
        "last columns say how often a change is tried again at most.",
        "",
    ]
    lines += _row(["reflector", "noise", "trial", *map(str, RETRIES)])
    lines += _row(["---"] * (3 + len(RETRIES)))
    for name, shares in REFLECTORS.items():
        for noise in NOISES:
            for trial in ((32, 1), (64, 1), (48, 4)):
                cells = [retried(dice, shares, trial, noise, most, runs) for most in RETRIES]
                tried = "{} × {}".format(*trial)
                lines += _row([name, "{:.2f}, {:.2f}".format(*noise), tried, *map(cell, cells)])
    return "\n".join(lines) + "\n"


def _row(cells: list[Any]) -> list[str]:
    return ["| " + " | ".join(str(one) for one in cells) + " |"]


@click.command()
@click.option("--quick", is_flag=True, help="Fewer runs; writes no file.")
@click.option("--seed", type=int, default=0, show_default=True)
def main(quick: bool, seed: int) -> None:
    """Simulates the rules of the gate."""
    text = page(500 if quick else 5_000, seed)
    click.echo(text)
    if not quick:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
