"""What a scenario hands to the table: goals with their figures, and how two are compared."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.worker import Timed, Worker


class Figure(NamedTuple):
    """A line of the goal table. `met` is None where a figure was not asked for as a goal."""

    what: str
    figure: str
    beside: str
    goal: str
    met: bool | None


class Sizes(NamedTuple):
    """How much is measured: events in the small and the large store, and the number of rounds."""

    small: int
    large: int
    rounds: int


FULL = Sizes(small=10_000, large=1_000_000, rounds=61)
QUICK = Sizes(small=10_000, large=50_000, rounds=11)


def median(timed: Sequence[Timed]) -> float:
    """Returns the median of wall seconds."""
    return statistics.median(each.seconds for each in timed)


def both(timed: Sequence[Timed]) -> str:
    """Returns the medians of a call that waits for nothing: CPU time, and wall time."""
    return f"{span(median_cpu(timed))} (wall {span(median(timed))})"


def median_cpu(timed: Sequence[Timed]) -> float:
    """Returns the median of CPU seconds."""
    return statistics.median(each.cpu for each in timed)


def alternating(
    rounds: int, *calls: tuple[Worker, str, Sequence[Sequence[object]]]
) -> list[list[Timed]]:
    """Makes calls in turn, round after round; of each, the n-th arguments in round n.

    What the machine does meanwhile befalls all of them alike.
    """
    found: list[list[Timed]] = [[] for _ in calls]
    for number in range(rounds):
        for each, (worker, method, arguments) in zip(found, calls, strict=True):
            each.append(worker(method, *arguments[number % len(arguments)]))
    return found


def span(seconds: float) -> str:
    """Returns a time with three digits and the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size or unit == "µs":
            number = seconds / size
            return f"{number:.{2 if number < 10 else 1 if number < 100 else 0}f} {unit}"
    raise AssertionError


def times(ratio: float) -> str:
    """Returns a ratio as people read it."""
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.2f}×"
