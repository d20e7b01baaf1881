"""What is shown of production: since when a branch stands where it does, and where decisions moved
what.
"""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.store.activity.decisions import Decision
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store


class DecidedMove(NamedTuple):
    """From what to what a decision went, in words: a version, a share. `action` is what was done,
    empty where the kind of the decision says it."""

    action: str
    before: str
    after: str


def in_force_since(store: Store, branch: str) -> int:
    """Returns when a branch was moved to where it stands (microseconds since 1970), which the age
    of the version does not say."""
    since = 0
    number = store.tip(branch).number
    for move in store.port.names.ref_log(BRANCH + branch):
        if move.version != number:
            break
        since = move.time
    return since


def decided_move(store: Store, decision: Decision) -> DecidedMove:
    """Returns from what to what a decision about production went; dashes where it moved nothing."""
    content = decision.content
    action = str(content.get("action", ""))
    if action == "start":
        share = f"{float(content['share']):.0%}"
        control = f"{content['control']} ({_named(store, content['control_digest'])})"
        candidate = f"{content['candidate']} ({_named(store, content['candidate_digest'])})"
        return DecidedMove(action, control, f"{candidate}, which {share} get")
    if action == "share":
        return DecidedMove(action, f"{float(content['was']):.0%}", f"{float(content['share']):.0%}")
    if "from_digest" in content:
        return DecidedMove(action, str(content["from"]), str(content["to"]))
    if "from" in content:
        return DecidedMove(action, _named(store, content["from"]), _named(store, content["to"]))
    return DecidedMove(action, "", "")


def _named(store: Store, digest: object) -> str:
    """Returns the name of the version with a digest, or the digest's beginning where the version is
    not in this store."""
    try:
        version: Version = store.resolve(str(digest))
    except UnknownRevision:
        return str(digest)[:12]
    return version.name
