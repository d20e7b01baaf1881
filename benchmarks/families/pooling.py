"""Gains pooled over families and seeds, with intervals over problems and seeds.

A cell's problems are drawn with its seed, so cells of a family differ by the problems as well as
by the run. A family's interval is Student's over its cells' gains, where there are at least two.
The pooled gain is the mean of the families' means; its interval is a bootstrap of two levels with
the families as they are: cells are drawn with replacement within each family, then problems within
each cell (Davison and Hinkley, Bootstrap Methods, 1997, 3.8). Where families are taken for a
sample of others, the interval is Student's over their means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.families.results import Result, mean
from tfgrpo.evaluation.statistics import Estimate, interval

ROUNDS = 10_000
Gains = NDArray[np.float64]
Families = Mapping[str, Sequence[Gains]]


class Pooled(NamedTuple):
    """A mean gain over families: with its interval for these families, and for others like them,
    None for one family alone."""

    fixed: Estimate
    random: Estimate | None


def gains_of(cells: Sequence[Result]) -> dict[str, list[Gains]]:
    """Returns the gains at the problems of each cell, by family."""
    families: dict[str, list[Gains]] = {}
    for cell in sorted(cells, key=lambda one: (one["family"], one["seed"])):
        families.setdefault(cell["family"], []).append(np.array(list(cell["gains"].values())))
    return families


def of_family(cells: Sequence[Gains]) -> Estimate:
    """Returns a family's gain with its interval: over its cells, or over the problems of the only
    one, which then says nothing of other seeds."""
    if len(cells) == 1:
        return interval(cells[0].tolist())
    return interval([float(cell.mean()) for cell in cells])


def pooled(families: Families, *, rounds: int = ROUNDS, seed: int = 0) -> Pooled:
    """Returns the mean of the families' gains with its intervals. Raises ValueError for none."""
    if not families:
        raise ValueError("there is no family to pool")
    dice = np.random.default_rng(seed)
    drawn = np.zeros(rounds)
    for cells in families.values():
        drawn += _resampled(cells, rounds, dice) / len(families)
    means = [mean([float(cell.mean()) for cell in cells]) for cells in families.values()]
    low, high = np.quantile(drawn, [0.025, 0.975])
    fixed = Estimate(mean(means), float(low), float(high), sum(map(len, families.values())))
    return Pooled(fixed, interval(means) if len(means) > 1 else None)


def _resampled(cells: Sequence[Gains], rounds: int, dice: np.random.Generator) -> Gains:
    """Returns a family's mean gain in each round of drawing cells, and problems within them."""
    total = np.zeros(rounds)
    for _ in cells:
        chosen = dice.integers(len(cells), size=rounds)
        for number, cell in enumerate(cells):
            there = np.flatnonzero(chosen == number)
            places = dice.integers(len(cell), size=(len(there), len(cell)))
            total[there] += cell[places].mean(axis=1)
    return total / len(cells)


def page(cells: Sequence[Result]) -> str:
    """Returns the tables of all cells, by code, model and arm, with every run that lost."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for cell in cells:
        groups.setdefault((cell["code"], cell["model"], cell["arm"]), []).append(cell)
    return "\n\n".join(_group(*key, group) for key, group in groups.items()) + "\n"


def _group(code: str, model: str, arm: str, cells: Sequence[Result]) -> str:
    families = gains_of(cells)
    lines = [
        f"## {arm}, {model}, code {code}",
        "",
        "| family | seeds | empty | learned | gain [95 %] | below empty | tokens |",
        "|---|---:|---:|---:|---|---:|---:|",
    ]
    for name, gains in families.items():
        own = [cell for cell in cells if cell["family"] == name]
        note = " (problems alone)" if len(own) == 1 else ""
        lines.append(
            f"| {name} | {len(own)} | {mean([c['empty'] for c in own]):.3f} | "
            f"{mean([c['learned'] for c in own]):.3f} | {_signed(of_family(gains))}{note} | "
            f"{len(losing(own))} | {mean([c['tokens'] for c in own]):,.0f} |"
        )
    fixed, others = pooled(families)
    lost = losing(cells)
    lines += [
        "",
        f"Pooled over {len(families)} families and {len(cells)} runs: {_signed(fixed)} for these "
        "families (bootstrap over seeds and problems)"
        + (f", {_signed(others)} for families like them." if others else "."),
        f"Runs below the empty library: {len(lost)} of {len(cells)}" + (":" if lost else "."),
    ]
    lines += [
        f"- {cell['family']}, seed {cell['seed']}: {cell['empty']:.3f} → {cell['learned']:.3f} "
        f"({cell['gain'][0]:+.3f} [{cell['gain'][1]:+.3f}, {cell['gain'][2]:+.3f}])"
        for cell in lost
    ]
    return "\n".join(lines)


def losing(cells: Sequence[Result]) -> list[Result]:
    """Returns the runs that ended below the empty library, the worst first."""
    return sorted((c for c in cells if c["gain"][0] < -1e-9), key=lambda c: float(c["gain"][0]))


def _signed(one: Estimate) -> str:
    return f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
