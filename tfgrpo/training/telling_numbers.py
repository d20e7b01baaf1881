"""The numbers that right attempts at a problem calculate with and wrong ones do not.

A small model that compares attempts says what was multiplied with what, and leaves out the one
number that the right attempts knew ("multiply the days by the hours of a day"). That number can be
counted: it is in most right attempts and in few wrong ones, the problem does not give it, and it
is no result. So a comparison is told of it and says what it stands for, and a lesson that leaves
it out has it put in. Nothing is said where that is not clear: two numbers at the most, and only
where attempts are compared as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from tfgrpo.data.problems import Problem
from tfgrpo.model.structured import text_field
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Json

NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?!\w|\.\d)")
GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
"""The comma of 1,000."""
STEP = re.compile(r"(?m)^\W*(?:step +)?\d+[.:)]\W", re.I)
"""The number of a step or of a line in a list."""
OPERATOR = r"(?:[-+*/×÷·]|\\times|\\cdot|\\div)"
RESULT = re.compile(
    rf"{OPERATOR}[^=≈\n]{{0,80}}(?:=|≈|\\approx)[\s$(\[\\]*(?:text\{{[^}}]*\}}\s*)?"
    rf"(\d+(?:\.\d+)?)(?!\.?\d)(?!\s*(?:[a-z/]+\s*)*{OPERATOR})"
)
"""What a calculation comes to, and nothing more is done with there."""
LONGEST = 12
"""The characters of a number that a lesson may be about."""
MOST = 2
"""The numbers that a lesson may be about: more are the steps of one calculation."""
APART = 0.5
"""How much larger the share of attempts with a number is among right ones than among wrong ones,
or the other way round."""
NAMED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
BARE = {"0", "1"}
"""Numbers that are in so many calculations that they tell nothing."""
QUANTITY = re.compile(r"(?<![\w.])(\d+)(?:( )([a-z]{2,}s)\b|(-)([a-z]{2,}) )")
"""A number of several things, be it as `2-week` before a noun."""
LEADING = re.compile(r"(?:(?:the|a|an|number|amount|of|count|total) )+", re.I)
BETWEEN = re.compile(r"(?:a|an|each|every|for|in|of|one|per|the)")
"""Words that `per week` and `in one week` differ by."""
CONDITION = re.compile(
    r"((?:when|whenever|where|wherever|if|for|in)\b[^,.;:]*|to\b[^,.;:]*)(?=,)", re.I
)


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
            "stands_for": {"type": "string", "maxLength": 80},
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


class NumberMeaning(BaseModel):
    """What a number stands for, and whether similar problems are calculated with it too."""

    number: str
    stands_for: str = text_field(80, 400)
    always: bool

    @property
    def words(self) -> str:
        """What is to be taken for what."""
        return f"{self.number} for {self.stands_for}"

    def place_in(self, text: str) -> re.Match[str] | None:
        """Returns where a text speaks of what it stands for: `in a week` is `per week`."""
        rest = LEADING.sub("", self.stands_for, count=1)
        words = (rest or self.stands_for).split()
        bearing = [re.escape(word) for word in words if not BETWEEN.fullmatch(word)]
        if not bearing:
            return None
        between = rf"\s+(?:{BETWEEN.pattern}\s+)*"
        return re.search(rf"(?i)(?<!\w){between.join(bearing)}(?!\w)", text)

    def may_be_in(self, text: str) -> bool:
        """Returns whether a text names the number, or speaks of what it stands for."""
        return names_number(text, self.number) or self.place_in(text) is not None


def telling_numbers(
    group: Group, winners: Sequence[Rollout], losers: Sequence[Rollout]
) -> TellingNumbers:
    """Returns the numbers that set these attempts of a group apart; none where there are more than
    `MOST` that would make it right. Numbers of the problem and of any answer do not count."""
    given = _numbers(group.problem.problem).union(*map(_numbers, group.problem.ground_truths))
    given |= BARE
    right, wrong = (
        [_operands(one.transcript) - given - _numbers(one.answer or "") for one in side]
        for side in (winners, losers)
    )

    def lead(number: str, side: list[set[str]], other: list[set[str]]) -> float:
        return _share(number, side) - _share(number, other)

    def telling(side: list[set[str]], other: list[set[str]]) -> tuple[str, ...]:
        leads = {number: lead(number, side, other) for number in set().union(*side)}
        clear = (n for n, by in leads.items() if by >= APART and _share(n, side) > 1 / 2)
        return tuple(sorted(clear, key=lambda n: (-leads[n], len(n), n)))

    making = telling(right, wrong)
    if len(making) > MOST:
        return TellingNumbers((), ())
    return TellingNumbers(making, telling(wrong, right)[:MOST])


def with_numbers(
    text: str,
    meanings: Sequence[NumberMeaning],
    problem: Problem,
    max_words: int | None = None,
) -> str:
    """Returns a lesson that names the numbers which similar problems are calculated with: put
    behind what they stand for where it says that, else at its end. It holds then for any of the
    problem's own quantities. Where that makes more than `max_words` words, or it says what the
    problem comes to, the numbers take the place of all but when they are right."""
    if not meanings:
        return text
    text = for_any_quantity(text, problem.problem, {meaning.number for meaning in meanings})
    left_out = [one for one in meanings if not names_number(text, one.number)]
    about_it = names_answer(text, problem)
    if not left_out and not about_it:
        return text
    whole = text
    for meaning in left_out:
        place = meaning.place_in(whole)
        if place is not None:
            whole = f"{whole[: place.end()]} ({meaning.number}){whole[place.end() :]}"
        else:
            end = "" if whole.rstrip().endswith((".", "!", "?")) else "."
            whole = f"{whole.rstrip()}{end} Take {meaning.words}."
    if not about_it and (max_words is None or len(whole.split()) <= max_words):
        return whole
    when = condition_of(text)
    take = f"take {' and '.join(meaning.words for meaning in meanings)}."
    for short in (f"{when}, {take}" if when else take, take):
        if max_words is None or len(short.split()) <= max_words:
            return short[:1].upper() + short[1:]
    return whole


def names_answer(text: str, problem: Problem) -> bool:
    """Returns whether a text has a number in it that is an answer of a problem."""
    answers = (_numbers(answer) for answer in problem.ground_truths)
    return any(len(answer) == 1 and answer <= _numbers(text) for answer in answers)


def condition_of(text: str) -> str:
    """Returns what a text says of when it holds, where it begins with that."""
    match = CONDITION.match(text)
    return match[1] if match else ""


def for_any_quantity(text: str, problem: str, but: Collection[str] = ()) -> str:
    """Returns a text without the quantities that it has from a problem: what a problem says of 7
    weeks holds for any number of weeks. Numbers in `but` stay."""

    def general(match: re.Match[str]) -> str:
        number, joint, noun = (group for group in match.groups() if group is not None)
        noun = noun if joint == " " else f"{noun}s?"
        if number in but or not re.search(rf"(?<![\w.]){number}[ -]{noun}\b", problem):
            return match[0]
        return f"any number of {noun}" if joint == " " else ""

    return QUANTITY.sub(general, text)


def names_number(text: str, number: str) -> bool:
    """Returns whether a text has a number in it, in digits or as a word."""
    word = NAMED[int(number)] if number.isdecimal() and int(number) < len(NAMED) else number
    return number in _numbers(text) or re.search(rf"(?i)\b{word}\b", text) is not None


def _share(number: str, attempts: Sequence[set[str]]) -> float:
    return sum(number in one for one in attempts) / len(attempts)


def _operands(text: str) -> set[str]:
    """Returns the numbers of an attempt that it does not calculate, nor count its steps with."""
    text = GROUPED.sub("", STEP.sub(" ", text))
    return _numbers(text) - set(map(_plain, RESULT.findall(text)))


def _numbers(text: str) -> set[str]:
    written = NUMBER.findall(GROUPED.sub("", text))
    return {_plain(number) for number in written if len(number) <= LONGEST}


def _plain(number: str) -> str:
    return number.rstrip("0").rstrip(".") if "." in number else number
