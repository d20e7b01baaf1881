"""What right attempts at an object alone have right, field by field.

A small model that compares objects speaks of what they are about, and not of the one field that
differs. Which one that is can be counted from the parts of the rewards. So a comparison is told of
it, a lesson has to name it, and where a value differs in its form alone, what is to be done follows
without a model: `When it says "9 May", month is "May" alone.`
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfgrpo.data.problems import Problem
from tfgrpo.domains.json_fields import leaves
from tfgrpo.rollout.attempt import Rollout
from tfgrpo.training.numbers_in_text import numbers_in, plain_number, ungrouped

RIGHT = "right"
"""What the parts of a reward say of a field that is right."""
APART = 0.5
"""How much larger the share of attempts with a field right is among right ones."""
MOST = 4
"""The fields that a comparison is told of."""
LONGEST = 120
"""The characters of what is said of one field."""
LONGEST_PARTS = 40 + MOST * (LONGEST + 2)
"""The most characters that a comparison is told of fields, but for what more bytes they have."""
LONGEST_VALUE = 40
"""The characters of a value that a lesson shows."""
CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])")
"""Where a word of a name like `dueDate` ends."""
STEM = 3
"""The fewest letters that two forms of a word share."""
ACCENTS = re.compile("[\u0300-\u036f]")
APART_WORDS = re.compile("[ -\u052f]*")
"""Latin, Greek and Cyrillic, where one word does not stand within another."""
ALONE = re.compile(r'When it says ".+?", (?P<name>.+?) is ".+" alone\.')
NUMBER_ALONE = re.compile(
    r'(?P<name>.+?) is a number alone, as -?[\d.]+ for ".+"\.'
    r'|When it says ".+?", (?P<older>.+?) is -?[\d.eE+-]+ alone\.'
)
INSTEAD = re.compile(r'When .+? could be ".+", write (?:true|false)\.')
"""The three forms of `TellingPart.lesson`, that about numbers as older libraries have it too."""
NEGATIVE = re.compile(r"(?<![\w.,])[-\u2212] ?(\d+(?:\.\d+)?)(?!\.?\d)")
LIST_OR_COMMA = re.compile(r"\d+(?:,\d+)+")
"""1,38 once 1,380 is 1380: nothing says which number that is."""


class TellingPart(NamedTuple):
    """A field that right attempts alone have right: what it should be, and what most others say."""

    name: str
    right: Any
    wrong: Any

    def words(self) -> str:
        """Returns what a comparison is told of it."""
        return f"{self.name} ({_shown(self.right)}, not {_shown(self.wrong)})"[:LONGEST]

    def is_named_in(self, text: str) -> bool:
        """Returns whether a text names the field, or the last part of its path, in any case, in
        one word or several, as one or as many."""
        plain = f" {_plain(text)} "
        names = (self.name, self.name.rpartition(".")[2])
        return any(_is_named(CAMEL.sub(" ", name), plain) for name in names)

    def is_quoted_in(self, text: str, problem: str) -> bool:
        """Returns whether a text gives the value that this problem has there, in its words."""
        if not isinstance(self.right, str) or not self.right.strip():
            return False
        value = re.compile(rf"(?i)(?<!\w){re.escape(self.right)}(?!\w)")
        return bool(value.search(text) and value.search(problem))

    def lesson(self) -> str | None:
        """Returns what to do where the two values differ in their form alone: one is a piece of the
        other, or a text stands for true or false. None where they differ otherwise, or are long.
        A number is an example of the rule, since it is that of one problem."""
        right, wrong = self.right, self.wrong
        if max(len(_shown(right)), len(_shown(wrong))) > LONGEST_VALUE or wrong in (None, ""):
            return None
        if not isinstance(wrong, str):
            return None
        if isinstance(right, bool):
            return f"When {self.name} could be {_shown(wrong)}, write {_shown(right)}."
        if isinstance(right, int | float) and _number(right) in _numbers_with_signs(wrong):
            return f"{self.name} is a number alone, as {_number(right)} for {_shown(wrong)}."
        if isinstance(right, str) and _is_piece(right, wrong):
            return f"When it says {_shown(wrong)}, {self.name} is {_shown(right)} alone."
        return None


def is_about_form(text: str) -> bool:
    """Returns whether a text is a lesson of ours about the form of a field."""
    return _form(text) is not None


def is_same_form(text: str, there: str) -> bool:
    """Returns whether a lesson of ours says of a field what is there already, with another value:
    that `"9 May"` is `"May"` is `"3 June"` is `"June"` too, and a number alone is any number. A
    text that stands for true or false is one in any case."""
    form = _form(text)
    return form is not None and form == _form(there)


def _form(text: str) -> tuple[str, ...] | None:
    """Returns what a lesson of ours says, without the values that are examples; None for others."""
    if match := ALONE.fullmatch(text):
        return "text", match["name"]
    if match := NUMBER_ALONE.fullmatch(text):
        return "number", match["name"] or match["older"]
    return ("truth", text.casefold()) if INSTEAD.fullmatch(text) else None


def telling_parts(
    problem: Problem, winners: Sequence[Rollout], losers: Sequence[Rollout]
) -> tuple[TellingPart, ...]:
    """Returns the fields that most of the right attempts at a problem have right and few of the
    others, the clearest first; none where the ground truth or answers are no objects."""
    golds = [gold for text in problem.ground_truths if (gold := _object(text)) is not None]
    readable = [one for one in losers if _object(one.answer) is not None]
    if not golds or not winners or len(readable) <= len(losers) / 2:
        return ()  # where most wrong attempts are no object, that is what they lack
    losers = readable
    leads: dict[str, float] = {}
    for name in dict.fromkeys(name for one in winners for name in one.details):
        shares = [
            sum(one.details.get(name) == RIGHT for one in side) / len(side)
            for side in (winners, losers)
        ]
        is_in_gold = any(name in gold for gold in golds)
        if shares[0] > 1 / 2 and shares[0] - shares[1] >= APART and is_in_gold:
            leads[name] = shares[0] - shares[1]
    chosen = sorted(leads, key=lambda name: (-leads[name], name))[:MOST]
    return tuple(
        TellingPart(name, _written(name, winners, golds), _most_common(name, losers))
        for name in chosen
    )


def parts_words(parts: Sequence[TellingPart]) -> str:
    """Returns what a comparison is told of fields; nothing where there are none."""
    if not parts:
        return ""
    return f"Right in right attempts alone: {', '.join(part.words() for part in parts)}"


def _is_piece(right: str, wrong: str) -> bool:
    """Returns whether a text stands in another beside something else, a number as this number."""
    if not right or right == wrong:
        return False
    is_number = re.fullmatch(r"\d+(?:\.\d+)?", right) is not None
    if is_number and plain_number(right) not in _numbers_with_signs(wrong):
        return False
    return re.search(rf"(?<!\w){re.escape(right)}(?!\w)", wrong) is not None


def _number(value: float) -> str:
    """Returns a number as `_numbers_with_signs` does."""
    return ("-" if value < 0 else "") + plain_number(str(abs(value)))


def _numbers_with_signs(text: str) -> set[str]:
    """Returns the numbers of a text in digits, those below zero as such."""
    text = LIST_OR_COMMA.sub(" ", ungrouped(text))
    below = {f"-{plain_number(number)}" for number in NEGATIVE.findall(text)}
    return below | numbers_in(NEGATIVE.sub(" ", text))


def _is_named(name: str, plain: str) -> bool:
    """Returns whether a name stands in a plain text with blanks around it."""
    form = _plain(name)
    if not form or (not APART_WORDS.fullmatch(form) and form in plain):
        return True
    spelt = (" ?".join(map(re.escape, one.replace(" ", ""))) for one in _forms(form))
    if re.search(f" (?:{'|'.join(spelt)}) ", plain):
        return True
    is_like = _differ_in_vowel if form.isascii() else _share_stem
    return any(is_like(form, word) for word in plain.split())


def _forms(name: str) -> set[str]:
    """Returns a name as one and as many; letters too many do no harm, if no other word is left."""
    forms = {name}
    if len(name) > 1:
        forms |= {f"{name}s", f"{name}es"}
    if len(name) > STEM:
        forms |= {f"{name}n", f"{name}en", name.removesuffix("s")}
        if re.search("(?:[sxzo]|[cs]h)es$", name):
            forms.add(name[:-2])
    if name.endswith("y"):
        forms.add(f"{name[:-1]}ies")
    if name.endswith("ies"):
        forms.add(f"{name[:-3]}y")
    return forms


def _differ_in_vowel(one: str, other: str) -> bool:
    """Returns whether two words are one but for a vowel at the end, as Monat and Monate, or prezzo
    and prezzi."""
    stems = [re.sub("[aeio]$", "", word) for word in (one, other)]
    return stems[0] == stems[1] and len(stems[0]) > STEM


def _share_stem(one: str, other: str) -> bool:
    """Returns whether two words begin alike, and differ in their last two letters at most."""
    length = min(len(one), len(other))
    shared = next((n for n in range(length) if one[n] != other[n]), length)
    return shared >= STEM and max(len(one), len(other)) - shared <= 2


def _written(name: str, winners: Sequence[Rollout], golds: Sequence[Mapping[str, Any]]) -> Any:
    """Returns what a field should be: what most of the winners that have it right wrote there. A
    value as a ground truth has it goes before others, which may be accepted only."""
    right = [_object(one.answer) or {} for one in winners if one.details.get(name) == RIGHT]
    values = [one[name] for one in right if name in one]
    known = [gold[name] for gold in golds if name in gold]
    exact = [known[known.index(value)] for value in values if value in known]
    return _most(exact or values or known[:1])


def _most_common(name: str, losers: Sequence[Rollout]) -> Any:
    """Returns what most of the attempts that have a field wrong say there."""
    wrong = [one for one in losers if one.details.get(name) != RIGHT]
    return _most([(_object(one.answer) or {}).get(name) for one in wrong])


def _most(values: Sequence[Any]) -> Any:
    counts = Counter(json.dumps(value, sort_keys=True) for value in values)
    best = max(counts, key=lambda value: (counts[value], value), default="null")
    return json.loads(best)


def _object(text: str | None) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return dict(leaves(value)) if isinstance(value, dict) else None


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _plain(text: str) -> str:
    """Returns the words of a text in small letters, without accents, with single blanks."""
    bare = ACCENTS.sub("", unicodedata.normalize("NFD", text.casefold()))
    return re.sub(r"[\W_]+", " ", unicodedata.normalize("NFC", bare)).strip()
