"""How two texts differ word by word, in a time that hostile texts cannot stretch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

Piece: TypeAlias = tuple[Literal["kept", "removed", "added"], str]
"""Words that stand together, and what became of them."""

SMALL = 40_000
"""Up to this product of lengths, in words, runs of words are matched longest first."""
MIDDLE = 4_000_000
"""Up to this product a longest common subsequence is found at once."""
LARGE = 400_000_000
"""Up to this sum of products they are found between anchors, which takes up to a second."""

MANY = 1000
"""Words that are compared at once, where two texts begin or end alike."""


class Hunk(NamedTuple):
    """Words of the old text, [start, end), and the words of the new one that stand for them."""

    start: int
    end: int
    new_start: int
    new_end: int


def hunks(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """Where two lists of words differ, in order.

    Short ones are compared by `difflib`, longer ones by `rapidfuzz`. Long ones are first taken
    apart at the words that each has once, in common order (Bram Cohen's patience diff); what lies
    between is compared while that is soon done, and else is one hunk.
    """
    changes: list[Hunk] = []
    left = LARGE
    parts = [Hunk(0, len(old), 0, len(new))]  # those still to be compared, the first one last
    while parts:
        part = _trimmed(old, new, parts.pop())
        start, end, new_start, new_end = part
        size = (end - start) * (new_end - new_start)
        if not size:
            changes += [part] if end > start or new_end > new_start else []
        elif size <= MIDDLE and size <= left:
            if size <= SMALL and LARGE - left <= MIDDLE:
                changes += _longest_first(old, new, part)
            else:
                changes += _subsequence(old, new, part)
            left -= size
        else:
            between = list(_between_anchors(old, new, part))
            if len(between) > 1 and max(map(_length, between)) <= _length(part) / 2:
                parts += between[::-1]
            elif size <= left:
                changes += _subsequence(old, new, part)
                left -= size
            elif len(between) > 1:
                for inner in between:
                    inner = _trimmed(old, new, inner)
                    changes += [inner] if _length(inner) else []
            else:
                changes.append(part)
    return changes


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


def _length(part: Hunk) -> int:
    return part.end - part.start + part.new_end - part.new_start


def _trimmed(old: Sequence[str], new: Sequence[str], part: Hunk) -> Hunk:
    start, end, new_start, new_end = part
    most = min(end - start, new_end - new_start)
    while most >= MANY and old[start : start + MANY] == new[new_start : new_start + MANY]:
        start, new_start, most = start + MANY, new_start + MANY, most - MANY
    while most >= MANY and old[end - MANY : end] == new[new_end - MANY : new_end]:
        end, new_end, most = end - MANY, new_end - MANY, most - MANY
    while start < end and new_start < new_end and old[start] == new[new_start]:
        start += 1
        new_start += 1
    while start < end and new_start < new_end and old[end - 1] == new[new_end - 1]:
        end -= 1
        new_end -= 1
    return Hunk(start, end, new_start, new_end)


def _longest_first(old: Sequence[str], new: Sequence[str], part: Hunk) -> Iterator[Hunk]:
    import difflib

    start, end, new_start, new_end = part
    a, b = old[start:end], new[new_start:new_end]
    for kind, i, j, k, m in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            yield Hunk(start + i, start + j, new_start + k, new_start + m)


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


def _between_anchors(old: Sequence[str], new: Sequence[str], part: Hunk) -> Iterator[Hunk]:
    """The parts around the words that both sides have once, in the same order."""
    start, end, new_start, new_end = part
    here, there = _once(old, start, end), _once(new, new_start, new_end)
    common = [word for word in here if word in there]
    new_places = [there[word] for word in common]
    chosen = rising(new_places)
    for number in chosen:
        i, k = here[common[number]], new_places[number]
        if (i > start or k > new_start) and old[start:i] != new[new_start:k]:
            yield Hunk(start, i, new_start, k)
        start, new_start = i + 1, k + 1
    yield Hunk(start, end, new_start, new_end)


def _once(words: Sequence[str], start: int, end: int) -> dict[str, int]:
    """Word → place, in order, of the words that occur once from `start` to `end`."""
    part = words[start:end]
    places = dict(zip(part, range(start, end), strict=True))  # of each the last place
    if len(places) == len(part):
        return places
    seen: set[str] = set()
    again: set[str] = set()
    for word in part:
        (again if word in seen else seen).add(word)
    return {word: at for word, at in places.items() if word not in again}


def rising(numbers: Sequence[int]) -> Sequence[int]:
    """The places of a longest choice of numbers that rise (patience sorting)."""
    if numbers == sorted(numbers):
        return range(len(numbers))
    ends: list[int] = []  # the lowest number in which a choice of each length can end
    last: list[int] = []  # and its place
    before: list[int] = []
    for place, number in enumerate(numbers):
        length = bisect_left(ends, number)
        before.append(last[length - 1] if length else -1)
        if length == len(ends):
            ends.append(number)
            last.append(place)
        else:
            ends[length], last[length] = number, place
    chosen: list[int] = []
    place = last[-1] if last else -1
    while place >= 0:
        chosen.append(place)
        place = before[place]
    return chosen[::-1]
