"""What a version is called in a list: its message, or the first words of what was done by hand.

Texts are never copied into a message: a message is in the digest for good, while a text can be
redacted. So work by hand without a message of its own records only what kind of work it was, and
its first words are read from its events each time it is shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfgrpo.store.protection import PREFIX, NameKind
from tfgrpo.store.records import Event, Op, Operation, Version

if TYPE_CHECKING:
    from tfgrpo.store.store import Store

VERBS: dict[Op, str] = {"ADD": "add", "MODIFY": "modify", "DELETE": "delete", "KEEP": "keep"}
NAMED = 3
"""More experiences than this are counted and not named."""
LONGEST = 60
LABEL = r" \(G\d+\)"
BY_HAND = tuple(f"{verb} " for verb in VERBS.values())


def by_hand(operations: Sequence[Operation | Event]) -> str:
    """Returns the message of work by hand without one: `add 2 experiences; keep pjvbnk5xqzt4`."""
    parts = []
    for op, verb in VERBS.items():
        ids = [operation.experience or "" for operation in operations if operation.op == op]
        if op == "ADD" or len(ids) > NAMED:
            noun = "experience" if len(ids) == 1 else "experiences"
            parts += [f"{verb} {len(ids)} {noun}"] if ids else []
        elif ids:
            parts.append(f"{verb} {', '.join(ids)}")
    return "; ".join(parts)


def subject(store: Store, version: Version) -> str:
    """Returns a version's message; for work by hand without one, the first words of its text."""
    if not version.message.startswith(BY_HAND):
        return version.message
    events = store.events(version)
    if re.sub(LABEL, "", version.message) != by_hand(events):
        return version.message
    first = events[0]
    text = first.text if first.text is not None else store.texts_before([first]).get(first.row)
    if first.redacted or text is None:
        return version.message
    verbs = dict.fromkeys(VERBS[event.op] for event in events)
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return f"{', '.join(verbs)}: {shortened(text)}{more}"


def why_named(store: Store, kind: NameKind, name: str) -> str:
    """Returns what was said of a branch or tag when it last moved; empty where nothing was."""
    move = store.port.names.ref(PREFIX[kind] + name)
    for begin in (f"{kind} {name}: ", f"move {kind} {name}: "):
        if move is not None and move.action.startswith(begin):
            return move.action.removeprefix(begin)
    return ""


def shortened(text: str) -> str:
    """Returns the first words of a text, as many as make about a line's subject."""
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text
    cut = text[:LONGEST].rpartition(" ")[0] or text[:LONGEST]
    return f"{cut} …"
