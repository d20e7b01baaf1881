"""What a gate's record says, in words: for the log and the screen."""

from __future__ import annotations

from tfgrpo.store.records import Json
from tfgrpo.wording import sampled


def describe_gate(gate: Json) -> str:
    """What a record says was done, and by what: `kept by the gate: 0.350 → 0.440, +0.090
    [-0.010, +0.190], not significant (about 61 problems × 4 samples would decide)`."""
    done = "kept" if gate["verdict"] == "accepted" else "rejected"
    undecided = ", not significant" if gate.get("difference_is") == "inconclusive" else ""
    needed = gate.get("problems_needed") if undecided else None
    if needed:
        undecided += f" (about {sampled(needed, gate['samples'])} would decide)"
    return f"{done} by the gate: {describe_figures(gate)}{undecided}"


def gate_word(gate: Json) -> str:
    """What became of a candidate in a word or two, as a record says it. What the trial could not
    decide is called that, and not rejected: nothing was found against it."""
    if gate["verdict"] == "accepted":
        return "kept"
    return "not kept: inconclusive" if gate.get("difference_is") == "inconclusive" else "rejected"


def describe_figures(gate: Json) -> str:
    """A record's numbers: `0.350 → 0.440, +0.090 [-0.010, +0.190]`."""
    mean, low, high = gate["difference"]
    bounds = "" if low is None else f" [{low:+.3f}, {high:+.3f}]"
    return f"{gate['before']:.3f} → {gate['after']:.3f}, {mean:+.3f}{bounds}"
