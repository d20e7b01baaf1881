"""Learning dynamics: what each step of a run came to, in figures that can be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tfgrpo.runs.run_versions import step_of, step_stats, versions_of
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.records import OPS
from tfgrpo.store.store import Store

BARS = " ▁▂▃▄▅▆▇█"


class Series(NamedTuple):
    """One figure over the steps of a run; None where a step has none."""

    name: str
    values: tuple[float | None, ...]


def dynamics(store: Store, run: Run) -> list[Series]:
    """A run's figures by step: reward, mixed groups, rollouts, tokens, tool calls, library,
    events."""
    versions = versions_of(store, run)
    stats = [step_stats(version) for version in versions]
    steps = [step_of(version) for version in versions]
    written: dict[object, int] = {}
    tools: dict[object, int] = {}
    for spent in store.runs.spent(run):
        if spent.stage == "rollout":
            tokens = spent.usage.completion_tokens
            written[spent.step] = written.get(spent.step, 0) + tokens
        elif spent.stage == "tool":
            tools[spent.step] = tools.get(spent.step, 0) + spent.usage.calls
    attempts = Counter(mark.step for mark in store.runs.attempts_since(run)[1])
    counts = [store.counts(version) for version in versions]
    series = [
        Series("mean reward", tuple(s.reward for s in stats)),
        Series("mixed groups", tuple(_share(s.mixed, s.groups) for s in stats)),
        Series("rollouts", tuple(s.attempts for s in stats)),
        Series(
            "tokens a rollout",
            tuple(_share(written.get(step, 0), attempts[step]) for step in steps),
        ),
        Series("library", tuple(float(len(store.library(version))) for version in versions)),
    ]
    if tools:
        series.append(Series("tool calls", tuple(float(tools.get(step, 0)) for step in steps)))
    series += [Series(op, tuple(float(count.get(op, 0)) for count in counts)) for op in OPS]
    return series


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def draw(series: Sequence[Series], width: int) -> Iterator[str]:
    """Yields a line of bars for each figure, with its first and last value, and its range."""
    name = max((len(one.name) for one in series), default=0)
    for one in series:
        known = [value for value in one.values if value is not None]
        if not known:
            continue
        room = max(8, width - name - 32)
        bars = "".join(_bar(value, known) for value in _thinned(one.values, room))
        ends = f"{_short(known[0])} → {_short(known[-1])}"
        spread = f"  ({_short(min(known))} to {_short(max(known))})"
        yield f"{one.name:<{name}}  {bars}  {ends}{spread if len(known) > 2 else ''}"


def _thinned(values: Sequence[float | None], room: int) -> Sequence[float | None]:
    if len(values) <= room:
        return values
    return [values[i * (len(values) - 1) // (room - 1)] for i in range(room)]


def _bar(value: float | None, known: Sequence[float]) -> str:
    if value is None:
        return "·"
    top = max(max(known), 0.0)
    return BARS[1 + round((len(BARS) - 2) * max(0.0, value) / top)] if top else BARS[1]


def _short(value: float) -> str:
    return f"{value:.0f}" if value == round(value) and abs(value) >= 2 else f"{value:.3g}"
