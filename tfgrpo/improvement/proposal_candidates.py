"""The meaning of a name where a candidate is wanted, in an experiment or a rollout."""

from __future__ import annotations

from tfgrpo.improvement.proposals import get_proposal, open_proposal
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.store import Store


def candidate_of(store: Store, named: str) -> str:
    """The revision that a candidate is: the id of an open proposal, or its branch, stands for what
    it proposes. Raises UnknownRevision, and InvalidOperation for a proposal that was decided."""
    try:
        store.resolve(named)
    except UnknownRevision as unknown:
        try:
            get_proposal(store, named)
        except UnknownRevision:
            raise unknown from None
        proposal = open_proposal(store, named)
        tip = store.branches().get(proposal.branch)
        return proposal.branch if tip == proposal.candidate.number else proposal.candidate.name
    return named
