"""How often experiments decide falsely, and how soon they decide rightly: simulated.

    python -m benchmarks.experiments           # some minutes; writes RESULTS-experiments.md
    python -m benchmarks.experiments --quick   # printed only

The tests are those of `tfgrpo experiment`, looked at after every call (after every block, between
which they say the same). How often they decide falsely is in `experiment_shapes.py`. A fixed test
is the z-test of two proportions, or of two means, at 5 % on two sides, with as many calls as give
it a power of 80 %. No model is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import NormalDist
from time import process_time
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks import experiment_shapes as shapes
from tfgrpo.evaluation.anytime_tests import block_sizes, in_blocks, log_evidence, log_mismatch
from tfgrpo.production.experiment_evidence import ALPHA, GUARDS_PART, MISMATCH

RESULTS = Path(__file__).parent / "RESULTS-experiments.md"
SIDE = ALPHA * (1 - GUARDS_PART) / 2
"""What harm and benefit of the main metric may each be shown falsely at most, beside guards."""
CHUNK = 1 << 19
"""Values that are simulated at a time."""
Array = NDArray[np.float64]


class Rates(NamedTuple):
    """The rates of right answers in both arms, and the candidate's share of calls."""

    control: float
    candidate: float
    share: float = 0.5


def right_or_wrong(
    dice: np.random.Generator, rates: Rates, calls: int, experiments: int, side: float
) -> tuple[Array, Array]:
    """Returns after how many calls of the candidate harm and benefit were shown in each
    experiment; infinite where they were not."""
    a, b = block_sizes(rates.share)
    blocks = calls // b
    each = np.tile([rates.control] * a + [rates.candidate] * b, blocks)

    def draw(count: int) -> Array:
        return (dice.random((count, len(each))) < each).astype(float)

    return _found(draw, (a, b), blocks, experiments, side)


def grades(
    dice: np.random.Generator, better: float, calls: int, experiments: int, side: float
) -> tuple[Array, Array]:
    """Returns the same for grades of a standard deviation of 0.2 about 0.5, of which the
    candidate's are higher by so many standard deviations."""

    def draw(count: int) -> Array:
        values = dice.beta(2.625, 2.625, (count, 2 * calls))
        values[:, 1::2] += 0.2 * better
        return np.clip(values, 0, 1)

    return _found(draw, (1, 1), calls, experiments, side)


def _found(
    draw: Callable[[int], Array], sizes: tuple[int, int], blocks: int, experiments: int, side: float
) -> tuple[Array, Array]:
    found: list[list[Array]] = [[], []]
    most = max(1, CHUNK // (blocks * sum(sizes)))
    for start in range(0, experiments, most):
        drawn = in_blocks(draw(min(most, experiments - start)), [sizes] * blocks)
        for which, benefit in enumerate((False, True)):
            crossed = log_evidence(drawn, benefit=benefit) >= math.log(1 / side)
            found[which].append(sizes[1] * first(crossed))
    return np.concatenate(found[0]), np.concatenate(found[1])


def first(crossed: NDArray[np.bool_]) -> Array:
    """Returns the place of the first true in each row, from 1; infinite where there is none."""
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1) + 1.0, np.inf)


def fixed(rates: Rates, power: float = 0.8) -> float:
    """Returns how many calls an arm a fixed test of two proportions needs."""
    p, q = rates.control, rates.candidate
    middle, normal = (p + q) / 2, NormalDist()
    spread = normal.inv_cdf(1 - ALPHA / 2) * math.sqrt(2 * middle * (1 - middle))
    spread += normal.inv_cdf(power) * math.sqrt(p * (1 - p) + q * (1 - q))
    return (spread / (p - q)) ** 2


def fixed_of_means(shift: float, power: float = 0.8) -> float:
    """Returns how many calls an arm a fixed test of means needs, for a standard deviation of 1."""
    normal = NormalDist()
    return 2 * ((normal.inv_cdf(1 - ALPHA / 2) + normal.inv_cdf(power)) / shift) ** 2


def looked_at(dice: np.random.Generator, experiments: int, calls: int = 500) -> float:
    """Returns how often a z-test at 5 %, looked at after every call, decides falsely."""
    count = np.arange(1, calls + 1)
    rights = [np.cumsum(dice.random((experiments, calls)) < 0.8, axis=1) for _ in range(2)]
    middle = (rights[0] + rights[1]) / (2 * count)
    error = np.sqrt(np.maximum(2 * middle * (1 - middle) / count, 1e-12))
    z = np.abs(rights[0] - rights[1]) / count / error
    return float(((z > 1.96) & (count >= 25)).any(axis=1).mean())


def lengths(dice: np.random.Generator, experiments: int) -> list[str]:
    """Returns the table of experiments in which there is harm."""
    head = ("harm", "fixed test", "mean length", "ratio", "median", "not found in 5 times as many")
    lines = row(*head) + row(*["---"] * len(head))
    for p, q in ((0.95, 0.75), (0.8, 0.6), (0.6, 0.4), (0.3, 0.1), (0.8, 0.7), (0.6, 0.5)):
        needed = fixed(Rates(p, q))
        most = int(5 * needed)
        harm, _ = right_or_wrong(dice, Rates(p, q), most, experiments, SIDE)
        lines += length_row(f"right {p} → {q}", needed, harm, most)
    few = max(200, experiments // 5)
    for p, q in ((0.55, 0.5), (0.85, 0.8)):
        needed = fixed(Rates(p, q))
        most = int(5 * needed)
        harm, _ = right_or_wrong(dice, Rates(p, q), most, few, SIDE)
        lines += length_row(f"right {p} → {q}", needed, harm, most)
    for shift in (0.5, 0.2):
        needed = fixed_of_means(shift)
        most = int(5 * needed)
        harm, _ = grades(dice, -shift, most, few, SIDE)
        lines += length_row(f"grades, {shift} standard deviations", needed, harm, most)
    return lines


def length_row(name: str, needed: float, found: Array, most: int) -> list[str]:
    """Returns a row of lengths, of calls an arm."""
    mean = float(np.minimum(found, most).mean())
    missed = float((~np.isfinite(found)).mean())
    return row(
        name,
        f"{needed:.0f}",
        f"{mean:.0f}",
        f"{mean / needed:.2f}",
        f"{np.median(found):.0f}",
        f"{missed:.1%}",
    )


def mismatches(dice: np.random.Generator, experiments: int, subjects: int = 2000) -> list[str]:
    """Returns the table of alarms about the arms' sizes, looked at ten times a hundred subjects."""
    head = ("share", "what comes", f"said within {subjects} subjects")
    lines = row(*head) + row(*["---"] * len(head))
    looks = range(10, subjects + 1, 10)
    for share, true in ((0.5, 0.5), (0.1, 0.1), (0.5, 0.4), (0.1, 0.15)):
        said = 0
        for _ in range(experiments // 10):
            counts = np.cumsum(dice.random(subjects) < true)
            said += any(
                log_mismatch(n - int(counts[n - 1]), int(counts[n - 1]), share)
                >= math.log(MISMATCH)
                for n in looks
            )
        lines += row(f"{share:.0%}", f"{true:.0%}", f"{said / (experiments // 10):.1%}")
    return lines


def row(*cells: object) -> list[str]:
    """Returns a row of a table."""
    return ["| " + " | ".join(map(str, cells)) + " |"]


def page(experiments: int, seed: int) -> str:
    """Returns the page of results."""
    dice, began = np.random.default_rng(seed), process_time()
    few = experiments // 10
    found, oracle = shapes.power(few)
    lines = [
        "# Experiments: how often they err, how soon they decide",
        "",
        "`python -m benchmarks.experiments`; the tests are described in "
        "`tfgrpo/evaluation/anytime_tests.py`.",
        "",
        f"## Decided falsely, of {few:,} experiments without a difference each",
        "",
        f"{shapes.SUBJECTS:,} subjects, looked at after every one; harm or benefit at {ALPHA:.0%} "
        "together, no guards. The columns are the candidate's share. A z-test at 5 % that is "
        f"looked at as often decides falsely in {looked_at(dice, 2000):.0%}. The oracle is the "
        "empirical Bernstein confidence sequence of `expectation` on each arm.",
        "",
        *shapes.table(few),
        "",
        "## Found",
        "",
        f"Right 0.60 → 0.72 is found better within 700 calls, half of them the candidate's, with "
        f"guards beside, in {found:.1%} of {few:,} experiments"
        + ("." if oracle is None else f"; by the oracle in {oracle:.1%} of {few // 10}."),
        "",
        "## Calls an arm until harm is shown",
        "",
        f"Of {experiments // 10:,} experiments each, half of the calls to the candidate, with "
        f"guards beside: harm at {SIDE:.1%}, benefit at {SIDE:.1%}, guards at "
        f"{ALPHA * GUARDS_PART:.1%}. The fixed test has a power of 80 %.",
        "",
        *lengths(dice, experiments // 10),
        "",
        "## Arms of the wrong size",
        "",
        *mismatches(dice, experiments),
        "",
        f"{process_time() - began:.0f} s of one core.",
    ]
    return "\n".join(lines) + "\n"


@click.command()
@click.option("--quick", is_flag=True, help="Fewer experiments; writes no file.")
@click.option("--seed", type=int, default=0, show_default=True)
def main(quick: bool, seed: int) -> None:
    """Simulates experiments."""
    text = page(500 if quick else 10_000, seed)
    click.echo(text)
    if not quick:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
