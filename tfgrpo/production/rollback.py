"""An incident: a branch goes back to where it stood, in one move, at the next request. It also has
what is shown of such moves: since when a branch stands where it does, and what decisions moved."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.production.experiment import resume, running_on, stop
from tfgrpo.store.activity.decisions import Decision, decide
from tfgrpo.store.errors import InvalidOperation, StaleVersion, UnknownRevision
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.wording import percent

ROLLBACK = "rollback"


class RolledBack(NamedTuple):
    """What a rollback did: where the branch stood and stands, the experiment that it ended."""

    branch: str
    before: Version
    after: Version
    experiment: str | None


def rollback(
    store: Store,
    branch: str,
    *,
    why: str,
    to: str | None = None,
    expected: Version | None = None,
    resumed: str | None = None,
) -> RolledBack:
    """Moves a branch back to a revision; without one, to where it stood before. An experiment on it
    is stopped. One operation, with its author and its reason in the ref log and on record.
    `expected` is where whoever asks saw it stand; `resumed` is the experiment that goes on, where
    this takes back a rollback that had stopped it. Raises InvalidOperation without a reason, where
    the branch stands there already, or where that experiment cannot go on, StaleVersion where
    somebody moved it meanwhile, UnknownRevision, and ProtectedName unless the store is forced."""
    if not why.strip():
        raise InvalidOperation("a rollback needs a reason", hint="it is recorded: use --why")
    tip = store.tip(branch)
    if expected is not None and tip.number != expected.number:
        raise StaleVersion(
            f"{branch} has moved on from {expected.name} to {tip.name}",
            hint="look at what came since before you roll it back",
        )
    after = before_that(store, branch) if to is None else store.resolve(to)
    with store.operation(f"{ROLLBACK} {branch} to {after.name}: {why}"):
        if tip.number == after.number:
            raise InvalidOperation(
                f"{branch} is at {tip.name} already", hint=f"`tfgrpo reflog {branch}` lists moves"
            )
        store.move_branch(branch, after, expected=tip)
        running = running_on(store, branch)
        if running is not None:
            stop(store, running.name, why=f"{branch} was rolled back: {why}")
        content = {
            "from": tip.name,
            "from_digest": tip.digest.hex()[:16],
            "to": after.name,
            "to_digest": after.digest.hex()[:16],
        }
        decide(store, ROLLBACK, branch, content, why=why)
        if resumed is not None:
            resume(store, resumed, why=why)
    return RolledBack(branch, tip, after, None if running is None else running.name)


def before_that(store: Store, branch: str) -> Version:
    """Where a branch stood before the version that it stands at was put in force. A second rollback
    goes further back, and not forward to what the first one took away: a move to where the branch
    had stood takes back all that came since. Raises UnknownRevision."""
    stood: list[int] = []
    for move in reversed(list(store.port.names.ref_log(BRANCH + branch))):
        if move.version is None:
            stood = []
        elif move.version in stood:
            del stood[stood.index(move.version) + 1 :]
        else:
            stood.append(move.version)
    if len(stood) < 2:
        raise UnknownRevision(
            f"{branch} stood nowhere before",
            hint=f"`tfgrpo branch --back {branch} REVISION` names where it goes back to",
        )
    return store.version(stood[-2])


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


def stood_at(store: Store, branch: str, time: int) -> Version | None:
    """Returns where a branch stood at a time (microseconds since 1970); None where it was not there
    then."""
    moves = store.port.names.ref_log(BRANCH + branch)
    then = next((move for move in moves if move.time <= time), None)
    return None if then is None or then.version is None else store.version(then.version)


def decided_move(store: Store, decision: Decision) -> DecidedMove:
    """Returns from what to what a decision about production went; dashes where it moved nothing."""
    content = decision.content
    action = str(content.get("action", ""))
    if action == "start":
        share = percent(float(content["share"]))
        control = f"{content['control']} ({named(store, content['control_digest'])})"
        candidate = f"{content['candidate']} ({named(store, content['candidate_digest'])})"
        return DecidedMove(action, control, f"{candidate}, which {share} get")
    if action == "share":
        return DecidedMove(action, percent(float(content["was"])), percent(float(content["share"])))
    if "from_digest" in content:
        return DecidedMove(action, str(content["from"]), str(content["to"]))
    if "from" in content:
        return DecidedMove(action, named(store, content["from"]), named(store, content["to"]))
    return DecidedMove(action, "", "")


def named(store: Store, digest: object) -> str:
    """Returns the name of the version with a digest, or the digest's beginning where the version is
    not in this store."""
    try:
        return store.resolve(str(digest)).name
    except UnknownRevision:
        return str(digest)[:12]
