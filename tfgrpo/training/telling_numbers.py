"""The numbers that right attempts at a problem calculate with and wrong ones do not.

A small model that compares attempts says what was multiplied with what, and leaves out the one
number that the right attempts knew ("multiply the days by the hours of a day"). That number can be
counted: it is in most right attempts and in few wrong ones, beside a sign or a word for an
operation; the problem does not give it, and no calculation there comes to it. So a comparison is
told of it and says what it stands for, and a lesson that leaves it out has it put in. Nothing is
said where that is not clear: two numbers at the most, and only where most attempts are compared as
they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import product
from math import isclose
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from tfgrpo.data.problems import Problem
from tfgrpo.model.structured import text_field
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Json
from tfgrpo.training.number_units import plural, rates_in, unit_of
from tfgrpo.training.numbers_in_text import (
    NAMES,
    names_number,
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
QUANTITY = re.compile(
    r"(?<![\w.])(\d+)(?:( )(?!(?:plus|minus|times|was|has|is|less|this|as)\b)([a-z]{2,}s)\b"
    r"(?! (?:per|an?|each|every|in an?|in one)\b)|(-)([a-z]{2,}) )"
)
"""A number of several things, be it as `2-week` before a noun; but not a rate."""
MOST_OF_PROBLEM = 50
"""The numbers of a problem from which on it is a table, and none of them tells anything."""
LEADING = re.compile(r"\A(?:(?:the|a|an|number|amount|of|count|total) )+", re.I)
PER = re.compile(r"(?<=[a-z]) per (?=[a-z])", re.I)
BETWEEN = re.compile(r"(?:a|an|each|every|for|in|of|one|per|the)", re.I)
"""Words that `per week` and `in one week` differ by."""
CONDITION = re.compile(
    r"((?:when|whenever|where|wherever|if|for|in|to)\b(?:[^,.;:]|(?<=\d)[,.](?=\d))*)(?=,)", re.I
)
SAYS = r"(?:is|are|be|was|were|equals?|comes? to|gives?|makes?|gets?|charged?|=)"
BEFORE = re.compile(rf"(?:\d|\b(?:{'|'.join(NAMES)}))\S*\s+\Z", re.I)
"""A number that stands right before a place."""
CLAUSE = re.compile(r"[,;:](?!\d)|\.(?!\d)|\band\b")
NEGATED = re.compile(r"\b(?:not|never|ignore|instead|without|rather)\b[^.;:]*\Z", re.I)


class TellingNumbers(NamedTuple):
    """Numbers that attempts of one side alone calculate with, the most telling first, and as what
    right attempts write those of their side (`8`: `hours per day`), where that is clear."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]
    units: Mapping[str, str] = MappingProxyType({})

    def words(self) -> str:
        """Returns what a comparison is told of them; nothing where no number makes it right."""
        if not self.right:
            return ""
        right = (f"{n} {self.units[n]}" if n in self.units else n for n in self.right)
        lines = [f"Calculated with in right attempts alone: {', '.join(right)}"]
        if self.wrong:
            lines.append(f"Calculated with in wrong attempts alone: {', '.join(self.wrong)}")
        return "\n".join(lines)

    def meanings(self, given: Iterable[NumberMeaning]) -> tuple[NumberMeaning, ...]:
        """Returns what a comparison says of the numbers that make it right, each once, where
        similar problems are calculated with them too. What right attempts write a number as goes
        before what a comparison says that it stands for."""
        meanings: dict[str, NumberMeaning] = {}
        for one in given:
            written = self.units.get(one.number, one.stands_for)
            stands_for = " ".join(written.split()).strip(" .,;:")
            if one.always and one.number in self.right and stands_for:
                is_written = one.number in self.units
                plain = one.model_copy(update={"stands_for": stands_for, "is_written": is_written})
                meanings.setdefault(one.number, plain)
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


LONGEST_NUMBERS = TellingNumbers(("0" * LONGEST,) * MOST, ("0" * LONGEST,) * MOST)
STANDS_FOR, LONGEST_MEANING = 80, 400
"""The characters that what a number stands for is asked to have, and that it may have."""


class NumberMeaning(BaseModel):
    """What a number stands for, and whether similar problems are calculated with it too.
    `is_written` says that right attempts write it so, and no model was asked."""

    number: str
    stands_for: str = text_field(STANDS_FOR, LONGEST_MEANING)
    always: bool
    is_written: bool = False

    @property
    def words(self) -> str:
        """What is to be taken: `8 hours per day`, or `5 for the ferry`."""
        rest = LEADING.sub("", self.stands_for, count=1)
        return (
            f"{self.number} {rest}" if PER.search(rest) else f"{self.number} for {self.stands_for}"
        )

    @property
    def bearing(self) -> list[str]:
        """The words of what it stands for that say which thing that is."""
        rest = LEADING.sub("", self.stands_for, count=1)
        words = re.findall(r"\w+", rest or self.stands_for)
        return [word for word in words if not BETWEEN.fullmatch(word)]

    def place_in(self, text: str) -> re.Match[str] | None:
        """Returns where a text speaks of what it stands for, in two words or more: `in a week` is
        `per week`."""
        bearing = [re.escape(word) for word in self.bearing]
        if len(bearing) < 2:
            return None
        between = rf"\s+(?:{BETWEEN.pattern}\s+)*"
        return re.search(rf"(?i)(?<!\w){between.join(bearing)}(?!\w)", text)

    def is_in(self, text: str) -> bool:
        """Returns whether a text names the number, or speaks of what it stands for."""
        named = names_number(text, self.number) and not self.is_misplaced_in(text)
        return named or self.place_in(text) is not None

    def has_another(self, text: str, place: re.Match[str]) -> bool:
        """Returns whether a text gives another number where it speaks of what this one stands
        for."""
        before = BEFORE.search(text[: place.start()])
        return before is not None and not names_number(before[0], self.number)

    def is_misplaced_in(self, text: str) -> bool:
        """Returns whether a text names the number, but in no clause that speaks of its unit or of
        what that is in: `the number of visits is 4` for 4 weeks per month."""
        if not self.is_written or not names_number(text, self.number):
            return False
        unit, whole = self.nouns
        result = rf"{SAYS}\s+(?:[^\W\d]+\s+){{0,2}}{re.escape(self.number)}(?!\.?\d)"
        for clause in CLAUSE.split(text.casefold()):
            of_whole = whole in clause
            if names_number(clause, self.number) and (
                of_whole or (unit in clause and not re.search(result, clause))
            ):
                return False
        return True

    @property
    def conversion(self) -> str:
        """What to do with a number that right attempts write as a rate, in a sentence."""
        unit, _, whole = self.stands_for.rpartition(" per ")
        rate = f"{self.number} {unit} per {whole}"
        return f"When {plural(whole)} are turned into {unit}, take {rate}."

    @property
    def nouns(self) -> tuple[str, str]:
        """The beginnings of the words for its unit and for what that is in: `hour`, `day`."""
        unit, _, whole = self.stands_for.casefold().rpartition(" per ")
        last = [words.split()[-1] if words else "" for words in (unit, whole)]
        return last[0].removesuffix("s"), last[1].removesuffix("s")

    def is_stated_in(self, text: str) -> bool:
        """Returns whether a text gives the number that right attempts write as a rate, for that
        rate: with its unit and what that is in."""
        named = self.is_written and names_number(text, self.number)
        return named and all(noun in text.casefold() for noun in self.nouns)

    def may_be_in(self, text: str) -> bool:
        """Returns whether a text names the number, or a word of what it stands for; whether it
        names its unit or what that is in, where right attempts write it so."""
        if self.is_written:
            return any(noun in text.casefold() for noun in self.nouns)
        words = set(re.findall(r"\w{3,}", text.casefold()))
        return names_number(text, self.number) or any(
            word.casefold() in words for word in self.bearing
        )


def usable_meanings(given: Any) -> Any:
    """Returns what an answer says of numbers without what is out of shape: a lesson beside it
    counts all the same."""
    usable = []
    for one in given if isinstance(given, list) else ():
        if isinstance(one, dict) and isinstance(one.get("stands_for"), str):
            stands_for = one["stands_for"][:LONGEST_MEANING]
            always = one.get("always") is True
            usable.append(
                {"number": str(one.get("number")), "stands_for": stands_for, "always": always}
            )
    return usable


def telling_numbers(
    group: Group, winners: Sequence[Rollout], losers: Sequence[Rollout]
) -> TellingNumbers:
    """Returns the numbers that set these attempts of a group apart; none where there are more than
    `MOST` that would make it right. Numbers of any answer do not count, nor what two of the
    problem's come to, nor the problem's own unless attempts give one a unit that it has not got
    there (the 4 weeks of a month, where 4 months are asked about)."""
    own = numbers_in(group.problem.problem)
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
    of_problem = {rate.key for rate in rates_in(group.problem.problem)}
    as_rate = {key[0] for key in _telling(keys, other_keys) if key not in of_problem}
    candidates = [n for n in _telling(right, wrong) if n not in own]
    candidates += sorted(own & as_rate & set().union(*right))
    making = [n for n in candidates if not _comes_to(n, own - {n}, own.union(candidates) - {n})]
    if len(making) > MOST:
        return TellingNumbers((), ())
    units = {n: unit for n in making if (unit := unit_of(n, rates)) is not None}
    against = [n for n in _telling(wrong, right) if n not in own]
    return TellingNumbers(tuple(making), tuple(against[:MOST]), units)


def _telling(side: list[set[T]], other: list[set[T]]) -> list[T]:
    """Returns what is in most attempts of a side and in few of the other, the clearest first."""
    leads = {one: _share(one, side) - _share(one, other) for one in set().union(*side)}
    clear = [one for one, by in leads.items() if by >= APART and _share(one, side) > 1 / 2]
    return sorted(clear, key=lambda one: (-leads[one], len(one), one))


def with_numbers(
    text: str,
    meanings: Sequence[NumberMeaning],
    problem: Problem,
    max_words: int | None = None,
) -> str:
    """Returns a lesson that names the numbers which similar problems are calculated with: put
    behind what they stand for where it says that, else at its end. Where it says what the problem
    comes to, or gives another number or this one for something else, they take the place of all
    but when they are right. Where they would make more than `max_words` words of it, they do so too
    if right attempts write what they stand for; else it is itself."""
    whole = text
    for meaning in meanings:
        place = meaning.place_in(whole)
        is_misplaced = meaning.is_misplaced_in(whole)
        is_wrong = is_misplaced if place is None else meaning.has_another(whole, place)
        if is_wrong or says_answer(text, problem):
            whole = number_alone(text, meanings, problem)
            break
        if names_number(whole, meaning.number) and not is_misplaced:
            continue
        if place is not None and not NEGATED.search(whole[: place.start()]):
            whole = f"{whole[: place.end()]} ({meaning.number}){whole[place.end() :]}"
        else:
            end = "" if whole.rstrip().endswith((".", "!", "?")) else "."
            whole = f"{whole.rstrip()}{end} Take {meaning.words}."
    if max_words is None or len(whole.split()) <= max_words:
        return whole
    whole = number_alone(text, meanings, problem)
    is_sure = all(meaning.is_written for meaning in meanings)
    return whole if is_sure and len(whole.split()) <= max_words else text


def number_alone(text: str, meanings: Sequence[NumberMeaning], problem: Problem) -> str:
    """Returns what to take for numbers and no more, at the time when a text holds."""
    when = CONDITION.match(for_any_quantity(text, problem.problem))
    take = f"take {' and '.join(meaning.words for meaning in meanings)}."
    if when is None or names_answer(when[1], problem):
        if all(meaning.is_written for meaning in meanings):
            return " ".join(meaning.conversion for meaning in meanings)
        return take[:1].upper() + take[1:]
    return f"{when[1]}, {take}"


def names_answer(text: str, problem: Problem) -> bool:
    """Returns whether a text has a number in it that is an answer of a problem."""
    return any(number in numbers_in(text) for number in _numeric_answers(problem))


def says_answer(text: str, problem: Problem) -> bool:
    """Returns whether a text says that something comes to an answer of a problem."""
    text = ungrouped(text)
    return any(
        re.search(rf"(?i){SAYS}\s+(?:[^\W\d]+\s+){{0,2}}{re.escape(number)}(?!\.?\d)", text)
        for number in _numeric_answers(problem)
    )


def _numeric_answers(problem: Problem) -> list[str]:
    answers = (numbers_in(answer) for answer in problem.ground_truths)
    return sorted(number for one in answers if len(one) == 1 for number in one)


def for_any_quantity(text: str, problem: str) -> str:
    """Returns a text that holds for any quantities of a problem: where it begins with when it is
    right, what it says there of 7 weeks holds for any number of weeks."""

    def general(match: re.Match[str]) -> str:
        number, joint, noun = (group for group in match.groups() if group is not None)
        noun = noun if joint == " " else f"{noun}s?"
        if not re.search(rf"(?<![\w.]){number}[ -]{noun}\b", problem):
            return match[0]
        return f"any number of {noun}" if joint == " " else ""

    when = CONDITION.match(text)
    if when is None:
        return text
    return QUANTITY.sub(general, when[1]) + text[when.end() :]


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
