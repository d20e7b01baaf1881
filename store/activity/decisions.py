"""Decisions: who approved what about production, when, on what evidence and why.

Each is one row, appended and never changed, in the transaction of what was decided. They belong to
a store: clone, fetch, push and bundles leave them. A redaction reaches their texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store.canonical import canonical, new_id
from tfgrpo.store.errors import HALF_A_CHARACTER, InvalidOperation
from tfgrpo.store.records import Json

if TYPE_CHECKING:
    from tfgrpo.store.store import Store


class Decision(NamedTuple):
    """One decision. `time` is microseconds since 1970 in UTC; `row` orders them in this store.
    `kind` is a word (`experiment`, `rollback`, `proposal`), `subject` what it is about (a name),
    `content` the rest as a JSON object: what was done, and the evidence."""

    row: int
    id: str
    time: int
    author: str
    kind: str
    subject: str
    content: Json
    why: str | None


def decide(
    store: Store,
    kind: str,
    subject: str,
    content: Json,
    *,
    why: str | None = None,
    author: str | None = None,
) -> Decision:
    """Records a decision, in the transaction that is open or in one of its own. Raises
    InvalidOperation without kind or subject and for what is not Unicode, ValueError or TypeError
    for no JSON."""
    if not kind.strip() or not subject.strip():
        raise InvalidOperation("a decision has a kind and a subject", hint="name what it is about")
    try:
        canonical(content)  # what is none is an error before the transaction
    except UnicodeEncodeError as error:
        raise InvalidOperation(
            f"what was decided is not valid Unicode ({error.reason})", hint=HALF_A_CHARACTER
        ) from None
    with store.port.transaction():
        decision = Decision(
            0, new_id(), store.now(), author or store.author, kind, subject, content, why or None
        )
        row = store.port.records.append_decision(decision)
    return decision._replace(row=row)


def decisions(
    store: Store, *, kind: str | None = None, subject: str | None = None, since: int = 0
) -> list[Decision]:
    """Decisions, oldest first: of a kind, about a subject, since when (microseconds)."""
    return store.port.records.decisions(kind, subject, since)


def by_subject(store: Store, kind: str) -> dict[str, list[Decision]]:
    """Subject → the decisions of a kind about it, oldest first."""
    groups: dict[str, list[Decision]] = {}
    for one in decisions(store, kind=kind):
        groups.setdefault(one.subject, []).append(one)
    return groups


def about(decision: Decision, name: str) -> bool:
    """Whether a decision is about a name: by subject, kind, id or a value of its content."""
    named = (decision.subject, decision.kind, decision.id, *decision.content.values())
    return any(value == name for value in named)
