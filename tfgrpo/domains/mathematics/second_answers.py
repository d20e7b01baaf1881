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
JOINED = re.compile(rf"[\s$*_)\].,;}}\\-]*[(]?\s*{OR}[\s,:*_]+", re.IGNORECASE)
"""What joins another answer to a box right behind it."""
JOINT = rf"(?:{'|'.join(joint.pattern for joint, _ in JOINTS[:2])}|\b(?:and|or|[oye])\b)"
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
FORMULA = re.compile(r"\s*(?:\$\$(.+?)\$\$|\\\[(.+?)\\\])", re.DOTALL)
"""A formula of its own, which may have several lines."""
CLAUSE_END = re.compile(
    rf"[.!?](?=[\s*_)\"'”»]|\Z)|[\n。！？；]|[;:](?=\s)|[,，](?=\s*(?!{JOINT})[^\W\d_]{{2}})"
    rf"|\s[(（](?=[^()\n]*[^\W\d_]{{2}})|\s[-–—]+\s+(?=[^\W\d_]{{2}})|{any_of('denied')}",
    re.IGNORECASE,
)
"""What ends the clause that says an answer."""
ABOUT = re.compile(
    rf"[\s,(]*(?:≈|≃|\\(?:approx|simeq)(?![a-zA-Z])|(?:{OR}\s*)?{any_of('about')})", re.I
)
"""What stands before an approximation of the answer."""
DELIMITERS = re.compile(r"(?<!\\)\$|\\[()\[\]]|\*\*|[*_`]+\Z")
RELATION = re.compile(r"[<>≤≥≠]|\\(?:leq?|geq?|neq?|lt|gt)(?![a-zA-Z])")
STARTS = re.compile(r"[-−+±]?\s*(?:\d|\\[a-zA-Z{]|[.(\[{√]|[a-zA-Z](?:_\w+|\([a-z]\))?\s*=)")
"""What a number or a formula begins with, or a name before it."""
LAST_SIDE = re.compile(r".*=(?!=)", re.DOTALL)
PROSE = re.compile(r"(?<!\\)(?<![^\W\d_])[^\W\d_]{2,}")
FEW = 2
"""Words behind a number that say what it counts."""
BETWEEN = re.compile(rf"\\\\[a-zA-Z]+|{JOINT}", re.IGNORECASE)
"""Commands, and what joins the parts of a list."""
NUMBERS = re.compile(r"\d+(?:[.,]\d+)*")
DENIED = re.compile(rf"\W*{any_of('denied')}", re.IGNORECASE)
FAR = 2_000
"""How far behind an answer, in characters, another one is looked for."""


def texts_behind(text: str) -> Iterator[str]:
    """Yields the texts that are given as answers behind an answer, each to the end of its line. One
    that is denied is none."""
    text = text[:FAR]
    joined = JOINED.match(text)
    for at in (joined.end() if joined else None, *(m.end() for m in DECLARED.finditer(text))):
        line = text[at:].partition("\n")[0].strip() if at is not None else ""
        if line and not DENIED.match(line):
            yield line


def numbers_behind(text: str, answer: str) -> Iterator[tuple[str, ...]]:
    """Yields the numbers and formulas that are given behind a box that holds an answer, each in the
    ways to read it. They are of its kind: numbers where it has digits."""
    if not re.search(r"\d", answer):
        return
    text = text[:FAR]
    joined = JOINED.match(text)
    starts = [joined.end()] if joined and not ABOUT.match(text, joined.end()) else []
    starts = [match.end() for match in (MAYBE.match(text, at) for at in starts) if match]
    starts += [match.end() for match in DECLARED.finditer(text)]
    for at in dict.fromkeys(starts):
        if ways := _ways(text[at:]):
            yield ways
    for match in THOUGHT_AGAIN.finditer(text):
        given = GIVEN.match(text, match.end())
        if given is not None and ENDED.match(text, given.end()):
            body = next(filter(None, given.groups())).strip()
            if re.search(r"\d", body) and not RELATION.search(body) and "=" not in body:
                yield (body,)


def _ways(text: str) -> tuple[str, ...]:
    """Returns the ways to read the number or the formula that a text begins with: its clause, the
    last side of an equation, and a number without the words of what it counts. Nothing where it
    begins with none, or where words join its numbers."""
    formula = FORMULA.match(text)
    clause = next(filter(None, formula.groups())) if formula else _clause(text)
    value = ABOUT.split(clause, maxsplit=1)[0].strip(" ,$*_\n.")
    if not STARTS.match(value) or not re.search(r"\d", value) or RELATION.search(value):
        return ()
    words = PROSE.findall(BETWEEN.sub(" ", value))
    number = GIVEN.match(value)
    rest = value[number.end() :] if number else ""
    if len(words) > (0 if len(NUMBERS.findall(value)) > 1 else FEW):
        return ()
    ways = [value]
    if "=" in value:
        ways.append(LAST_SIDE.sub("", value).strip())
    if number and words and not re.search(r"[\d=+*/^(\\]", rest):
        ways.append(number[0].strip())
    return tuple(filter(None, dict.fromkeys(ways)))


def _clause(text: str) -> str:
    end = CLAUSE_END.search(text)
    clause = DELIMITERS.sub("", text[: end.start()] if end else text)
    depth = 0
    for at, letter in enumerate(clause):
        depth += (letter == "(") - (letter == ")")
        if depth < 0 and letter == ")" and not re.search(r"[\[\]]", clause[:at]):
            return clause[:at]
    return clause
