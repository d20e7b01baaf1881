"""The queue of proposals: one at a time, with its evidence and effect, decided by a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from tfgrpo.improvement.proposals import (
    PARTS,
    Proposal,
    accept,
    get_proposal,
    list_proposals,
    reject,
)
from tfgrpo.improvement.reopening import reopen
from tfgrpo.library_file import write_library
from tfgrpo.store.merge import MergeConflict, Side
from tfgrpo.ui.route import Route
from tfgrpo.ui.visit import BadForm
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.ui.visit import Visit

DECIDED = 20
"""The last decisions that are listed below the queue."""


def show(visit: Visit) -> Response:
    """Answers with the proposal at the head of the queue, the oldest first, or the one asked for.

    `skipped` are the ids that were put off in this round."""
    everything = list_proposals(visit.store)
    waiting = [one for one in reversed(everything) if one.state == "open"]
    skipped = [id for id in visit.query("skipped").split(",") if id]
    left = [one for one in waiting if one.id not in skipped]
    current = left[0] if left else None
    if visit.query("id"):
        current = get_proposal(visit.store, visit.query("id"))
    return _page(visit, current, everything, skipped)


def _page(
    visit: Visit,
    current: Proposal | None,
    everything: list[Proposal] | None = None,
    skipped: list[str] | None = None,
    *,
    conflicts: MergeConflict | None = None,
) -> Response:
    if everything is None:
        everything = list_proposals(visit.store)
    waiting = [one for one in reversed(everything) if one.state == "open"]
    if skipped is None:
        skipped = [id for id in visit.field("skipped").split(",") if id]
    decided = sorted((one for one in everything if one.state != "open"), key=lambda one: -one.time)
    context: dict[str, Any] = {}
    if current is not None:
        context["skip"] = ",".join([*skipped, current.id])
        context["evidence"] = [_evidence(change.evidence) for change in current.changes]
        context["facts"] = _facts(visit, current)
    return visit.render(
        "review.html",
        409 if conflicts else 200,
        title="Review",
        current=current,
        waiting=waiting,
        skipped=",".join(skipped),
        put_off=len({one.id for one in waiting} & set(skipped)),
        decided=decided[:DECIDED],
        reasons=list(dict.fromkeys(one.why for one in decided if one.why))[:10],
        conflicts=conflicts.conflicts if conflicts else (),
        **context,
    )


def _evidence(evidence: Any) -> dict[str, Any]:
    """Returns what an event's evidence says of the attempts that taught it."""
    facts = evidence if isinstance(evidence, dict) else {}
    rewards = [pair[1] for pair in facts.get("rollouts", []) if pair[1] is not None]
    return {
        "run": facts.get("run"),
        "step": facts.get("step"),
        "problem": facts.get("problem"),
        "right": sum(reward >= 1 for reward in rewards),
        "of": len(rewards),
    }


class ProposalFact(NamedTuple):
    """What else is known of a proposal: a title, its words, and the page that lists it, if any."""

    title: str
    words: str
    address: str | None = None


TITLES = {"model": "Model", "dataset": "Scored on"}


def _facts(visit: Visit, proposal: Proposal) -> list[ProposalFact]:
    """Returns what a proposal's details say, as the page lists it. Links lead only to runs that
    are here: a proposal may come from another clone."""
    details = dict(proposal.details)
    run = details.pop("run", None)
    is_here = run is not None and any(one.name == run for one in visit.store.runs.all())
    facts = [] if run is None else [_run_fact("Run", str(run), f"/run/{run}", is_here)]
    problems = details.pop("problems", None)
    parts = {name: details.pop(name, None) for name in PARTS.values()}
    if isinstance(problems, int):
        title, words = _problems(problems, parts)
        facts.append(_run_fact(title, words, f"/attempts/{run}", is_here))
    for name, value in details.items():
        title = TITLES.get(name, name[:1].upper() + name[1:].replace("_", " "))
        facts.append(ProposalFact(title, str(value)))
    return facts


def _problems(count: int, parts: dict[str, Any]) -> tuple[str, str]:
    """Returns how many problems a proposal is about, as a title and in words: of each part, where
    that is on record."""
    collected = f"{plural(count, 'problem')} collected from what went wrong"
    learned, gate, held = parts["learned_from"], parts["gate"], parts["held_out"]
    if learned is None:
        return "Problems", collected
    others = [f"{gate} for the gate"] if gate else []
    others += [f"{held} held out"] if held else []
    return "Learned from", f"{learned} of {collected}" + (
        f" ({', '.join(others)})" if others else ""
    )


def _run_fact(title: str, words: str, address: str, is_here: bool) -> ProposalFact:
    return ProposalFact(title, words, quote(address) if is_here else None)


def decide(visit: Visit) -> Response:
    """Accepts, turns down or takes a decision back; the next of the queue follows."""
    store, act = visit.store, visit.field("act")
    proposal = get_proposal(store, visit.required("id", "the proposal"))
    why = visit.field("why").strip()
    skipped = visit.field("skipped")
    onward = "/review" + (f"?skipped={quote(skipped)}" if skipped else "")
    if act == "reject":
        done = reject(store, proposal.id, why=visit.required("why", "why it is turned down"))
        return visit.done(onward, f"turned down {done.id}: {done.why}")
    if act == "undo":
        reopen(store, proposal.id, why=why or None)
        write_library(store)
        return visit.done(f"/review?id={proposal.id}", f"{proposal.id} waits again")
    if act != "accept":
        raise BadForm(f"a proposal cannot be {act[:40]!r}", hint="accept, reject or undo")
    try:
        done = accept(
            store,
            proposal.id,
            only=_taken(visit, proposal),
            edits=_edits(visit, proposal),
            why=why or None,
            take=_side(visit),
        )
    except MergeConflict as conflicts:
        return _page(visit, proposal, conflicts=conflicts)
    write_library(store)
    left = len(done.changes) - len(done.accepted)
    more = f", {left} left out" if left else ""
    return visit.done(onward, f"accepted {done.id}: {done.target} is at {done.version}{more}")


def _taken(visit: Visit, proposal: Proposal) -> list[str] | None:
    """Returns the changes that are taken; None for all of them."""
    if not visit.field("choosing"):
        return None
    chosen = visit.form.get("take", ())
    taken = [one.experience for one in proposal.changes if one.experience in chosen]
    if not taken:
        raise BadForm("no change is chosen", hint="to take none of them, turn the proposal down")
    return None if len(taken) == len(proposal.changes) else taken


def _edits(visit: Visit, proposal: Proposal) -> dict[str, str]:
    """Returns the texts that were given other words, of the changes that are taken."""
    taken = visit.form.get("take", [one.experience for one in proposal.changes])
    edits = {}
    for one in proposal.changes:
        if one.after is None or one.experience not in taken:
            continue
        text = " ".join(visit.field(f"text-{one.experience}", one.after).split())
        if text != " ".join(one.after.split()):
            if not text:
                raise BadForm(f"{one.label} has no text", hint="to leave it out, do not choose it")
            edits[one.experience] = text
    return edits


def _side(visit: Visit) -> Side | None:
    taken = visit.field("side")
    return "ours" if taken == "ours" else "theirs" if taken == "theirs" else None


ROUTES = (Route("/review", show), Route("/review", decide, "POST"))
