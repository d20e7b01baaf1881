"""Experiences that were in no prompt for a time while calls were answered under their library:
`top_k` never picked them. They expire only as a proposal."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tfgrpo.improvement.proposals import Draftsman, Proposal, propose
from tfgrpo.store.activity.traffic import ALL, CallFilter, Traffic
from tfgrpo.store.history.signed_outside import recordings
from tfgrpo.store.records import Experience, Operation
from tfgrpo.store.store import Store

CALLS = 50
"""Calls that it takes to say that an experience is not used."""


def unused_experiences(
    store: Store, traffic: Traffic, branch: str, since: int, *, least: int = CALLS
) -> list[Experience]:
    """The experiences of a branch in no prompt since then (microseconds), none newer; nothing
    where fewer than `least` calls were answered under its libraries."""
    own = {version.digest.hex()[:16] for version in store.log(branch)}
    library = store.library(store.tip(branch))
    ids = {e.id for e in library.readable}
    calls, used = 0, set[str]()
    for listed in traffic.calls(CallFilter(since=since), ALL):
        call = listed.call
        if call.digest not in own:
            continue
        calls += 1
        if call.experiences is None:  # the whole library, of whatever version
            return []
        used |= ids.intersection(json.loads(call.experiences))
    if calls < least:
        return []
    events = store.events_at(e.row for e in library.readable)
    times = {row: store.version(event.version).time for row, event in events.items()}
    return [e for e in library.readable if e.id not in used and times[e.row] < since]


def propose_expiry(store: Store, branch: str, unused: Sequence[Experience], since: str) -> Proposal:
    """Proposes to delete experiences of a branch that were not used since then."""
    base = store.tip(branch)
    number = 1 + sum("proposal/unused-" in name for name in store.branches())
    name = f"proposal/unused-{number}"
    gone = [Operation("DELETE", e.id, reason=f"in no prompt since {since}") for e in unused]
    for recording in recordings(store, f"{name}: {len(gone)} are not used"):
        with recording:
            store.create_branch(name, base)
            store.commit(name, gone, message=f"in no prompt since {since}")
    return propose(store, Draftsman(name, branch, "use", base, None, {"since": since}))
