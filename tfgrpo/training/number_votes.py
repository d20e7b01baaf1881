"""Whether a lesson says no more than a step with a number that the library has already.

Such a lesson is a vote for the step, and no model is asked: a small one writes the step over with
the same in other words, or adds it a second time. Whatever else a lesson says (a Sunday is left
out, the price comes on top) would be lost with that, so nothing but what is listed here may stand
in it; one with anything more is decided about as any other is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tfgrpo.training.number_lessons import (
    CONDITION,
    MORE_THAN_STEP,
    NumberMeaning,
    other_words,
    step_of,
)
from tfgrpo.training.number_units import SINGULAR, forms_of, names_unit, rates_in
from tfgrpo.training.numbers_in_text import NAMES, names_number, numbers_in, ungrouped

SUBJECT = re.compile(r"\A(?:the|an?|each|every) [^\W\d_]+ (?:works?|is busy)\b", re.I)
"""Whose step it is, where that does not stand before a comma."""
OTHER_SIGN = re.compile(r"[+÷/−%]|(?<!\w)-|-(?!\w)")
"""What calculates otherwise than a step does."""
GIVENS = re.compile(r"\b(?:given|stated|known)\b", re.I)
REQUEST = re.compile(r"\b(?:asked|wanted|needed|sought)\b", re.I)
PART = re.compile(r"[,.;:]|\b(?:and|when|if)\b")
SETTING = 3
"""The words that when it holds may have for one kind of problem: `the printer is used`."""
LONGEST = 600
"""The characters from which on a text is no step."""


def is_vote(text: str, numbers: Sequence[NumberMeaning], there: str) -> bool:
    """Returns whether a lesson, with the numbers that right attempts write which it names, says no
    more than a step of ours (`NumberMeaning.conversion`) that is there: the step in other words, or
    for one kind of problem alone, or without its number; or the number alone, if attempts write
    it."""
    step = step_of(there)
    if step is None or len(text) > LONGEST:
        return False
    text = ungrouped(text)
    if not _says_only(text, step) or not _is_in_its_direction(text, step):
        return False
    is_step = step.is_step_in(text) and numbers_in(text) == {step.number}
    if numbers:
        is_known = all(one.is_stated_in(there) for one in numbers)
        return is_known and (is_step or _gives_number(text, step))
    return is_step or _leaves_out_number(text, step)


def _says_only(text: str, step: NumberMeaning) -> bool:
    """Returns whether a text has nothing in it but when it holds and what a step is told with."""
    when = CONDITION.match(text) or SUBJECT.match(text)
    advice = text[when.end() :] if when else text
    if OTHER_SIGN.search(advice) or len(re.findall(r"(?i)\bmultipl", advice)) > 1:
        return False
    return (when is None or _is_setting(when[0], step)) and not other_words(advice, step)


def _is_setting(when: str, step: NumberMeaning) -> bool:
    """Returns whether what a text says of when it holds is a kind of problem and no rule."""
    others = other_words(when, step)
    if numbers_in(when) or MORE_THAN_STEP.search(when) or len(others) > SETTING:
        return False
    return not any(word in SINGULAR for word in others)


def _is_in_its_direction(text: str, step: NumberMeaning) -> bool:
    """Returns whether a text does not take what a step asks for as given, nor the other way
    round."""
    unit, whole = ("|".join(forms_of(noun)) for noun in step.nouns)
    for part in PART.split(text):
        first = re.search(rf"(?i)\b(?:({unit})|{whole})\b", part)
        if first and (GIVENS if first[1] else REQUEST).search(part):
            return False
    filler = r"(?:the |total |number of ){0,3}"
    from_unit = rf"\bfrom {filler}(?:{unit})\b"
    to_whole = rf"\b(?:to|into|get|find|obtain|calculate|compute|determine) {filler}(?:{whole})\b"
    multiplied = re.search(rf"(?i)\bmultipl\w*\b(?:(?!\bby\b).)*?\b(?:({unit})|{whole})\b", text)
    if multiplied and multiplied[1] and names_number(text, step.number):
        return False
    return re.search(rf"(?i){from_unit}|{to_whole}", text) is None


def _gives_number(text: str, step: NumberMeaning) -> bool:
    """Returns whether a text gives the number of a step, and no other, for its units."""
    if numbers_in(text) - {step.number} or not names_number(text, step.number):
        return False
    if any(rate.key == (step.number, *step.nouns) for rate in rates_in(text)):
        return True
    is_multiplied = re.search(r"(?i)\bmultipl", text) is not None
    return is_multiplied and all(names_unit(text, unit) for unit in step.nouns)


def _leaves_out_number(text: str, step: NumberMeaning) -> bool:
    """Returns whether a text multiplies with the units of a step, and says not by what."""
    if numbers_in(text) or any(names_number(text, str(n)) for n in range(2, len(NAMES))):
        return False
    is_multiplied = re.search(r"(?i)\bmultipl", text) is not None
    return is_multiplied and all(names_unit(text, unit) for unit in step.nouns)
