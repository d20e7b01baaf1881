"""Learning dynamics: what each step of a run came to, in figures that can be drawn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tfgrpo.runs.run_status import run_figures
from tfgrpo.runs.run_versions import step_stats
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
    every = run_figures(store, run, {}).steps
    steps = [(one, one.learned) for one in every if one.learned is not None]
    stats = [step_stats(learned.version) for _, learned in steps]
    figures: dict[str, Iterable[float | None]] = {
        "mean reward": (one.reward for one in stats),
        "mixed groups": (_share(one.mixed, one.groups) for one in stats),
        "rollouts": (one.attempts for one in stats),
        "tokens a rollout": (
            _share(one.rollouts.usage.completion_tokens, sum(one.outcomes.values()))
            for one, _ in steps
        ),
        "library": (float(learned.library) for _, learned in steps),
    }
    if any(one.tool_calls for one in every):
        figures["tool calls"] = (float(one.tool_calls) for one, _ in steps)
    figures |= {op: [float(learned.events.get(op, 0)) for _, learned in steps] for op in OPS}
    return [Series(name, tuple(values)) for name, values in figures.items()]


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
