"""The numbers that right attempts at a problem calculate with and wrong ones do not.

A small model that compares attempts says what was multiplied with what, and leaves out the one
number that the right attempts knew ("multiply the days by the hours of a day"). That number can be
counted: it is in most right attempts and in few wrong ones, beside a sign or a word for an
operation; the problem does not give it for the same, and no calculation there comes to it. So a
comparison is told of it and says what it stands for, and a lesson that leaves it out has it put in.
Nothing is said where that is not clear: two numbers at the most, and only where most attempts are
compared as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from math import isclose
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from tfgrpo.data.problems import Problem
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Json
from tfgrpo.training.number_lessons import STANDS_FOR, NumberMeaning
from tfgrpo.training.number_units import LONGEST_UNIT, is_misread, rates_in, unit_of
from tfgrpo.training.numbers_in_text import (
    numbers_in,
    plain_number,
    ungrouped,
)

T = TypeVar("T", str, tuple[str, str, str])
STEP = re.compile(r"(?m)^[^\w\n]*(?:step +)?\d+[.:)](?!\d)", re.I)
"""The number of a step or of a line in a list."""
SIGN = r"(?:[+*×÷·]|\\times|\\cdot|\\div|(?<=[ \d])[-/x](?=[ \d]))"
WORD = r"(?:times|multipl(?:y|ied)|divided?|plus|minus|add(?:ed|ing)?|subtract(?:ed|ing)?)"
OPERATION = rf"(?:{SIGN}|\b{WORD}\b)"
TIMES = r"(?:[*×·]|\\times|\\cdot|(?<=[ \d])x(?=[ \d])|\btimes\b|\bmultipl(?:y|ied)\b)"
DIVIDED_BY = (
    r"(?:(?:[÷/]|\\div|\bdivided by)\s*(?:\\text\{[^}]{0,40}\}\s*)?"
    r"|\\[dt]?frac ?\{[^{}]{0,80}\} ?\{ ?)"
)
OPERAND = re.compile(
    rf"{OPERATION}[^\d\n=≈]{{0,24}}?(?<![\w.])(\d+(?:\.\d+)?)(?!\.?\d)"
    rf"|(?<![\w.])(?=(\d+(?:\.\d+)?)(?!\.?\d)[^\d\n=≈]{{0,40}}?{OPERATION})"
)
"""A number behind a sign or word for an operation, or before one."""
RESULT = re.compile(
    rf"{OPERATION}[^=≈\n]{{0,80}}(?:=|≈|\\approx)[\s$€£*(\[\\]*(?:text\{{[^}}]{{0,40}}\}}\s*)?"
    rf"(\d+(?:\.\d+)?)(?!\.?\d)(?![a-z/\s]{{0,40}}{SIGN})"
)
"""What a calculation comes to, and nothing more is done with there."""
LONGEST = 12
"""The characters of a number that a lesson may be about."""
MOST = 2
"""The numbers that a lesson may be about: more are the steps of one calculation."""
APART = 0.5
"""How much larger the share of attempts with a number is among right ones than among wrong ones,
or the other way round."""
SMALL = 12.0
"""Up to here a number may be what two others come to by chance."""
BARE = {"0", "1"}
"""Numbers that are in so many calculations that they tell nothing."""
MOST_OF_PROBLEM = 50
"""The numbers of a problem from which on it is a table, and none of them tells anything."""


class TellingNumbers(NamedTuple):
    """Numbers that attempts of one side alone calculate with, the most telling first; as what
    right attempts write those of their side (`8`: `hours per day`), where that is clear, and by
    which of those they multiply."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    units: Mapping[str, str] = MappingProxyType({})
    factors: frozenset[str] = frozenset()

    def words(self) -> str:
        """Returns what a comparison is told of them; nothing where no number makes it right."""
        if not self.right:
            return ""
        right = (f"{n} {self.units[n]}" if n in self.units else n for n in self.right)
        lines = [f"Calculated with in right attempts alone: {', '.join(right)}"]
        if self.wrong:
            lines.append(f"Calculated with in wrong attempts alone: {', '.join(self.wrong)}")
        return "\n".join(lines)

    def meanings(
        self, given: Iterable[NumberMeaning], problem: Problem
    ) -> tuple[NumberMeaning, ...]:
        """Returns what a comparison of attempts at a problem says of the numbers that make it
        right, each once, where similar problems are calculated with them too. What right attempts
        write a number as goes before what a comparison says that it stands for, and what it says
        with a quantity of the problem (`the days in 2 weeks`) is no meaning."""
        of_problem = numbers_in(problem.problem)
        meanings: dict[str, NumberMeaning] = {}
        for one in given:
            written = self.units.get(one.number, one.stands_for)
            stands_for = " ".join(written.split()).strip(" .,;:")
            if numbers_in(stands_for) & of_problem:
                continue
            if one.always and one.number in self.right and stands_for:
                read = {
                    "stands_for": stands_for,
                    "is_written": one.number in self.units,
                    "is_factor": one.number in self.factors,
                }
                meanings.setdefault(one.number, one.model_copy(update=read))
        return tuple(meanings.values())

    def schema(self) -> Json:
        """Returns the schema of what a comparison says of the numbers that make it right."""
        fields: dict[str, Json] = {
            "number": {"type": "string", "enum": list(self.right)},
            "stands_for": {"type": "string", "maxLength": STANDS_FOR},
            "always": {"type": "boolean"},
        }
        return {
            "type": "array",
            "maxItems": len(self.right),
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": list(fields),
                "properties": fields,
            },
        }


_LONGEST = tuple(f"{n}" * LONGEST for n in range(1, MOST + 1))
LONGEST_NUMBERS = TellingNumbers(_LONGEST, _LONGEST, dict.fromkeys(_LONGEST, LONGEST_UNIT))


def telling_numbers(
    group: Group, winners: Sequence[Rollout], losers: Sequence[Rollout]
) -> TellingNumbers:
    """Returns the numbers that set these attempts of a group apart; none where there are more than
    `MOST` that would make it right. Numbers of any answer do not count, nor what two of the
    problem's come to, nor the problem's own unless attempts give one a unit that it has not got
    there (the 4 weeks of a month, where 4 months are asked about), nor what most right attempts
    give for a quantity that they misread (8 hours a week, where 5 days are taken for weeks)."""
    problem = group.problem.problem
    own = numbers_in(problem)
    if len(own) > MOST_OF_PROBLEM:
        return TellingNumbers((), ())
    no_rule = BARE.union(*map(numbers_in, group.problem.ground_truths))
    right, wrong = (
        [_operands(one.transcript) - no_rule - numbers_in(one.answer or "") for one in side]
        for side in (winners, losers)
    )
    if not right or not wrong:
        return TellingNumbers((), ())
    rates, other_rates = ([rates_in(one.transcript) for one in s] for s in (winners, losers))
    keys, other_keys = ([{r.key for r in one} for one in side] for side in (rates, other_rates))
    of_problem = {rate.key for rate in rates_in(problem)}
    as_rate = {key[0] for key in _telling(keys, other_keys) if key not in of_problem}
    candidates = [n for n in _telling(right, wrong) if n not in own]
    candidates += sorted(own & as_rate & set().union(*right))
    making = [n for n in candidates if not _comes_to(n, own - {n}, own.union(candidates) - {n})]
    misread = [
        {rate.number for rate in rates_of if is_misread(rate, one.transcript, problem)}
        for one, rates_of in zip(winners, rates, strict=True)
    ]
    making = [n for n in making if _share(n, misread) <= 1 / 2]
    if len(making) > MOST:
        return TellingNumbers((), ())
    units = {n: unit for n in making if (unit := unit_of(n, rates, problem)) is not None}
    against = [n for n in _telling(wrong, right) if n not in own]
    factors = frozenset(n for n in units if _is_factor(n, [one.transcript for one in winners]))
    return TellingNumbers(tuple(making), tuple(against[:MOST]), units, factors)


def _telling(side: list[set[T]], other: list[set[T]]) -> list[T]:
    """Returns what is in most attempts of a side and in few of the other, the clearest first."""
    leads = {one: _share(one, side) - _share(one, other) for one in set().union(*side)}
    clear = [one for one, by in leads.items() if by >= APART and _share(one, side) > 1 / 2]
    return sorted(clear, key=lambda one: (-leads[one], len(one), one))


def _is_factor(number: str, attempts: Sequence[str]) -> bool:
    """Returns whether most attempts multiply by a number, and do not divide by it."""
    plain = [ungrouped(text) for text in attempts]
    return sum(map(partial(_multiplies, number), plain)) > len(attempts) / 2


def _multiplies(number: str, text: str) -> bool:
    number = re.escape(number)
    times = rf"{TIMES}[^\d\n=≈]{{0,24}}?(?<![\w.]){number}(?!\.?\d)"
    turned = rf"(?<![\w.]){number}(?!\.?\d)[^\d\n=≈]{{0,40}}?{TIMES}"
    if re.search(rf"{DIVIDED_BY}{number}(?!\.?\d)", text):
        return False
    return re.search(f"{times}|{turned}", text) is not None


def _share(one: object, attempts: Sequence[Collection[object]]) -> float:
    return sum(one in attempt for attempt in attempts) / len(attempts)


def _comes_to(number: str, own: Collection[str], others: Collection[str]) -> bool:
    """Returns whether a number is what one of the problem's and another one come to."""
    value = float(number)
    if value <= SMALL:
        return False
    pairs = ((float(a), float(b)) for a, b in product(own, others))
    return any(
        isclose(value, result, rel_tol=1e-6)
        for a, b in pairs
        for result in (a + b, abs(a - b), a * b, a * b / 100, a / (b or 1), b / (a or 1))
    )


def _operands(text: str) -> set[str]:
    """Returns the numbers that an attempt calculates with, but not what it calculates, nor counts
    its steps with."""
    text = ungrouped(STEP.sub(" ", text))
    operands = {one for match in OPERAND.finditer(text) for one in match.groups() if one}
    results = RESULT.findall(text)
    return {plain_number(one) for one in operands if len(one) <= LONGEST} - set(
        map(plain_number, results)
    )
