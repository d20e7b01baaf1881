"""Proposals: a branch with evidence that waits for a person, or a rule, to take it or leave it.

Accepting brings changes into the target by a three-way merge; each change is accepted, turned down
for a reason (`turned_down.py`), or left open. What was turned down stays in a branch called
`rejected/…`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

from tfgrpo.evaluation import statistics
from tfgrpo.evaluation.scoring import EvalTask
from tfgrpo.learn.library_draft import plain
from tfgrpo.learn.turned_down import PROPOSAL, REJECTED
from tfgrpo.production.experiment import all_running, at_work
from tfgrpo.production.promotions import digests_tried
from tfgrpo.result_tables import View, Viewed
from tfgrpo.store.activity.decisions import Decision, by_subject, decide, decisions
from tfgrpo.store.errors import InvalidOperation, StaleVersion, UnknownRevision
from tfgrpo.store.history.blame import Origins
from tfgrpo.store.history.merge import (
    Conflict,
    MergeConflict,
    Resolve,
    Side,
    side,
    three_way,
)
from tfgrpo.store.records import REDACTED, Experience, Json, Library, Op, Operation, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store
from tfgrpo.wording import plural, sampled, with_bounds


class OnTrial(InvalidOperation):
    """An experiment is running on the branch that would move, or with what is turned down."""


State: TypeAlias = Literal["open", "accepted", "rejected"]
NOUNS = {"ADD": "addition", "MODIFY": "change", "DELETE": "deletion"}
PARTS = {"train": "learned_from", "gate": "gate", "heldout": "held_out"}
"""Part of an improvement → what a proposal's details call how many problems are in it."""


class ProposedChange(NamedTuple):
    """One change: None on a side means that the experience is not there; `state` is what was
    decided about it, `why` the reason where it was turned down."""

    label: str
    experience: str
    before: str | None
    after: str | None
    reason: str | None = None
    evidence: Json | None = None
    state: State = "open"
    why: str | None = None

    @property
    def op(self) -> Op:
        return "ADD" if self.before is None else "DELETE" if self.after is None else "MODIFY"

    @property
    def words(self) -> str:
        """The text that comes or goes, or the one before and the one after."""
        if self.op == "MODIFY":
            return f"{self.before} → {self.after}"
        return self.after or self.before or ""

    def __str__(self) -> str:
        return f"[{self.label}] {self.op} {self.words}"


class Effect(NamedTuple):
    """The reward on held-out problems, paired by problem: means `before` and `after`, their
    difference with its 95 % interval (None: no end), and the permutation test's `p`."""

    before: float
    after: float
    mean: float
    low: float | None
    high: float | None
    p: float
    verdict: str
    problems: int
    samples: int
    model: str

    def __str__(self) -> str:
        gain = with_bounds(self.mean, self.low, self.high)
        return (
            f"{self.before:.3f} → {self.after:.3f}, {gain}, {self.verdict} "
            f"({sampled(self.problems, self.samples, 'held-out')}, {self.model})"
        )


def effect_of(before: statistics.Rewards, after: statistics.Rewards, task: EvalTask) -> Effect:
    """How rewards differ at the problems that both have. Raises ValueError where they have none."""
    difference = statistics.paired(before, after)
    one, other = difference.means
    return Effect(
        round(one, 6),
        round(other, 6),
        *difference.estimate.recorded,
        round(difference.p, 6),
        difference.verdict,
        difference.estimate.problems,
        task.settings.samples,
        task.settings.models.model,
    )


@dataclass(frozen=True, slots=True)
class Proposal(Viewed):
    """A proposal as it stands, with times in microseconds since 1970, and author, time and reason
    of the last decision. `accepted` and `edited` are experiences, `versions` the versions that they
    became; where it is `gone`, the target has nothing of that any more. `decisions` is the number
    of decisions so far: whoever decides passes the number that they saw."""

    id: str
    state: State
    branch: str
    target: str
    base: Version
    candidate: Version
    changes: tuple[ProposedChange, ...]
    effect: Effect | None
    source: str
    made: int
    author: str
    time: int
    why: str | None = None
    accepted: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    decisions: int = 0
    details: Json = field(default_factory=dict)
    gone: bool = False

    @property
    def standing(self) -> str:
        """The state, and whether what was accepted is there: `accepted, no longer in prod`."""
        gone = self.gone and self.state == "accepted"
        return f"{self.state}, no longer in {self.target}" if gone else self.state

    @property
    def version(self) -> str | None:
        """The last version that its changes became; None where none was accepted."""
        return self.versions[-1] if self.versions else None

    @property
    def waiting(self) -> tuple[ProposedChange, ...]:
        """The changes that nothing was decided about."""
        return tuple(one for one in self.changes if one.state == "open")

    @property
    def measured(self) -> Effect | None:
        """The effect, if it is that of what was decided or waits: all changes together, with the
        proposed texts. For a part of them nothing was measured."""
        whole = len({one.state for one in self.changes}) == 1 and not self.edited
        return self.effect if whole else None

    @property
    def summary(self) -> str:
        """How many changes of each kind: `2 additions, 1 change`."""
        counts = Counter(one.op for one in self.changes)
        words = [plural(number, NOUNS[op]) for op, number in counts.items()]
        return ", ".join(words) or "no change"

    def view(self) -> View:
        rows = [(one.label, one.op, one.words, one.reason or "") for one in self.changes]
        effect: object = self.effect or "not measured"
        if self.effect is not None and self.measured is None:
            effect = "not measured of a part, only of all changes together"
        notes = [f"for {self.target} at {self.base.name}, from {self.source}: {self.branch}"]
        notes += [f"effect: {effect}"]
        notes += [
            f"[{one.label}] {one.state}" + (f": {one.why}" if one.why else "")
            for one in self.changes
            if one.state != "open" and self.waiting
        ]
        if self.state != "open":
            notes.append(f"{self.state} by {self.author}" + (f": {self.why}" if self.why else ""))
        title = f"proposal {self.id} ({self.standing}): {self.summary}"
        return View(title, ("", "change", "experience", "why"), rows, notes)


@dataclass(frozen=True, slots=True)
class Draftsman:
    """What a proposal is made from: the branch with the candidate, the target, what made it, its
    effect, and what else is known of it. The candidate is the version that was measured, or else
    the branch's tip."""

    branch: str
    target: str
    source: str
    base: Version
    effect: Effect | None = None
    details: Json = field(default_factory=dict)
    candidate: Version | None = None


def propose(store: Store, what: Draftsman) -> Proposal:
    """Records a proposal, and returns it. Raises InvalidOperation where it would change nothing."""
    candidate = what.candidate or store.tip(what.branch)
    if store.library(candidate) == store.library(what.base):
        raise InvalidOperation(
            f"{what.branch} has the library of {what.base.name}: there is nothing to propose"
        )
    with store.port.transaction():
        number = 1 + len({one.subject for one in decisions(store, kind=PROPOSAL)})
        content = {
            "state": "open",
            "branch": what.branch,
            "target": what.target,
            "base": what.base.digest.hex(),
            "candidate": candidate.digest.hex(),
            "source": what.source,
            "effect": None if what.effect is None else what.effect._asdict(),
            "details": dict(what.details),
        }
        decide(store, PROPOSAL, f"p{number}", content)
    return get_proposal(store, f"p{number}")


def free_branch(store: Store, kind: str) -> str:
    """A name for the branch of a proposal that no other has, or ever had."""
    proposed = by_subject(store, PROPOSAL).values()
    taken = {*store.branches(), *(about[0].content["branch"] for about in proposed)}
    names = (f"proposal/{kind}-{n}" for n in count(1))
    return next(n for n in names if n not in taken and f"rejected/{n}" not in taken)


def list_proposals(store: Store, state: State | None = None) -> list[Proposal]:
    """The proposals (of that state), newest first, but those whose versions are gone."""
    listed = []
    for about in reversed(by_subject(store, PROPOSAL).values()):
        if state in (None, about[-1].content["state"]):
            with suppress(UnknownRevision):
                listed.append(_read(store, about))
    return listed


def get_proposal(store: Store, id: str) -> Proposal:
    """The proposal of that id, or on a branch of that name. Raises UnknownRevision."""
    known = by_subject(store, PROPOSAL)
    for name, about in known.items():
        if id in (name, about[0].content["branch"]):
            return _read(store, about)
    raise UnknownRevision(
        f"there is no proposal {id!r}",
        hint="`tfgrpo proposal list` lists them" if known else "`tfgrpo improve` makes them",
    )


@dataclass(frozen=True, slots=True)
class Review:
    """A person's decisions about changes, by label or id, with reasons and `edits`. `take` decides
    conflicts with the target; `seen` is how many decisions the person knew of."""

    accept: Sequence[str] = ()
    reject: Mapping[str, str] = field(default_factory=dict)
    edits: Mapping[str, str] = field(default_factory=dict)
    why: str | None = None
    take: Side | Resolve | None = None
    seen: int | None = None


def accept(
    store: Store,
    id: str,
    *,
    only: Sequence[str] | None = None,
    edits: Mapping[str, str] | None = None,
    why: str | None = None,
    take: Side | None = None,
) -> Proposal:
    """Brings a proposal's changes into its target as one version, and records who, when and why:
    all that are open, or `only` those, and the others are left open. Raises as `review` does."""
    if only is not None and not only:
        raise InvalidOperation(
            "nothing is taken", hint="`tfgrpo proposal reject` turns all of it down"
        )
    return review(store, id, Review(only or _open(store, id), {}, edits or {}, why, take))


def reject(store: Store, id: str, *, why: str, only: Sequence[str] | None = None) -> Proposal:
    """Turns a proposal down, on record: all that is open of it, or `only` those changes, and the
    others are left open. Raises as `review` does."""
    chosen = _open(store, id) if only is None else only
    return review(store, id, Review((), dict.fromkeys(chosen, why)))


def _open(store: Store, id: str) -> list[str]:
    return [one.experience for one in open_proposal(store, id).waiting]


def review(store: Store, id: str, what: Review) -> Proposal:
    """Records a review as one operation, and returns the proposal as it stands then: what is taken
    becomes one version of the target, and without an open change the proposal is put away. Raises
    MergeConflict, StaleVersion where somebody decided meanwhile, InvalidOperation for a decided
    change, a missing reason or nothing to change, UnknownRevision, OnTrial, ProtectedName."""
    for recording in recordings(store):
        with recording:
            _record(store, open_proposal(store, id), what)
    return get_proposal(store, id)


def _record(store: Store, proposal: Proposal, what: Review) -> None:
    if what.accept:
        check_trial(store, proposal)
    if what.reject:
        check_tested(store, proposal)
    check_seen(proposal, what.seen, "look at what is open now")
    taken = _named(proposal, what.accept)
    down = {_named(proposal, [name])[0]: why for name, why in what.reject.items()}
    words = {_named(proposal, [name])[0]: text for name, text in what.edits.items()}
    _check_review(proposal, taken, down, words)
    waits = len(proposal.waiting) > len(taken) + len(down)
    every = [one.experience for one in proposal.changes]
    whole = taken == every and not words
    nothing_lost = {*proposal.accepted, *taken} == {*every} and not {*proposal.edited, *words}
    state = "open" if waits else "accepted" if taken or proposal.accepted else REJECTED
    verb = "review" if taken and down else "accept" if taken else "reject"
    reasons = [why for why in ((what.why,) if taken else dict.fromkeys(down.values())) if why]
    message = f"{verb} proposal {proposal.id}" + (f": {'; '.join(reasons)}" if reasons else "")
    with store.operation(message):
        for why in dict.fromkeys(down.values()):
            named = [one for one in proposal.changes if down.get(one.experience) == why]
            content = {
                "state": state,
                "rejected": [one.experience for one in named],
                "changes": [{"op": c.op, "before": c.before, "after": c.after} for c in named],
            }
            decide(store, PROPOSAL, proposal.id, content, why=why)
        if taken:
            tip = store.tip(proposal.target)
            content = {"state": state, "accepted": taken, "edited": [*words]}

            def record(version: Version) -> None:
                of_version = content | {"version": version.digest.hex()}
                decide(store, PROPOSAL, proposal.id, of_version, why=what.why)

            store.commit(
                proposal.target,
                operations_on(store, proposal, tip, taken, words, what.take),
                message=message,
                expected=tip,
                merged=proposal.candidate if whole else None,
                also=record,
            )
        if not waits:
            _put_away(store, proposal, keep=not nothing_lost)


def conflicts_of(store: Store, proposal: Proposal, what: Review) -> tuple[Conflict, ...]:
    """Returns what the target has changed of what a review takes; nothing is recorded."""
    tip, taken = store.tip(proposal.target), _named(proposal, what.accept)
    try:
        operations_on(store, proposal, tip, taken, what.edits, None)
    except MergeConflict as refusal:
        return refusal.conflicts
    except InvalidOperation:  # a review is refused for other reasons too
        pass
    return ()


def check_trial(store: Store, proposal: Proposal) -> None:
    """Raises OnTrial where the proposal's target must not move, for an experiment is at work on it,
    unless the store is forced."""
    running = None if store.is_forced else at_work(store, proposal.target)
    if running is not None:
        raise OnTrial(
            f"experiment {running.name} is running on {proposal.target}, and this would move the "
            "branch",
            hint=f"`tfgrpo experiment stop {running.name}`, or promote it; --force does it now",
        )


def check_tested(store: Store, proposal: Proposal) -> None:
    """Raises OnTrial where an experiment is running with what is proposed as its candidate, unless
    the store is forced."""
    tried = digests_tried(store, proposal.id)
    for one in () if store.is_forced else all_running(store):
        if one.candidate.digest in tried:
            raise OnTrial(
                f"experiment {one.name} is trying proposal {proposal.id}",
                hint=f"`tfgrpo experiment rollback {one.name}` first; --force turns it down now",
            )


def check_seen(proposal: Proposal, seen: int | None, hint: str) -> None:
    """Raises StaleVersion where more was decided about a proposal than was `seen`."""
    if seen is not None and seen != proposal.decisions:
        raise StaleVersion(
            f"{proposal.author} has decided about proposal {proposal.id} meanwhile", hint=hint
        )


def _check_review(
    proposal: Proposal, taken: Collection[str], down: Mapping[str, str], words: Mapping[str, str]
) -> None:
    if not taken and not down:
        raise InvalidOperation("nothing is decided", hint="take a change, or turn one down")
    if outside := words.keys() - set(taken):
        raise InvalidOperation(f"{min(outside)} is edited but not taken", hint="take it as well")
    if not all(why.strip() for why in down.values()):
        raise InvalidOperation("a change is turned down for a reason", hint="say why it is wrong")
    labels = {one.experience: one for one in proposal.changes}
    for id in (*taken, *down):
        if labels[id].state != "open":
            raise InvalidOperation(f"{labels[id].label} was {labels[id].state} before")
        if id in taken and id in down:
            raise InvalidOperation(f"{labels[id].label} is both taken and turned down")


# reading:


def _read(store: Store, about: Sequence[Decision]) -> Proposal:
    first, last = about[0], about[-1]
    content = first.content
    base, candidate = (store.resolve(content[name]) for name in ("base", "candidate"))
    effect = content.get("effect")
    taken: list[str] = []
    edited: list[str] = []
    down: dict[str, str | None] = {}
    versions: list[str] = []
    withdrawn = {one.content.get("withdrew") for one in about} - {None}
    for one in about[1:]:
        if one.content.get("experiment") in withdrawn:
            continue
        if "took_back" in one.content:
            taken, edited, down, versions = [], [], {}, []
        taken += one.content.get("accepted", ())
        edited += one.content.get("edited", ())
        down |= dict.fromkeys(one.content.get("rejected", ()), one.why)
        if "version" in one.content:
            versions.append(store.resolve(one.content["version"]).name)
    changes = [
        one._replace(state="accepted")
        if one.experience in taken
        else one._replace(state="rejected", why=down[one.experience])
        if one.experience in down
        else one
        for one in _changes(store, base, candidate)
    ]
    return Proposal(
        first.subject,
        last.content["state"],
        content["branch"],
        content["target"],
        base,
        candidate,
        tuple(changes),
        None if effect is None else Effect(**effect),
        content["source"],
        first.time,
        last.author,
        last.time,
        last.why,
        tuple(dict.fromkeys(taken)),
        tuple(versions),
        tuple(edited),
        len(about),
        content["details"],
        _is_gone(store, content["target"], [c for c in changes if c.state == "accepted"]),
    )


def _is_gone(store: Store, target: str, accepted: Sequence[ProposedChange]) -> bool:
    """Returns whether a branch stands to each change that was accepted as it did before: they were
    undone, rolled back, reverted or taken out by hand; or the branch itself is gone. Not where none
    was accepted."""
    if not accepted or target not in store.branches():
        return bool(accepted)
    texts = store.library(target).texts
    return all(texts.get(one.experience) == one.before for one in accepted)


def _changes(store: Store, base: Version, candidate: Version) -> tuple[ProposedChange, ...]:
    """The changes between two versions, labelled as the libraries together would be."""
    before, after = store.library(base), store.library(candidate)
    places = {id: n for n, id in enumerate(dict.fromkeys([*before.texts, *after.texts]))}
    events = store.events_at(e.row for e in after)
    origins = Origins(store)
    changes = []
    for one in store.diff(base, candidate):
        reason = evidence = None
        if (there := after.by_id.get(one.experience)) is not None:
            event = events[there.row]
            event = origins.of(event, store.version(event.version)).event
            reason, evidence = event.reason, event.evidence
        else:
            deleted = [e.reason for e in store.history(one.experience) if e.op == "DELETE"]
            reason = deleted[-1] if deleted else None
        known = (one.before, one.after, reason, evidence)
        changes.append(ProposedChange(f"G{places[one.experience]}", one.experience, *known))
    return tuple(changes)


# deciding:


def open_proposal(store: Store, id: str) -> Proposal:
    """The proposal of that id. Raises UnknownRevision, and InvalidOperation once it was decided."""
    proposal = get_proposal(store, id)
    if proposal.state != "open":
        raise InvalidOperation(
            f"proposal {proposal.id} was {proposal.state} by {proposal.author}",
            hint=f"`tfgrpo proposal reopen {proposal.id}` takes that back",
        )
    return proposal


def _named(proposal: Proposal, names: Sequence[str]) -> list[str]:
    by_name = {name: one.experience for one in proposal.changes for name in one[:2]}
    for name in names:
        if name not in by_name:
            raise UnknownRevision(
                f"proposal {proposal.id} does not change {name!r}",
                hint="it changes " + ", ".join(one.label for one in proposal.changes),
            )
    return list(dict.fromkeys(by_name[name] for name in names))


def operations_on(
    store: Store,
    proposal: Proposal,
    tip: Version,
    taken: Collection[str],
    words: Mapping[str, str],
    take: Side | Resolve | None,
) -> list[Operation]:
    """The operations that bring what is taken of a proposal, some in other `words`, into its target
    at `tip`. Raises MergeConflict, and InvalidOperation where they come to nothing."""
    base, ours = store.library(proposal.base), store.library(tip)
    texts = base.texts
    for one in proposal.changes:
        if one.experience not in taken:
            continue
        edited = words.get(one.experience)
        after = one.after if edited is None else " ".join(edited.split())
        if after is None:
            texts.pop(one.experience)
        elif after == REDACTED:
            raise InvalidOperation(f"the text of {one.label} was redacted", hint="leave it out")
        else:
            texts[one.experience] = after
    theirs = Library(tip, tuple(Experience(id, text, 0) for id, text in texts.items()))
    merged = three_way(base, ours, theirs, resolve=side(take) if isinstance(take, str) else take)
    if merged.conflicts:
        raise MergeConflict(
            f"{proposal.target} has changed what proposal {proposal.id} changes",
            merged.conflicts,
            hint="nothing was recorded; --ours keeps what is there, --theirs takes the proposal",
        )
    source = {"version": proposal.candidate.digest.hex()}  # blame follows what is as it was learned
    there = {plain(e.text) for e in ours.readable}
    reasons = {one.experience: one.reason for one in proposal.changes}
    operations = [
        one._replace(
            reason=reasons.get(one.experience or ""),
            evidence=source | ({"proposal": proposal.id} if one.experience in words else {}),
        )
        for one in merged.operations
        if one.op != "ADD" or plain(one.text or "") not in there
    ]
    if not operations:
        raise InvalidOperation(
            f"{proposal.target} already has all of proposal {proposal.id}",
            hint="`tfgrpo proposal reject` puts it away",
        )
    return operations


def _put_away(store: Store, proposal: Proposal, *, keep: bool) -> None:
    """Takes a decided proposal's branch out of the way; with `keep` it is called `rejected/…`."""
    branches = store.branches()
    if proposal.branch not in branches or store.head.branch == proposal.branch:
        return
    if keep:
        names = (f"rejected/{proposal.branch}{'' if n == 1 else f'-{n}'}" for n in range(1, 1000))
        name = next(name for name in names if name not in branches)
        store.create_branch(name, store.tip(proposal.branch))
    store.delete_branch(proposal.branch)
