"""What right attempts at an object alone have right, field by field.

A small model that compares objects speaks of what they are about, and not of the one field that
differs. Which one that is can be counted from the parts of the rewards. So a comparison is told of
it, a lesson has to name it, and where a value differs in its form alone, what is to be done follows
without a model: `When it says "9 May", month is "May" alone.`
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tfgrpo.data.problems import Problem
from tfgrpo.domains.json_fields import leaves
from tfgrpo.rollout.attempt import Rollout

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
SHORTEST = 3
"""The characters of a name that has no `s` to leave out."""
ALONE = re.compile(r'When it says ".+", (?P<name>\S+) is ".+" alone\.')
INSTEAD = re.compile(r'When (?P<name>\S+) could be ".+", write \S+\.')
"""The two forms of `TellingPart.lesson`."""


class TellingPart(NamedTuple):
    """A field that right attempts alone have right: what it should be, and what most others say."""

    name: str
    right: Any
    wrong: Any

    def words(self) -> str:
        """Returns what a comparison is told of it."""
        return f"{self.name} ({_shown(self.right)}, not {_shown(self.wrong)})"[:LONGEST]

    def is_named_in(self, text: str) -> bool:
        """Returns whether a text names the field, or the last part of its path, in any case, as
        one or as many."""
        plain = f" {_plain(text)} "
        for name in {self.name, self.name.rpartition(".")[2]}:
            form = _plain(name)
            one = form.removesuffix("s") if len(form) > SHORTEST else form
            word = rf" {re.escape(one)}(?:e?s)? " if form.isascii() else re.escape(form)
            if not form or re.search(word, plain):
                return True
        return False

    def is_quoted_in(self, text: str, problem: str) -> bool:
        """Returns whether a text gives the value that this problem has there, in its words."""
        if not isinstance(self.right, str) or not self.right.strip():
            return False
        value = re.compile(rf"(?i)(?<!\w){re.escape(self.right)}(?!\w)")
        return bool(value.search(text) and value.search(problem))

    def lesson(self) -> str | None:
        """Returns what to do where the two values differ in their form alone: one is a piece of the
        other, or they are of two types. None where they differ otherwise, or are long."""
        right, wrong = self.right, self.wrong
        if max(len(_shown(right)), len(_shown(wrong))) > LONGEST_VALUE or wrong in (None, ""):
            return None
        if isinstance(right, str) and isinstance(wrong, str):
            piece = rf"(?<!\w){re.escape(right)}(?!\w)"
            if right and right != wrong and re.search(piece, wrong):
                return f"When it says {_shown(wrong)}, {self.name} is {_shown(right)} alone."
            return None
        if isinstance(wrong, str) and isinstance(right, bool | int | float):
            return f"When {self.name} could be {_shown(wrong)}, write {_shown(right)}."
        return None


def is_about_form(text: str) -> bool:
    """Returns whether a text is a lesson of ours about the form of a field."""
    return ALONE.fullmatch(text) is not None or INSTEAD.fullmatch(text) is not None


def is_same_form(text: str, there: str) -> bool:
    """Returns whether a lesson of ours says of a field what is there already, with another value:
    that `"9 May"` is `"May"` is `"3 June"` is `"June"` too."""
    one, other = ALONE.fullmatch(text), ALONE.fullmatch(there)
    return one is not None and other is not None and one["name"] == other["name"]


def telling_parts(
    problem: Problem, winners: Sequence[Rollout], losers: Sequence[Rollout]
) -> tuple[TellingPart, ...]:
    """Returns the fields that most of the right attempts at a problem have right and few of the
    others, the clearest first; none where the ground truth or answers are no objects."""
    gold = _object(problem.answer)
    readable = [one for one in losers if _object(one.answer) is not None]
    if gold is None or not winners or len(readable) <= len(losers) / 2:
        return ()  # where most wrong attempts are no object, that is what they lack
    losers = readable
    leads: dict[str, float] = {}
    for name in dict.fromkeys(name for one in winners for name in one.details):
        shares = [
            sum(one.details.get(name) == RIGHT for one in side) / len(side)
            for side in (winners, losers)
        ]
        if shares[0] > 1 / 2 and shares[0] - shares[1] >= APART and name in gold:
            leads[name] = shares[0] - shares[1]
    chosen = sorted(leads, key=lambda name: (-leads[name], name))[:MOST]
    return tuple(TellingPart(name, gold[name], _most_common(name, losers)) for name in chosen)


def parts_words(parts: Sequence[TellingPart]) -> str:
    """Returns what a comparison is told of fields; nothing where there are none."""
    if not parts:
        return ""
    return f"Right in right attempts alone: {', '.join(part.words() for part in parts)}"


def _most_common(name: str, losers: Sequence[Rollout]) -> Any:
    """Returns what most of the attempts that have a field wrong say there."""
    wrong = [one for one in losers if one.details.get(name) != RIGHT]
    values = [(_object(one.answer) or {}).get(name) for one in wrong]
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
    return re.sub(r"[\W_]+", " ", text.casefold()).strip()
