"""What of a conversation is its own, and what the application says before every one.

Two conversations under one long system text are not alike for that, nor are two that begin with
the same examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Turns: TypeAlias = tuple[tuple[str, str], ...]
ALIKE = 3
"""Different questions that begin with the same turns before those are the application's own."""


def shared_turns(questions: Sequence[Turns]) -> tuple[Turns, ...]:
    """Returns the turns that all questions under one system text begin with, of each system text
    that has them: the application's own, such as examples. Never with fewer than `ALIKE` questions,
    and never a question's last turn."""
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
    """Returns a conversation without the application's own text."""
    spoken = _spoken(messages)
    for turns in examples:
        if len(spoken) > len(turns) and spoken[: len(turns)] == turns:
            return spoken[len(turns) :]
    return spoken


def _spoken(messages: Turns) -> Turns:
    return tuple(one for one in messages if one[0] != "system")
