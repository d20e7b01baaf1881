"""Writes train.jsonl and heldout.jsonl: spans of days and of time, to be worked out by program.

python problems.py
"""

from __future__ import annotations

import json
import random
from datetime import date, timedelta
from pathlib import Path


def days(rng: random.Random) -> tuple[str, int]:
    """Days between two dates."""
    first = date(2026, 1, 5) + timedelta(rng.randrange(200))
    length = rng.randint(30, 150)
    return f"How many days lie from {_day(first)} to {_day(first + timedelta(length))}?", length


def minutes(rng: random.Random) -> tuple[str, int]:
    """Minutes between two times of a day."""
    first, length = rng.randint(6 * 60, 11 * 60), rng.randint(70, 600)
    return f"How many minutes lie from {_time(first)} to {_time(first + length)}?", length


def weekday(rng: random.Random) -> tuple[str, int]:
    """How often a day of the week comes in a month."""
    name = rng.choice(("Monday", "Friday", "Sunday"))
    month = rng.randint(1, 12)
    first = date(2026, month, 1)
    wanted = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    in_month = [first + timedelta(n) for n in range(31)]
    found = [d for d in in_month if d.month == month and wanted[d.weekday()] == name]
    return f"How many {name}s are there in {first:%B} 2026?", len(found)


def draw(split: str, count: int) -> list[dict[str, str]]:
    """Returns `count` problems of a split, the kinds in turn and none of them twice."""
    rng = random.Random(f"dates/{split}")
    rows: dict[str, dict[str, str]] = {}
    while len(rows) < count:
        kind = (days, minutes, weekday)[len(rows) % 3]
        problem, answer = kind(rng)
        name = f"{kind.__name__}-{len(rows) // 3 + 1}"
        rows.setdefault(problem, {"id": name, "problem": problem, "answer": str(answer)})
    return list(rows.values())


def _day(day: date) -> str:
    return f"{day.day} {day:%B %Y}"


def _time(minute: int) -> str:
    return f"{minute // 60}:{minute % 60:02}"


if __name__ == "__main__":
    for split, count in (("train", 12), ("heldout", 12)):
        path = Path(__file__).with_name(f"{split}.jsonl")
        path.write_text("".join(json.dumps(row) + "\n" for row in draw(split, count)))
