"""Taking a decision about a proposal back: its branch has its name again, and what it brought
leaves the target, by a move back or a revert. All of it stays on record."""

from __future__ import annotations

from tfgrpo.improvement.proposals import Proposal, get_proposal
from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.production.tested_proposals import accepted_by
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.merge import Resolve
from tfgrpo.store.records import Version
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
    later versions changed, `seen` is how many decisions were known. Raises InvalidOperation
    where nothing was decided, MergeConflict, StaleVersion and ProtectedName."""
    proposal = get_proposal(store, id)
    if len(proposal.waiting) == len(proposal.changes):
        raise InvalidOperation(
            f"proposal {proposal.id} is open: there is no decision to take back",
            hint="`tfgrpo proposal list --all` lists what was decided",
        )
    if seen is not None and seen != proposal.decisions:
        raise StaleVersion(
            f"{proposal.author} has decided about proposal {proposal.id} meanwhile",
            hint="nothing was recorded: look at what was decided",
        )
    tested_by = accepted_by(store, proposal.id)
    if tested_by is not None:
        raise InvalidOperation(
            f"proposal {proposal.id} was accepted with experiment {tested_by}",
            hint=f"`tfgrpo experiment rollback {tested_by}` takes both back",
        )
    with store.operation(f"reopen proposal {proposal.id}"):
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
    return get_proposal(store, proposal.id)


def _take_back(store: Store, proposal: Proposal, version: Version, resolve: Resolve | None) -> None:
    if store.tip(proposal.target).number == version.number:
        assert version.parent is not None, "it has changes"
        store.move_branch(proposal.target, store.version(version.parent), expected=version)
        return
    message = f"take back proposal {proposal.id}: {version.message}"
    merges.revert(store, proposal.target, version, message=message, resolve=resolve)
