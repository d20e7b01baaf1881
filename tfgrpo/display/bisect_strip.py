"""A search for the first bad version as a row of versions, each with what is known of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple, TypeAlias

from tfgrpo.store.history import bisect
from tfgrpo.store.history.bisect import BisectProgress, BisectSearch, Mark
from tfgrpo.store.history.walks import Parents, parents_reader
from tfgrpo.store.store import Store

StripState: TypeAlias = Literal["good", "bad", "first bad", "skip", "next", "open", "aside"]
MOST = 120
"""Versions that are shown one by one; of a longer range those of which nothing was said are
shown as stretches."""


class StripPart(NamedTuple):
    """A version, or a stretch alike: good, bad, `skip` (cannot be judged), `next` (to test),
    `open` (candidate), `aside` (no mark concerns it). `mark` is what was said."""

    first: int
    last: int
    versions: int
    state: StripState
    mark: Mark | None


class BisectStrip(NamedTuple):
    """A search: where it stands, how many versions its range has, and the parts of the strip."""

    progress: BisectProgress
    versions: int
    parts: tuple[StripPart, ...]


def bisect_strip(store: Store, search: BisectSearch, *, most: int = MOST) -> BisectStrip:
    """A search as a strip, oldest version first; of marked versions alone until both ends are
    known."""
    parents = parents_reader(store)
    progress = bisect.progress(store, search, parents=parents)
    marked = {mark.version: mark for mark in search.marks}
    if search.bad is None or not search.good:
        states: dict[int, StripState] = {n: marked[n].verdict for n in sorted(marked)}
    else:
        states = _states(parents, search, progress)
    parts = [StripPart(n, n, 1, state, marked.get(n)) for n, state in states.items()]
    shown = parts if len(parts) <= most else _stretches(parts)
    return BisectStrip(progress, len(parts), tuple(shown))


def _states(
    parents: Parents, search: BisectSearch, progress: BisectProgress
) -> dict[int, StripState]:
    """Version → what is known of it, ascending, for the range at the search's start."""
    bad, good = _ends(search)
    within = sorted({*bisect.suspects(parents, bad, good), *good})
    inside = set(within)
    is_good = set(search.good)
    for number in reversed(within):  # what a good version has in its history is good
        if number in is_good:
            is_good.update(p for p in parents(number) if p in inside)
    is_bad = {search.bad}
    for number in within:  # what has a bad one in its history is bad
        if not is_bad.isdisjoint(parents(number)):
            is_bad.add(number)
    candidates = set(progress.suspects)

    def state(number: int) -> StripState:
        if number == progress.first_bad:
            return "first bad"
        if number in is_good:
            return "good"
        if number in is_bad:
            return "bad"
        if number in search.skipped and number in candidates:
            return "skip"
        if number == progress.next:
            return "next"
        return "open" if number in candidates else "aside"

    return {number: state(number) for number in within}


def _ends(search: BisectSearch) -> tuple[int, list[int]]:
    """The bad version and the good ones between which the search began."""
    bad: int | None = None
    good: list[int] = []
    for mark in search.marks:
        bad = mark.version if mark.verdict == "bad" else bad
        good += [mark.version] if mark.verdict == "good" else []
        if bad is not None and good:
            return bad, good
    raise ValueError("a search with both ends has both")


def _stretches(parts: Sequence[StripPart]) -> Iterator[StripPart]:
    """Yields the parts, neighbours of which nothing was said and the same is known as one."""

    def alike(part: StripPart) -> object:
        alone = part.mark is not None or part.state in ("next", "first bad")
        return part.first if alone else part.state

    for _, neighbours in groupby(parts, alike):
        first, *others = neighbours
        last = others[-1].last if others else first.last
        yield first._replace(last=last, versions=1 + len(others))
