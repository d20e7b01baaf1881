"""Rules that decide about candidates and experiences by their effects, each a class.

A rule sees effects alone, never a text. It is asked after every step, with all evidence so far. Of
promoted texts that are nearly alike, one enters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from tfgrpo.learn.advantage import Effect
from tfgrpo.learn.library_draft import split_fitting
from tfgrpo.learn.pool import Pool
from tfgrpo.learn.reflection import StepOrigin
from tfgrpo.learn.rivals import Rivals
from tfgrpo.rendering.experience_texts import is_example
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
        """Returns the decisions. A candidate or experience without an effect stays as it is."""


@dataclass(frozen=True, slots=True)
class ByChance:
    """Promotes a candidate whose chance to help is `promote` or more. Gives up a candidate whose
    chance to be above zero, given that it has an effect, is below `retire`; for an experience in
    force, which had evidence of its own when it came, the bound is `drop`. Of more than `most`
    candidates, the worse half of those that `enough` attempts were shown is given up (sequential
    halving; Karnin, Koren and Somekh, 2013)."""

    promote: float = 0.90
    retire: float = 0.25
    drop: float = 0.10
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
        dropped = [id for id in in_force if id in effects and effects[id].above < self.drop]
        return Decisions(tuple(promoted), tuple(retired), tuple(dropped))


def without_rivals(decided: Decisions, effects: Mapping[str, Effect], rivals: Rivals) -> Decisions:
    """Decisions by which only one of several rival candidates enters, the one with the surest
    effect. The others stay, and so does a candidate that was measured against an experience that
    leaves."""
    surest = sorted(decided.promoted, key=lambda id: (-effects[id].chance, -effects[id].mean))
    entering = set(rivals.one_of_each(surest))
    promoted = (
        id
        for id in decided.promoted
        if id in entering and rivals.stands_for(id) not in decided.dropped
    )
    return decided._replace(promoted=tuple(promoted))


class Settled(NamedTuple):
    """Decisions as operations: those on the run's branch, those on the branch of candidates, and
    those there that follow an operation on an experience in force, with its id: they are made only
    if that operation is."""

    operations: tuple[Operation, ...]
    candidates: tuple[Operation, ...]
    following: tuple[tuple[str, Operation], ...]


class Settling(NamedTuple):
    """What decisions are about: a pool, effects by factor, the rivals among its candidates, and the
    most tokens of the library."""

    pool: Pool
    effects: Mapping[str, Effect]
    rivals: Rivals
    cap: int | None = None


def settle(store: Store, about: Settling, decided: Decisions, origin: StepOrigin) -> Settled:
    """Decisions about factors as operations on experiences, each with its figures, as many as there
    is room for. Examples are measured as one: those without room are given up. A promotion is an
    ADD with the id, the reason and the evidence of the candidate. The promotion of a challenger is
    a MODIFY of the experience whose place it took, with its effect over the old wording and the
    effect of the old wording; the candidate is then gone."""
    pool, effects, rivals = about.pool, about.effects, about.rivals
    there = pool.library.by_id
    rows = [there[id].row for name in decided.promoted for id in pool.factors[name]]
    events = store.events_at(rows)

    def deletes(names: Sequence[str]) -> list[Operation]:
        return [
            Operation(
                "DELETE",
                id,
                None,
                f"its effect on the reward: {effects[name]}",
                {**origin.evidence, **figures(effects[name])},
            )
            for name in names
            for id in pool.factors[name]
        ]

    promoted, challengers = [], {}
    for name in decided.promoted:
        place = rivals.stands_for(name)
        for id in pool.factors[name]:
            event = events[there[id].row]
            evidence = {**(event.evidence or {}), **figures(effects[name]), "candidates": pool.name}
            one = Operation("ADD", id, there[id].text, event.reason, evidence)
            if place is not None:
                before = figures(effects[place]) if place in effects else {}
                more = {**evidence, "candidate": id, "before": before}
                one = one._replace(op="MODIFY", experience=place, evidence=more)
                challengers[place] = name
            promoted.append(one)
    dropped = deletes(decided.dropped)
    fitting, crowded = split_fitting([*promoted, *dropped], pool.in_force, about.cap)
    enters = any(one.op == "ADD" and is_example(one.text or "") for one in fitting)
    given_up = [
        Operation("DELETE", one.experience, None, "there was no room for it", origin.evidence)
        for one in crowded
        if enters and is_example(one.text or "")
    ]
    changed = [one for one in fitting if one.op == "MODIFY"]
    following = [(str(one.experience), one) for one in (*changed, *dropped)]
    for one in changed:
        place = str(one.experience)
        following += [(place, gone) for gone in deletes([challengers[place]])]
    retired = (*deletes(decided.retired), *given_up)
    return Settled(tuple(fitting), retired, tuple(following))


def figures(effect: Effect) -> dict[str, Any]:
    """An effect as it stands in evidence."""
    return {
        "effect": effect.recorded,
        "chance": round(effect.chance, 6),
        "attempts": [effect.shown, effect.hidden],
    }
