"""Bills with eight house rules: the three of `examples/time-on-the-bill` and five more.

Nobody tells a model the rules, and each is a reading that one takes now and then, so a group of
attempts at a problem has winners and losers. The three parts share rules and wordings and have
trades, things and problems of their own.
"""

from __future__ import annotations

import random
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "time-on-the-bill" / "problems.py"
MONTHS = ("May", "June", "July", "August")
PARTS = {"train": ("train", 60), "validation": ("dev", 40), "sealed": ("heldout", 60)}
"""The parts, the words of the example that each is drawn from, and how many problems it has."""
Kind = Callable[[str, str, random.Random], tuple[Sequence[str], int]]
RULES = (
    "A working week has five days: multiply weeks by 5.",
    "A working day has eight hours: multiply days by 8.",
    "A month has four weeks: multiply months by 4.",
    "Of a hire from one date to another both the first and the last day are charged: subtract the "
    "dates and add 1, then multiply by the price.",
    "Every hour that was begun is charged as a whole hour: round up.",
    "The way to a place is charged there and back: multiply the distance by 2.",
    "Posts, lamps and trees in a row stand at both ends: divide the length by the distance and "
    "add 1.",
    "Hours of several people are charged for each of them: multiply the hours by the people.",
)


def hire(trade: str, thing: str, dice: random.Random) -> tuple[Sequence[str], int]:
    """The first and the last day of a hire are both charged."""
    first, price, month = dice.randint(2, 14), dice.randint(3, 9), dice.choice(MONTHS)
    last = first + dice.randint(3, 9)
    tool = {"s": "ladder", "g": "pump"}.get(thing[0], "bike")
    return (
        f"A {trade} hires a {tool} from {first} {month} to {last} {month} at {price} euros a day. "
        "How many euros are on the bill?",
        f"For the {thing} a {tool} is hired from {first} {month} to {last} {month}, for {price} "
        "euros a day. How much is charged?",
    ), (last - first + 1) * price


def begun(trade: str, thing: str, dice: random.Random) -> tuple[Sequence[str], int]:
    """An hour that was begun is a whole one."""
    hours, minutes = dice.randint(2, 8), dice.choice((10, 15, 20, 25, 40))
    return (
        f"A {trade} is at the {thing} for {hours} hours and {minutes} minutes. How many hours are "
        "charged?",
        f"The {thing} took a {trade} {hours} hours {minutes} minutes. How many hours go on the "
        "bill?",
    ), hours + 1


def way(trade: str, thing: str, dice: random.Random) -> tuple[Sequence[str], int]:
    """The way is charged there and back."""
    far = dice.randint(6, 48)
    return (
        f"From the {trade}'s workshop to the {thing} it is {far} kilometres. How many kilometres "
        "are on the bill for one visit?",
        f"A {trade} drives to a customer's {thing}, {far} kilometres away. How many kilometres are "
        "charged?",
    ), 2 * far


def row(trade: str, thing: str, dice: random.Random) -> tuple[Sequence[str], int]:
    """A row has one at both ends."""
    gap, count = dice.randint(2, 6), dice.randint(4, 12)
    what = dice.choice(("posts", "lamps", "trees"))
    return (
        f"A {trade} puts {what} {gap} metres apart along the {thing}, which is {gap * count} "
        f"metres long. How many {what} are on the bill?",
        f"Along {gap * count} metres before the {thing} there are {what} every {gap} metres. How "
        f"many {what} does the {trade} charge?",
    ), count + 1


def crew(trade: str, thing: str, dice: random.Random) -> tuple[Sequence[str], int]:
    """Hours count for each person."""
    people, hours = dice.randint(2, 5), dice.randint(2, 9)
    return (
        f"{people} people of the {trade}'s work at the {thing} for {hours} hours. How many hours "
        "are charged?",
        f"The {thing} takes a {trade} and {people - 1} of the others {hours} hours together. How "
        "many hours go on the bill?",
    ), people * hours


def draw(part: str, seed: int = 8, first: int | None = None) -> list[dict[str, Any]]:
    """Returns the problems of a part, the kinds in turn and none of them twice; with `first` of
    the first kinds alone, whose rules are the first of RULES."""
    example = runpy.run_path(str(EXAMPLE))
    words, count = PARTS[part]

    def timed(kind: Any) -> Kind:
        return lambda trade, thing, dice: kind(trade, thing, dice.randint(2, 9))

    kinds: dict[str, Kind] = {kind.__name__: timed(kind) for kind in example["KINDS"]}
    kinds |= {kind.__name__: kind for kind in (hire, begun, way, row, crew)}
    dice = random.Random(f"{seed}/{part}")
    names, rows = list(kinds)[:first], dict[str, dict[str, Any]]()
    while len(rows) < count:
        name = names[len(rows) % len(names)]
        trade, thing = (dice.choice(example[which][words]) for which in ("TRADES", "THINGS"))
        texts, answer = kinds[name](trade, thing, dice)
        problem = dice.choice(texts)
        values = {"id": f"{part}-{name}-{len(rows)}", "problem": problem, "answer": str(answer)}
        rows.setdefault(problem, {**values, "kind": name})
    return list(rows.values())
