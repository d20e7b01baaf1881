"""What people say of a proposal and whom they ask to look: decisions on record, so redaction
reaches them, that decide nothing and that no controller is told of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tfgrpo.improvement.proposals import by_subject, get_proposal
from tfgrpo.store.activity.decisions import Decision, decide
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
    whom. Who has said or decided something since is not waited for."""

    comments: tuple[Comment, ...] = ()
    awaited: tuple[tuple[str, str], ...] = ()


def comment(store: Store, id: str, text: str, experience: str | None = None) -> None:
    """Records a comment on a proposal or a change. Raises InvalidOperation and UnknownRevision."""
    proposal = get_proposal(store, id)
    if experience is not None and experience not in {one.experience for one in proposal.changes}:
        raise UnknownRevision(f"proposal {proposal.id} does not change {experience!r}")
    if not text.strip() or len(text) > MOST:
        raise InvalidOperation("a comment says something", hint=f"in at most {MOST:,} characters")
    decide(store, KIND, proposal.id, {"comment": text.strip(), "experience": experience})


def ask(store: Store, id: str, name: str) -> None:
    """Records that somebody is asked to look at a proposal that waits. Raises InvalidOperation."""
    proposal = get_proposal(store, id)
    if proposal.state != "open":
        raise InvalidOperation(f"proposal {proposal.id} was decided: there is nothing to look at")
    if not name.strip():
        raise InvalidOperation("nobody is named")
    decide(store, KIND, proposal.id, {"asks": " ".join(name.split())})


def discussions(store: Store) -> Mapping[str, Discussion]:
    """Proposal → what was said of it, of those that anything was said of."""
    return {id: _folded(listed) for id, listed in by_subject(store, KIND).items()}


def _folded(listed: list[Decision]) -> Discussion:
    comments: list[Comment] = []
    awaited: dict[str, str] = {}
    for one in listed:
        awaited.pop(one.author, None)
        if "asks" in one.content:
            awaited[str(one.content["asks"])] = one.author
        else:
            experience = one.content.get("experience")
            comments.append(Comment(one.author, one.time, experience, str(one.content["comment"])))
    return Discussion(tuple(comments), tuple(awaited.items()))
