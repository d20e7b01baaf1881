"""Where a run is, for whoever wants to show it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tfgrpo.model.client import Meter
from tfgrpo.notices import describe_usage

PHASES = {"rollouts": 0.6, "reflection": 0.3, "controller": 0.1, "gate": 0.0}
"""The shares of a step's time, before one has been measured."""


@dataclass(slots=True)
class Progress:
    """Where a run is. The training updates it in place; a view reads it whenever it likes.

    `stopped_by` is who asked it to stop, in words.
    """

    run: str
    steps: int
    epochs: int
    meter: Meter = field(default_factory=Meter)
    step: int = 0
    epoch: int = 0
    phase: str = "starting"
    stopping: bool = False
    stopped_by: str | None = None
    groups: int = 0
    groups_done: int = 0
    mixed: int = 0
    attempts: int = 0
    attempts_done: int = 0
    reflected: int = 0
    lessons: int = 0
    decided: int = 0
    rewards: list[float] = field(default_factory=list)
    library: int = 0
    late: int = 0
    started: float = field(default_factory=time.monotonic)
    first: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    on_change: Callable[[Progress], None] | None = None

    def announce(self) -> None:
        """Tells whoever watches that something has changed."""
        if self.on_change is not None:
            self.on_change(self)

    def __str__(self) -> str:
        step = min(self.step + 1, self.steps)
        return (
            f"step {step}/{self.steps}, {self.phase}: attempts {self.attempts_done}/"
            f"{self.attempts}, {describe_usage(self.meter)}"
        )

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of the present step so far."""
        return sum(self.rewards) / len(self.rewards) if self.rewards else None

    @property
    def fraction(self) -> float:
        """The share of the run's work that is done, from 0 to 1."""
        known = sum(self.seconds.values())
        shares = {p: s / known for p, s in self.seconds.items()} if known else PHASES
        within = 0.0
        for phase, share in shares.items():
            if phase == self.phase:
                within += share * self._phase_done()
                break
            if self.phase in PHASES:
                within += share
        return min(1.0, (self.step + within) / self.steps)

    @property
    def seconds_left(self) -> float | None:
        """How long the rest may take, going by what this session has done; None at the start."""
        done = self.fraction - self.first / self.steps
        elapsed = time.monotonic() - self.started
        return elapsed * (1 - self.fraction) / done if done > 0.01 else None

    @property
    def dollars_left(self) -> float | None:
        """What the rest may cost, going by what this session has done; None before a step of it
        is done, or where a price is unknown."""
        done = self.fraction - self.first / self.steps
        if self.step <= self.first or done <= 0 or not self.meter.cost:
            return None
        return self.meter.cost * (1 - self.fraction) / done

    def _phase_done(self) -> float:
        if self.phase == "rollouts":
            return self.attempts_done / self.attempts if self.attempts else 0.0
        if self.phase == "reflection":
            return self.reflected / self.mixed if self.mixed else 0.0
        if self.phase == "controller":
            return self.decided / self.lessons if self.lessons else 0.0
        return 0.0
