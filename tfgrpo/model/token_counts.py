"""How many tokens a text has, more or less, for any model (`docs/costs.md` compares it).

Today's byte-pair encodings cut text alike before they merge. Here a word is one token for every
seven letters, a number one for every three digits, a run of marks one for every two, and a
character of a script without blanks one.
"""

from __future__ import annotations

import re

PIECE = re.compile(
    r"(?P<dense>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff])"
    r"|(?P<word>[^\W\d_\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+)"
    r"|(?P<number>\d+)|(?P<marks>[^\w\s]+|_+)|(?P<lines>\s*\n\s*)"
)
SIZE = {"dense": 1, "word": 7, "number": 3, "marks": 2, "lines": 10_000}


def count(text: str) -> int:
    """The number of tokens of a text, as an estimate."""
    tokens = 0
    for match in PIECE.finditer(text):
        kind = match.lastgroup
        assert kind is not None
        tokens += -(-len(match[0]) // SIZE[kind])
    return tokens
