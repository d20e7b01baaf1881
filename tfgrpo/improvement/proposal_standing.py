"""How a proposal stands now: whether what was accepted is still there, and all of it as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.improvement.proposals import Proposal, ProposedChange


def is_gone(store: Store, target: str, accepted: Sequence[ProposedChange]) -> bool:
    """Returns whether a branch stands to each change that was accepted as it did before: they were
    undone, rolled back, reverted or taken out by hand; or the branch itself is gone. Not where none
    was accepted."""
    if not accepted or target not in store.branches():
        return bool(accepted)
    texts = store.library(target).texts
    return all(texts.get(one.experience) == one.before for one in accepted)


def proposal_object(proposal: Proposal) -> dict[str, Any]:
    """A proposal as JSON for programs."""
    return {
        "id": proposal.id,
        "state": proposal.state,
        "gone": proposal.gone,
        "branch": proposal.branch,
        "target": proposal.target,
        "base": proposal.base.name,
        "candidate": proposal.candidate.name,
        "source": proposal.source,
        "made": proposal.made,
        "effect": None if proposal.effect is None else proposal.effect._asdict(),
        "changes": [{**one._asdict(), "op": one.op} for one in proposal.changes],
        "author": proposal.author,
        "time": proposal.time,
        "why": proposal.why,
        "accepted": list(proposal.accepted),
        "version": proposal.version,
        "details": dict(proposal.details),
    }
