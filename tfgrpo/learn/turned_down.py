"""What people turned down: it is not proposed again.

Proposals are decisions in the store (`improvement/proposals.py` makes them). What was rejected
whole, and what was left over where only a part was accepted, counts for trainings that go on from
where the proposal was made.
"""

from __future__ import annotations

from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import REDACTED, Version
from tfgrpo.store.store import Store

PROPOSAL = "proposal"
"""The kind of decisions about proposals."""
REJECTED = "rejected"


def turned_down(store: Store, version: Version, *, before: int) -> dict[str, str]:
    """The texts that were turned down on a version's history, by a key of each. Only what was
    decided `before` counts (microseconds since 1970): the beginning of a run, so that one that is
    resumed asks the same as it did."""
    bases: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for one in decisions(store, kind=PROPOSAL):
        if "base" in one.content:
            bases[one.subject] = one.content["base"]
        elif one.time >= before or one.subject not in bases:
            continue
        elif "took_back" in one.content:
            texts.pop(one.subject, None)
        else:
            changes = one.content.get("changes") or ()
            after = [str(change["after"]) for change in changes if change.get("after")]
            texts.setdefault(one.subject, []).extend(text for text in after if text != REDACTED)
    if not texts:
        return {}
    there = {ancestor.digest.hex() for ancestor in first_parents(store, version)}
    return {
        f"{subject}/{number}": text
        for subject, given in texts.items()
        if bases[subject] in there
        for number, text in enumerate(given)
    }
