"""What two experiences do together, from attempts that were shown either, both or neither.

Two lessons that each help may harm together, or help no more than either alone; their words do not
tell. Attempts of a trial are shown a random half of what belongs to their problem (`assign.py`), so
each pair is shown in all four combinations, and the learner's estimator (`advantage.py`) gives the
effect of one where the other is not shown, its effect beside the other, and how far the two are
from adding up. A negative sum is looked for with the rewards negated.

**A conflict** is a pair in which each helps alone, and harms beside the other. A pair is
**redundant** if each helps alone, both together do less than their sum, and neither helps beside
the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, product
from typing import Any, Literal, NamedTuple, TypeAlias

from tfgrpo.learn.advantage import Advantages, Effect, Observation

Kind: TypeAlias = Literal["conflict", "redundant"]
SURE = 0.8
"""The chance at which a thing is taken to help or to harm. A pair is called something where several
are that sure at once, so false alarms are rarer (benchmarks/RESULTS-interplay.md)."""
DOUBTED = 0.5
"""The chance below which a thing is not taken to help beside another."""
FEWEST = 16
"""Attempts with both, and with neither, below which nothing is said of a pair."""
Parts: TypeAlias = Mapping[tuple[bool, bool], tuple[str, ...]]
"""What an attempt is taken apart into, by whether it was shown the one and the other."""
ONE, OTHER, ALONE, BESIDE, BOTH = "one", "other", "alone", "beside", "both"
SPLIT: Parts = {(False, True): (OTHER,), (True, False): (ALONE,), (True, True): (OTHER, BESIDE)}
SUM: Parts = {(True, False): (ONE,), (False, True): (OTHER,), (True, True): (ONE, OTHER, BOTH)}


class Together(NamedTuple):
    """What is known of a pair: what each does where the other is not shown, and beside it."""

    kind: Kind
    names: tuple[str, str]
    alone: tuple[Effect, Effect]
    beside: tuple[Effect, Effect]

    @property
    def figures(self) -> dict[str, Any]:
        """The same for a record."""
        return {
            "kind": self.kind,
            "experiences": list(self.names),
            "alone": [one.recorded for one in self.alone],
            "beside": [one.recorded for one in self.beside],
        }


class Interplay(NamedTuple):
    """The conflicts and the redundant pairs, how many pairs there are, and how many of these were
    seen often enough to tell."""

    pairs: list[Together]
    possible: int
    examined: int


def interplay(
    observations: Sequence[Observation], ours: Sequence[str], theirs: Sequence[str]
) -> Interplay:
    """What pairs of one thing of ours and one of theirs do together."""
    shared: dict[tuple[str, str], list[Observation]] = {}
    left, right = set(ours), set(theirs)
    for one in observations:
        belonging = list(dict.fromkeys(one.belongs))
        for pair in product(
            [name for name in belonging if name in left],
            [name for name in belonging if name in right],
        ):
            shared.setdefault(pair, []).append(one)
    often = [pair for pair in sorted(shared) if _is_seen(pair, shared[pair])]
    judged = (_judged(pair, shared[pair]) for pair in often)
    pairs = [one for one in judged if one is not None]
    return Interplay(pairs, len(left) * len(right), len(often))


def _is_seen(pair: tuple[str, str], attempts: Sequence[Observation]) -> bool:
    counts = [len(attempt.shown.intersection(pair)) for attempt in attempts]
    return min(counts.count(0), counts.count(2)) >= FEWEST


def _judged(pair: tuple[str, str], attempts: Sequence[Observation]) -> Together | None:
    both_ways = (pair, (pair[1], pair[0]))
    helps = [_effects(attempts, names, SPLIT) for names in both_ways]
    alone = helps[0][ALONE], helps[1][ALONE]
    beside = helps[0][BESIDE], helps[1][BESIDE]
    if min(effect.chance for effect in alone) < SURE:
        return None
    turned = [attempt._replace(reward=1 - (attempt.reward or 0.0)) for attempt in attempts]
    harms = [_effects(turned, names, SPLIT)[BESIDE].chance for names in both_ways]
    if min(harms) >= SURE:
        return Together("conflict", pair, alone, beside)
    less = _effects(turned, pair, SUM)[BOTH].chance
    if less >= SURE and max(effect.chance for effect in beside) < DOUBTED:
        return Together("redundant", pair, alone, beside)
    return None


def _effects(
    attempts: Iterable[Observation], pair: tuple[str, str], parts: Parts
) -> dict[str, Effect]:
    """The effects of what attempts are taken apart into."""
    belongs, advantages = tuple(dict.fromkeys(chain(*parts.values()))), Advantages()

    def part(attempt: Observation) -> Observation:
        shown = parts.get((pair[0] in attempt.shown, pair[1] in attempt.shown), ())
        return Observation(attempt.group, belongs, frozenset(shown), attempt.reward)

    advantages.add(map(part, attempts))
    return advantages.effects()
