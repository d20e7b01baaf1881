"""The queue of proposals: one at a time, with its evidence and effect, decided by a key; and what
takes a decision or another act back. Where later versions changed what it brought, each conflict is
decided in the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tfgrpo.hand_edits import write_library
from tfgrpo.improvement.proposal_comments import Discussion, ask, comment, discussions, withdraw
from tfgrpo.improvement.proposal_reopening import conflicts_of as conflicts_after
from tfgrpo.improvement.proposal_reopening import reopen
from tfgrpo.improvement.proposals import (
    PARTS,
    Proposal,
    ProposedChange,
    Review,
    conflicts_of,
    get_proposal,
    list_proposals,
    review,
)
from tfgrpo.store.activity.decisions import Decision
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.merge import Conflict, MergeConflict, Resolve
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.store.records import Evidence, read_evidence
from tfgrpo.ui.page_visit import BadForm, Route, Visit, as_number
from tfgrpo.ui.pages.combine import resolution, status_with_conflicts
from tfgrpo.ui.visitor_sessions import Act
from tfgrpo.wording import plural

DECIDED = 20
"""The last decisions that are listed below the queue."""


def show(visit: Visit) -> Response:
    """Answers with the proposal at the head of the queue, the oldest first, or the one asked for.

    `skipped` are the ids that were put off in this round."""
    skipped = _skipped(visit)
    current: Proposal | None
    if visit.query("id"):
        current = get_proposal(visit.store, visit.query("id"))
    else:
        waiting = reversed(list_proposals(visit.store, "open"))
        current = next((one for one in waiting if one.id not in skipped), None)
    return show_proposal(visit, current)


def _skipped(visit: Visit) -> list[str]:
    return [id for id in visit.field("skipped", visit.query("skipped")).split(",") if id]


def show_proposal(
    visit: Visit,
    current: Proposal | None,
    *,
    conflicts: Sequence[Conflict] = (),
    refusal: TfgrpoError | None = None,
) -> Response:
    everything, skipped = list_proposals(visit.store), _skipped(visit)
    waiting = [one for one in reversed(everything) if one.state == "open"]
    decided = sorted(
        (one for one in everything if len(one.waiting) < len(one.changes)),
        key=lambda one: -one.time,
    )
    spoken = discussions(visit.store)
    context: dict[str, Any] = {}
    if current is not None:
        context["skip"] = ",".join([*skipped, current.id])
        context["evidence"] = [read_evidence(change.evidence) for change in current.changes]
        context["facts"] = _facts(visit, current)
        context["playground"] = _playground(visit, current, context["evidence"])
    return visit.render(
        "review.html",
        200 if not conflicts and refusal is None else status_with_conflicts(refusal),
        title="Review",
        current=current,
        waiting=waiting,
        spoken={one.id: spoken.get(one.id, Discussion()) for one in (*waiting, current) if one},
        people=sorted(set(visit.site.settings.logins.values())),
        skipped=",".join(skipped),
        put_off=len({one.id for one in waiting} & set(skipped)),
        decided=decided[:DECIDED],
        refusal=refusal,
        onto=None if current is None else tip_of(visit, current),
        reasons=list(dict.fromkeys(one.why for one in decided if one.why))[:10],
        conflicts=conflicts,
        **context,
    )


def _playground(visit: Visit, proposal: Proposal, evidence: list[Evidence]) -> str:
    """Returns where both sides are tried on a prompt: the problem that taught the first change,
    where its run is here."""
    query: dict[str, object] = {"a": proposal.base.name, "b": proposal.candidate.name}
    for one in evidence if visit.content else ():
        if one.problem and one.run and visit.has_run(one.run) and one.step is not None:
            query |= {"run": one.run, "step": one.step + 1, "problem": one.problem}
            break
    return f"/playground?{urlencode(query)}"


Fact: TypeAlias = tuple[str, str, str | None]
"""What else is known of a proposal: a title, its words, and the page that lists it, if any."""
TITLES = {"model": "Model", "dataset": "Scored on"}


def _facts(visit: Visit, proposal: Proposal) -> list[Fact]:
    """Returns what a proposal's details say, as the page lists it. Links lead only to runs that
    are here: a proposal may come from another clone."""
    details = dict(proposal.details)
    run, problems = details.pop("run", None), details.pop("problems", None)
    is_here = run is not None and visit.has_run(str(run))
    parts = {name: details.pop(name, None) for name in PARTS.values()}
    facts: list[Fact] = []
    if run is not None:
        facts.append(("Run", str(run), quote(f"/run/{run}") if is_here else None))
    if isinstance(problems, int):
        at = quote(f"/attempts/{run}") if is_here else None
        facts.append((*_problems(problems, parts), at))
    for name, value in details.items():
        title = TITLES.get(name, name[:1].upper() + name[1:].replace("_", " "))
        facts.append((title, str(value), None))
    return facts


def _problems(count: int, parts: dict[str, Any]) -> tuple[str, str]:
    """Returns how many problems a proposal is about, as a title and in words: of each part, where
    that is on record."""
    collected = f"{plural(count, 'problem')} collected from what went wrong"
    learned, gate, held = parts["learned_from"], parts["gate"], parts["held_out"]
    if learned is None:
        return "Problems", collected
    others = [f"{gate} for the gate"] * bool(gate) + [f"{held} held out"] * bool(held)
    return "Learned from", f"{learned} of {collected}" + f" ({', '.join(others)})" * bool(others)


def tip_of(visit: Visit, proposal: Proposal) -> str | None:
    """Returns where a proposal's target stands; None where the branch is gone."""
    branches = visit.store.branches()
    return f"v{branches[proposal.target]}" if proposal.target in branches else None


def decide(visit: Visit) -> Response:
    """Records what was decided about each change, or takes a decision back; the next of the queue
    follows. Where it is refused, or somebody decided since the page was made or changed what a side
    was chosen for, nothing is recorded, and what was written is shown beside what is so now."""
    store, act = visit.store, visit.field("act")
    proposal = get_proposal(store, visit.required("id", "the proposal"))
    skipped = visit.field("skipped")
    onward = "/review" + (f"?skipped={quote(skipped)}" if skipped else "")
    take = resolution(visit) if visit.field("onto") == tip_of(visit, proposal) else None
    try:
        if act not in ("accept", "reject"):
            raise BadForm(f"a proposal cannot be {act[:40]!r}", hint="accept or reject")
        if act == "reject":
            why = visit.required("why", "why it is turned down")
            down = dict.fromkeys([one.experience for one in proposal.waiting], why)
            what = Review(reject=down, seen=seen_in(visit))
        else:
            what = _chosen(visit, proposal, take)
        done = review(store, proposal.id, what)
    except MergeConflict as refusal:
        return show_proposal(visit, proposal, conflicts=refusal.conflicts)
    except TfgrpoError as refusal:
        now = get_proposal(store, proposal.id)
        return show_proposal(visit, now, conflicts=_in_conflict(visit, now), refusal=refusal)
    write_library(store)
    if done.waiting:
        onward = f"/review?id={quote(done.id)}"
    undo = Act("/review/undo", (("id", done.id), ("seen", str(done.decisions))))
    return visit.done(onward, _outcome(done, what), undo)


def _in_conflict(visit: Visit, proposal: Proposal) -> Sequence[Conflict]:
    """Returns the conflicts of a form in which sides were chosen; none where none were."""
    is_here = tip_of(visit, proposal) is not None
    if proposal.state != "open" or not is_here or resolution(visit) is None:
        return ()
    waiting = proposal.waiting
    taken = [one for one in waiting if visit.field(f"do-{one.experience}", "accept") == "accept"]
    edits = {one.experience: text for one in taken if (text := _other_words(visit, one))}
    what = Review([one.experience for one in taken], edits=edits)
    return conflicts_of(visit.store, proposal, what)


def _outcome(done: Proposal, what: Review) -> str:
    parts = (
        (what.accept, f"accepted: {done.target} is now at {done.version}"),
        (what.reject, f"turned down: {'; '.join(dict.fromkeys(what.reject.values()))}"),
        (done.waiting, "still open"),
    )
    words = [f"{plural(len(some), 'change')} {became}" for some, became in parts if some]
    return f"Proposal {done.id}: {'; '.join(words)}"


def seen_in(visit: Visit) -> int:
    """Returns how many decisions about the proposal there were when the form was made."""
    return as_number("seen", visit.required("seen", "what the form was made from"), 0)


def _chosen(visit: Visit, proposal: Proposal, take: Resolve | None) -> Review:
    """Returns what the form says of each change: taken unless it says otherwise. Raises BadForm for
    a change that is turned down without a reason, and for what was typed that would be dropped."""
    accepted: list[str] = []
    down: dict[str, str] = {}
    edits: dict[str, str] = {}
    for one in proposal.waiting:
        id = one.experience
        choice, text = visit.field(f"do-{id}", "accept"), _other_words(visit, one)
        if text and choice != "accept":
            raise BadForm(
                f"{one.label} has other words, and is not accepted",
                hint="accept it in your words, or empty the field",
            )
        if choice != "reject" and visit.field(f"why-{id}").strip():
            raise BadForm(
                f"{one.label} has a reason, and is not turned down",
                hint="turn it down, or empty the field of the reason",
            )
        if choice == "reject":
            down[id] = visit.required(f"why-{id}", f"why {one.label} is turned down")
        elif choice == "accept":
            accepted.append(id)
            if text is not None:
                if not text:
                    raise BadForm(f"{one.label} has no text", hint="to leave it out, turn it down")
                edits[id] = text
        elif choice != "open":
            raise BadForm(f"a change cannot be {choice[:40]!r}", hint="accept, reject or open")
    why = visit.field("why").strip() or None
    return Review(accepted, down, edits, why, take, seen_in(visit))


def _other_words(visit: Visit, change: ProposedChange) -> str | None:
    """Returns the words of the form for a change; None where they are those of the proposal."""
    text = visit.text(f"text-{change.experience}", change.after or "")
    if change.after is None or text == change.after:
        return None
    return text if text.strip() else ""


def say(visit: Visit) -> Response:

    def record(id: str) -> tuple[Decision, str]:
        visit.required("comment", "the comment")
        words, on = visit.text("comment").strip(), visit.field("on") or None
        return comment(visit.store, id, words, on), "Your comment is recorded"

    return _discussed(visit, record)


def ask_for(visit: Visit) -> Response:

    def record(id: str) -> tuple[Decision, str]:
        name = visit.required("name", "who is asked")
        return ask(visit.store, id, name), f"{name} is asked to look"

    return _discussed(visit, record)


def _discussed(visit: Visit, record: Callable[[str], tuple[Decision, str]]) -> Response:
    proposal = get_proposal(visit.store, visit.required("id", "the proposal"))
    try:
        spoken, words = record(proposal.id)
    except TfgrpoError as refusal:
        return show_proposal(visit, proposal, refusal=refusal)
    undo = Act("/review/withdraw", (("id", spoken.subject), ("said", spoken.id)))
    return visit.done(f"/review?id={quote(spoken.subject)}#discussion", words, undo)


def take_words_back(visit: Visit) -> Response:
    proposal = get_proposal(visit.store, visit.required("id", "the proposal"))
    try:
        spoken = withdraw(visit.store, proposal.id, visit.required("said", "what was said"))
    except TfgrpoError as refusal:
        return show_proposal(visit, proposal, refusal=refusal)
    content, id = spoken.content, ("id", proposal.id)
    if name := content.get("asks"):
        words, again = f"{name} is asked no more", Act("/review/ask", (id, ("name", name)))
    else:
        fields = (id, ("comment", content["comment"]), ("on", content["experience"] or ""))
        words, again = "Your comment is taken back", Act("/review/comment", fields)
    return visit.done(f"/review?id={quote(proposal.id)}#discussion", words, again)


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
        conflicts = conflicts_after(store, proposal) if resolution(visit) is not None else ()
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


ROUTES = (
    Route("/review", show),
    Route("/review", decide, "POST"),
    Route("/review/comment", say, "POST"),
    Route("/review/ask", ask_for, "POST"),
    Route("/review/withdraw", take_words_back, "POST"),
    Route("/review/undo", undo, "POST"),
    Route("/undo", take_back, "POST"),
)
