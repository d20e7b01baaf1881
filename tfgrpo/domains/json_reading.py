"""Which JSON of a response is its answer.

The answer is the last object, wherever it stands: it may be the whole response, in a block of code,
in a box or `<answer>`, or between words. An object inside one that cannot be read is none. Behind
one that stands in a block, a tag or on lines of its own, what is merely mentioned does not count:
`{}`, code within a sentence, what cannot be read. Words with a colon (`Output:`) before the last of
two objects say which one counts.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tfgrpo.domains.answer_reading import FENCE, NoAnswer
from tfgrpo.domains.mathematics.doubt import pattern
from tfgrpo.domains.mathematics.extract import (
    BOX,
    JOINED,
    NUMERAL,
    TAG,
    ending,
    retraction,
    spoken,
)

JSON_MARKS = re.compile(r'[\s":,\[\]{}]+')
BLOCK = re.compile(r"```[\w-]*[ \t\n](.*?)```", re.DOTALL)
"""A block of code, also one on a single line."""
BEGUN = re.compile(r"""\{\s*(?:["']|//|/\*|\w+\s*:)""")
"""What begins an object, well-formed or not."""
STRING = re.compile(r'"(?:[^"\\]|\\.)*("?)|[{}]', re.DOTALL)
LAYOUT = re.compile(r"</?\w+>|```[\w-]*|\\[a-z]+\b|[{}]")
"""What a response is set in, which is no word."""
WORD = re.compile(r"[^\W\d_]+|\d+")
FEW = 3
"""Words that may stand between two objects in a row: `or`, `Option 2:`."""
OPENING = re.compile(rf"(?:```[\w-]*|{BOX.pattern}|<answer>|[\s`*_])+\Z", re.IGNORECASE)
"""What an object is set in, before it."""
POINTS = re.compile(r"(?:[:：]|->|=>|→|⇒)[\s*_]*\Z")
ENDS = re.compile(r"[ \t`*_.)}]*(?:</answer>[ \t]*)?(?:\n|\Z)")
"""What may stand behind an object that ends its line."""
SENTENCE = re.compile(r"\n|[.!?](?=\s)|[。！？}]")
ALTERNATIVE = pattern("otherwise")
NUMBERED = re.compile(r"\b(?:\d+|[^\W\d_])\b")
AROUND = 300
"""How far before an object, in characters, words that say what it is are looked for."""
LONGEST = 200_000
"""Characters of a response in which JSON is looked for."""
MOST_TRIES = 2_000


class RepeatedKey(ValueError):
    """An object has a key twice, so nobody knows what it says."""


class Unreadable(ValueError):
    """An object was begun that is no JSON."""


class Placed(NamedTuple):
    """JSON in a text: where it begins and ends, its value, or why it has none, and its place."""

    start: int
    end: int
    value: Any
    place: str


def parse_json(text: str) -> Any:
    """Returns JSON. Raises ValueError for what is none, for NaN, and for a key that is twice."""
    try:
        return _DECODER.decode(text.strip())
    except RecursionError:
        raise ValueError("it is too deep") from None


def last_json(response: str) -> tuple[Any, str] | NoAnswer:
    """Returns the last JSON object (or other JSON, where it is all there is) and its place. Two
    that differ in a row are no answer: with a few words between them at most, or a joint such as
    "or". Neither is one that the words around it take back."""
    last = last_place(response)
    return last if isinstance(last, NoAnswer) else (last.value, last.place)


def last_place(response: str) -> Placed | NoAnswer:
    """Returns the JSON that a response gives, and where it stands in what was said aloud."""
    response = spoken(response).strip()
    if not response:
        return NoAnswer("no answer: the response is empty, but for what was thought")
    end = ending(response)
    if end.retracted:
        return NoAnswer(f"box: {end.retracted}")
    problem = ""
    try:
        return Placed(0, len(response), parse_json(response), "whole response")
    except RepeatedKey as error:
        return NoAnswer(f"whole response: {error}")
    except ValueError as error:
        problem = str(error)
    text = response[-LONGEST:]
    given = _not_mentioned(text, sorted(_given(text), key=lambda one: one.start))
    if not given:
        return NoAnswer(f"no JSON: {problem[:100]}")
    last = given[-1]
    if isinstance(last.value, ValueError):
        return NoAnswer(f"{last.place}: {last.value}")
    for at in range(len(given) - 2, -1, -1):
        one, after = given[at : at + 2]
        if isinstance(one.value, Unreadable) or not _in_a_row(text, one, after):
            break
        if _says_which(text, given[at - 1].end if at else 0, one, after):
            break
        if one.value != last.value:
            return NoAnswer("last object: another one stands right before it, and they differ")
    why = _retraction(text, last.start, last.end)
    if why:
        return NoAnswer(f"{last.place}: {why}")
    return last._replace(start=last.start + len(response) - len(text))


def _not_mentioned(text: str, given: Sequence[Placed]) -> list[Placed]:
    """Returns the JSON of a text without what is merely mentioned behind JSON that stands alone."""
    chosen: list[Placed] = []
    for one in given:
        before = chosen[-1] if chosen else None
        if before is None or not _stands_alone(text, before) or _is_given(text, before, one):
            chosen.append(one)
    return chosen


def _stands_alone(text: str, one: Placed) -> bool:
    """Whether JSON stands in a block, a tag or a box, or on lines of its own."""
    if isinstance(one.value, ValueError) or one.value == {}:
        return False
    line = text[max(0, one.start - AROUND) : one.start].rpartition("\n")[2]
    return one.place != "last object" or (not line.strip() and _ends_line(text, one))


def _ends_line(text: str, one: Placed) -> bool:
    return ENDS.match(text, one.end) is not None


def _is_given(text: str, before: Placed, one: Placed) -> bool:
    """Whether JSON behind other JSON that stands alone is given too: it stands alone itself, in a
    row with that, or words say that it follows."""
    if _stands_alone(text, one):
        return True
    line = text[max(before.end, one.start - AROUND) : one.start]
    lead, in_code = _lead(text, before.end, one.start), line.endswith("`") and line[-3:] != "```"
    if isinstance(one.value, Unreadable) and re.search(r"```json\s*\Z", line, re.IGNORECASE):
        return True
    if lead and _ends_line(text, one) and one.value != {}:
        opening = OPENING.search(f"{line} ")
        is_brief = len(WORD.findall(lead)) <= FEW or (opening is not None and "\n" in opening[0])
        return is_brief and not (in_code and isinstance(one.value, Unreadable))
    readable = not isinstance(one.value, ValueError) and one.value != {} and not in_code
    return readable and _in_a_row(text, before, one)


def _lead(text: str, after: int, start: int) -> str:
    """Returns the words with a colon right before JSON that begins there; or nothing."""
    before = OPENING.sub("", text[max(after, start - AROUND) : start])
    return SENTENCE.split(before)[-1].strip() if POINTS.search(before) else ""


def _says_which(text: str, at: int, one: Placed, last: Placed) -> bool:
    """Whether the words before the last of two objects say that it counts: `Output:` does, and
    neither does `Otherwise:` nor, behind `Option 1:`, `Option 2:`."""
    lead = _lead(text, one.end, last.start)
    if not lead or ALTERNATIVE.search(lead) or JOINED.fullmatch(lead.casefold().rstrip(":： ")):
        return POINTS.fullmatch(lead) is not None
    words = ({*WORD.findall(lead.casefold())} for lead in (lead, _lead(text, at, one.start)))
    return not (NUMBERED.search(lead) and set.intersection(*words))


def _in_a_row(text: str, one: Placed, other: Placed) -> bool:
    """Whether two objects stand in a row, so that neither is the answer if they differ. One of
    other fields behind a few words may be what the answer was made of."""
    between = LAYOUT.sub(" ", text[one.end : other.start])
    if JOINED.fullmatch(between):
        return True
    both = isinstance(one.value, dict) and isinstance(other.value, dict)
    alike = both and bool(one.value.keys() & other.value.keys())
    return len(WORD.findall(between)) <= FEW and (alike or isinstance(one.value, ValueError))


def _retraction(text: str, start: int, end: int) -> str:
    """Returns the words that take back the JSON that stands there in a text; or nothing. A remark
    about other numbers than its own is none."""
    words = JSON_MARKS.split(text[start:end])
    numbers = [word for word in words if NUMERAL.fullmatch(word.removeprefix("-"))]
    taken = (retraction(text, start, end, body) for body in numbers or [text[start:end]])
    return next(filter(None, taken), "")


def _given(text: str) -> Iterator[Placed]:
    """Yields the JSON that a text gives: what blocks and tags hold, and objects anywhere else."""
    held: list[tuple[int, int]] = []

    def is_held(at: int) -> bool:
        before = bisect_left(held, (at + 1,)) - 1
        return before >= 0 and at < held[before][1]

    for place, within in (("answer tag", TAG), ("code block", BLOCK)):
        for match in within.finditer(text):
            if is_held(match.start()):
                continue
            try:
                value = parse_json(FENCE.sub(r"\1", match[1]))
            except RepeatedKey as error:
                value = error
            except ValueError:
                continue
            if isinstance(value, dict | list | RepeatedKey):
                insort(held, match.span())
                yield Placed(*match.span(), value, place)
    for start, end, value in _objects(text):
        if not is_held(start):
            boxed = re.search(rf"(?:{BOX.pattern})\s*\Z", text[max(0, start - 20) : start])
            yield Placed(start, end, value, "answer tag" if boxed else "last object")


def _objects(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yields the outermost JSON objects in a text: where each begins and ends, and its value, or
    the error where one was begun that cannot be read."""
    at = text.find("{")
    for _ in range(MOST_TRIES):
        if at < 0:
            return
        try:
            value, end = _DECODER.raw_decode(text, at)
        except RepeatedKey as error:
            value, end = error, _closing(text, at)
        except (ValueError, RecursionError):
            if not BEGUN.match(text, at):
                at = text.find("{", at + 1)
                continue
            value, end = Unreadable("it is begun, and no JSON"), _closing(text, at)
        yield at, end, value
        at = text.find("{", end)


def _closing(text: str, at: int) -> int:
    """Returns where an object ends that cannot be read: at the brace that closes it, or with the
    text."""
    depth = 0
    for match in STRING.finditer(text, at):
        if match[0][0] == '"' and not match[1]:  # nothing closes it, so it is no string
            rest = re.finditer(r"[{}]", text[match.start() :])
            for brace in rest:
                depth += (brace[0] == "{") - (brace[0] == "}")
                if depth == 0:
                    return match.start() + brace.end()
            break
        depth += (match[0] == "{") - (match[0] == "}")
        if depth == 0:
            return match.end()
    return len(text)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise RepeatedKey(f"the key {key!r} is there twice")
        members[key] = value
    return members


def refuse_constant(name: str) -> Any:
    """Raises ValueError: Python reads NaN and Infinity, which are no JSON."""
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=refuse_constant)
