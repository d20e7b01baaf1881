"""The table of the race and its figure, from the cells that are done.

Every mean is over the sealed problems, every test is paired by problem: of each arm and problem
the mean over its seeds and samples is compared with the empty library's, signs are flipped by
problem, and Holm's correction is made over the arms of a task. Intervals are over problems and, of
an arm with several seeds, over those too; the tests are for these runs alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from statistics import fmean
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from benchmarks.learners.cells import NEEDED
from tfgrpo.evaluation.statistics import Estimate, interval, permutation

Cell = dict[str, Any]
NONE = "–"


class Line(NamedTuple):
    """An arm on a task: its cells, its gain over empty with its interval, and p as it is and
    after Holm's correction. None for the empty library, and where it has no cell."""

    arm: str
    cells: Sequence[Cell]
    gain: Estimate | None
    p: float | None
    holm: float | None


def by_problem(cells: Sequence[Cell], which: str) -> dict[str, float]:
    """Returns each sealed problem's mean reward over the cells' seeds and samples."""
    values: dict[str, list[float]] = {}
    for cell in cells:
        for problem, rewards in cell[which]["rewards"].items():
            values.setdefault(problem, []).append(fmean(rewards))
    return {problem: fmean(means) for problem, means in values.items()}


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Returns p-values corrected for being several (Holm, 1979)."""
    corrected, worst = {}, 0.0
    for rank, (name, value) in enumerate(sorted(p.items(), key=lambda item: item[1])):
        worst = max(worst, min(1.0, value * (len(p) - rank)))
        corrected[name] = worst
    return corrected


def lines_of(cells: Sequence[Cell], which: str = "best") -> list[Line]:
    """Returns the arms of one task on one model, empty first and those on record alone last."""
    arms = dict.fromkeys((*NEEDED, *(c["arm"] for c in cells)))
    by_arm = {arm: [c for c in cells if c["arm"] == arm] for arm in arms}
    empty = by_problem(by_arm["empty"], "best")
    gains: dict[str, list[float]] = {}
    for arm, runs in by_arm.items():
        if arm != "empty" and runs and empty:
            means = by_problem(runs, which)
            gains[arm] = [means[problem] - empty[problem] for problem in empty if problem in means]
    p = {arm: permutation(values) for arm, values in gains.items()}
    corrected = holm(p)
    return [
        Line(
            arm,
            runs,
            over_seeds(gains[arm], [run[which]["mean"] for run in runs]) if arm in gains else None,
            p.get(arm),
            corrected.get(arm),
        )
        for arm, runs in by_arm.items()
        if runs
    ]


def over_seeds(gains: Sequence[float], means: Sequence[float]) -> Estimate:
    """Returns the mean of an arm's gains, one for each problem, with an interval that adds the
    spread over problems and that of its runs' means over seeds, each as variances of a mean. The
    noise of single attempts is in both, so it is rather too wide."""
    one = interval(gains)
    if len(means) < 2:
        return one
    half = hypot(one.high - one.mean, interval(means).high - fmean(means))
    return one._replace(low=one.mean - half, high=one.mean + half)


def losing(line: Line, empty: float, which: str = "best") -> list[Cell]:
    """Returns an arm's runs that ended below the empty library."""
    return [cell for cell in line.cells if cell[which]["mean"] < empty - 1e-9]


def groups_of(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Returns the cells that are compared: of a task and a model, asked alike."""
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in sorted(cells, key=_alike):
        groups.setdefault(_alike(cell), []).append(cell)
    return list(groups.values())


def _alike(cell: Cell) -> tuple[Any, ...]:
    names = ("task", "model", "problems", "samples", "temperature", "max_tokens")
    return tuple(cell[name] for name in names)


def _empty(cells: Sequence[Cell]) -> float | None:
    """Returns what the empty library of a group scores, None where it has none yet."""
    means = [cell["best"]["mean"] for cell in cells if cell["arm"] == "empty"]
    return fmean(means) if means else None


def page(cells: Sequence[Cell], measured: Sequence[dict[str, Any]], *, figure: str | None) -> str:
    """Returns the page: a table for each task and model, every losing run, and the machine."""
    parts = ["# Learners side by side", "", __doc__.split("\n\n")[1].replace("\n", " "), ""]
    if figure and cells:
        parts += [f"![Mean gain over the empty library]({figure})", ""]
    parts += _headrooms(measured)
    for group in groups_of(cells):
        parts += _task(group)
    if not cells:
        parts += ["No cell is done yet.", ""]
    machines = sorted({one["machine"] for one in (*cells, *measured)})
    parts += [f"Machine: {machine}." for machine in machines]
    return "\n".join(parts).rstrip() + "\n"


def _headrooms(measured: Sequence[dict[str, Any]]) -> list[str]:
    if not measured:
        return []
    rows = [
        f"| {one['task']} | {one['model']} | {one['means']['empty']:.3f} | "
        f"{one['means']['rules']:.3f} | {one['means']['examples']:.3f} | "
        f"{'raced' if one['has_headroom'] else 'without headroom, not raced'} |"
        for one in measured
    ]
    head = "| task | model | empty | rules by hand | right examples | |"
    return ["## Headroom", "", head, "|---|---|---:|---:|---:|---|", *rows, ""]


def _task(cells: Sequence[Cell]) -> list[str]:
    best, last = lines_of(cells), {line.arm: line for line in lines_of(cells, "final")}
    first, empty = cells[0], _empty(cells)
    count = len(first["best"]["rewards"])
    budgets = " or ".join(f"{budget:g}" for budget in sorted({c["budget"] for c in cells}))
    parts = [
        f"## {first['task']}, {first['model']}",
        "",
        f"{count} sealed problems × {first['samples']} samples, temperature "
        f"{first['temperature']:g}, at most {first['max_tokens']} tokens an answer, "
        f"{budgets} compute-seconds a run (reading {first['speeds']['prefill']:g} and "
        f"writing {first['speeds']['decode']:g} tokens a second).",
        "",
        "| arm | seeds | as deployed | gain over empty | p | Holm | final | runs below empty"
        " | prompt tokens | compute-seconds | calls |",
        "|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for line in best:
        gain = NONE if line.gain is None else _signed(line.gain)
        below = NONE if empty is None or line.arm == "empty" else str(len(losing(line, empty)))
        final = last[line.arm].gain
        parts.append(
            f"| {line.arm} | {len(line.cells)} | {_mean(line.cells, 'best'):.3f} | {gain} | "
            f"{_p(line.p)} | {_p(line.holm)} | {_mean(line.cells, 'final'):.3f}"
            f"{f' ({final.mean:+.3f})' if final else ''} | {below} | "
            f"{fmean(c['best']['prompt_tokens'] for c in line.cells):.0f} | "
            f"{fmean(c['spent']['spent'] for c in line.cells):.0f} | "
            f"{fmean(c['spent']['calls'] for c in line.cells):,.0f} |"
        )
    parts += ["", *_runs(best, empty), ""]
    return parts


def _runs(lines: Sequence[Line], empty: float | None) -> list[str]:
    """Returns every run, and which of them lost."""
    rows = [
        "| run | as deployed | final | chosen by | compute-seconds | ended | |",
        "|---|" + "---|" * 6,
    ]
    for line in lines:
        for cell in sorted(line.cells, key=lambda c: int(c["seed"])):
            lost = [
                which
                for which in ("best", "final")
                if empty is not None and line.arm != "empty" and cell[which]["mean"] < empty - 1e-9
            ]
            verdict = f"below empty: {' and '.join(lost)}" if lost else ""
            rows.append(
                f"| {line.arm}, seed {cell['seed']} | {cell['best']['mean']:.3f} | "
                f"{cell['final']['mean']:.3f} | {cell['chosen_by']} | "
                f"{cell['spent']['spent']:.0f} of {cell['budget']:g} | {cell['ended']} | "
                f"{verdict} |"
            )
    return rows


def _mean(cells: Sequence[Cell], which: str) -> float:
    return fmean(cell[which]["mean"] for cell in cells)


def _signed(gain: Estimate) -> str:
    return f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"


def _p(value: float | None) -> str:
    if value is None:
        return NONE
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.1 else f"{value:.2f}"


WIDTH, ROW, LEFT, RIGHT = 720, 26, 190, 40


def figure(cells: Sequence[Cell]) -> str:
    """Returns the gains over the empty library with their intervals, and each run, as SVG."""
    groups = [
        (f"{group[0]['task']}, {group[0]['model']}", empty, [x for x in lines_of(group) if x.gain])
        for group in groups_of(cells)
        if (empty := _empty(group)) is not None
    ]
    gains = [line.gain for *_, lines in groups for line in lines if line.gain]
    low = min([-0.1, *(max(-1.0, gain.low) for gain in gains)])
    high = max([0.1, *(min(1.0, gain.high) for gain in gains)])

    def x(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    body, y = [], 10
    for title, empty, lines in groups:
        y += ROW
        body.append(f'<text x="10" y="{y}" font-weight="bold">{escape(title)}</text>')
        for line in lines:
            y += ROW
            assert line.gain is not None
            colour = "#0a7d4f" if line.arm == "tfgrpo" else "#4a5568"
            body += [
                f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(line.arm)}</text>',
                f'<line x1="{x(line.gain.low)}" x2="{x(line.gain.high)}" y1="{y}" y2="{y}" '
                f'stroke="{colour}" stroke-width="2"/>',
                f'<circle cx="{x(line.gain.mean)}" cy="{y}" r="5" fill="{colour}"/>',
            ]
            body += [
                f'<circle cx="{x(cell["best"]["mean"] - empty)}" cy="{y}" r="2.5" fill="none" '
                f'stroke="{colour}"/>'
                for cell in line.cells
            ]
    y += ROW
    axis = [
        f'<line x1="{x(0)}" x2="{x(0)}" y1="16" y2="{y - 8}" stroke="#a0aec0" '
        'stroke-dasharray="3"/>'
    ]
    for tick in range(round(low * 10), round(high * 10) + 1):
        if low <= tick / 10 <= high:
            axis.append(
                f'<text x="{x(tick / 10)}" y="{y + 6}" text-anchor="middle" fill="#4a5568">'
                f"{tick / 10:+.1f}</text>"
            )
    caption = "mean gain over the empty library on sealed problems; rings are single runs"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 36}" '
        'font-family="sans-serif" font-size="13">\n'
        '<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join([*axis, *body])
        + f'\n<text x="{LEFT}" y="{y + 26}" fill="#4a5568">{caption}</text>\n</svg>\n'
    )
