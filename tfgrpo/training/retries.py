"""What a trial left undecided is tried again, together with what the next step brings.

A small trial sees large effects alone. One step's lessons are often worth less than its standard
error, and would be learned and thrown away step by step; kept waiting, they add up to something
that the same trial can see, at no further attempts. Simulated in `benchmarks.gates`.

What waits is in the store: the version's record names the experiences, and the operations are
those of the rejected candidate. So a run that is resumed tries the same again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history import first_parents
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.store.store import Store
from tfgrpo.training import pruning
from tfgrpo.training.rebase import still_apply

RETRIED = "retried"
"""In a record of the gate: the experiences that are tried again. In evidence: how often."""
WORST = 0.5
"""How many standard errors below zero an effect may be measured and still be tried again."""


def is_undecided(mean: float, error: float) -> bool:
    """Returns whether an effect that did not pass may yet be one that helps; `error` is its
    standard error, infinite where it is not known."""
    return mean >= 0.0 or (isfinite(error) and mean > -WORST * error)


def to_retry(undecided: Iterable[Operation], most: int) -> list[str]:
    """Returns the experiences of operations that wait for another trial: those that change
    something and were not tried again `most` times yet."""
    return list(
        dict.fromkeys(
            operation.experience or ""
            for operation in undecided
            if operation.op != "KEEP" and _tries(operation.evidence) < most
        )
    )


def waiting(store: Store, base: Version, library: Library, cap: int | None) -> list[Operation]:
    """Returns the operations that wait since the step that made a version, as far as they still
    apply to its library and there is room for them under its cap, in tokens."""
    gate = base.meta.get("gate")
    if not isinstance(gate, dict) or not gate.get(RETRIED):
        return []
    try:
        candidate = store.resolve(str(gate["candidate"]))
    except UnknownRevision:  # a clone has the versions of the names it fetched
        return []
    assert candidate.parent is not None
    waited = set(gate[RETRIED])
    operations = [
        Operation(
            event.op,
            event.experience,
            event.text,
            event.reason,
            {**(event.evidence or {}), RETRIED: _tries(event.evidence) + 1},
        )
        for event in store.events(candidate)
        if event.experience in waited and not event.redacted
    ]
    operations = [one for one in operations if not pruning.is_prune(one)]
    before = store.library(store.version(candidate.parent))
    operations, _ = still_apply(operations, before, library)
    operations, _ = pruning.split_fitting(operations, library, cap)
    return operations


def rejected_examples(store: Store, base: Version, run: str) -> set[str]:
    """Returns the problems whose examples the gate has rejected in a run, up to a version: they
    are tried again where that was undecided, and not proposed anew."""
    rejected: set[str] = set()
    for ancestor in first_parents(store, base):
        if ancestor.meta.get("run") != run:
            continue
        gate = ancestor.meta.get("gate")
        if isinstance(gate, dict) and "candidate" in gate:
            try:
                events = store.events(store.resolve(str(gate["candidate"])))
            except UnknownRevision:  # a clone has the versions of the names it fetched
                continue
            proofs = [event.evidence or {} for event in events]
            rejected |= {proof["problem"] for proof in proofs if proof.get("kind") == "example"}
    return rejected


def _tries(evidence: Mapping[str, Any] | None) -> int:
    return int((evidence or {}).get(RETRIED, 0))
