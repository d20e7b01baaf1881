"""Formulas that are compared letter by letter: a parser would read another thing.

It multiplies in any order, and works out what it may not know. Of these the order counts, or
nothing is known.
"""

from __future__ import annotations

import re

from tfgrpo.domains.mathematics.parsing import COMMAND_TEXT, READ

VECTOR = (
    r"\\(?:(?:vec|overrightarrow|hat|mathbf|boldsymbol|bm)\s*(?:\{[^{}]*\}|[a-zA-Z])|nabla)"
    r"(?:_(?:\w|\{[^{}]*\}))?"
)
LITERAL = re.compile(
    r"\\(?:angle|measuredangle|triangle|overrightarrow\{\s*[A-Z]{2}|widehat)(?![a-zA-Z])|[∠△]"
    rf"|{VECTOR}\s*\\times(?![a-zA-Z])|[)}}\]a-zA-Z]\s*\\times\s*{VECTOR}"
    r"|\\nabla\s*\\cdot(?![a-zA-Z])|(?<![a-zA-Z\\])[A-Z]\s*\\times\s*[A-Z](?![a-zA-Z])"
    r"|(?:\\|\{\s*)(?:gcd|lcm)(?![a-zA-Z])\s*\}?\s*(?:\\left\s*)?\((?=[^()]*[a-zA-Z])"
    r"|(?:(?<![a-zA-Z\\])[A-Z]|\\mathbb\s*\{?[A-Z]\}?)\s*(?:\\left\s*)?\[(?=[^\]]*[a-zA-Z])"
    r"|\A\s*\([aA1i]\)\s.*\([bB2]\)\s|\A[a-zA-Z]+\d+(?:[\s-]+[a-zA-Z]+\d+)+\Z"
)
"""What a parser would read as a product, or reckon with though nothing is known of it: figures,
a product of vectors or of sets, divisors of symbols, a mean E[X], parts of an answer, moves."""
INVERSE = r"\^\s*\{?\s*(?:-\s*1|T|\\top|\\intercal|H)\s*\}?"
MATRICES = re.compile(
    rf"(?<![a-zA-Z\\])(?:[A-Z]|\([A-Z^{{}}\s]+\))\s*{INVERSE}\s*(?:\\cdot\s*)?[A-Za-z(]"
    rf"|(?<![a-zA-Z\\])[A-Z]\s*(?:\\cdot\s*)?[A-Z]\s*{INVERSE}|\([A-Z]{{2,}}\)\s*{INVERSE}"
    r"|\\(?:mathbf|boldsymbol|bm)\s*\{?[A-Z]\}?\s*\\(?:mathbf|boldsymbol|bm)\s*\{?[A-Z]"
)
"""A product of matrices, whose order counts."""
AMONG = re.compile(r"(?<=\d)\s+([a-zA-Z]{2,})(?=\s+-?\d)")
"""A word between two numbers: `3 to 5`."""


def literal(text: str) -> bool:
    """Whether a text is compared letter by letter, because a parser would read it wrongly."""
    among = (READ.fullmatch(match[1]) for match in AMONG.finditer(text))
    matrices = MATRICES.search(COMMAND_TEXT.sub(" ", text))
    return bool(LITERAL.search(text) or matrices) or not all(among)
