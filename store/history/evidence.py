"""What the evidence of an event says. It may come with a stranger's store and hold anything: what
is not of its kind is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfgrpo.store.records import Event
from tfgrpo.store.strange_values import listed, mapping, number, texts, whole


class Measured(NamedTuple):
    """An effect with its bounds, and attempts with and without what had it, or pairs of them."""

    effect: float
    low: float
    high: float
    shown: int
    hidden: int
    pairs: int | None = None
    chance: float | None = None

    def __str__(self) -> str:
        return f"{self.effect:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class Evidence(NamedTuple):
    """Who taught an event: the run, the step from 0, the problem, its attempts as (sample, reward),
    all problems and calls; and what decided about it."""

    run: str | None
    step: int | None
    problem: str | None
    problems: tuple[str, ...]
    attempts: tuple[tuple[int, float | None], ...]
    calls: tuple[str, ...]
    measured: Measured | None
    facts: Mapping[str, str]
    """What else is a text, by its name."""

    @property
    def rewards(self) -> list[float]:
        """The rewards of its attempts that could be judged."""
        return [reward for _, reward in self.attempts if reward is not None]

    @property
    def right(self) -> int:
        """How many of them were right."""
        return sum(reward >= 1 for reward in self.rewards)


def evidence_of(event: Event) -> Evidence:
    """Reads an event's evidence. Raises nothing."""
    return read_evidence(event.evidence)


def read_evidence(evidence: object) -> Evidence:
    """Reads evidence as JSON has it. Raises nothing."""
    given = mapping(evidence)
    facts = {name: value for name, value in given.items() if isinstance(value, str)}
    problem = facts.get("problem")
    named = [problem, *texts(given.get("problems"))]
    problems = tuple(dict.fromkeys(one for one in named if one is not None))
    pairs = [pair for pair in listed(given.get("rollouts")) if _is_attempt(pair)]
    attempts = tuple((sample, number(reward)) for sample, reward in pairs)
    step, calls = whole(given.get("step")), texts(given.get("calls"))
    measured = _measured(given)
    return Evidence(facts.get("run"), step, problem, problems, attempts, calls, measured, facts)


def _measured(given: Mapping[str, Any]) -> Measured | None:
    figures = [number(one) for one in listed(given.get("effect"))]
    counts = [whole(one) for one in listed(given.get("attempts"))]
    pairs = whole(given.get("pairs"))
    if len(figures) != 3 or (len(counts) != 2 and pairs is None):
        return None
    effect, low, high = figures
    shown, hidden = counts if len(counts) == 2 else (0, 0)
    if effect is None or low is None or high is None or shown is None or hidden is None:
        return None
    return Measured(effect, low, high, shown, hidden, pairs, number(given.get("chance")))


def _is_attempt(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and whole(pair[0]) is not None
