"""Lessons that name the numbers which they are about: what a number stands for, and its place.

What a comparison says that a number stands for, or right attempts write it as, is put into a
lesson that leaves it out: behind the words for it, at the end, or in place of what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from tfgrpo.data.problems import Problem
from tfgrpo.model.structured import text_field
from tfgrpo.training.number_units import forms_of, names_unit, noun_of, plural, rates_in
from tfgrpo.training.numbers_in_text import NAMES, names_number, numbers_in, ungrouped

QUANTITY = re.compile(
    r"(?<![\w.])(\d+)(?:( )(?!(?:plus|minus|times|was|has|is|less|this|as)\b)([a-z]{2,}s)\b"
    r"(?! (?:per|an?|each|every|in an?|in one)\b)|(-)([a-z]{2,}) )"
)
"""A number of several things, be it as `2-week` before a noun; but not a rate."""
LEADING = re.compile(r"\A(?:(?:the|a|an|number|amount|of|count|total) )+", re.I)
PER = re.compile(r"(?<=[a-z]) per (?=[a-z])", re.I)
BETWEEN = re.compile(r"(?:a|an|each|every|for|in|of|one|per|the)", re.I)
"""Words that `per week` and `in one week` differ by."""
CONDITION = re.compile(
    r"((?:when|whenever|where|wherever|if|unless|for|in|to)\b(?:[^,.;:]|(?<=\d)[,.](?=\d))*)(?=,)",
    re.I,
)
SAYS = r"(?:is|are|be|was|were|equals?|comes? to|gives?|makes?|gets?|charged?|=)"
BEFORE = re.compile(rf"(?:\d|\b(?:{'|'.join(NAMES)}))\S*\s+\Z", re.I)
"""A number that stands right before a place."""
CLAUSE = re.compile(r"[,;:](?!\d)|\.(?!\d)|\band\b")
CALCULATED = re.compile(r"(?i)\b(?:multipl|divid|times\b|add|plus|subtract|minus)|[*×÷+]")
TURNED = re.compile(r"(?i)\b(?:multipl|divid|times\b)|[*×÷]")
COUNTED = re.compile(
    r"(?i)\b(?:count|calculat|comput|find|determin|consider|total\b|equal|number of\b"
    r"|asks\b|works? for\b)"
)
"""What an amount is spoken of with."""
LITTLE = 3
"""The words beside it that a text about an amount alone may have."""
OF_KINDS = {"night", "shift", "person"}
"""Units whose time is another one's."""
CONTRAST = re.compile(r"(?i),? (?:not|rather than|instead of) (?:add|subtract|divid)\w* [^,.;\d]*")
"""Another calculation that is not the right one."""
CONVERSION = re.compile(
    r"When (?P<whole>\w+) are given and (?P<unit>\w+(?: (?!are)\w+)?)(?: are)? asked for, "
    r"multiply the (?P=whole) by (?P<number>\d+(?:\.\d+)?)\."
)
"""What `NumberMeaning.conversion` gives, or a model makes of it."""
RULE = (
    r"(?:add|divid|subtract|round|doubl|tripl|halv|skip|minim|maxim|free|overtime)\w*"
    r"|plus|minus|except|unless|beyond|half|twice|part|started|each|only|several|both"
    r"|(?<=\w )first|the last|leave|extra|at (?:least|most)|(?:less|more) than|those|them|how many"
    r"|that the (?:problem|question|task|bill)"
)
SAYS_RULE = re.compile(rf"(?i)\b(?:{RULE})\b")
"""Words of a rule that a step of ours does not give."""
MORE_THAN_STEP = re.compile(rf"(?i)\b(?:{RULE}|not|no|never|without|less|more)\b")
"""Those, and words that may make another rule of a step."""
FILLER_WORDS = """
a all always an and any are as asked be by calculate calculating compute consider convert
converting count counting determine determining during each equal equals every find finding for from
get getting given has have if in into is it multiplied multiplies multiply multiplying needed
normal number obtain of on one per regular simply so sought standard take taking the then there
times to total turn turned turning typical use using usual wanted was were when whenever
work working amount
"""
FILLER = frozenset(FILLER_WORDS.split())
"""What a step may be told with, beside its units and its number."""
NEGATED = re.compile(r"\b(?:not|never|ignore|instead|without|rather)\b[^.;:]*\Z", re.I)
STANDS_FOR, LONGEST_MEANING = 80, 400
"""The characters that what a number stands for is asked to have, and that it may have."""


class NumberMeaning(BaseModel):
    """What a number stands for, and whether similar problems are calculated with it too.
    `is_written` says that right attempts write it so, and no model was asked, and `is_factor`
    that they multiply by it."""

    number: str
    stands_for: str = text_field(STANDS_FOR, LONGEST_MEANING)
    always: bool
    is_written: bool = False
    is_factor: bool = False

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
        if self.is_written:
            bearing = [rf"(?:{unit}|{plural(unit)})" for unit in self.nouns]
        else:
            bearing = [re.escape(word) for word in self.bearing]
        if len(bearing) < 2:
            return None
        between = rf"\s+(?:{BETWEEN.pattern}\s+)*"
        return re.search(rf"(?i)(?<!\w){between.join(bearing)}(?!\w)", text)

    def clause_of(self, text: str, place: re.Match[str] | None) -> str:
        """Returns the clause of a text that a place is in; all of it where there is no place."""
        if place is None:
            return text
        ends = [0, *(match.end() for match in CLAUSE.finditer(text)), len(text)]
        return next(text[a:b] for a, b in pairwise(ends) if b >= place.end())

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
        """Returns whether a text gives the number for something else: says that this comes to it
        (`the number of visits is 4` for 4 weeks per month), or writes it as another rate (`8 days
        in an hour`)."""
        if not self.is_written:
            return False
        rates = {rate.key for rate in rates_in(text) if rate.number == self.number}
        if rates and (self.number, *self.nouns) not in rates:
            return True
        clauses = [one for one in CLAUSE.split(text) if names_number(one, self.number)]
        return bool(clauses) and all(map(self._is_result_in, clauses))

    def _is_result_in(self, clause: str) -> bool:
        """Returns whether a clause says that something comes to the number, and that is not its
        unit in one of what that is in."""
        unit, whole = self.nouns
        result = rf"{SAYS}\s+(?:[^\W\d]+\s+){{0,2}}{re.escape(self.number)}(?!\.?\d)"
        if not re.search(result, clause, re.I):
            return False
        one = rf"(?i)\b(?:an?|one|each|every) (?:\w+ )?(?:{'|'.join(forms_of(whole))})\b"
        has_whole = names_unit(clause, whole)
        return not (has_whole and (names_unit(clause, unit) or re.search(one, clause)))

    @property
    def conversion(self) -> str:
        """What to do with a number that right attempts write as a rate, in a sentence: the step
        itself, where they multiply by it. Several that say what is *turned into* what are taken
        for the steps of one calculation by a small model."""
        unit, _, whole = self.stands_for.rpartition(" per ")
        take = self.step if self.is_factor else f"take {self.number} {unit} per {whole}"
        return f"When {plural(noun_of(whole))} are given and {unit} asked for, {take}."

    @property
    def step(self) -> str:
        """The step with a number that right attempts multiply by: `multiply the days by 8`."""
        return f"multiply the {plural(self.nouns[1])} by {self.number}"

    @property
    def nouns(self) -> tuple[str, str]:
        """Its unit and what that is in, where right attempts write it: `hour`, `day`."""
        unit, _, whole = self.stands_for.rpartition(" per ")
        return noun_of(unit), noun_of(whole)

    def is_stated_in(self, text: str) -> bool:
        """Returns whether a text gives the number that right attempts write as a rate, for that
        rate: as `8 hours per day`, beside words for it, as `hours per day (8)`, or in a step."""
        if not self.is_written:
            return False
        if any(rate.key == (self.number, *self.nouns) for rate in rates_in(text)):
            return True
        if self.is_step_in(text):
            return True
        place = self.place_in(text)
        return place is not None and names_number(self.clause_of(text, place), self.number)

    def is_step_in(self, text: str) -> bool:
        """Returns whether a text multiplies by the number what right attempts multiply by it:
        `for hours, multiply the number of days by 8`."""
        unit, whole = self.nouns
        multiplied = rf"\bmultipl\w{{1,5}} [^.;]{{0,60}}?\b(?:{whole}|{plural(whole)})\b"
        step = rf"(?i){multiplied}[^.;]{{0,40}}? by {re.escape(self.number)}(?!\.?\d)"
        return names_unit(text, unit) and re.search(step, text) is not None

    def is_vague_in(self, text: str, problem: Problem) -> bool:
        """Returns whether a text speaks of what right attempts multiply, and no more than that, and
        does so for the quantities of this problem alone, without the number, or with it in what it
        says of when it holds (`When a month has 4 weeks, …`); not where it gives others."""
        if not self.is_factor or not any(names_unit(text, unit) for unit in self.nouns):
            return False
        others = numbers_in(text) - {self.number}
        if others - numbers_in(problem.problem).union(_numeric_answers(problem)):
            return False
        if self.is_more_in(text):
            return False
        of_problem = bool(others) or for_any_quantity(text, problem.problem) != text
        advice = _advice(text)
        return of_problem or (not names_number(advice, self.number) and self._is_amount_in(text))

    def _is_amount_in(self, text: str) -> bool:
        """Returns whether a text is about the amounts that right attempts multiply: it names both,
        or multiplies or divides, or counts one and says little else."""
        if all(names_unit(text, unit) for unit in self.nouns) or TURNED.search(text):
            return True
        advice = _advice(text)
        return COUNTED.search(advice) is not None and len(other_words(advice, self)) <= LITTLE

    def is_more_in(self, text: str) -> bool:
        """Returns whether a text has a rule in it that the step does not give: it rounds, leaves
        something out, calculates on or with what the problem gives, or is about another rate or
        somebody else's time."""
        own = "|".join(form for noun in self.nouns for form in forms_of(noun))
        rest = re.sub(rf"(?i)\beach (?=(?:{own})\b)", "", CONTRAST.sub("", text))
        if SAYS_RULE.search(rest) or len(re.findall(r"(?i)\bmultipl", rest)) > 1:
            return True
        kinds = {noun_of(word) for word in re.findall(r"[^\W\d_]+", rest.casefold())} & OF_KINDS
        return bool(kinds - set(self.nouns)) or any(
            rate.key[1:] != self.nouns for rate in rates_in(text)
        )

    def is_lost_in(self, text: str, before: str) -> bool:
        """Returns whether a text that takes the place of one before, because of a lesson about the
        number, leaves it out; a number that was there for something else is none."""
        if self.is_stated_in(text):
            return False
        was_there = self.is_written and names_number(before, self.number)
        return was_there or not names_number(text, self.number)

    def may_be_in(self, text: str) -> bool:
        """Returns whether a text names the number, or a word of what it stands for. Where right
        attempts write it so: whether it names its unit and what that is in, or one of them with
        the number."""
        if self.is_written:
            there = sum(names_unit(text, unit) for unit in self.nouns)
            return there == 2 or (there == 1 and names_number(text, self.number))
        words = set(re.findall(r"\w{3,}", text.casefold()))
        return names_number(text, self.number) or any(
            word.casefold() in words for word in self.bearing
        )


def _advice(text: str) -> str:
    """Returns a text without what it begins with of when it holds."""
    when = CONDITION.match(text)
    return text[when.end() :] if when else text


def other_words(text: str, step: NumberMeaning) -> list[str]:
    """Returns the words of a text that a step is not told with."""
    named = dict(zip(map(str, range(len(NAMES))), NAMES, strict=True)).get(step.number, "")
    known = FILLER.union([named], *map(forms_of, step.nouns))
    return [word for word in re.findall(r"[^\W\d_]+", text.casefold()) if word not in known]


def step_of(text: str) -> NumberMeaning | None:
    """Returns what the number of a step of ours stands for (`NumberMeaning.conversion`), or None
    where a text is none."""
    step = CONVERSION.fullmatch(text)
    if step is None:
        return None
    return NumberMeaning(
        number=step["number"],
        stands_for=f"{step['unit']} per {noun_of(step['whole'])}",
        always=True,
        is_written=True,
        is_factor=True,
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
    if right attempts write what they stand for; else it is itself. A lesson that speaks of what
    right attempts multiply, and is wrong or vague about it, makes way for the step: a small model
    that is told to *take 8 hours per day* calculates with 24 again."""
    steps = " ".join(one.conversion for one in meanings)
    has_room = max_words is None or len(steps.split()) <= max_words
    has_steps = has_room and bool(meanings) and all(one.is_factor for one in meanings)
    if has_steps and all(one.is_vague_in(text, problem) for one in meanings):
        return steps
    whole = text
    for meaning in meanings:
        place = meaning.place_in(whole)
        is_misplaced = meaning.is_misplaced_in(whole)
        is_stated = meaning.is_stated_in(whole)
        is_wrong = is_misplaced if place is None else meaning.has_another(whole, place)
        is_wrong = is_wrong and not is_stated
        if is_wrong or says_answer(text, problem):
            if has_steps:
                return steps
            whole = number_alone(text, meanings, problem)
            break
        clause = meaning.clause_of(whole, place) if meaning.is_written else whole
        if is_stated or (names_number(clause, meaning.number) and not is_misplaced):
            if meaning.is_factor and not CALCULATED.search(whole):
                whole = _with_sentence(whole, f"{meaning.step[:1].upper()}{meaning.step[1:]}.")
            continue
        is_rule = meaning.is_factor and meaning.is_more_in(whole)
        if place is not None and not (is_rule or NEGATED.search(whole[: place.start()])):
            whole = f"{whole[: place.end()]} ({meaning.number}){whole[place.end() :]}"
        else:
            take = meaning.conversion if meaning.is_factor else f"Take {meaning.words}."
            whole = _with_sentence(whole, take)
    if max_words is None or len(whole.split()) <= max_words:
        return whole
    whole = number_alone(text, meanings, problem)
    is_sure = bool(meanings) and all(meaning.is_written for meaning in meanings)
    return whole if is_sure and len(whole.split()) <= max_words else text


def is_beside(text: str, named: str, meanings: Sequence[NumberMeaning], problem: Problem) -> bool:
    """Returns whether a lesson, of which `with_numbers` makes the text `named`, is one of its own
    beside the step with what right attempts multiply by: it gives nothing of that, and the step
    only follows it there, or it is a rule about something else."""
    if not meanings or not all(one.is_factor for one in meanings):
        return False
    if any(names_number(text, one.number) for one in meanings):
        return False
    return named.startswith(text.rstrip(". ")) or _is_rule(text, meanings, problem)


def _is_rule(text: str, meanings: Sequence[NumberMeaning], problem: Problem) -> bool:
    """Returns whether a lesson that gives nothing of what right attempts multiply by is a rule
    about something else: it says more than the step does, or names none of the units, or gives a
    number that is not this problem's, though not in place of theirs."""
    places = [(one, one.place_in(text)) for one in meanings]
    if any(place is not None and one.has_another(text, place) for one, place in places):
        return False
    if says_answer(text, problem):
        return False
    known = numbers_in(problem.problem).union(_numeric_answers(problem))
    has_units = any(names_unit(text, unit) for one in meanings for unit in one.nouns)
    is_more = any(one.is_more_in(text) for one in meanings)
    return is_more or not has_units or bool(numbers_in(text) - known)


def _with_sentence(text: str, sentence: str) -> str:
    end = "" if text.rstrip().endswith((".", "!", "?")) else "."
    return f"{text.rstrip()}{end} {sentence}"


def number_alone(text: str, meanings: Sequence[NumberMeaning], problem: Problem) -> str:
    """Returns what to take for numbers and no more, at the time when a text holds."""
    when = CONDITION.match(for_any_quantity(text, problem.problem))
    steps = (one.step if one.is_factor else f"take {one.words}" for one in meanings)
    take = f"{' and '.join(steps)}."
    if when is None or names_answer(when[1], problem):
        if meanings and all(meaning.is_written for meaning in meanings):
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
