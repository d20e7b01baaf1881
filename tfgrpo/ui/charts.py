"""Curves over the steps of a run, as what a template draws: coordinates, and nothing but those.

They are drawn on the server, so a page shows them without a script, in print and from a folder. A
step without a figure leaves a gap; a bound that is not known is no whisker.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tfgrpo.evaluation.credit import CreditPoint
from tfgrpo.runs.run_status import RunFigures, StepFigures

WIDTH, HEIGHT = 320.0, 120.0
EVENTS = 5
"""What is said of one place in a curve: the last that happened there."""
LEFT, RIGHT, TOP, BOTTOM = 42.0, 8.0, 8.0, 16.0


class CurvePoint(NamedTuple):
    """A figure: what it is of, in words, its value, and its interval where that is known."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


class Mark(NamedTuple):
    """A point where it is drawn. `low` and `high` are heights too; None for no whisker."""

    x: float
    y: float
    low: float | None
    high: float | None
    words: str


class Chart(NamedTuple):
    """A curve as it is drawn. `lines` are stretches without a gap, as SVG's points; `ticks` are
    heights with their words; `rows` are the same figures as text, for who does not see them;
    `events` are what happened meanwhile, each across the height; `limit` is the height of a bound
    across the width, with its words."""

    title: str
    marks: tuple[Mark, ...]
    lines: tuple[str, ...]
    ticks: tuple[tuple[float, str], ...]
    ends: tuple[str, str]
    rows: tuple[tuple[str, str, str], ...]
    events: tuple[tuple[float, str], ...] = ()
    limit: tuple[float, str] | None = None

    @property
    def latest(self) -> str:
        return self.rows[-1][1] if self.rows else ""


def chart(
    title: str,
    points: Sequence[CurvePoint],
    words: Callable[[float], str],
    top: float | None = None,
    *,
    signed: bool = False,
    limit: tuple[float, str] | None = None,
) -> Chart | None:
    """Returns a curve from 0 up, or None where no point has a figure; a `signed` one has 0 in the
    middle, and its gaps are called unknown among the figures. `words` says a figure as people read
    it; `top` is what the height stands for, where that is given; `limit` is a bound that is drawn
    too, and what is beyond it: above, below."""
    known = [bound for p in points for bound in (p.value, p.low, p.high) if bound is not None]
    known = [abs(value) if signed else value for value in known if math.isfinite(value)]
    if not known:
        return None
    if limit is not None:
        known.append(limit[0])
    most = top if top is not None else max(max(known), 0.0) or 1.0
    least = -most if signed else 0.0

    def height(value: float) -> float:
        share = min(max((value - least) / (most - least), 0.0), 1.0)
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)

    def bound(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else height(value)

    marks: list[Mark] = []
    stretches: list[list[str]] = [[]]
    rows: list[tuple[str, str, str]] = []
    for number, point in enumerate(points):
        if point.value is None or not math.isfinite(point.value):
            stretches.append([])
            rows += [(point.name, "unknown", "")] if signed else []
            continue
        x, y = _across(number, len(points)), height(point.value)
        interval = _interval(point, words)
        label = f"{point.name}: {words(point.value)}{interval}"
        marks.append(Mark(x, y, bound(point.low), bound(point.high), label))
        stretches[-1].append(f"{x},{y}")
        rows.append((point.name, words(point.value), interval.strip()))
    return Chart(
        title,
        tuple(marks),
        tuple(" ".join(one) for one in stretches if len(one) > 1),
        tuple((height(value), words(value)) for value in sorted({least, 0.0, most})),
        (points[0].name, points[-1].name),
        tuple(rows),
        limit=limit and (height(limit[0]), f"alert {limit[1]} {words(limit[0])}"),
    )


def _interval(point: CurvePoint, words: Callable[[float], str]) -> str:
    low, high = point.low, point.high
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return ""
    return f" [{words(low)}, {words(high)}]"


def _across(number: int, points: int) -> float:
    """Returns where a point of so many is drawn; a single one in the middle."""
    share = number / (points - 1) if points > 1 else 0.5
    return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)


def short(value: float) -> str:
    """Returns a count or an amount in few characters: `812`, `3.4 k`, `0.35`."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def with_events(drawn: Chart | None, at: Sequence[tuple[int, str]], points: int) -> Chart | None:
    """Returns a curve of so many points with what happened at some of them, by their number."""
    if drawn is None:
        return None
    by_place: dict[int, list[str]] = {}
    for place, words in at:
        by_place.setdefault(place, []).append(words)
    marks = ((_across(n, points), "; ".join(words[-EVENTS:])) for n, words in by_place.items())
    return drawn._replace(events=tuple(marks))


def credit_chart(points: Sequence[CreditPoint]) -> Chart | None:
    """Returns an experience's effect on the reward over time, with its intervals; None where
    nothing was ever known. What is unknown is a gap, and is called so among the figures."""
    curve = [
        CurvePoint(p.name, p.credit.effect, p.credit.low, p.credit.high)
        if p.credit
        else CurvePoint(p.name, None)
        for p in points
    ]
    return chart("Effect on the reward", curve, _difference, signed=True)


def _difference(value: float) -> str:
    return "0" if value == 0 else f"{value:+.2f}".replace("-", "−")


def run_charts(figures: RunFigures) -> list[Chart]:
    """Returns the dynamics of a run: what each step came to (arXiv 2510.08191, figure 4)."""
    drawn = [chart(one.title, one.points, one.words, one.top) for one in run_curves(figures)]
    return [one for one in drawn if one is not None]


def on_one_scale(first: RunFigures, second: RunFigures) -> list[tuple[Chart | None, Chart | None]]:
    """Returns the dynamics of two runs in pairs, those of a pair as high and as wide."""
    pairs = []
    there = {one.title: one for one in run_curves(second)}
    for one in run_curves(first):
        other = there.get(one.title)
        curves = [one, *([other] if other else [])]
        values = [p.value for curve in curves for p in curve.points if p.value is not None]
        top = one.top if one.top is not None else max(values, default=0.0) or None
        length = max(len(curve.points) for curve in curves)
        drawn = []
        for run, curve in ((first.run, one), (second.run, other)):
            points = [] if curve is None else [*curve.points]
            points += [CurvePoint(f"step {n + 1}", None) for n in range(len(points), length)]
            words = one.words if curve is None else curve.words
            drawn.append(chart(f"{one.title}, {run.name}", points, words, top))
        if any(drawn):
            pairs.append((drawn[0], drawn[1]))
    return pairs


class Curve(NamedTuple):
    """A curve that is not drawn yet: `words` says a figure, `top` is as in `chart`."""

    title: str
    points: list[CurvePoint]
    words: Callable[[float], str]
    top: float | None = None


def run_curves(figures: RunFigures) -> list[Curve]:
    steps = figures.steps

    def over(pick: Callable[[StepFigures], float | None]) -> list[CurvePoint]:
        return [CurvePoint(f"step {step.step}", pick(step)) for step in steps]

    percent = "{:.0%}".format
    rewards = [
        CurvePoint(f"step {s.step}", s.reward.mean, s.reward.low, s.reward.high)
        if s.reward
        else CurvePoint(f"step {s.step}", None)
        for s in steps
    ]
    return [
        Curve("Mean reward of attempts", rewards, "{:.2f}".format, 1.0),
        Curve("Groups with winners and losers", over(lambda s: s.mixed_share), percent, 1.0),
        Curve("Experiences in the library", over(lambda s: s.library), short),
        Curve("Tool calls", over(lambda s: float(s.tool_calls) or None), short),
        Curve("Tokens written for an attempt", over(lambda s: s.tokens_a_rollout), short),
        Curve("Cost of a step, US dollars", over(lambda s: s.spent.dollars), "{:.2g}".format),
        Curve("Lessons refused", over(lambda s: s.refused), short),
    ]
