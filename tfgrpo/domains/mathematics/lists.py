"""Answers that are several: lists however they are joined, solutions of systems, unions.

`1, 2`, `1; 2`, `1 and 2`, `1 \\text{ or } 2` are one list, in any order; what stands in one
bracket keeps its order. A sentence is no list: where words are left beside the joints nothing is
read as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from tfgrpo.domains.mathematics.numerals import GROUPED, ungrouped

JOINT = re.compile(
    r"(?P<open>\\\{|[([{])|(?P<close>\\\}|[)\]}])"
    r"|(?P<word>(?:\\q?quad|\\[ ,;:!]|[\s~,]){0,8}"
    r"(?:\\(?:text|mathrm|textrm|mbox|textbf)\s*\{[\s~,]*(?P<said>and|or)[\s~,]*\}"
    r"|(?<![a-zA-Z\\])(?P<bare>and|or)(?![a-zA-Z]))(?:\\q?quad|\\[ ,;:!]|[\s~]){0,8})"
    r"|(?<!\\)(?:(?P<comma>,)|(?P<semicolon>;))"
)
WITHOUT_COMMAS = ("word", "semicolon")
JOINTS = (*WITHOUT_COMMAS, "comma")
PROSE = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z]{3,}")
"""Words that are no command and no product of two symbols."""
NUMBER = re.compile(rf"\s*[+-]?{GROUPED}(?:\.\d+)?\s*\Z")
BRACKETED = re.compile(r"(?<![a-zA-Z])[(\[][^()\[\]{},;]*(?:;[^()\[\]{},;]*)+[)\]]")
EQUATION = re.compile(r"\s*\\?([a-zA-Z]+(?:_\{?\w+\}?)?)\s*=(?!=)\s*(.+?)\s*\Z", re.DOTALL)
CASES = re.compile(
    r"\s*(?:[a-zA-Z](?:\([a-z]\))?\s*=)?\s*\\begin\{cases\}(.*?)\\end\{cases\}\s*\Z", re.DOTALL
)
CONDITION_WORDS = re.compile(
    r"\\(?:text|mathrm|mbox|textrm)\s*\{[^{}]*\}|(?<![a-zA-Z\\])[a-zA-Z]{2,}(?![a-zA-Z])"
)
"""Words of a condition."""
POINT = re.compile(r"\s*(?:\\left\s*)?(?:\(([^()\[\]]+)\)|\[([^()\[\]]+)\])\s*\Z")
BRACKET = re.compile(r"[()\[\]]|\\\{")
RELATION = re.compile(r"[<>≤≥≠]|\\(?:leq?|geq?|lt|gt|neq?|cup|cap)(?![a-zA-Z])")


T = TypeVar("T")


class Case(NamedTuple):
    """A value, the relation under which it holds, if it is one, and all that is said of when."""

    value: str
    condition: str
    words: list[str]


def parts(text: str, joints: Collection[str] = JOINTS) -> list[tuple[str, str]]:
    """Returns what stands between the joints outside of every bracket, and the joint before it. The
    first has none; the others comma, semicolon, "and" or "or". What is none of `joints` stays."""
    pieces: list[tuple[str, str]] = []
    depth, start, joint = 0, 0, ""
    for match in JOINT.finditer(text):
        kind = match.lastgroup or ""
        depth += bool(match["open"]) - bool(match["close"])
        if depth == 0 and kind in joints:
            pieces.append((joint, text[start : match.start()]))
            start, joint = match.end(), match["said"] or match["bare"] or kind
    return [*pieces, (joint, text[start:])]


def with_commas(text: str) -> str:
    """Returns a list with nothing but commas between its parts; any other text as it is."""
    text = brackets_with_commas(text)
    pieces = [part for _, part in parts(text, WITHOUT_COMMAS)]
    if len(pieces) < 2 or any(not part.strip() or PROSE.search(part) for part in pieces):
        spaced = re.split(r",\s+", text)
        return ungrouped(text) if spaced[1:] and all(map(NUMBER.match, spaced)) else text
    whole = [part.replace(",", "") if NUMBER.match(part) else part.strip("$ ") for part in pieces]
    return ", ".join(whole)


def brackets_with_commas(text: str) -> str:
    """Returns a text with commas where semicolons stand inside one bracket: `(2; 3)`."""
    return BRACKETED.sub(lambda match: match[0].replace(";", ","), text)


def as_point(answer: str, gold: str) -> str:
    """Returns a list without brackets, `1, 2`, as a point where the ground truth is one of as many
    values, `(1, 2)`; any other answer as it is."""
    point, values = POINT.match(gold.replace("\\right", "")), elements(answer)
    bare = not BRACKET.search(answer) and not RELATION.search(answer) and "=" not in answer
    if not point or not bare or not 1 < len(values) == len(elements(point[1] or point[2])):
        return answer
    return f"({', '.join(values)})" if point[1] else f"[{', '.join(values)}]"


def system(text: str) -> list[dict[str, str]]:
    """Returns the solutions of a system: `p=5, q=2; p=7, q=2` are two of two names each. Nothing
    for what is not several solutions that name the same two or more unknowns."""
    solutions = _solutions(text)
    return solutions if len(solutions) > 1 else []


def named_values(text: str) -> list[str]:
    """Returns the values of two or more unknowns in the order in which they are named, `x=1, y=2`;
    nothing for any other text."""
    solutions = _solutions(text)
    return list(solutions[0].values()) if len(solutions) == 1 else []


def _solutions(text: str) -> list[dict[str, str]]:
    solutions: list[dict[str, str]] = [{}]
    for _, part in parts(text):
        match = EQUATION.match(part.strip("$ "))
        if match is None or PROSE.search(match[1]):
            return []
        name, value = match.groups()
        if name in solutions[-1]:
            solutions.append({})
        solutions[-1][name] = value
    names = set(solutions[0])
    alike = all(set(solution) == names for solution in solutions)
    return solutions if alike and len(names) > 1 else []


def elements(text: str) -> list[str]:
    """Returns the parts of a list; one part for any other text."""
    return [part.strip("$ ") for _, part in parts(with_commas(text), ("comma",))]


def groups(text: str) -> list[str]:
    """Returns the parts of a list of lists, `1, 2; 3, 4`; nothing for any other text."""
    pieces = [part.strip("$ ") for _, part in parts(text, ("semicolon",))]
    inner = any(len(parts(part, ("comma",))) > 1 and not NUMBER.match(part) for part in pieces)
    return pieces if len(pieces) > 1 and inner and all(pieces) else []


def cases(text: str) -> list[Case]:
    """Returns a function that is defined case by case; nothing for any other text."""
    match = CASES.match(text)
    rows = [row.split("&") for row in match[1].split(r"\\") if row.strip()] if match else []
    if not rows or any(len(row) != 2 for row in rows):
        return []
    related = [RELATION.search(condition) or "=" in condition for _, condition in rows]
    return [
        Case(
            value.strip(" ,\n"),
            CONDITION_WORDS.sub("", when).strip(" ,.\n") if there else "",
            when.split(),
        )
        for (value, when), there in zip(rows, related, strict=True)
    ]


def matched(want: Sequence[T], have: Sequence[T], same: Callable[[T, T], bool]) -> bool:
    """Whether each that is wanted is the same as one that is there, and none is left over."""
    left = list(have)
    for one in want:
        match = next((index for index, other in enumerate(left) if same(one, other)), None)
        if match is None:
            return False
        del left[match]
    return not left


def tuples(solutions: list[dict[str, str]]) -> str:
    """Returns the solutions of a system as points: `(5, 2), (7, 2)`."""
    return ", ".join(f"({', '.join(solution.values())})" for solution in solutions)
