"""From a response to the answer it gives: extraction, before anything is compared.

What counts is the last `\\boxed{…}` or `<answer>…</answer>`, whichever stands last; a number that
is merely mentioned earns nothing. What a model thought (`<think>…</think>`, `[THINK]…[/THINK]`) is
no answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import pairwise
from typing import NamedTuple

from tfgrpo.domains.mathematics.doubt import any_of, pattern
from tfgrpo.domains.mathematics.notation import JOINTS
from tfgrpo.domains.mathematics.second_answers import GIVEN, numbers_behind
from tfgrpo.domains.mathematics.surroundings import MATHS, in_its_formula

TAG = re.compile(r"<answer>((?:(?!<answer>).)*?)</answer>", re.IGNORECASE | re.DOTALL)
THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]", re.IGNORECASE)
THINKING = re.compile(r"<(?:think|thinking|thought|reasoning)>|\[THINK\]", re.IGNORECASE)
"""How models mark what they think before they answer."""
BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
BEGUN = re.compile(BOX.pattern + "|<answer>", re.IGNORECASE)
CUT = re.compile(
    r"(?:\\(?:bo(?:x(?:ed?)?)?|f(?:rame)?b(?:ox?)?)|<an(?:s(?:w(?:er?)?)?)?)\s*\Z", re.IGNORECASE
)
"""The end of a response that was cut off within what begins an answer."""
BARE_BOX = re.compile(r"\\boxed\s+(-?\d+(?:\.\d+)?|[a-zA-Z])(?=\s*(?:[$.,]|\\[)\]]|\n|\Z))")
"""A box without braces around a number or a letter that is all of it: `$\\boxed 3$`."""
FINAL = re.compile(r"final answer\W", re.IGNORECASE)
AFTERWARDS = re.compile(r"<\|im_|I hope it is correct")
"""The words between which the answer of a response in prose is looked for."""
NAMED = r"[a-zA-Z](?:_(?:\w|\{\w+\}))?\s*="
JOINT = "|".join((*(joint.pattern for joint, _ in JOINTS[:2]), r"\b(?:and|or|[oye])\b"))
JOINED = re.compile(
    rf"(?:\s+[^\W\d_]+(?=\s+(?:{JOINT})\s))?"
    rf"(?:[\s,;、，；$~}}*&/]|\\[()\[\],;! ]|\\q?quad|\\text(?:bf|rm)?\s*\{{|{JOINT}"
    r"|∨|∧|\\(?:lor|vee|land|wedge)\b"
    rf"|\bfor\s+part\s*\(?[a-zA-Z1-9]\b\)?|{NAMED})*"
)
"""What may stand between boxes that together are one list: a name, a part, one word counted."""
ASIDE = re.compile(rf"\((?=[^()]*[^\W\d_]{{2}})(?!\s*(?:{JOINT}))[^()$\\]*\)")
"""Words in brackets that give no other answer."""
NEARBY = 400
"""How far behind a box, in characters, words can take it back."""
NAME = re.compile(NAMED + r"\s*\Z")
UNSEEN = dict.fromkeys(
    map(
        ord,
        "\xad\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u2060\u2066\u2067\u2068\u2069\ufeff",
    )
)
"""Where a line may break or may not, and which way a text is read. What turns the order of letters
(U+202D, U+202E) is seen, and joiners within a word are a part of its spelling."""
END_MARK = re.compile(r"<[|｜][\w▁]{1,40}[|｜]>\Z")
"""What models write where a response ends: `<|im_end|>`."""
MOST_MARKS = 10
CLAUSE = re.compile(r"[^,;:.!?\n，；：。！？]+")


def _taken_back(word: str) -> re.Pattern[str]:
    is_wrong = rf"{any_of('be')}\W*(?:{word}\W+)?{any_of('wrong')}"
    return re.compile(
        rf"\W*(?:{is_wrong}|{any_of('wrong')}\W*\Z|(?:{word}[^\w,]+){{0,3}}?(?:{any_of('slip')}"
        rf"|{any_of('that', 'answer')}\W*(?:{is_wrong}|{any_of('wrong')})))",
        re.IGNORECASE,
    )


TAKEN_BACK = _taken_back(rf"(?!{any_of('denied')})\w+")
"""A clause that says that the answer before it is wrong. "That is not wrong" does not."""
DOUBTED_BACK = _taken_back(r"\w+")
"""A question that does: "Isn't that wrong?"."""
SECOND_THOUGHT = pattern("wait", "check")
NUMERAL = re.compile(r"\d+(?:\.\d+)?")
DENIAL = pattern("denied")
NEGATIVE = re.compile(rf"(?:\\text\w*\s*\{{)?\s*{any_of('wait', 'wrong')}[\s.}}]*", re.IGNORECASE)
"""A box that denies something itself, as `No` does: "that is not possible" confirms it."""
OR_NOT = re.compile(rf"(?:{JOINT})\s+{any_of('denied')}\s*[:：]", re.IGNORECASE)
"""A question's end, which denies nothing: "divisible or not:"."""
DENIED = re.compile(
    rf"{any_of('denied')}(?:\s+(?:be|equal|equal\s+to))?[\s$:(*\[{{\\]*\Z", re.IGNORECASE
)
"""Words before a box that deny it."""
EMPTY = re.compile(
    r"\\boxed\s*\{[\s.…]*\}|<answer>[\s.…]*(?:</answer>|(?=`?\s*tag))", re.IGNORECASE
)
MENTIONED = re.compile(rf"(?:{any_of('within')}\s*[`'\"$(]*|`)\Z", re.IGNORECASE)
"""Words before a box or a tag that is named and holds nothing: "I put it in \\boxed{}"."""


BLANK = re.compile(r"\\\s+\Z")
"""A blank of LaTeX that ends a box."""
PART = "it is a part of a larger formula"


class Ending(NamedTuple):
    """How a response ends: the boxes that are its answer, each with its name, if any. `retracted`
    says how the response takes its answer back, in words; else it is empty. `behind` are numbers
    and formulas that are given as answers behind the boxes, each in the ways to read it, and `rest`
    is all that stands there."""

    boxes: tuple[tuple[str, str], ...]
    retracted: str = ""
    behind: tuple[tuple[str, ...], ...] = ()
    rest: str = ""

    @property
    def listed(self) -> str:
        """The boxes as one answer: several with what names them (`y_1 =`) and commas."""
        if len(self.boxes) == 1:
            return self.boxes[0][1]
        return ", ".join(name + body for name, body in self.boxes)


def extract(response: str) -> str | None:
    """Returns the content of the last answer tag or `\\boxed{}`, whichever stands last."""
    boxes = ending(response).boxes
    return boxes[-1][1] if boxes else None


def ending(response: str) -> Ending:
    """Returns the boxes and tags that end a response with nothing but commas and "and" between
    them, which are one answer, and what is given as another one behind them. Boxes that say the
    same are one box."""
    response = EMPTY.sub(_unless_mentioned, BARE_BOX.sub(r"\\boxed{\1}", spoken(response)))
    marks, begun = _marks(response)
    if not marks or CUT.search(response[-NEARBY:]) or begun > marks[-1][0]:
        return Ending(())
    chosen: list[tuple[str, str]] = []
    spans: list[tuple[int, int]] = []
    follows: int | None = None
    retracted = retraction(response, *marks[-1])
    for start, end, body in reversed(marks):
        if follows is not None and not JOINED.fullmatch(response, end, follows):
            break
        follows = start
        if not body.strip():
            break
        name = NAME.search(response, max(0, start - 20), start)
        within = ending(body)  # <answer>\boxed{4}</answer>
        spans.append((start, end))
        retracted = retracted or within.retracted
        chosen += within.boxes[::-1] or [(name[0] if name else "", BLANK.sub("", body).strip())]
    if len({body for _, body in chosen}) == 1:
        chosen = chosen[:1]
    if len(spans) == 1 and len(chosen) == 1 and BOX.match(response, spans[0][0]):
        whole = in_its_formula(response, *spans[0], chosen[0][1])
        if whole is None:
            retracted = retracted or PART
        chosen = [(chosen[0][0], whole or chosen[0][1])]
    behind: tuple[tuple[str, ...], ...] = ()
    rest = response[marks[-1][1] :]
    if chosen and not retracted:
        given = numbers_behind(rest, chosen[0][1])
        bodies = {body for _, body in chosen}
        behind = tuple(ways for ways in given if not bodies & {*ways})
    return Ending(tuple(chosen[::-1]), retracted if chosen else "", behind, rest)


def retraction(response: str, start: int, end: int, body: str) -> str:
    """Returns the words that take a box back, which stands there in a response; or nothing. They
    are a clause right behind the box, or one after a second thought, or after a remark about what
    the box holds."""
    behind, number = response[end : end + NEARBY], body.strip().removeprefix("-")
    for clause in CLAUSE.finditer(behind):
        taken_back = DOUBTED_BACK if behind[clause.end() :][:1] in ("?", "？") else TAKEN_BACK
        words, between = taken_back.match(clause[0]), behind[: clause.start()]
        numbers = NUMERAL.findall(between)
        about = number in numbers if NUMERAL.fullmatch(number) else bool(numbers)
        if words is None or (NEGATIVE.fullmatch(body) and DENIAL.search(words[0])):
            continue
        if about or not re.search(r"\w", between) or SECOND_THOUGHT.search(between):
            return f"taken back by {' '.join(words[0].split())!r}"
    before = OR_NOT.sub(" ", response[max(0, start - 30) : start])
    denied = DENIED.search(before)
    return f"taken back by {' '.join(denied[0].split())!r}" if denied else ""


def without_unseen(text: str) -> str:
    """Returns a text without the marks that nobody sees and that say nothing."""
    return text.translate(UNSEEN)


def spoken(response: str) -> str:
    """Returns a response without the thinking before it, and without marks that nobody sees or
    that end it; thinking that never ended is no answer."""
    response = without_unseen(response)
    for _ in range(MOST_MARKS):
        mark = END_MARK.search(response.rstrip()[-50:])
        if mark is None:
            break
        response = response.rstrip()[: -len(mark[0])]
    ends = [match.end() for match in THOUGHT.finditer(response)]
    after = response[ends[-1] :] if ends else response
    return "" if THINKING.search(after) else after


def bare(text: str) -> str:
    """Returns a bare answer as a response: boxed, unless it has a box or a tag. Where words
    surround mathematics (`so $x = 5$.`) the last of it is the answer, with what is joined to it
    (`5 or 6`) and without what is denied (`5, not 6`) or stands in brackets (`5 (see page 12)`)."""
    text = spoken(text)
    if extract(text) is not None or BEGUN.search(text):
        return text
    between = re.sub(rf"\\\w+|{JOINT}", " ", MATHS.sub(" ", text))
    worded = re.match(r".*\s", between, re.DOTALL)
    if worded is not None and re.search(r"[^\W\d_]{2}|[^\W\d_]:\s", worded[0]):
        tail = AFTERWARDS.split(FINAL.split(text)[-1])[0]
        text = _last_given(ASIDE.sub(" ", tail)) or _last_given(tail) or text
    return f"\\boxed{{{text}}}"


def _last_given(tail: str) -> str:
    """Returns the last mathematics in a text, with what is joined to it; nothing where there is
    none that is not denied."""
    given = [
        match
        for match in GIVEN.finditer(tail)
        if not DENIED.search(tail, max(0, match.start() - 30), match.start())
    ]
    if not given:
        return ""
    first = last = given.pop()
    while given and _is_joint(tail[given[-1].end() : first.start()], listed=first is not last):
        first = given.pop()
    alone = first is last
    return next(filter(None, last.groups())) if alone else tail[first.start() : last.end()]


def _is_joint(between: str, *, listed: bool) -> bool:
    """Whether what stands between two makes one answer of them: a word, or a comma before others
    that are `listed` with one."""
    if listed and between.strip() in (",", "、", "，"):
        return True
    return bool(JOINED.fullmatch(between) and re.search(JOINT, between))


def _unless_mentioned(match: re.Match[str]) -> str:
    before = MENTIONED.search(match.string, max(0, match.start() - 20), match.start())
    return " " if before else match[0]


def _marks(text: str) -> tuple[list[tuple[int, int, str]], int]:
    """Returns every box and every answer tag that is closed, in order: where it begins and ends,
    and its body. Also where the last one was begun that is not closed, or -1."""
    tags = [(*match.span(), match[1]) for match in TAG.finditer(text)]
    outside = TAG.sub(lambda match: " " * len(match[0]), text)
    boxes, unended = _boxes(outside)
    own = [box for box in boxes if unended < 0 or box[0] < unended]
    marks = sorted([*own, *tags, (len(text), len(text), "")])
    apart = [mark for mark, after in pairwise(marks) if after[0] >= mark[1]]
    return apart, max(unended, outside.lower().rfind("<answer>"))


def _boxes(text: str) -> tuple[list[tuple[int, int, str]], int]:
    """Returns every `\\boxed{…}` that is closed: where it begins and ends, and its body; and where
    the last one was begun that is not closed, or -1.

    A box in a box is part of its body: `\\boxed{\\boxed{7} + 1}` holds 7 + 1. Where an outer one
    holds boxes alone, these count. One pass over the braces, so that a long malformed text takes no
    longer.
    """
    boxes: list[tuple[int, int, str]] = []
    opened: list[int] = []
    starts = {m.end() - 1: m.start() for m in BOX.finditer(text)}
    for match in re.finditer(r"[{}]", text):
        at = match.start()
        if match[0] == "{":
            opened.append(at)
        elif opened and (begin := opened.pop()) in starts:
            first = bisect_left(boxes, (begin,))
            body = _unboxed(text, begin + 1, at, boxes[first:])
            if body is not None:
                boxes[first:] = [(starts[begin], at + 1, body)]
    unended = [starts[begin] for begin in opened if begin in starts]
    return boxes, max(unended, default=-1)


def _unboxed(text: str, at: int, end: int, inner: list[tuple[int, int, str]]) -> str | None:
    """Returns the body of a box without the boxes in it; None where it holds nothing else."""
    pieces = []
    for start, stop, body in inner:
        pieces += [text[at:start], body]
        at = stop
    pieces.append(text[at:end])
    only_boxes = inner and all(map(JOINED.fullmatch, pieces[::2]))
    return None if only_boxes else "".join(pieces)
