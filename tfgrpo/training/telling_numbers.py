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
from collections.abc import Collection, Iterable, Sequence
from itertools import product
from math import isclose
from typing import Any, NamedTuple

from pydantic import BaseModel

from tfgrpo.data.problems import Problem
from tfgrpo.model.structured import text_field
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Json

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\.?\d)")
GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\d,])")
"""1,000 and 1,234,567."""
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
NAMED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
WORDS = {str(number): word for number, word in enumerate(NAMED)}
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
BETWEEN = re.compile(r"(?:a|an|each|every|for|in|of|one|per|the)", re.I)
"""Words that `per week` and `in one week` differ by."""
CONDITION = re.compile(
    r"((?:when|whenever|where|wherever|if|for|in|to)\b(?:[^,.;:]|(?<=\d)[,.](?=\d))*)(?=,)", re.I
)
SAYS = r"(?:is|are|be|was|were|equals?|comes? to|gives?|makes?|gets?|charged?|=)"
BEFORE = re.compile(rf"(?:\d|\b(?:{'|'.join(NAMED)}))\S*\s+\Z", re.I)
"""A number that stands right before a place."""
NEGATED = re.compile(r"\b(?:not|never|ignore|instead|without|rather)\b[^.;:]*\Z", re.I)


class TellingNumbers(NamedTuple):
    """Numbers that attempts of one side alone calculate with, the most telling first."""

    right: tuple[str, ...]
    wrong: tuple[str, ...]

    def words(self) -> str:
        """Returns what a comparison is told of them; nothing where no number makes it right."""
        if not self.right:
            return ""
        lines = [f"Calculated with in right attempts alone: {', '.join(self.right)}"]
        if self.wrong:
            lines.append(f"Calculated with in wrong attempts alone: {', '.join(self.wrong)}")
        return "\n".join(lines)

    def meanings(self, given: Iterable[NumberMeaning]) -> tuple[NumberMeaning, ...]:
        """Returns what a comparison says of the numbers that make it right, each once, where
        similar problems are calculated with them too."""
        meanings: dict[str, NumberMeaning] = {}
        for one in given:
            stands_for = " ".join(one.stands_for.split()).strip(" .,;:")
            if one.always and one.number in self.right and stands_for:
                plain = one.model_copy(update={"stands_for": stands_for})
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
    """What a number stands for, and whether similar problems are calculated with it too."""

    number: str
    stands_for: str = text_field(STANDS_FOR, LONGEST_MEANING)
    always: bool

    @property
    def words(self) -> str:
        """What is to be taken for what."""
        return f"{self.number} for {self.stands_for}"

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
        return names_number(text, self.number) or self.place_in(text) is not None

    def has_another(self, text: str, place: re.Match[str]) -> bool:
        """Returns whether a text gives another number where it speaks of what this one stands
        for."""
        before = BEFORE.search(text[: place.start()])
        return before is not None and not names_number(before[0], self.number)

    def may_be_in(self, text: str) -> bool:
        """Returns whether a text names the number, or a word of what it stands for."""
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
    `MOST` that would make it right. Numbers of the problem and of any answer do not count, nor
    what two of the problem's come to."""
    own = numbers_in(group.problem.problem)
    if len(own) > MOST_OF_PROBLEM:
        return TellingNumbers((), ())
    given = own.union(BARE, *map(numbers_in, group.problem.ground_truths))
    right, wrong = (
        [_operands(one.transcript) - given - numbers_in(one.answer or "") for one in side]
        for side in (winners, losers)
    )
    if not right or not wrong:
        return TellingNumbers((), ())

    def telling(side: list[set[str]], other: list[set[str]]) -> list[str]:
        leads = {n: _share(n, side) - _share(n, other) for n in set().union(*side)}
        clear = [n for n, by in leads.items() if by >= APART and _share(n, side) > 1 / 2]
        return sorted(clear, key=lambda n: (-leads[n], len(n), n))

    candidates = telling(right, wrong)
    making = [n for n in candidates if not _comes_to(n, own, own.union(candidates) - {n})]
    if len(making) > MOST:
        return TellingNumbers((), ())
    return TellingNumbers(tuple(making), tuple(telling(wrong, right)[:MOST]))


def with_numbers(
    text: str,
    meanings: Sequence[NumberMeaning],
    problem: Problem,
    max_words: int | None = None,
) -> str:
    """Returns a lesson that names the numbers which similar problems are calculated with: put
    behind what they stand for where it says that, else at its end. Where it says what the problem
    comes to, or gives another number, they take the place of all but when they are right; itself
    where they would make more than `max_words` words of it."""
    whole = text
    for meaning in meanings:
        place = meaning.place_in(whole)
        if (place is not None and meaning.has_another(whole, place)) or says_answer(text, problem):
            whole = number_alone(text, meanings, problem)
            break
        if names_number(whole, meaning.number):
            continue
        if place is not None and not NEGATED.search(whole[: place.start()]):
            whole = f"{whole[: place.end()]} ({meaning.number}){whole[place.end() :]}"
        else:
            end = "" if whole.rstrip().endswith((".", "!", "?")) else "."
            whole = f"{whole.rstrip()}{end} Take {meaning.words}."
    return text if max_words is not None and len(whole.split()) > max_words else whole


def number_alone(text: str, meanings: Sequence[NumberMeaning], problem: Problem) -> str:
    """Returns what to take for numbers and no more, at the time when a text holds."""
    when = CONDITION.match(for_any_quantity(text, problem.problem))
    take = f"take {' and '.join(meaning.words for meaning in meanings)}."
    if when is None or names_answer(when[1], problem):
        return take[:1].upper() + take[1:]
    return f"{when[1]}, {take}"


def names_answer(text: str, problem: Problem) -> bool:
    """Returns whether a text has a number in it that is an answer of a problem."""
    return any(number in numbers_in(text) for number in _numeric_answers(problem))


def says_answer(text: str, problem: Problem) -> bool:
    """Returns whether a text says that something comes to an answer of a problem."""
    text = _ungrouped(text)
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


def names_number(text: str, number: str) -> bool:
    """Returns whether a text has a number in it, in digits or as a word."""
    if number in numbers_in(text):
        return True
    word = WORDS.get(number)
    return word is not None and re.search(rf"(?i)\b{word}\b", text) is not None


def numbers_in(text: str) -> set[str]:
    """Returns the numbers of a text, in digits: 1,200.50 is 1200.5."""
    return set(map(_plain, NUMBER.findall(_ungrouped(text))))


def _share(number: str, attempts: Sequence[set[str]]) -> float:
    return sum(number in one for one in attempts) / len(attempts)


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
    text = _ungrouped(STEP.sub(" ", text))
    operands = {one for match in OPERAND.finditer(text) for one in match.groups() if one}
    results = RESULT.findall(text)
    return {_plain(one) for one in operands if len(one) <= LONGEST} - set(map(_plain, results))


def _ungrouped(text: str) -> str:
    return GROUPED.sub(lambda match: match[0].replace(",", ""), text)


def _plain(number: str) -> str:
    whole = number.lstrip("0") or "0"
    whole = f"0{whole}" if whole.startswith(".") else whole
    return whole.rstrip("0").rstrip(".") if "." in whole else whole
