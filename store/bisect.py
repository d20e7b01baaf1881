"""Halving a history: which version to try next to find the first bad one.

Pure. A history is a function from a version's number to its parents' numbers, which are lower.
Whatever is bad in a version is bad in every version that descends from it; so the first bad one
is an ancestor of any bad version and no ancestor of a good one. Merges count: what a try can
tell is how many suspects it has among its ancestors, as `git bisect` counts them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from tfgrpo.store.history import Parents, ancestor_numbers


def suspects(parents: Parents, bad: int, good: Iterable[int]) -> list[int]:
    """Returns the versions that may be the first bad one, ascending; `bad` is the last of them.

    Reads no more of the history than lies above the good versions' common past. Empty when `bad`
    is a good version or an ancestor of one.
    """
    return list(ancestor_numbers(parents, [bad], good))[::-1]


def reach(parents: Parents, among: Sequence[int]) -> dict[int, int]:
    """Returns, for each of some versions (ascending), how many of them it has in its history,
    itself included."""
    inside = set(among)
    counts: dict[int, int] = {}
    for number in among:
        before = [p for p in parents(number) if p in inside]
        if len(before) < 2:
            counts[number] = 1 + sum(counts[p] for p in before)
            continue
        most = max(before, key=lambda p: counts[p])  # and what only the others have
        others = ancestor_numbers(parents, [p for p in before if p != most], [most])
        counts[number] = 1 + counts[most] + sum(ancestor in inside for ancestor in others)
    return counts


def choose(parents: Parents, among: Sequence[int], untried: Collection[int]) -> int | None:
    """Returns which of `untried` halves the suspects best, the newest of several; None if none.

    `among` are the suspects, ascending; the last is known to be bad and is never chosen.
    """
    counts = reach(parents, among)
    total = len(among)
    able = [n for n in among[:-1] if n in untried]
    return max(able, key=lambda n: (min(counts[n], total - counts[n]), n), default=None)
