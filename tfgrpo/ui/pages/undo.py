"""Taking back what was done: the moves of an act, or a decision about a proposal, also where later
versions changed what it brought; each conflict is decided in the page then."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from starlette.responses import Response

from tfgrpo.hand_edits import write_library
from tfgrpo.improvement.proposal_reopening import conflicts_of, reopen
from tfgrpo.improvement.proposals import Proposal, get_proposal
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.merge import Conflict, MergeConflict
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.pages.combine import resolution, status_with_conflicts
from tfgrpo.ui.pages.review import seen_in, show_proposal, tip_of


def undo(visit: Visit) -> Response:
    """Takes a decision back. A side that was chosen counts only where the target still stands where
    it stood when it was shown."""
    store = visit.store
    proposal = get_proposal(store, visit.required("id", "the proposal"))
    onto = tip_of(visit, proposal)
    resolve = resolution(visit) if visit.field("onto") == onto else None
    why, seen = visit.field("why").strip() or None, seen_in(visit)
    try:
        reopen(store, proposal.id, why=why, resolve=resolve, seen=seen)
    except MergeConflict as refusal:
        return _to_be_decided(visit, proposal, refusal.conflicts)
    except TfgrpoError as refusal:
        is_chosen = resolution(visit) is not None
        conflicts = conflicts_of(store, proposal) if is_chosen else ()
        if conflicts:
            return _to_be_decided(visit, proposal, conflicts, refusal)
        return show_proposal(visit, proposal, refusal=refusal)
    write_library(store)
    return visit.done(f"/review?id={quote(proposal.id)}", f"Proposal {proposal.id} waits again")


def _to_be_decided(
    visit: Visit,
    proposal: Proposal,
    conflicts: Sequence[Conflict],
    refusal: TfgrpoError | None = None,
) -> Response:
    return visit.render(
        "undo.html",
        status_with_conflicts(refusal),
        title=f"Undo {proposal.id}",
        proposal=proposal,
        onto=tip_of(visit, proposal),
        conflicts=conflicts,
        refusal=refusal,
    )


def take_back(visit: Visit) -> Response:
    """Takes one operation back, unless what it moved has moved since: then the page where it was
    says so."""
    back, number = visit.field("back"), seen_in(visit)
    path = back if back.startswith("/") and not back.startswith(("//", "/\\")) else "/"
    try:
        moves = name_moves.take_back(visit.store, number)
    except TfgrpoError as refusal:
        return visit.done(path, f"{refusal}. Nothing was taken back.", is_refusal=True)
    write_library(visit.store)
    of_branches = [move for move in moves if move.name.startswith(BRANCH)]
    names = [(move.name.removeprefix(BRANCH), move.version) for move in of_branches]
    words = ", ".join(f"{name} was at v{version}" for name, version in names)
    undo = visit.moved(names[0][0], of_branches[0].previous, path) if names else None
    return visit.done(path, f"Taken back: {words}", undo)


ROUTES = (Route("/review/undo", undo, "POST"), Route("/undo", take_back, "POST"))
