"""Gains pooled over families and seeds, with intervals over problems and seeds.

A cell's problems are drawn with its seed, so cells of a family differ by the problems as well as
by the run. A family's interval is Student's over its cells' gains, where there are at least two.
A family with one cell has an interval over its problems, which says nothing of other seeds.
The pooled gain is the mean of the families' means. With the families as they are, its interval is
Student's over the same units, on Satterthwaite's degrees of freedom (Biometrics Bulletin 2, 1946).
Where families are taken for a sample of others, the interval is Student's over their means.

A cell is left out where a lookup on its own draw answers it (`lookup.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, sqrt
from statistics import variance
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.families import lookup
from benchmarks.families.registry import FAMILIES
from benchmarks.families.results import Result, mean
from tfgrpo.evaluation.statistics import Estimate, interval, t_quantile

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
    return interval(_units(cells))


def _units(cells: Sequence[Gains]) -> list[float]:
    """Returns what a family's gain is the mean of: its cells' gains, or the only one's problems."""
    return cells[0].tolist() if len(cells) == 1 else [float(cell.mean()) for cell in cells]


def pooled(families: Families) -> Pooled:
    """Returns the mean of the families' gains with its intervals. Raises ValueError for none."""
    if not families:
        raise ValueError("there is no family to pool")
    units = [_units(cells) for cells in families.values()]
    means = [mean(values) for values in units]
    fixed = _of_means(mean(means), units)
    return Pooled(fixed, interval(means) if len(means) > 1 else None)


def _of_means(middle: float, units: Sequence[Sequence[float]]) -> Estimate:
    """Returns the mean of several samples' means, with Student's interval on Satterthwaite's
    degrees of freedom, rounded down; infinite where a sample has one value."""
    count = sum(map(len, units))
    if min(map(len, units)) < 2:
        return Estimate(middle, -inf, inf, count)
    errors = [variance(values) / len(values) for values in units]
    weights = sum(error**2 / (len(values) - 1) for error, values in zip(errors, units, strict=True))
    freedom = int(sum(errors) ** 2 / weights) if weights else count
    half = t_quantile(0.975, freedom) * sqrt(sum(errors)) / len(units)
    return Estimate(middle, middle - half, middle + half, count)


def page(cells: Sequence[Result]) -> str:
    """Returns the tables of all cells, by what they share, with every run that lost."""
    groups: dict[str, list[Result]] = {}
    for cell in cells:
        groups.setdefault(_title(cell), []).append(cell)
    return "\n\n".join(_group(*each) for each in groups.items()) + "\n"


def _title(cell: Result) -> str:
    """Returns in words what cells share that are pooled; those of before say less of it."""
    words = f"{cell['arm']}, {cell['model']}, code {cell['code']}"
    if "sizes" in cell:
        words += f", {cell['sizes'][0]} training and {cell['sizes'][1]} test problems"
    if "samples" in cell:
        words += f" × {cell['samples']}"
    return words + (", as a local model" if cell.get("local") else "")


def _group(title: str, cells: Sequence[Result]) -> str:
    refused = {id(cell): best for cell in cells if (best := refusing(cell)) is not None}
    out = [
        f"- {cell['family']}, seed {cell['seed']}: not used: a lookup scores "
        f"{refused[id(cell)]:.3f}, the empty library {cell['empty']:.3f}"
        for cell in cells
        if id(cell) in refused
    ]
    used = [cell for cell in cells if id(cell) not in refused]
    return "\n".join([f"## {title}", "", *_table(used), *out])


def refusing(cell: Result) -> float | None:
    """Returns what a lookup scores on a cell's draw where that puts the cell out, else None."""
    if cell["family"] not in FAMILIES:
        return None
    best = max(lookup.lookup_scores(FAMILIES[cell["family"]], cell["seed"]).values())
    return None if lookup.is_usable(best, cell["empty"]) else best


def _over(families: Families) -> str:
    """Returns what a pooled interval is over, in words."""
    single = [len(cells) == 1 for cells in families.values()]
    if all(single):
        return "over problems alone"
    return "over seeds" + (
        ", and over problems alone where a family has one" if any(single) else ""
    )


def _table(cells: Sequence[Result]) -> list[str]:
    if not cells:
        return []
    families = gains_of(cells)
    lines = [
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
        f"families ({_over(families)})"
        + (f", {_signed(others)} for families like them." if others else "."),
        f"Runs below the empty library: {len(lost)} of {len(cells)}" + (":" if lost else "."),
    ]
    lines += [
        f"- {cell['family']}, seed {cell['seed']}: {cell['empty']:.3f} → {cell['learned']:.3f} "
        f"({cell['gain'][0]:+.3f} [{cell['gain'][1]:+.3f}, {cell['gain'][2]:+.3f}])"
        for cell in lost
    ]
    return lines


def losing(cells: Sequence[Result]) -> list[Result]:
    """Returns the runs that ended below the empty library, the worst first."""
    return sorted((c for c in cells if c["gain"][0] < -1e-9), key=lambda c: float(c["gain"][0]))


def _signed(one: Estimate) -> str:
    return f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"
