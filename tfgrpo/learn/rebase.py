"""Operations that were decided about one library, brought onto another that has moved on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfgrpo.store.records import Library, Operation


def still_apply(
    operations: Sequence[Operation], base: Library, tip: Library
) -> tuple[list[Operation], list[dict[str, Any]]]:
    """Returns what fits a library that has moved on from `base` to `tip`, and a record of the rest.

    A text that somebody else has changed meanwhile is neither changed nor deleted; one that
    somebody else has added is confirmed.
    """
    before = {e.id: e.text for e in base}
    there = {e.id: e.text for e in tip}
    moved = {id for id in before | there if before.get(id) != there.get(id)}
    fit: list[Operation] = []
    lost: list[dict[str, Any]] = []
    for operation in operations:
        op, id, text = operation[:3]
        assert id is not None
        known = next((i for i, t in there.items() if t == text), None)
        if op == "ADD" and known is not None:
            fit.append(operation._replace(op="KEEP", experience=known, text=None))
            continue
        gone = id not in there if op != "ADD" else id in there
        if gone or (id in moved and op in ("MODIFY", "DELETE")):
            problem = (operation.evidence or {}).get("problem", "")
            reason = f"{op} of {id}: somebody else changed it meanwhile"
            lost.append({"text": text or "", "problem": problem, "reason": reason})
            continue
        fit.append(operation)
        if op == "DELETE":
            del there[id]
        elif op != "KEEP":
            there[id] = text or ""
    return fit, lost
