"""How two texts differ word by word, in a time that hostile texts cannot stretch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Piece: TypeAlias = tuple[Literal["kept", "removed", "added"], str]
"""Words that stand together, and what became of them."""

SMALL = 40_000
"""Up to this product of lengths, in words, runs of words are matched longest first."""
LARGE = 400_000_000
"""Up to this product a longest common subsequence is found, which takes up to a second."""


class Hunk(NamedTuple):
    """Words of the old text, [start, end), and the words of the new one that stand for them."""

    start: int
    end: int
    new_start: int
    new_end: int


def hunks(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Returns where two lists of words differ, in order.

    Short ones are compared by `difflib`, whose longest runs read best, and whose time can grow
    with the cube of the length; longer ones by `rapidfuzz`, with the product of the lengths over
    64; the longest are one hunk between the words that both begin and end with.
    """
    start, end = _common(old, new)
    a, b = old[start : len(old) - end], new[start : len(new) - end]
    size = len(a) * len(b)
    if not size:
        inside = [(0, len(a), 0, len(b))] if a or b else []
    elif size <= SMALL:
        import difflib

        matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
        inside = [(i, j, k, m) for kind, i, j, k, m in matcher.get_opcodes() if kind != "equal"]
    elif size <= LARGE:
        from rapidfuzz.distance import LCSseq

        inside = []
        for step in LCSseq.opcodes(a, b):
            if step.tag == "equal":
                continue
            i, j, k, m = step.src_start, step.src_end, step.dest_start, step.dest_end
            if inside and inside[-1][1] == i and inside[-1][3] == k:  # taken out and put in
                i, k = inside[-1][0], inside.pop()[2]
            inside.append((i, j, k, m))
    else:
        inside = [(0, len(a), 0, len(b))]
    return [Hunk(start + i, start + j, start + k, start + m) for i, j, k, m in inside]


def pieces(before: str, after: str) -> list[Piece]:
    """Returns two texts as one line of words: what was kept, taken out and put in, in order."""
    old, new = before.split(), after.split()
    line: list[Piece] = []
    at = 0
    for start, end, new_start, new_end in hunks(old, new):
        line.append(("kept", " ".join(old[at:start])))
        line.append(("removed", " ".join(old[start:end])))
        line.append(("added", " ".join(new[new_start:new_end])))
        at = end
    line.append(("kept", " ".join(old[at:])))
    return [piece for piece in line if piece[1]]


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Returns how many words both begin with, and how many of the rest both end with."""
    most = min(len(old), len(new))
    start = next((n for n in range(most) if old[n] != new[n]), most)
    most -= start
    end = next((n for n in range(most) if old[-1 - n] != new[-1 - n]), most)
    return start, end
