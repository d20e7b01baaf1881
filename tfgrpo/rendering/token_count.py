"""Tokens of a text without a tokenizer (`docs/costs.md`)."""

from __future__ import annotations

import re

COUNTED = 1_000_000
"""Characters of a text whose tokens are counted one by one; the rest is taken to be alike."""
PIECE = re.compile(
    r"(?P<dense>[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff])"
    r"|(?P<word>[^\W\d_\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]+)"
    r"|(?P<number>\d+)|(?P<marks>[^\w\s]+|_+)|(?P<lines>\s*\n\s*)"
)
LETTERS = {"dense": 1, "word": 7, "number": 3, "marks": 2, "lines": 10_000}
"""How many characters of a piece are a token. Today's byte-pair encodings cut text so before they
merge; scripts without blanks have a token for each character."""


def count_tokens(text: str) -> int:
    """About how many tokens a text has for any model, however long it is (`docs/costs.md`)."""
    tokens = 0
    for match in PIECE.finditer(text[:COUNTED]):
        kind = match.lastgroup
        assert kind is not None
        tokens += -(-len(match[0]) // LETTERS[kind])
    return tokens if len(text) <= COUNTED else round(tokens * len(text) / COUNTED)
