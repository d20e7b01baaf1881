"""The workload: a library that grows to a bound and is then changed, event by event.

Deterministic: the same arguments give the same events, so every store is fed the same bytes.
Every store keeps an experience under the same key.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfgrpo.store import derived_id

WORDS = """
solve check factor parity modulus bound sum angle triangle sequence induction prime divisor root
square verify assume compute case equation integer ratio expand coefficient symmetry invariant
count colour graph
"""
TEXT_LENGTH = 200
LIVE = 1000
POOL = 4096


class Change(NamedTuple):
    """One event before any store has seen it. KEEP and DELETE have no text."""

    op: str
    key: str
    text: str | None


def changes(count: int, *, live: int | None = LIVE, seed: int = 7) -> Iterator[Change]:
    """Yields `count` events over at most `live` experiences at a time; None: as many as come.

    Of a library that may grow, half of the events add; of one that is full, half modify, a
    quarter confirm and a quarter delete, give or take what makes room for the next one.
    """
    dice = random.Random(seed)
    words = WORDS.split()
    pool = [_text(dice, words) for _ in range(POOL)]
    there: list[str] = []
    born = 0
    for number in range(count):
        roll = dice.random()
        if live is not None and len(there) >= live:
            roll = 0.5 + roll / 2
        if roll < 0.5 or not there:
            there.append(derived_id("benchmark", born))
            yield Change("ADD", there[-1], _stamped(dice.choice(pool), number))
            born += 1
        elif roll < 0.75:
            yield Change("MODIFY", dice.choice(there), _stamped(dice.choice(pool), number))
        elif roll < 0.87:
            yield Change("KEEP", dice.choice(there), None)
        else:
            at = dice.randrange(len(there))
            there[at], there[-1] = there[-1], there[at]
            yield Change("DELETE", there.pop(), None)


def fold(events: Iterable[tuple[str, object, str | None]]) -> dict[object, str | None]:
    """Returns the library that events (op, key, text) give, in the plainest way there is."""
    library: dict[object, str | None] = {}
    for op, key, text in events:
        if op in ("ADD", "MODIFY"):
            library[key] = text
        elif op == "DELETE":
            del library[key]
    return library


def batches(count: int) -> Iterator[int]:
    """Yields how many events each version has, until `count` are used up.

    Of 10,000 events 9,800 come as training steps of 100, 100 as batches of 10, and 100 as a
    person's single operations.
    """
    pattern = [100] * 49 + [10] * 10 + [1] * 100 + [100] * 49
    left = count
    while left:
        for size in pattern:
            size = min(size, left)
            if size:
                left -= size
                yield size


def _text(dice: random.Random, words: list[str]) -> str:
    return " ".join(dice.choices(words, k=TEXT_LENGTH))[:TEXT_LENGTH]


def _stamped(text: str, number: int) -> str:
    """No two events say the same."""
    return f"{text[:-9]} {number:08d}"
