"""What a family is: a house with a few rules of its own, and problems that ask for them.

A family draws three parts from one seed: `train` to learn from, `dev` to choose with, `test` to
measure on. The parts share rules alone: each has wordings, words and numbers of its own, so that
the answer of a training problem is no answer to a test problem.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import click

Part: TypeAlias = Literal["train", "dev", "test"]
PARTS: tuple[Part, ...] = get_args(Part)
SIZES: dict[Part, int] = {"train": 48, "dev": 24, "test": 60}
"""How many problems a part has where nobody says otherwise."""
Row: TypeAlias = dict[str, Any]
Filled: TypeAlias = tuple[dict[str, Any], Any]
"""What stands in the gaps of a text, and the answer."""
Texts: TypeAlias = tuple[Sequence[str], Sequence[str], Sequence[str]]
"""The wordings of train, dev and test."""
T = TypeVar("T")
CUT: tuple[Part, ...] = ("train", "test", "dev")
"""The order in which a file's problems fill the parts: those to choose with come last."""
TRIES = 10_000


class TooFew(click.UsageError, ValueError):
    """A part has not so many problems."""

    def __init__(self, name: str, count: int, part: Part) -> None:
        super().__init__(f"{name} has fewer than {count} problems for {part}")


class Dice(random.Random):
    """Chance that keeps the parts apart: every third number or word belongs to one of them."""

    def __init__(self, seed: str, part: Part) -> None:
        super().__init__(seed)
        self.part = part

    def number(self, low: int, high: int, step: int = 1) -> int:
        """Returns a number from `low` to `high`, both included, that no other part has."""
        return self.choice(range(low, high + 1, step)[PARTS.index(self.part) :: 3])

    def word(self, words: Sequence[T]) -> T:
        """Returns one of some words, or of whatever they are, that no other part has."""
        return self.choice(words[PARTS.index(self.part) :: 3])


@dataclass(frozen=True, slots=True)
class Kind:
    """Problems under one rule: wordings by part, and what fills them with the answer."""

    name: str
    texts: Texts
    fill: Callable[[Dice], Filled]

    def row(self, dice: Dice) -> Row:
        """Returns a problem with its answer."""
        values, answer = self.fill(dice)
        problem = dice.choice(self.texts[PARTS.index(dice.part)]).format(**values)
        return {"problem": problem, "answer": answer, "kind": self.name}


@dataclass(frozen=True, slots=True)
class Family:
    """A house: its kinds of problems, how they are judged, and the rules as a person writes them.

    `shape` says what the rules are about, and `settings` what its runs need beside the domain.
    """

    name: str
    language: str
    shape: str
    domain: str
    kinds: tuple[Kind, ...]
    rules: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def draw(self, part: Part, seed: int = 0, count: int | None = None) -> list[Row]:
        """Returns problems of a part, the kinds in turn and no text twice; the first ones are the
        same for every count. Raises TooFew."""
        count = SIZES[part] if count is None else count
        dice = Dice(f"{self.name}/{seed}/{part}", part)
        rows: dict[str, Row] = {}
        for _ in range(TRIES):
            if len(rows) == count:
                return list(rows.values())
            number = len(rows)
            row = self.kinds[number % len(self.kinds)].row(dice)
            row = {"id": f"{self.name}-{seed}-{part}-{number}", **row}
            rows.setdefault(row["problem"], row)
        raise TooFew(self.name, count, part)


@dataclass(frozen=True, slots=True)
class Given:
    """Problems that somebody has, in place of a family: a seed says which part each is of, and
    `sizes` how many a part has."""

    name: str
    domain: str
    problems: Sequence[Row]
    settings: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[Part, int] = field(default_factory=lambda: SIZES)

    def draw(self, part: Part, seed: int = 0, count: int | None = None) -> list[Row]:
        """Returns problems of a part. Raises TooFew."""
        shuffled = random.Random(f"{self.name}/{seed}").sample(self.problems, len(self.problems))
        before = sum(self.sizes[one] for one in CUT[: CUT.index(part)])
        count = self.sizes[part] if count is None else count
        drawn = shuffled[before : before + self.sizes[part]][:count]
        if len(drawn) < count:
            raise TooFew(self.name, count, part)
        return drawn
