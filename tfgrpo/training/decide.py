"""What becomes of candidates and experiences, by their effects: rules, each a class.

A rule sees effects alone, never a text. It is asked after every step, with all evidence so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tfgrpo.training.advantage import Effect


class Decisions(NamedTuple):
    """The ids of candidates that enter the library, of those that are given up, and of experiences
    that leave the library."""

    promoted: tuple[str, ...]
    retired: tuple[str, ...]
    dropped: tuple[str, ...]


class Rule(Protocol):
    """Decides about `candidates` and what is `in_force`, both by id, from their effects."""

    def decide(
        self, effects: Mapping[str, Effect], candidates: Sequence[str], in_force: Sequence[str]
    ) -> Decisions:
        """Returns what becomes of them. What nothing is known of stays as it is."""


@dataclass(frozen=True, slots=True)
class ByChance:
    """Promotes at a chance of `promote` or more that a candidate helps. Gives up what is above zero
    with a chance below `retire`, if it does anything. Over `most` candidates the worse half of
    those that were measured goes (sequential halving; Karnin, Koren and Somekh, 2013)."""

    promote: float = 0.90
    retire: float = 0.25
    most: int = 12

    def decide(
        self, effects: Mapping[str, Effect], candidates: Sequence[str], in_force: Sequence[str]
    ) -> Decisions:
        known = [id for id in candidates if id in effects]
        promoted = [id for id in known if effects[id].chance >= self.promote]
        retired = [id for id in known if effects[id].above < self.retire]
        left = [id for id in known if id not in {*promoted, *retired}]
        if len(candidates) - len(promoted) - len(retired) > self.most:
            ranked = sorted(left, key=lambda id: effects[id].mean)
            retired += ranked[: len(ranked) // 2]
        dropped = [id for id in in_force if id in effects and effects[id].above < self.retire]
        return Decisions(tuple(promoted), tuple(retired), tuple(dropped))
