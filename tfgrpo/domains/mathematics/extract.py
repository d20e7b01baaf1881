"""From a response to the answer it gives: extraction, before anything is compared.

What counts is the last `\\boxed{…}` or `<answer>…</answer>`, whichever stands last; a number that
is merely mentioned earns nothing. What a model thought (`<think>…</think>`, `[THINK]…[/THINK]`) is
no answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import NamedTuple

TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>|\[/THINK\]", re.IGNORECASE)
THINKING = re.compile(r"<(?:think|thinking|thought|reasoning)>|\[THINK\]", re.IGNORECASE)
"""How models mark what they think before they answer."""
MATHS = re.compile(
    r"\$\$(.+?)(?<!\\)\$\$|(?<!\\)\$(?!\d[\d,.]*\s+\w)(.+?)(?<!\\)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)",
    re.DOTALL,
)
BOX = re.compile(r"\\(?:boxed|fbox|framebox)\s*\{")
BEGUN = re.compile(BOX.pattern + "|<answer>", re.IGNORECASE)
CUT = re.compile(
    r"(?:\\(?:bo(?:x(?:ed?)?)?|f(?:rame)?b(?:ox?)?)|<an(?:s(?:w(?:er?)?)?)?)\s*\Z", re.IGNORECASE
)
"""The end of a response that was cut off within what begins an answer."""
BARE_BOX = re.compile(r"\\boxed\s+(-?\d+(?:\.\d+)?|[a-zA-Z])(?=\s*(?:[$.,]|\\[)\]]|\n|\Z))")
"""A box without braces around a number or a letter that is all of it: `$\\boxed 3$`."""
NUMBER = r"(?<![\w.,])-?(?:\d+,\d{1,2}|\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?)%?(?!\d|[.,/]\d)"
GIVEN = re.compile(MATHS.pattern + rf"|({NUMBER})", re.DOTALL)
FINAL = re.compile(r"final answer\W", re.IGNORECASE)
AFTERWARDS = re.compile(r"<\|im_|I hope it is correct")
"""The words between which the answer of a response in prose is looked for."""
NAMED = r"[a-zA-Z](?:_(?:\w|\{\w+\}))?\s*="
JOINED = re.compile(
    r"(?:\s+[a-z]+(?=\s+and\s))?"
    r"(?:[\s,;$~}]|\\[()\[\],;! ]|\\q?quad|\\text(?:bf|rm)?\s*\{|\band\b|\bor\b"
    rf"|\bfor\s+part\s*\(?[a-zA-Z1-9]\b\)?|{NAMED})*"
)
"""What may stand between boxes that together are one list: a name, a part, one word counted."""
NEARBY = 400
"""How far behind a box, in characters, words can take it back."""
NAME = re.compile(NAMED + r"\s*\Z")


RETRACTED = re.compile(
    r"\b(?:(?P<of>that|this|it|which)|the (?:answer|result)(?: above)?)(?:\s+(?:is|was)|'s)\s+"
    r"(?:wrong|incorrect|not\s+(?:right|correct|true|the\s+answer)|a\s+mistake)\b(?!\s+that\b)"
    r"|\A[\s$.,)\]]*(?:is|was)\s+(?:wrong|incorrect|not\b)"
    r"|\bi\s+(?:made\s+(?:a\s+mistake|an\s+error)|was\s+wrong|misread)\b|\bscratch\s+that\b"
    r"|\b(?:should|must)\s+(?:instead\s+)?(?:be|have\s+been)\s+[^.]{0,30}\binstead\b",
    re.IGNORECASE,
)
"""Words after the last box that take it back."""
NUMERAL = re.compile(r"\d+(?:\.\d+)?")
SECOND_THOUGHT = re.compile(
    r"\b(?:wait|hold on|hmm|actually|oops|sorry|check\w*|but|no)\b", re.IGNORECASE
)
"""Words by which what follows is about the answer, whatever numbers it names."""
NEGATED = re.compile(
    r"\b(?:is|are|was)\s*(?:not|n't)\s*(?:equal\s+to\s*)?[\s$:({\[\\]*\Z|\bisn't[\s$:({\[\\]*\Z",
    re.IGNORECASE,
)
"""Words before a box that deny it."""


class Ending(NamedTuple):
    """How a response ends: the boxes that are its answer, each with its name, if any. `retracted`
    says how the response takes its answer back, in words; else it is empty."""

    boxes: tuple[tuple[str, str], ...]
    retracted: str = ""

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
    """Returns the boxes that end a response with nothing but commas and "and" between them. They
    are one answer; those that say the same are one box. An answer tag that stands after them is the
    answer alone."""
    response = BARE_BOX.sub(r"\\boxed{\1}", spoken(response))
    tag = _tag(response)
    boxes, unended = _boxes(response)
    after = max([unended, *(end for _, end, _ in boxes[-1:])])
    if CUT.search(response[-NEARBY:]) or _is_begun(response, after, tag, unended):
        return Ending(())
    if tag is not None and (not boxes or tag[0] > boxes[-1][0]):
        body = tag[1].strip()
        within = ending(body)
        if within.boxes:  # <answer>\boxed{4}</answer>
            return within
        return Ending((("", body),)) if body else Ending(())
    chosen: list[tuple[str, str]] = []
    begun: int | None = None
    for start, end, body in reversed(boxes):
        if begun is not None and not JOINED.fullmatch(response, end, begun):
            break
        begun = start
        if not body.strip():
            break
        name = NAME.search(response, max(0, start - 20), start)
        chosen.insert(0, (name[0] if name else "", body.strip()))
    bodies = {body for _, body in chosen}
    if len(bodies) == 1:
        chosen = chosen[-1:]
    return Ending(tuple(chosen), retraction(response, *boxes[-1]) if chosen else "")


def retraction(response: str, start: int, end: int, body: str) -> str:
    """Returns the words that take a box back, which stands there in a response; or nothing. What is
    said of another number, in a remark without a second thought, takes nothing back."""
    behind, number = response[end : end + NEARBY], body.strip().removeprefix("-")
    for words in RETRACTED.finditer(behind):
        between = behind[: words.start()]
        others = NUMERAL.findall(between) if words["of"] and NUMERAL.fullmatch(number) else ()
        if not others or number in others or SECOND_THOUGHT.search(between):
            return f"taken back by {' '.join(words[0].split())!r}"
    denied = NEGATED.search(response[max(0, start - 30) : start])
    return f"taken back by {' '.join(denied[0].split())!r}" if denied else ""


def spoken(response: str) -> str:
    """Returns a response without the thinking before it; thinking that never ended is no answer."""
    ends = [match.end() for match in THOUGHT.finditer(response)]
    after = response[ends[-1] :] if ends else response
    return "" if THINKING.search(after) else after


def bare(text: str) -> str:
    """Returns a bare answer as a response: boxed, unless it has a box or a tag. Where words
    surround mathematics (`so $x = 5$.`) the last of it is the answer."""
    text = spoken(text)
    if extract(text) is not None or BEGUN.search(text):
        return text
    between = re.sub(r"\\\w+|\b(?:and|or)\b", " ", MATHS.sub(" ", text))
    if re.search(r"[^\W\d_]{2,}.*\s|[^\W\d_]:\s", between, re.DOTALL):
        tail = AFTERWARDS.split(FINAL.split(text)[-1])[0]
        given = [next(filter(None, groups)) for groups in GIVEN.findall(tail)]
        text = given[-1] if given else text
    return f"\\boxed{{{text}}}"


def _is_begun(text: str, after: int, tag: tuple[int, str] | None, unended: int) -> bool:
    """Whether the last answer was begun and not ended, as where a response was cut off. `after` is
    where the last box is over, `unended` where one was begun that never ended."""
    begun = text.lower().rfind("<answer>")
    if begun > text.lower().rfind("</answer>") and begun >= after:
        return True
    return unended >= 0 and (tag is None or unended > tag[0])


def _tag(text: str) -> tuple[int, str] | None:
    """Returns the last answer tag that is closed: where it begins, and its body."""
    begun: re.Match[str] | None = None
    last = None
    for match in TAG.finditer(text):
        if not match[1]:
            begun = match
        elif begun is not None:
            last, begun = (begun.start(), text[begun.end() : match.start()]), None
    return last


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
