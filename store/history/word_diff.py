"""How two texts differ word by word, in a time that hostile texts cannot stretch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Piece: TypeAlias = tuple[Literal["kept", "removed", "added"], str]
"""Words that stand together, and what became of them."""

SMALL = 40_000
"""Up to this product of lengths, in words, runs of words are matched longest first."""
LARGE = 1_000_000_000
"""Up to this product a longest common subsequence is found, which takes up to a second."""


class Hunk(NamedTuple):
    """Words of the old text, [start, end), and the words of the new one that stand for them."""

    start: int
    end: int
    new_start: int
    new_end: int


def hunks(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Where two lists of words differ, in order.

    Short ones are compared by `difflib`, longer ones by `rapidfuzz`. What is longer still is one
    hunk, but for the words with which both begin and end.
    """
    part = _trimmed(old, new)
    start, end, new_start, new_end = part
    size = (end - start) * (new_end - new_start)
    if not size or size > LARGE:
        return [part] if end > start or new_end > new_start else []
    return (_longest_first if size <= SMALL else _subsequence)(old, new, part)


def pieces(before: str, after: str) -> list[Piece]:
    """Two texts as one line of words: what was kept, taken out and put in, in order."""
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


def _trimmed(old: Sequence[str], new: Sequence[str]) -> Hunk:
    most = min(len(old), len(new))
    apart = (number for number in range(most) if old[number] != new[number])
    start = next(apart, most)
    back = (number for number in range(most - start) if old[-1 - number] != new[-1 - number])
    behind = next(back, most - start)
    return Hunk(start, len(old) - behind, start, len(new) - behind)


def _longest_first(old: Sequence[str], new: Sequence[str], part: Hunk) -> list[Hunk]:
    import difflib

    start, end, new_start, new_end = part
    a, b = old[start:end], new[new_start:new_end]
    return [
        Hunk(start + i, start + j, new_start + k, new_start + m)
        for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
        if kind != "equal"
    ]


def _subsequence(old: Sequence[str], new: Sequence[str], part: Hunk) -> list[Hunk]:
    from rapidfuzz.distance import LCSseq

    start, end, new_start, new_end = part
    parts: list[Hunk] = []
    for step in LCSseq.opcodes(old[start:end], new[new_start:new_end]):
        if step.tag == "equal":
            continue
        i, j = start + step.src_start, start + step.src_end
        k, m = new_start + step.dest_start, new_start + step.dest_end
        if parts and parts[-1].end == i and parts[-1].new_end == k:  # taken out and put in
            i, _, k, _ = parts.pop()
        parts.append(Hunk(i, j, k, m))
    return parts
