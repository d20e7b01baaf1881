"""What a response gives behind its answer as another one.

A box is one answer, and so is a number or a text behind it that is joined to it (`or 59`), that is
declared (`The answer is 26.`) or that corrects it (`Correction: 26`). All that are given count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tfgrpo.domains.mathematics.doubt import any_of
from tfgrpo.domains.mathematics.notation import JOINTS
from tfgrpo.domains.mathematics.number_words import SIGNS, WORD
from tfgrpo.domains.mathematics.surroundings import MATHS

NUMBER = r"(?<![\w.,])-?(?:\d+,\d{1,2}|\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?)%?(?!\d|[.,/]\d)"
GIVEN = re.compile(
    MATHS.pattern + rf"|({NUMBER}(?:\s*(?:\b{WORD}|(?<!\w)[{SIGNS}])\.?)?)",
    re.DOTALL | re.IGNORECASE,
)
"""A formula, or a number with the word behind it that makes another one of it: `5 million`."""
ARROW = r"->|=>|→|⇒|—|[ \t][-–][ \t]+(?![\d.])"
"""What points to an answer. Before a number a dash may be its sign."""
LEAD = (
    rf"(?:(?:so|thus|therefore|hence),?\s+)?{any_of('answer')}[*_]*"
    rf"\s*(?:{any_of('be')}\s*[:：]?|[*_]*\s*(?:{ARROW}|[:：=]))\s*"
)
"""Words that say that an answer follows."""
HEADING = rf"(?:\n[#*_\s]{{0,12}}{any_of('answer')}[*_\s]*[:：]?[*_]*[ \t]*\n\s*)"
"""A line of its own that says so."""
THOUGHT = any_of("wait")
CLAUSE = r"(?:\A|[\n.:;!?,，。；：！？])[\s*#_>(-]{0,12}"
OR = rf"(?:{JOINTS[0][0].pattern}|\bor\b|\bo\b)"
JOINED = re.compile(rf"[\s$*_)\].,;}}\\-]*[(]?\s*{OR}\W+", re.IGNORECASE)
"""What joins another answer to a box right behind it."""
MAYBE = re.compile(rf"(?:(?!{OR})[^\W\d]+\s+)?[\s$(*]*", re.IGNORECASE)
"""A word before it: `or maybe 60`."""
DECLARED = re.compile(
    rf"(?:{CLAUSE}(?:{THOUGHT}\W+)?{LEAD}|{HEADING}|{CLAUSE}{THOUGHT}[*_\s]*[:：])[\s*_]*",
    re.IGNORECASE,
)
"""What declares another answer: a clause that begins as an answer does, or a correction."""
THOUGHT_AGAIN = re.compile(
    rf"{CLAUSE}{THOUGHT}\W+(?:(?!{any_of('denied')})[^\W\d]+['’]?[^\W\d]*\W+){{0,3}}?(?={GIVEN.pattern})",
    re.IGNORECASE | re.DOTALL,
)
"""A second thought before a number: `No, 81.`"""
ENDED = re.compile(r"[\s*_)$]*(?:\Z|[\n.!。！])")
EQUATION = re.compile(r"[<>≤≥≠]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])|=")
FAR = 2_000
"""How far behind an answer, in characters, another one is looked for."""


def texts_behind(text: str) -> Iterator[str]:
    """Yields the texts that are given as answers behind an answer, each to the end of its line."""
    text = text[:FAR]
    joined = JOINED.match(text)
    for at in (joined.end() if joined else None, *(m.end() for m in DECLARED.finditer(text))):
        line = text[at:].partition("\n")[0].strip() if at is not None else ""
        if line:
            yield line


def numbers_behind(text: str, answer: str) -> Iterator[str]:
    """Yields the numbers and formulas that are given behind a box that holds an answer. They are
    of its kind: numbers where it has digits."""
    if not re.search(r"\d", answer):
        return
    text = text[:FAR]
    joined = JOINED.match(text)
    starts = [joined.end()] if joined else []
    for match in filter(None, (MAYBE.match(text, at) for at in (*starts,))):
        starts.append(match.end())
    starts += [match.end() for match in DECLARED.finditer(text)]
    for match in THOUGHT_AGAIN.finditer(text):
        given = GIVEN.match(text, match.end())
        if given is not None and ENDED.match(text, given.end()):
            starts.append(match.end())
    for at in dict.fromkeys(starts):
        given = GIVEN.match(text[at:])
        body = next(filter(None, given.groups()), "") if given is not None else ""
        if re.search(r"\d", body) and not EQUATION.search(body):
            yield body.strip()
