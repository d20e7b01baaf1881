"""Comments on a proposal, and requests to look at it. They are decisions on record, so redaction
reaches them, but they decide nothing, and no training is told of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfgrpo.improvement.proposals import get_proposal
from tfgrpo.store.activity.decisions import Decision, by_subject, decide, decisions
from tfgrpo.store.errors import InvalidOperation, UnknownRevision
from tfgrpo.store.store import Store

KIND = "discussion"
MOST = 10_000
"""Characters of a comment."""


class Comment(NamedTuple):
    """A comment on one change, or on the whole (None). `time` is microseconds since 1970."""

    author: str
    time: int
    experience: str | None
    text: str


class Discussion(NamedTuple):
    """The comments on a proposal, oldest first, and who was asked to look, each once: name → by
    whom. People who have commented or decided since are left out."""

    comments: tuple[Comment, ...] = ()
    awaited: tuple[tuple[str, str], ...] = ()


def comment(store: Store, id: str, text: str, experience: str | None = None) -> Decision:
    """Records a comment on a proposal or a change; returns the decision that says it. Raises
    InvalidOperation and UnknownRevision."""
    proposal = get_proposal(store, id)
    if experience is not None and experience not in {one.experience for one in proposal.changes}:
        raise UnknownRevision(f"proposal {proposal.id} does not change {experience!r}")
    if not text.strip() or len(text) > MOST:
        raise InvalidOperation("a comment says something", hint=f"in at most {MOST:,} characters")
    return decide(store, KIND, proposal.id, {"comment": text.strip(), "experience": experience})


def ask(store: Store, id: str, name: str) -> Decision:
    """Records that somebody is asked to look at a proposal that waits; returns the decision that
    does. Raises InvalidOperation."""
    proposal = get_proposal(store, id)
    if proposal.state != "open":
        raise InvalidOperation(f"proposal {proposal.id} was decided: there is nothing to look at")
    if not name.strip():
        raise InvalidOperation("nobody is named")
    return decide(store, KIND, proposal.id, {"asks": " ".join(name.split())})


def withdraw(store: Store, id: str, decision: str) -> Decision:
    """Takes back a comment or a question of one's own, by the id of its decision, which stays on
    record; returns that. Raises InvalidOperation."""
    with store.port.transaction():
        listed = decisions(store, kind=KIND, subject=get_proposal(store, id).id)
        own = [one for one in listed if "withdraws" not in one.content]
        spoken = next((one for one in own if one.id == decision), None)
        if spoken is None or spoken.author != store.author:
            raise InvalidOperation("this comment or question is not yours")
        if spoken.id in _withdrawn(listed):
            raise InvalidOperation("this comment or question was taken back")
        decide(store, KIND, spoken.subject, {"withdraws": spoken.id})
    return spoken


def discussions(store: Store) -> Mapping[str, Discussion]:
    """Proposal → the comments on it, for proposals that have any."""
    return {id: _folded(listed) for id, listed in by_subject(store, KIND).items()}


def _folded(listed: list[Decision]) -> Discussion:
    comments: list[Comment] = []
    awaited: dict[str, str] = {}
    withdrawn = _withdrawn(listed)
    for one in listed:
        if one.id in withdrawn or "withdraws" in one.content:
            continue
        awaited.pop(one.author, None)
        if "asks" in one.content:
            awaited[str(one.content["asks"])] = one.author
        else:
            experience = one.content.get("experience")
            comments.append(Comment(one.author, one.time, experience, str(one.content["comment"])))
    return Discussion(tuple(comments), tuple(awaited.items()))


def _withdrawn(listed: list[Decision]) -> set[object]:
    return {one.content["withdraws"] for one in listed if "withdraws" in one.content}
