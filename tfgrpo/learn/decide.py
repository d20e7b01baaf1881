"""What becomes of candidates and experiences, by their effects: rules, each a class.

A rule sees effects alone, never a text. It is asked after every step, with all evidence so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tfgrpo.learn.advantage import Effect
from tfgrpo.learn.pool import Pool
from tfgrpo.learn.reflection import StepOrigin
from tfgrpo.store.records import Operation
from tfgrpo.store.store import Store


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
    with a chance below `retire`, if it does anything. Over `most` candidates the worse half goes of
    those that `enough` attempts showed (sequential halving; Karnin, Koren and Somekh, 2013)."""

    promote: float = 0.90
    retire: float = 0.25
    most: int = 8
    enough: int = 12

    def decide(
        self, effects: Mapping[str, Effect], candidates: Sequence[str], in_force: Sequence[str]
    ) -> Decisions:
        known = [id for id in candidates if id in effects]
        promoted = [id for id in known if effects[id].chance >= self.promote]
        retired = [id for id in known if effects[id].above < self.retire]
        left = [id for id in known if id not in {*promoted, *retired}]
        if len(candidates) - len(promoted) - len(retired) > self.most:
            seen = [id for id in left if effects[id].shown >= self.enough]
            ranked = sorted(seen, key=lambda id: effects[id].mean)
            retired += ranked[: len(ranked) // 2]
        dropped = [id for id in in_force if id in effects and effects[id].above < self.retire]
        return Decisions(tuple(promoted), tuple(retired), tuple(dropped))


class Settled(NamedTuple):
    """What decisions come to: operations on the run's branch, and on that of candidates."""

    operations: tuple[Operation, ...]
    candidates: tuple[Operation, ...]


def settle(
    store: Store, pool: Pool, decided: Decisions, effects: Mapping[str, Effect], origin: StepOrigin
) -> Settled:
    """Returns decisions about factors as operations on experiences, each with its figures.

    A promotion is an ADD with the id, the reason and the evidence of the candidate.
    """
    there, branch = pool.library.by_id, pool.name
    rows = [there[id].row for name in decided.promoted for id in pool.factors[name]]
    events = store.events_at(rows)

    def figures(name: str) -> dict[str, Any]:
        one = effects[name]
        return {
            "effect": [round(value, 6) for value in (one.mean, *one.interval)],
            "chance": round(one.chance, 6),
            "attempts": [one.shown, one.hidden],
        }

    def deletes(names: Sequence[str]) -> list[Operation]:
        return [
            Operation(
                "DELETE",
                id,
                None,
                f"its effect on the reward: {effects[name]}",
                {**origin.evidence, **figures(name)},
            )
            for name in names
            for id in pool.factors[name]
        ]

    promoted = []
    for name in decided.promoted:
        for id in pool.factors[name]:
            event = events[there[id].row]
            evidence = {**(event.evidence or {}), **figures(name), "candidates": branch}
            promoted.append(Operation("ADD", id, there[id].text, event.reason, evidence))
    dropped = deletes(decided.dropped)
    return Settled((*promoted, *dropped), (*deletes(decided.retired), *dropped))
