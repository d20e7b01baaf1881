"""How often an experiment whose arms are alike decides: by shape of the metric and by share.

Each experiment has `SUBJECTS` subjects, who come to the arms by chance, and is looked at after
every block, between which its tests say the same. Harm or benefit may be shown falsely in 5 % of
experiments together.

The oracle is the empirical Bernstein confidence sequence of `expectation`, one for each arm, with
half of the 5 % each: it decides where the two are apart, looked at after every `LOOKS` subjects.
It is installed for this alone (`pip install expectation`; from 0.6 on it asks for Python 3.12).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfgrpo.evaluation.anytime_tests import Outcome, block_sizes, blocks_of, means, ranks
from tfgrpo.production.experiment_evidence import ALPHA

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]
SUBJECTS = 1000
SHARES = (0.05, 0.1, 0.3, 0.5, 0.9)
LOOKS = 50
ORACLE = importlib.util.find_spec("expectation") is not None


class Shape(NamedTuple):
    """What values look like: scores between 0 and 1, or numbers that are compared by ranks."""

    name: str
    draw: Draw
    ranked: bool = False


def choice(
    values: list[float], chances: list[float]
) -> Callable[[np.random.Generator, int], Array]:
    """Returns what draws these values with these chances."""
    return lambda dice, size: dice.choice(np.asarray(values, float), size, p=chances)


def one_half(dice: np.random.Generator, size: int) -> Array:
    """Returns true and false, and one half among them."""
    values = (dice.random(size) < 0.8).astype(float)
    values[int(dice.integers(size))] = 0.5
    return values


def drift(dice: np.random.Generator, size: int) -> Array:
    """Returns true and false whose rate goes from 0.8 to 0.4 at a time."""
    rates = np.where(np.arange(size) < dice.integers(size), 0.8, 0.4)
    return (dice.random(size) < rates).astype(float)


def outage(dice: np.random.Generator, size: int) -> Array:
    """Returns true and false, among them fifty that are false one after the other."""
    values = (dice.random(size) < 0.9).astype(float)
    begin = int(dice.integers(size))
    values[begin : begin + 50] = 0
    return values


def rising(dice: np.random.Generator, size: int) -> Array:
    """Returns latencies that become longer all the time."""
    return dice.normal(0, 1, size) + np.arange(size) / size * 5


def cached(dice: np.random.Generator, size: int) -> Array:
    """Returns logarithms of latencies of which 3 % are hits of a cache."""
    return -np.where(dice.random(size) < 0.03, 8.3, dice.normal(13.7, 0.05, size))


SHAPES = (
    Shape("right at 0.5", choice([1, 0], [0.5, 0.5])),
    Shape("right at 0.95", choice([1, 0], [0.95, 0.05])),
    Shape("right at 0.01", choice([1, 0], [0.01, 0.99])),
    Shape("1: .97, .5: .02, 0: .01", choice([1, 0.5, 0], [0.97, 0.02, 0.01])),
    Shape("right at 0.8, one .5 among them", one_half),
    Shape("three grades", choice([0, 0.5, 1], [0.1, 0.2, 0.7])),
    Shape("five stars, most 4", choice([0, 0.25, 0.5, 0.75, 1], [0.05, 0.02, 0.03, 0.8, 0.1])),
    Shape("nearly always .9, else 0", choice([0.9, 0], [0.99, 0.01])),
    Shape("even", lambda dice, size: dice.random(size)),
    Shape("narrow (beta 200, 100)", lambda dice, size: dice.beta(200, 100, size)),
    Shape("two heaps (beta .2, .2)", lambda dice, size: dice.beta(0.2, 0.2, size)),
    Shape("skewed (beta .3, 8)", lambda dice, size: dice.beta(0.3, 8, size)),
    Shape("all the same", lambda dice, size: np.full(size, 0.7)),
    Shape("right, from 0.8 to 0.4 at a time", drift),
    Shape("right at 0.9, but for an outage", outage),
    Shape("latency, lognormal", lambda dice, size: dice.normal(0, 0.6, size), ranked=True),
    Shape("latency, 3 % cache hits", cached, ranked=True),
    Shape("latency that rises", rising, ranked=True),
    Shape("tokens, Pareto 1.2", lambda dice, size: -np.log1p(dice.pareto(1.2, size)), ranked=True),
    Shape(
        "tokens, five sizes",
        choice([-3.0, -4.0, -4.1, -5.0, -9.0], [0.9, 0.04, 0.03, 0.02, 0.01]),
        ranked=True,
    ),
)


def decided(values: Array, arms: NDArray[np.bool_], shape: Shape, share: float) -> bool:
    """Returns whether an experiment ever showed harm or benefit."""
    sizes = block_sizes(share)
    blocks = blocks_of(
        Outcome(arm, value, sizes)
        for arm, value in zip(arms.tolist(), values.tolist(), strict=True)
    )
    test = ranks(blocks) if shape.ranked else means(blocks)
    needed = math.log(2 / ALPHA)
    return test(False, 0.0) >= needed or test(True, 0.0) >= needed


def oracle_decided(values: Array, arms: NDArray[np.bool_]) -> bool:
    """Returns whether the oracle ever says that the arms differ."""
    from expectation.confseq import confidencesequence as oracle
    from expectation.confseq.confidenceconfig import EmpiricalBernsteinConfig

    config = EmpiricalBernsteinConfig(alpha=ALPHA / 2, lower_bound=0.0, upper_bound=1.0)
    pair = [oracle.EmpiricalBernsteinConfidenceSequence(config=config) for _ in range(2)]
    within: list[tuple[float, float]] = [(0.0, 1.0), (0.0, 1.0)]
    taken = [0, 0]
    for start in range(0, len(values), LOOKS):
        for arm in (False, True):
            new = values[taken[arm] : start + LOOKS][arms[taken[arm] : start + LOOKS] == arm]
            if not len(new):
                continue
            try:
                found = pair[arm].update(new)
            except RuntimeError:  # without a variance it finds no bound: it is asked again later
                continue
            taken[arm], within[arm] = start + LOOKS, (found.lower, found.upper)
        if within[0][1] < within[1][0] or within[1][1] < within[0][0]:
            return True
    return False


def rate(shape: Shape, share: float, experiments: int, *, oracle: bool) -> float:
    """Returns the part of experiments that decide though their arms are alike."""
    dice = np.random.default_rng([SHAPES.index(shape), round(1000 * share)])
    wrong = 0
    for _ in range(experiments):
        values, arms = shape.draw(dice, SUBJECTS), dice.random(SUBJECTS) < share
        if oracle:
            wrong += oracle_decided(values, arms)
        else:
            wrong += decided(values, arms, shape, share)
    return wrong / experiments


def table(experiments: int) -> Iterator[str]:
    """Yields the lines of the table."""
    columns = [f"{share:.0%}" for share in SHARES]
    yield "| metric | " + " | ".join(columns) + " | the oracle, at worst |"
    yield "| --- |" + " --- |" * (len(columns) + 1)
    for shape in SHAPES:
        rates = [rate(shape, share, experiments, oracle=False) for share in SHARES]
        told = "no bounds" if shape.ranked else "not installed"
        if ORACLE and not shape.ranked:
            few = max(20, experiments // 10)
            worst = max(rate(shape, share, few, oracle=True) for share in SHARES)
            told = f"{worst:.1%} of {few}"
        yield f"| {shape.name} | " + " | ".join(f"{r:.1%}" for r in rates) + f" | {told} |"


def power(experiments: int, calls: int = 700) -> tuple[float, float | None]:
    """Returns in which part of experiments a rate of 0.72 is found better than 0.60 by that many
    calls, half of them the candidate's, with guards beside; and in which part by the oracle."""
    dice, found, oracle = np.random.default_rng(1), 0, 0
    few = experiments // 10
    for number in range(experiments):
        arms = dice.random(calls) < 0.5
        values = (dice.random(calls) < np.where(arms, 0.72, 0.60)).astype(float)
        blocks = blocks_of(
            Outcome(arm, value) for arm, value in zip(arms.tolist(), values.tolist(), strict=True)
        )
        found += means(blocks)(True, 0.0) >= math.log(50)
        if ORACLE and number < few:
            oracle += oracle_decided(values, arms)
    return found / experiments, oracle / few if ORACLE else None
