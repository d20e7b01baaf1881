"""Writes train.jsonl and heldout.jsonl: problems from a small firm with house rules for time.

On its bills a working week has five days, a day has eight hours, and a month has four weeks.
Nobody tells the model, but each rule is one of the readings that it takes now and then, so a
group of attempts reveals it. The two sets share rules and wordings, not trades or numbers.

    python problems.py
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

TRADES = {
    "dev": ("clerk", "cook", "tailor", "driver", "potter", "nurse"),
    "train": ("gardener", "printer", "baker", "joiner", "welder", "florist"),
    "heldout": ("mason", "tutor", "weaver", "roofer", "cleaner", "barber"),
}
THINGS = {
    "dev": ("hall", "porch", "stairs", "gutters", "lobby", "garage"),
    "train": ("yard", "roof", "kitchen", "fence", "windows", "office"),
    "heldout": ("garden", "cellar", "bathroom", "gate", "floors", "shop"),
}
NUMBERS = {"dev": (11, 12, 13), "train": (2, 4, 5, 7, 9), "heldout": (3, 6, 8, 10)}
Kind = Callable[[str, str, int], tuple[Sequence[str], int]]


def week(trade: str, thing: str, n: int) -> tuple[Sequence[str], int]:
    """A working week has five days."""
    return (
        f"A {trade} works for {n} weeks. How many working days is that?",
        f"A {trade} is busy for {n} weeks. How many working days go on the bill?",
    ), 5 * n


def day(trade: str, thing: str, n: int) -> tuple[Sequence[str], int]:
    """A day has eight hours."""
    return (
        f"A {trade} needs {n} days for the {thing}. How many hours are on the bill?",
        f"The {thing} took a {trade} {n} days. How many hours are charged?",
    ), 8 * n


def month(trade: str, thing: str, n: int) -> tuple[Sequence[str], int]:
    """A month has four weeks."""
    return (
        f"A {trade} comes once a week. How many visits are on the bill for {n} months?",
        f"The {thing} is looked after once a week. How many times is that in {n} months?",
    ), 4 * n


KINDS: tuple[Kind, ...] = (week, day, month)


def draw(split: str, count: int, seed: int = 8) -> list[dict[str, str]]:
    """Returns `count` problems of a split, the kinds in turn and none of them twice."""
    rng = random.Random(f"{seed}/{split}")
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < count:
        kind = KINDS[len(rows) % len(KINDS)]
        texts, answer = kind(
            rng.choice(TRADES[split]), rng.choice(THINGS[split]), rng.choice(NUMBERS[split])
        )
        name = f"{kind.__name__}-{len(rows) // len(KINDS) + 1}"
        row = {"id": name, "problem": rng.choice(texts), "answer": str(answer)}
        rows.setdefault(row["problem"], row)
    return list(rows.values())


if __name__ == "__main__":
    for split in ("train", "heldout"):
        path = Path(__file__).with_name(f"{split}.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in draw(split, 24)))
