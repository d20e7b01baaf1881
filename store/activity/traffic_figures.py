"""Figures of the calls on record: of a version, a day, a user, an experience."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from tfgrpo.store.activity.traffic import NONE, CallRecord, MeasuredCall, TokenSum, Traffic
from tfgrpo.store.errors import UnknownRevision

K = TypeVar("K")
N = TypeVar("N", int, float)


class LiveFigures(NamedTuple):
    """Calls that belong together (of a version, or with an experience in the prompt), in figures.

    Latencies are microseconds, `added` a median. Tokens and `dollars` are None where they are not
    known. `score` is the mean of the means of `scored` calls; `unpriced` calls have no known price.
    """

    name: str
    calls: int
    errors: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    p50: int
    p95: int
    added: int
    scored: int
    score: float | None
    dollars: float | None = None
    unpriced: int = 0

    @property
    def failed(self) -> float:
        """The share of calls that failed."""
        return self.errors / self.calls

    @property
    def cost(self) -> float | None:
        """What the calls cost, in US dollars; None where that is unknown of one of them."""
        return None if self.unpriced else self.dollars


PricedCalls: TypeAlias = CallRecord | MeasuredCall | TokenSum
Cost: TypeAlias = Callable[[PricedCalls], float | None]
"""What calls cost, in US dollars; None where that is not known."""


def figures(name: str, calls: Sequence[MeasuredCall], cost: Cost | None = None) -> LiveFigures:
    """Calls in figures."""
    costs = [] if cost is None else [cost(call) for call in calls]
    latencies = sorted(call.latency for call in calls)
    added = sorted(call.added for call in calls)
    scored = [call.score for call in calls if call.score is not None]
    return LiveFigures(
        name,
        len(calls),
        sum(call.status >= 400 or not call.status for call in calls),
        _known(call.prompt_tokens for call in calls),
        _known(call.cached_tokens for call in calls),
        _known(call.completion_tokens for call in calls),
        _at(latencies, 0.5),
        _at(latencies, 0.95),
        _at(added, 0.5),
        len(scored),
        sum(scored) / len(scored) if scored else None,
        _known(costs),
        costs.count(None),
    )


NO_LIBRARY = "no library"


def served(call: MeasuredCall) -> str:
    """The library and version that a call was answered under, in words."""
    return f"{call.library} {call.version or NONE}" if call.library else NO_LIBRARY


def _known(counts: Iterable[N | None]) -> N | None:
    """The sum of the counts that are known; None where none is, which is not 0."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _at(values: Sequence[int], share: float) -> int:
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


DIMENSIONS: Mapping[str, Callable[[MeasuredCall], str | None]] = {
    "version": served,
    "arm": lambda call: call.arm,
    "day": lambda call: time.strftime("%Y-%m-%d", time.gmtime(call.time / 1e6)),
    "user": lambda call: call.subject,
    "key": lambda call: call.key,
    "model": lambda call: call.model,
    "provider": lambda call: call.provider,
}
"""What calls are grouped by, beside their tags; days are those of UTC."""


def by_dimension(
    calls: Iterable[MeasuredCall], dimension: str, cost: Cost | None = None
) -> list[LiveFigures]:
    """The figures of calls that have something in common, the last used first: one of
    `DIMENSIONS`, or a tag's name. Calls that lack it are in none of them."""

    def tag(call: MeasuredCall) -> str | None:
        value: str | None = json.loads(call.tags or "{}").get(dimension)
        return value

    groups = grouped(calls, DIMENSIONS.get(dimension, tag))
    named = {name: some for name, some in groups.items() if name is not None}
    newest_first = sorted(named, key=lambda name: -max(call.time for call in named[name]))
    return [figures(name, named[name], cost) for name in newest_first]


def grouped(
    calls: Iterable[MeasuredCall], key: Callable[[MeasuredCall], K]
) -> dict[K, list[MeasuredCall]]:
    """Calls that have a key in common, by it."""
    groups: dict[K, list[MeasuredCall]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return groups


def by_experience(
    calls: Iterable[MeasuredCall], library_of: Callable[[str], Sequence[str]]
) -> list[LiveFigures]:
    """The figures of the calls that had each experience in their prompt, most calls first.
    `library_of` gives the ids of the whole library at a version, by the beginning of its digest."""
    groups: dict[str, list[MeasuredCall]] = {}
    prompts = grouped(calls, lambda call: (call.digest, call.experiences))
    for (digest, experiences), same in prompts.items():
        if digest is None:
            continue
        ids = library_of(digest) if experiences is None else json.loads(experiences)
        for id in ids:
            groups.setdefault(id, []).extend(same)
    listing = [figures(id, had) for id, had in groups.items()]
    return sorted(listing, key=lambda one: -one.calls)


def experience_uses(
    traffic: Traffic, since: int, library_of: Callable[[str], Sequence[str]]
) -> dict[str, int]:
    """Experience → how many calls since then (microseconds) had it in their prompt. `library_of`
    gives the ids at a version by its digest; a version that is not there counts for nothing."""
    uses: Counter[str] = Counter()
    for digest, experiences, calls in traffic.prompts(since):
        try:
            ids = library_of(digest) if experiences is None else json.loads(experiences)
        except UnknownRevision:
            continue
        uses.update(dict.fromkeys(ids, calls))
    return dict(uses)
