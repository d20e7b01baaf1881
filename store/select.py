"""Which versions of a history are wanted: by run, experience, words, kind of event, and time.

Versions are looked at one by one as they are asked for, so the first that fits comes at once;
the walk ends as soon as nothing older can fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tfgrpo.store.records import Event, Op, Version
from tfgrpo.store.store import Store


class Filter(NamedTuple):
    """What a version must have; None, or no kind, asks for nothing. Times in microseconds.

    A version fits when its run and time do and, where `experience` or `ops` ask for some, it has
    such an event. `words` are looked for in the message and in the texts and reasons of those
    events, and `author` in the name of who signed the version, whatever their case.
    """

    run: str | None = None
    experience: str | None = None
    words: str | None = None
    author: str | None = None
    ops: frozenset[Op] = frozenset()
    since: int | None = None
    until: int | None = None

    def fits_event(self, event: Event) -> bool:
        """Returns whether an event is one of those that are asked for."""
        return self.experience in (None, event.experience) and (
            not self.ops or event.op in self.ops
        )


def select(store: Store, versions: Iterable[Version], filter: Filter) -> Iterator[Version]:
    """Yields the versions that fit, of versions that come newest first."""
    return (version for version, fits in marked(store, versions, filter) if fits)


def marked(
    store: Store, versions: Iterable[Version], filter: Filter
) -> Iterator[tuple[Version, bool]]:
    """Yields versions that come newest first, each with whether it fits, down to the last that
    can."""
    holding = None if filter.experience is None else _holding(store, filter)
    oldest = min(holding, default=None) if holding is not None else 0
    if oldest is None:
        return
    bounded = False
    for version in versions:
        if filter.since is not None and version.time < filter.since and not bounded:
            # Times need not fall along a history: clocks differ, and versions travel.
            first = store.port.first_since(filter.since)
            if first is None:
                return
            oldest, bounded = max(oldest, first), True
        if version.number < oldest:
            return
        yield version, _fits(store, version, filter, holding)


def _holding(store: Store, filter: Filter) -> set[int]:
    """Returns the numbers of the versions with an event that is asked for."""
    assert filter.experience is not None
    return {e.version for e in store.history(filter.experience) if filter.fits_event(e)}


def _fits(store: Store, version: Version, filter: Filter, holding: set[int] | None) -> bool:
    if filter.since is not None and version.time < filter.since:
        return False
    if filter.until is not None and version.time > filter.until:
        return False
    if filter.run is not None and version.meta.get("run") != filter.run:
        return False
    if filter.author is not None and filter.author.casefold() not in version.author.casefold():
        return False
    if holding is not None and version.number not in holding:
        return False
    if filter.ops and holding is None and not filter.ops & store.counts(version).keys():
        return False
    if filter.words is None:
        return True
    words = filter.words.casefold()
    if words in version.message.casefold():
        return True
    return any(
        words in (event.text or "").casefold() or words in (event.reason or "").casefold()
        for event in store.events(version)
        if filter.fits_event(event)
    )
