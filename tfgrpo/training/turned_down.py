"""What people turned down, for the controller: it is told of it with the reason.

Proposals are decisions in the store (`improvement/proposals.py` makes them). What was rejected
whole, and what was left over where only a part was accepted, is told to trainings that go on from
where the proposal was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tfgrpo.store.decisions import decisions
from tfgrpo.store.history import first_parents
from tfgrpo.store.records import REDACTED, Version
from tfgrpo.store.store import Store

PROPOSAL = "proposal"
"""The kind of decisions about proposals."""
REJECTED = "rejected"
LIMIT = 10
"""The most proposals whose changes the controller is told of, newest first."""


def turned_down(store: Store, version: Version, *, before: int) -> list[str]:
    """Returns what was turned down on a version's history, newest first, in words.

    Only what was decided `before` counts (microseconds since 1970): the beginning of a run, so that
    one that is resumed asks the same as it did.
    """
    bases: dict[str, str] = {}
    entries: list[tuple[str, str]] = []
    for one in decisions(store, kind=PROPOSAL):
        if "base" in one.content:
            bases[one.subject] = one.content["base"]
        elif one.time >= before or one.subject not in bases:
            continue
        elif "took_back" in one.content:
            entries = [entry for entry in entries if entry[0] != one.subject]
        elif one.content.get("changes"):
            why = f" ({one.why})" if one.why else ""
            words = " ".join(_words(one.content["changes"]))
            if words:
                entries.append((one.subject, f"- {words}{why}"))
    if not entries:
        return []
    there = {ancestor.digest.hex() for ancestor in first_parents(store, version)}
    return [words for id, words in reversed(entries) if bases[id] in there][:LIMIT]


def _words(changes: list[dict[str, Any]]) -> Iterator[str]:
    for one in changes:
        before, after = one.get("before"), one.get("after")
        if REDACTED in (before, after):
            continue
        if before is None:
            yield f'add: "{after}"'
        elif after is None:
            yield f'delete: "{before}"'
        else:
            yield f'change "{before}" to: "{after}"'
