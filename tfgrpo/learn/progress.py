"""Where a run is, for whoever wants to show it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tfgrpo.evaluation.scoring import EvalProgress
from tfgrpo.model.client import Meter
from tfgrpo.notices import describe_usage

PHASES = {"rollouts": 0.6, "reflection": 0.3, "decide": 0.1, "gate": 0.0, "gain": 0.0}
"""The shares of a step's time, before one has been measured."""
GATE = 0.25
"""The share of a gate, beside those, in a run that has one."""


@dataclass(slots=True)
class Progress:
    """Where a run is. The training updates it in place; a view reads it whenever it likes.
    `stopped_by` is who asked it to stop, and `workers` who makes its groups elsewhere, in words.
    `trial` is where the trial of a step's candidate is, in a run with a gate."""

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
    workers: str = ""
    trial: EvalProgress | None = None
    started: float = field(default_factory=time.monotonic)
    first: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    on_change: Callable[[Progress], None] | None = None
    _since: float = field(default_factory=time.monotonic)
    _ended: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))

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
    def teaching(self) -> int:
        """How many groups of the step teach something: mixed ones, and others that were read."""
        return max(self.mixed, self.reflected)

    @property
    def fraction(self) -> float:
        """The share of the run's work that is done, from 0 to 1."""
        times = self._phase_seconds()
        phases = list(PHASES)
        within = 0.0
        if self.phase in phases:
            at = phases.index(self.phase)
            done = [1.0 if n < at else self._phase_done(phase) for n, phase in enumerate(phases)]
            within = sum(times[p] * d for p, d in zip(phases, done, strict=True))
            within /= sum(times.values()) or 1.0
        return min(1.0, (self.step + within) / self.steps)

    def enter(self, phase: str) -> None:
        """Notes that another phase begins, and how long the one before has taken; tells of it."""
        if phase != self.phase:
            now = time.monotonic()
            if self.phase in PHASES:
                self.seconds[self.phase] += now - self._since
                self._ended[self.phase] += 1
            self.phase, self._since = phase, now
        self.announce()

    def _phase_seconds(self) -> dict[str, float]:
        """Phase → the seconds that it takes in a step: as measured, else going by how far it has
        come, else by its usual share beside those that are known."""
        times = {p: self.seconds[p] / n for p, n in self._ended.items() if n}
        done = self._phase_done(self.phase)
        if self.phase in PHASES and self.phase not in times and done > 0:
            times[self.phase] = (time.monotonic() - self._since) / done
        shares = PHASES if self.trial is None else {**PHASES, "gate": GATE}
        known, usual = sum(times.values()), sum(shares[p] for p in times)
        scale = known / usual if known and usual else 1.0
        return {p: times.get(p, share * scale) for p, share in shares.items()}

    @property
    def seconds_left(self) -> float | None:
        """How long the rest may take, going by what this session has done; None at the start, and
        while the gain is measured, which is more than the steps."""
        done = self.fraction - self.first / self.steps
        if done <= 0.01 or self.phase == "gain":
            return None
        return (time.monotonic() - self.started) * (1 - self.fraction) / done

    @property
    def dollars_left(self) -> float | None:
        """What the rest may cost, in the same way; None too before a step of it is done, or where a
        price is unknown."""
        done = self.fraction - self.first / self.steps
        if self.step <= self.first or done <= 0 or self.phase == "gain" or not self.meter.cost:
            return None
        return self.meter.cost * (1 - self.fraction) / done

    def _phase_done(self, phase: str) -> float:
        """The share of a phase's work that is done; parts of later phases may be, where a group is
        reflected on while others are still attempted."""
        if phase == "rollouts":
            return self.attempts_done / self.attempts if self.attempts else 0.0
        expected = self.groups / self.groups_done if self.groups_done else 1.0
        teaching = max(self.teaching, 1)
        if phase == "reflection":
            return min(1.0, self.reflected / (teaching * expected))
        if phase == "decide" and self.reflected:
            lessons = max(1, self.lessons) * teaching / self.reflected * expected
            return min(1.0, self.decided / lessons)
        if phase == "gate" and self.trial is not None and self.trial.total:
            return self.trial.done / self.trial.total
        return 0.0
