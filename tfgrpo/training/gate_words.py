"""What a gate's record says, in words: for the log, the screen and the controller."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfgrpo.rendering.examples import is_example
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history import first_parents
from tfgrpo.store.records import Json, Version
from tfgrpo.store.store import Store
from tfgrpo.training.pruning import is_initial_prune
from tfgrpo.training.retries import RETRIED
from tfgrpo.wording import plural, sampled

REJECTIONS = 5
"""The most rejected candidates that the controller is told of, newest first."""
PARTS = ("examples", "lessons")
"""The parts of a step that are tried apart, by their names in a record."""


def rejections(store: Store, version: Version) -> list[str]:
    """Returns what the gate rejected on a version's history as harmful, newest first, in words.

    What was rejected because nothing was shown is left out: it may be worth another trial, and a
    weak controller drops whatever is like it. Examples are no matter of the controller.
    """
    lines: list[str] = []
    for ancestor in first_parents(store, version):
        gate = ancestor.meta.get("gate")
        if len(lines) == REJECTIONS:
            break
        if isinstance(gate, dict) and "candidate" in gate and _is_harmful(gate):
            try:
                candidate = store.resolve(str(gate["candidate"]))
            except UnknownRevision:  # a clone has the versions of the names it fetched
                continue
            changes = " ".join(_changes(store, candidate))
            figures = describe_figures(gate.get("lessons", gate))
            if changes:
                lines.append(f"- {changes} (reward {figures})")
    return lines


def _is_harmful(gate: Json) -> bool:
    match gate.get("trial"):
        case "parts":
            return _is_harmful(gate["lessons"])
        case "factorial":
            highs = (change["effect"][2] for change in gate["changes"] if not change["kept"])
            return any(high is not None and high < 0 for high in highs)
    return bool(gate.get("difference_is") == "worse")


def describe_gate(gate: Json) -> str:
    """Returns what a record says was done, and by what: `kept by the gate: 0.350 → 0.440, +0.090
    [-0.010, +0.190], not significant (about 61 problems × 4 samples would decide)`."""
    waiting = len(gate.get(RETRIED, ()))
    again = (
        f"; {plural(waiting, 'change')} to be tried again with the next step's" if waiting else ""
    )
    if gate.get("trial") == "parts":
        samples = gate["samples"]
        parts = [f"{part} {_describe(gate[part], samples)}" for part in PARTS]
        return "; ".join(parts) + again
    return _describe(gate, gate["samples"]) + again


def _describe(gate: Json, samples: int) -> str:
    if gate.get("trial") == "factorial":
        accepted = sum(change["kept"] for change in gate["changes"])
        whole = len(gate["changes"])
        return f"{accepted} of {whole} changes kept by the gate: {describe_figures(gate)}"
    done = "kept" if gate["verdict"] == "accepted" else "rejected"
    open_ = ", not significant" if gate.get("difference_is") == "inconclusive" else ""
    needed = gate.get("problems_needed") if open_ else None
    if needed:
        open_ += f" (about {sampled(needed, samples)} would decide)"
    return f"{done} by the gate: {describe_figures(gate)}{open_}"


def gate_word(gate: Json) -> str:
    """Returns what became of a candidate in a word or two, as a record says it. What the trial
    could not decide is called that, and not rejected: nothing was found against it."""
    if gate.get("trial") == "parts":
        return ", ".join(f"{part} {gate_word(gate[part])}" for part in PARTS)
    if gate.get("trial") == "factorial":
        accepted = sum(bool(change["kept"]) for change in gate["changes"])
        return f"{accepted} of {len(gate['changes'])} changes kept"
    if gate["verdict"] == "accepted":
        return "kept"
    return "not kept: inconclusive" if gate.get("difference_is") == "inconclusive" else "rejected"


def describe_figures(gate: Json) -> str:
    """Returns a record's numbers: `0.350 → 0.440, +0.090 [-0.010, +0.190]`; of a factorial trial
    the effects of what was kept and of what was not, of examples and lessons those of both."""
    if gate.get("trial") == "parts":
        return "; ".join(f"{part} {describe_figures(gate[part])}" for part in PARTS)
    means = f"{gate['before']:.3f} → {gate['after']:.3f}"
    if gate.get("trial") == "factorial":
        effects = [
            ("kept" if change["kept"] else "rejected", change["effect"][0])
            for change in gate["changes"]
        ]
        return f"{means}, " + ", ".join(f"{done} {effect:+.3f}" for done, effect in effects)
    mean, low, high = gate["difference"]
    bounds = "" if low is None else f" [{low:+.3f}, {high:+.3f}]"
    return f"{means}, {mean:+.3f}{bounds}"


def _changes(store: Store, candidate: Version) -> Iterator[str]:
    before: dict[str, Any] = {}
    if candidate.parent is not None:
        before = {e.id: e.text for e in store.library(store.version(candidate.parent))}
    for event in store.events(candidate):
        if event.redacted or event.op == "KEEP" or is_initial_prune(event.evidence):
            continue
        if is_example(event.text or ""):
            continue
        old = before.get(event.experience, "")
        if event.op == "ADD":
            yield f'added: "{event.text}"'
        elif event.op == "MODIFY":
            yield f'changed "{old}" to: "{event.text}"'
        else:
            yield f'deleted: "{old}"'
