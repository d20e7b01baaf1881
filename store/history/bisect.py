"""Halving a history: which version to try next to find the first bad one.

A version is bad if an ancestor is, so the first bad one is an ancestor of any bad version and of no
good one. A try is worth as much as it has suspects among its ancestors. The marks of a search lie
in `bisect.json` beside the store; nothing of it enters the store. Who changes a search may say what
it was like when looked at (`seen`, by `state`): nothing is changed where others went on with it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.store import atomic_write, canonical
from tfgrpo.store.errors import StaleVersion, TfgrpoError
from tfgrpo.store.history.walks import Parents, ancestor_numbers, common_ancestor, parents_reader
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

BisectVerdict: TypeAlias = Literal["good", "bad", "skip"]
BISECT_VERDICTS: tuple[BisectVerdict, ...] = get_args(BisectVerdict)
FILE, ENDED = "bisect.json", "bisect-ended.json"
FORMAT = 1
NO_SEARCH = "0"
"""The state where no search is on."""


def suspects(parents: Parents, bad: int, good: Iterable[int]) -> list[int]:
    """The versions that may be the first bad one, ascending, `bad` last; empty when `bad` is in a
    good one's history. Reads no more than lies above the good versions' common past."""
    return list(ancestor_numbers(parents, [bad], good))[::-1]


def reach(parents: Parents, among: Sequence[int]) -> dict[int, int]:
    """How many of some versions (ascending) each of them has in its history, itself included."""
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
    """Which of `untried` halves the suspects best, the newest of several; None if none. `among` are
    the suspects, ascending; the last is known to be bad and is never chosen."""
    counts = reach(parents, among)
    total = len(among)
    able = [n for n in among[:-1] if n in untried]
    return max(able, key=lambda n: (min(counts[n], total - counts[n]), n), default=None)


class BisectError(TfgrpoError):
    """A search that was not begun, or that a mark does not fit."""


class Mark(NamedTuple):
    """What was found out about a version, how, and when (microseconds since 1970)."""

    version: int
    verdict: BisectVerdict
    why: str
    time: int


class BisectSearch(NamedTuple):
    """A search: all its marks, oldest first."""

    marks: tuple[Mark, ...] = ()

    @property
    def bad(self) -> int | None:
        """The oldest version known to be bad: every mark narrows the search."""
        return next((m.version for m in reversed(self.marks) if m.verdict == "bad"), None)

    @property
    def good(self) -> tuple[int, ...]:
        """The versions known to be good."""
        return tuple(m.version for m in self.marks if m.verdict == "good")

    @property
    def skipped(self) -> frozenset[int]:
        """The versions that cannot be judged."""
        return frozenset(m.version for m in self.marks if m.verdict == "skip")


class BisectProgress(NamedTuple):
    """What may be the first bad version (ascending) and what to try next. `first_bad` is known at
    the end, unless what is left cannot be judged."""

    suspects: tuple[int, ...]
    next: int | None
    first_bad: int | None

    @property
    def steps(self) -> int:
        """About how many tries are left."""
        return max(len(self.suspects) - 1, 0).bit_length()


def file(store: Store) -> Path:
    """Where a store's search is kept."""
    return store.path.parent / FILE


def _ended(store: Store) -> Path:
    return store.path.parent / ENDED


def load(store: Store) -> BisectSearch:
    """The search that is on. Raises BisectError when there is none."""
    return _read(file(store))


def state(search: BisectSearch | None) -> str:
    """A value that distinguishes a search and its marks from all others, also after reasons were
    redacted."""
    if search is None:
        return NO_SEARCH
    marks = [[mark.version, mark.verdict, mark.time] for mark in search.marks]
    return canonical.digest(marks).hex()[:16]


@contextmanager
def _turn(store: Store, seen: str | None) -> Iterator[None]:
    """Has others wait who would change the search. Raises StaleVersion where they just did."""
    with store.port.transaction():
        if seen is not None and seen != state(load(store) if file(store).exists() else None):
            raise StaleVersion("somebody went on with the search meanwhile")
        yield


def _read(path: Path) -> BisectSearch:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        marks = tuple(Mark(**mark) for mark in content["marks"])
        if content["format"] != FORMAT or not {m.verdict for m in marks} <= set(BISECT_VERDICTS):
            raise ValueError("another format")
    except FileNotFoundError:
        raise BisectError(
            "no search in progress", hint="start one with `tfgrpo bisect start BAD GOOD`"
        ) from None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BisectError(
            f"cannot read {path}: {error}", hint="end it with `tfgrpo bisect reset`"
        ) from None
    return BisectSearch(marks)


def start(
    store: Store, bad: Version | None, good: Iterable[Version], *, seen: str | None = None
) -> BisectSearch:
    """Begins a search, in the place of one that was on. Raises BisectError, StaleVersion."""
    search = BisectSearch()
    for version in good:
        search = _with(store, search, version, "good", "at the start")
    if bad is not None:
        search = _with(store, search, bad, "bad", "at the start")
    with _turn(store, seen):
        return _write(file(store), search)


def mark(
    store: Store,
    version: Version,
    verdict: BisectVerdict,
    why: str = "",
    *,
    parents: Parents | None = None,
    seen: str | None = None,
) -> BisectSearch:
    """Records what was found out about a version. Raises BisectError when it does not fit, or
    StaleVersion."""
    with _turn(store, seen):
        return _write(file(store), _with(store, load(store), version, verdict, why, parents))


def unmark(store: Store, *, seen: str | None = None) -> BisectSearch:
    """Takes the last mark back. Raises BisectError, StaleVersion."""
    with _turn(store, seen):
        return _write(file(store), BisectSearch(load(store).marks[:-1]))


def reset(store: Store) -> bool:
    """Ends the search and deletes its marks; returns whether one was on."""
    there = file(store).exists()
    for path in (file(store), _ended(store)):
        path.unlink(missing_ok=True)
    return there


def end(store: Store, *, seen: str) -> bool:
    """Ends the search, which `go_on` brings back until another ends; returns whether one was on.
    Raises StaleVersion."""
    with _turn(store, seen):
        is_on = seen != NO_SEARCH
        if is_on:
            _write(_ended(store), load(store))
            file(store).unlink()
        return is_on


def go_on(store: Store, ended: str) -> BisectSearch:
    """Brings back the search that was ended in that state, less what was redacted since. Raises
    BisectError, or StaleVersion where another is on or has ended since."""
    with _turn(store, NO_SEARCH):
        search = _read(_ended(store))
        if state(search) != ended:
            raise StaleVersion("another search has ended since")
        _write(file(store), search)
        _ended(store).unlink()
        return search


def progress(
    store: Store,
    search: BisectSearch,
    *,
    unknown: Collection[int] = (),
    parents: Parents | None = None,
) -> BisectProgress:
    """Where a search stands. `unknown` cannot be tried now, but is not skipped. `parents`, from
    `history.parents_reader`, spares a repeated caller the reading of versions."""
    if search.bad is None or not search.good:
        return BisectProgress((), None, None)
    parents = parents or parents_reader(store)
    among = suspects(parents, search.bad, search.good)
    if len(among) == 1:
        return BisectProgress(tuple(among), None, among[0])
    untried = set(among) - search.skipped - set(unknown)
    return BisectProgress(tuple(among), choose(parents, among, untried), None)


def _with(
    store: Store,
    search: BisectSearch,
    version: Version,
    verdict: BisectVerdict,
    why: str,
    parents: Parents | None = None,
) -> BisectSearch:
    _check(store, search, version, verdict, parents)
    added = Mark(version.number, verdict, why, time.time_ns() // 1000)
    return BisectSearch((*search.marks, added))


def _check(
    store: Store,
    search: BisectSearch,
    version: Version,
    verdict: BisectVerdict,
    parents: Parents | None,
) -> None:
    bad, good = search.bad, search.good
    if bad is not None and good:
        among = progress(store, search, parents=parents).suspects
        if version.number not in among or (version.number == bad and verdict != "bad"):
            known = "bad" if version.number == bad else "good, or not a candidate,"
            raise BisectError(
                f"{version.name} is already marked {known}",
                hint="`tfgrpo bisect status` lists the candidates",
            )
    elif verdict == "bad" and good:
        _check_order(store, version.number, good)
    elif verdict == "good" and bad is not None:
        _check_order(store, bad, (version.number,))


def _check_order(store: Store, bad: int, good: Sequence[int]) -> None:
    """A good version is to lie in the bad one's history: else it says nothing about what came."""
    for number in good:
        base = common_ancestor(store, store.version(bad), store.version(number))
        if base.number == bad:
            raise BisectError(
                f"v{bad} is bad and in the history of v{number}, which is good",
                hint="give BAD first: `tfgrpo bisect start BAD GOOD`; to find where something was "
                "fixed, call the fixed state bad",
            )
        if base.number != number:
            raise BisectError(
                f"v{number} is good and not in the history of v{bad}",
                hint=f"both come from {base.name}: test that one, and mark it if it is good",
            )


def _write(path: Path, search: BisectSearch) -> BisectSearch:
    content = {"format": FORMAT, "marks": [mark._asdict() for mark in search.marks]}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # of a database: none yet
    atomic_write.write(path, text)
    return search
