"""Takes back a decision about a proposal: its branch gets its name back, and its changes leave the
target by a move back or a revert, where they are still there. All of it stays on record."""

from __future__ import annotations

from contextlib import suppress

from tfgrpo.improvement.proposals import Proposal, check_seen, check_trial, get_proposal
from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.production.promotions import accepted_by
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.merge import Conflict, NothingToChange, Resolve
from tfgrpo.store.history.walks import has_in_history
from tfgrpo.store.records import Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store


def reopen(
    store: Store,
    id: str,
    *,
    why: str | None = None,
    resolve: Resolve | None = None,
    seen: int | None = None,
) -> Proposal:
    """Takes the decision about a proposal back, as one operation. `resolve` decides about what
    later versions changed, `seen` is how many decisions were known. Raises InvalidOperation where
    nothing was decided, MergeConflict, StaleVersion, OnTrial and ProtectedName."""
    for recording in recordings(store, f"reopen proposal {get_proposal(store, id).id}"):
        with recording:
            _reopen(store, get_proposal(store, id), why, resolve, seen)
    return get_proposal(store, id)


def _reopen(
    store: Store, proposal: Proposal, why: str | None, resolve: Resolve | None, seen: int | None
) -> None:
    if len(proposal.waiting) == len(proposal.changes):
        raise InvalidOperation(
            f"proposal {proposal.id} is open: there is no decision to take back",
            hint="`tfgrpo proposal list --all` lists what was decided",
        )
    check_seen(proposal, seen, "nothing was recorded: look at what was decided")
    tested_by = accepted_by(store, proposal.id)
    tested = store.resolve(proposal.version or proposal.candidate)
    if tested_by is not None and _has(store, proposal, tested):
        raise InvalidOperation(
            f"proposal {proposal.id} was accepted with experiment {tested_by}",
            hint=f"`tfgrpo experiment rollback {tested_by}` takes both back",
        )
    for name in reversed(proposal.versions):
        _take_back(store, proposal, store.resolve(name), resolve)
    branches = store.branches()
    if proposal.branch not in branches:
        store.create_branch(proposal.branch, proposal.candidate)
    for name, number in branches.items():
        aside = name.startswith(f"rejected/{proposal.branch}")
        if aside and number == proposal.candidate.number:
            store.delete_branch(name)
    content = {"state": "open", "took_back": proposal.state}
    decide(store, PROPOSAL, proposal.id, content, why=why)


def _take_back(store: Store, proposal: Proposal, version: Version, resolve: Resolve | None) -> None:
    if not _has(store, proposal, version):
        return
    check_trial(store, proposal)
    if store.tip(proposal.target).number == version.number:
        assert version.parent is not None, "it has changes"
        store.move_branch(proposal.target, store.version(version.parent), expected=version)
        return
    message = f"take back proposal {proposal.id}: {version.message}"
    with suppress(NothingToChange):
        merges.revert(store, proposal.target, version, message=message, resolve=resolve)


def conflicts_of(store: Store, proposal: Proposal) -> tuple[Conflict, ...]:
    """Returns what later versions changed of what a proposal brought; nothing is recorded."""
    conflicts: list[Conflict] = []
    for name in reversed(proposal.versions):
        version = store.resolve(name)
        if _has(store, proposal, version):
            sides = merges.sides_of(store, "revert", proposal.target, version)
            conflicts += merges.joined(store, sides).conflicts
    return tuple(conflicts)


def _has(store: Store, proposal: Proposal, version: Version) -> bool:
    if proposal.target not in store.branches():
        return False
    return has_in_history(store, store.tip(proposal.target), version)
