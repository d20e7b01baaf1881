"""What a gate's record says, in words: for the log and the screen."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store.records import Version
from tfgrpo.store.strange_values import listed, mapping, number, text, whole
from tfgrpo.wording import sampled, with_bounds


class GateFigures(NamedTuple):
    """Mean rewards before and after, their difference, and its bounds, where it has any."""

    before: float
    after: float
    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        gain = with_bounds(self.mean, self.low, self.high)
        return f"{self.before:.3f} → {self.after:.3f}, {gain}"


class GateRecord(NamedTuple):
    """Whether a gate kept a step's candidate, which else stands at the branch `candidate`, by which
    figures; and how many problems and samples would have decided."""

    is_accepted: bool
    figures: GateFigures | None
    is_undecided: bool
    needed: tuple[int, int] | None
    candidate: str

    @property
    def word(self) -> str:
        """What became of the candidate in a word or two. What the trial could not decide is called
        that, and not rejected: nothing was found against it."""
        if self.is_accepted:
            return "kept"
        return "not kept: inconclusive" if self.is_undecided else "rejected"

    @property
    def summary(self) -> str:
        """The same with the figures, where there are any."""
        return f"{self.word} by the gate" + (f": {self.figures}" if self.figures else "")

    def __str__(self) -> str:
        """What was done, and by what: `kept by the gate: 0.350 → 0.440, +0.090 [-0.010, +0.190],
        not significant (about 61 problems × 4 samples would decide)`."""
        words = "kept" if self.is_accepted else "rejected"
        words += " by the gate" + (f": {self.figures}" if self.figures else "")
        if self.is_undecided:
            words += ", not significant"
            words += f" (about {sampled(*self.needed)} would decide)" if self.needed else ""
        return words


def gate_of(version: Version) -> GateRecord | None:
    """What a version has on record of a gate; None where there was none."""
    return read_gate(version.meta.get("gate"))


def read_gate(gate: object) -> GateRecord | None:
    """Reads a gate's record as far as it can be: a stranger's store may hold anything there."""
    given = mapping(gate)
    if not text(given.get("verdict")):
        return None
    needed, samples = whole(given.get("problems_needed")), whole(given.get("samples"))
    figures = [number(one) for one in listed(given.get("difference"))]
    before, after = number(given.get("before")), number(given.get("after"))
    read = None
    if len(figures) == 3 and before is not None and after is not None and figures[0] is not None:
        low, high = figures[1:] if None not in figures else (None, None)
        read = GateFigures(before, after, figures[0], low, high)
    return GateRecord(
        given["verdict"] == "accepted",
        read,
        given.get("difference_is") == "inconclusive",
        (needed, samples) if needed and samples else None,
        text(given.get("candidate")),
    )
