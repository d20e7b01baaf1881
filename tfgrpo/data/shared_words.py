"""What the application says before every conversation, which makes no two of them alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Turns: TypeAlias = tuple[tuple[str, str], ...]
ALIKE = 3
"""Different questions that begin with the same turns before those are the application's own."""


def shared_turns(questions: Sequence[Turns]) -> tuple[Turns, ...]:
    """The turns that `ALIKE` or more questions under one system text begin with, but last turns."""
    under: dict[Turns, list[Turns]] = {}
    for messages in questions:
        system = tuple(one for one in messages if one[0] == "system")
        under.setdefault(system, []).append(_spoken(messages))
    shared = []
    for spoken in under.values():
        if len(spoken) < ALIKE:
            continue
        count = 0
        for turns in zip(*(one[:-1] for one in spoken), strict=False):
            if len(set(turns)) > 1:
                break
            count += 1
        while count and any(one[count][0] != "user" for one in spoken):
            count -= 1
        if count:
            shared.append(spoken[0][:count])
    return tuple(dict.fromkeys(shared))


def own_words(messages: Turns, examples: Sequence[Turns]) -> Turns:
    """A conversation without the application's own text."""
    spoken = _spoken(messages)
    for turns in examples:
        if len(spoken) > len(turns) and spoken[: len(turns)] == turns:
            return spoken[len(turns) :]
    return spoken


def _spoken(messages: Turns) -> Turns:
    return tuple(one for one in messages if one[0] != "system")
