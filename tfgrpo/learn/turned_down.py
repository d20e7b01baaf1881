"""What people turned down: it is not proposed again.

Proposals are decisions in the store (`improvement/proposals.py` makes them). A rejected proposal,
and what was left where only a part was accepted, count for trainings that go on from where the
proposal was made. So does what a person deletes from the library by hand.
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
    """The texts that were turned down on a version's history, by a key of each, and those that were
    deleted there. Of proposals only what was decided `before` counts (microseconds since 1970): the
    beginning of a run, so that one that is resumed asks the same as it did."""
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
    declined = _deleted(store, version)
    if not texts:
        return declined
    there = {ancestor.digest.hex() for ancestor in first_parents(store, version)}
    return declined | {
        f"{subject}/{number}": text
        for subject, given in texts.items()
        if bases[subject] in there
        for number, text in enumerate(given)
    }


def _deleted(store: Store, version: Version) -> dict[str, str]:
    """The texts that a person deleted by hand on a version's history and did not bring back."""
    newest: dict[str, tuple[bool, str]] = {}
    for one in first_parents(store, version):
        if not one.events or one.merged is not None or "run" in one.meta:
            continue  # a merge has others' events, and a run deletes what is measured
        events = store.events(one)
        before = store.texts_before(event for event in events if event.op == "DELETE")
        for event in events[::-1]:
            text = before.get(event.row, event.text)
            if text is not None and text != REDACTED:
                newest.setdefault(text, (event.op == "DELETE", f"v{one.number}/{event.row}"))
    return {key: text for text, (is_gone, key) in newest.items() if is_gone}
