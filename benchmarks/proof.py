"""How often a proof decides falsely, and after how many attempts rightly: simulated.

    python -m benchmarks.proof           # a minute; writes RESULTS-proof.md
    python -m benchmarks.proof --quick   # printed only

Streams of pairs of attempts at problems of every difficulty, of which one was shown a lesson of
planted worth. The test is that of `tfgrpo prove`, looked at after every pair. Beside it is a test
of a fixed size: a paired z-test at 5 % on two sides, with as many attempts as give a power of 80 %
for the smallest effect that is to be found. In the rows `turned` a model answers a problem always
alike, and the lesson turns some of them to right and others to wrong. No model is asked.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from tfgrpo.evaluation import anytime_tests
from tfgrpo.evaluation.pair_verdicts import (
    FEWEST,
    FEWEST_PROBLEMS,
    LEVEL,
    NEEDED,
    SPREAD,
    WORTH,
)
from tfgrpo.evaluation.statistics import APART, t_quantile

RESULTS = Path(__file__).parent / "RESULTS-proof.md"
PROBLEMS, PAIRS = 64, 768
"""The problems, and the pairs that a budget pays for: 12 passes over them."""
SMALLEST = 0.1
"""The effect that the test of a fixed size is made for."""
EASE = {"every": (0.1, 0.9), "hard": (0.0, 0.2), "even": (0.5, 0.5), "easy": (0.8, 1.0)}
"""From where to where problems are right without the lesson."""
TURNED = 0.15
"""The share of problems that a lesson without effect turns either way."""
Array = NDArray[np.float64]


class Ends(NamedTuple):
    """How streams ended: shares that were said to help, to harm and to be too small, and the mean
    and the ninetieth percentile of attempts by then."""

    helps: float
    harms: float
    small: float
    mean: float
    late: float


def streams(dice: np.random.Generator, count: int, effect: float, ease: str) -> Array:
    """The differences of pairs, a row a stream: pass by pass over the same problems."""
    if ease == "turned":
        dies = dice.random((count, PROBLEMS))
        up, down = dies < TURNED + effect / 2, dies > 1 - TURNED + effect / 2
        return np.tile(up.astype(float) - down, PAIRS // PROBLEMS)
    alone = np.tile(dice.uniform(*EASE[ease], (count, PROBLEMS)), PAIRS // PROBLEMS)
    shown = dice.random((count, PAIRS)) < np.clip(alone + effect, 0, 1)
    return shown.astype(float) - (dice.random((count, PAIRS)) < alone)


def firsts(differences: Array) -> list[NDArray[np.int64]]:
    """After how many pairs each stream shows that a lesson helps, that it harms, and that it is too
    small; one more than there are where it never does."""
    count, pairs = differences.shape
    values = np.full((count, 2 * pairs), 0.5)
    values[:, 1::2] = (1 + differences) / 2
    blocks = anytime_tests.in_blocks(values, [(1, 1)] * pairs)
    sides = [anytime_tests.log_evidence(blocks, benefit=benefit) for benefit in (True, False)]
    most = [np.maximum.accumulate(np.maximum(side, 0.0), axis=1) for side in sides]
    numbers = np.arange(1, pairs + 1)
    mean = np.cumsum(differences, axis=1) / numbers
    square = np.maximum(np.cumsum(differences**2, axis=1) - numbers * mean**2, 0.0)
    variance = (square + WORTH * SPREAD) / (numbers + WORTH)
    largest = np.abs(mean) + np.sqrt(variance / numbers)
    coming = (pairs - numbers) * largest**2 / (2 * variance)
    hopeless = (np.maximum(*most) + coming < NEEDED) & (numbers >= FEWEST)
    hopeless[:, -1] = True
    above, below, over = at_new_problems(differences)
    hopeless |= over & (numbers >= FEWEST)
    helps, harms = (side >= NEEDED for side in most)
    return [_first(helps & above), _first(harms & below), _first(hopeless)]


def at_new_problems(differences: Array) -> list[NDArray[np.bool_]]:
    """Whether the interval over problems is above zero after each pair, whether below, and whether
    no further pair at the same problems would tell."""
    pairs = differences.shape[1]
    size = min(PROBLEMS, pairs)
    sums, numbers = np.zeros((len(differences), size)), np.zeros(size)
    squares = np.zeros_like(sums)
    above, below, over = (np.zeros(differences.shape, bool) for _ in range(3))
    for at in range(pairs):
        sums[:, at % size] += differences[:, at]
        squares[:, at % size] += differences[:, at] ** 2
        numbers[at % size] += 1
        seen, count = int((numbers > 0).sum()), at + 1
        if seen < FEWEST_PROBLEMS:
            continue
        mean, weight = sums.sum(axis=1) / count, (numbers**2).sum() / count**2
        left = ((sums - mean[:, None] * numbers) ** 2).sum(axis=1) / count**2 / weight
        between = (left * seen + APART) / seen
        t = t_quantile(0.5 + LEVEL / 2, seen)
        half = t * np.sqrt(between * weight)
        above[:, at], below[:, at] = mean > half, mean < -half
        if numbers.min() > 1:
            within = ((squares - sums**2 / numbers) / (numbers - 1)).mean(axis=1) / count
            stays = np.maximum(between * weight - within, 0.0)
            over[:, at] = np.abs(mean) + np.sqrt(within) < t * np.sqrt(stays)
    return [above, below, over]


def ends(differences: Array) -> Ends:
    """How streams end that are looked at after every pair."""
    first, pairs = firsts(differences), differences.shape[1]
    at = np.minimum.reduce(first)
    attempts = 2 * np.minimum(at, pairs)
    said = [float(np.mean((one == at) & (one <= pairs))) for one in first[:2]]
    return Ends(
        said[0],
        said[1],
        1 - sum(said),
        float(attempts.mean()),
        float(np.quantile(attempts, 0.9)),
    )


def _first(hits: NDArray[np.bool_]) -> NDArray[np.int64]:
    return np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, hits.shape[1] + 1)


def fixed(variance: float) -> int:
    """The attempts of a test of a fixed size for the smallest effect."""
    normal = NormalDist()
    z = normal.inv_cdf(0.975) + normal.inv_cdf(0.8)
    return 2 * math.ceil(z**2 * variance / SMALLEST**2)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer streams; writes no file.")
def main(quick: bool) -> None:
    """Plays streams and writes how they end."""
    count, dice = (100 if quick else 1000), np.random.default_rng(11)
    lines = [
        "# A proof, simulated",
        "",
        "Streams of pairs of attempts at problems of a difficulty, of which one was shown a lesson "
        "of planted worth, looked at after every pair. The fixed size is that of a paired z-test "
        f"at 5 % on two sides with a power of 80 % for an effect of {SMALLEST}, and takes each "
        "pair for evidence of its own. Of `turned` problems a model answers each always alike, and "
        f"the lesson turns some to right and others to wrong, {100 * TURNED:.0f} % either way "
        "where it does nothing. No model is asked.",
        "",
        f"{count} streams a row, {PROBLEMS} problems, {2 * PAIRS} attempts at most.",
        "",
        "| effect | problems | helps | harms | too small | attempts, mean | 90 % | fixed size |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    rows = [(0.0, ease) for ease in EASE]
    rows += [(e, "every") for e in (0.05, 0.1, 0.2, 0.3, 0.5, -0.1, -0.3)]
    rows += [(e, "turned") for e in (0.0, 0.1, 0.2, 0.3, -0.2)]
    for effect, ease in rows:
        differences = streams(dice, count, effect, ease)
        of = ends(differences)
        shares = " | ".join(f"{share:.3f}" for share in (of.helps, of.harms, of.small))
        size = fixed(float(differences.var()))
        lines.append(
            f"| {effect:+.2f} | {ease} | {shares} | {of.mean:.0f} | {of.late:.0f} | {size} |"
        )
        click.echo(lines[-1])
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
