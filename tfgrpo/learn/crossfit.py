"""What the other problems of a run would have chosen for each of them. It makes no call.

The attempts by which a library was chosen overrate it. So problems are dealt into folds. For each
fold the rule decides from the attempts at the other folds alone, and what it takes can be measured
at this one (cross-fitting: Chernozhukov et al., Econometrics Journal, 2018). A choice from fewer
attempts takes less, which makes the gain that is measured (`own_gain.py`) rather too low.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from tfgrpo.learn.advantage import Advantages, GroupSums
from tfgrpo.learn.decide import Rule
from tfgrpo.learn.in_use import Places, effects_in_use
from tfgrpo.learn.rivals import Nearness
from tfgrpo.store.canonical import digest

FOLDS = 20
"""Folds at most: the more, the nearer is what is taken to what the whole run takes."""
LOOKS = 12
"""How often decisions are played again for a fold at most, the last step among them."""


class Choosing(NamedTuple):
    """How a run chooses: the rule of each step (from 0); which of some names, the surest first, may
    be in force together; where each of those in force is shown in use; and what is in force at the
    start."""

    rule: Callable[[int], Rule]
    compatible: Callable[[Sequence[str]], Collection[str]]
    in_use: Callable[[tuple[str, ...]], Places]
    start: tuple[str, ...] = ()


def choices(
    groups: Mapping[str, Sequence[GroupSums]],
    names: Sequence[str],
    choosing: Choosing,
    known: Nearness,
    seed: int,
) -> dict[str, tuple[str, ...]]:
    """What is in force in the end where the attempts at a problem, and at those of its fold, decide
    nothing: by problem. `groups` has the attempts at each problem, in groups called `STEP/PROBLEM`,
    and `names` are the effects of all that was ever tried."""
    taken: dict[str, tuple[str, ...]] = {}
    for fold in folds(list(groups), seed):
        others = chain.from_iterable(groups[one] for one in groups if one not in fold)
        taken |= dict.fromkeys(fold, tuple(chosen(list(others), names, choosing, known)))
    return taken


def folds(problems: Sequence[str], seed: int) -> list[list[str]]:
    """Problems dealt into folds, by a seed."""
    dealt = sorted(problems, key=lambda one: digest(["tfgrpo.crossfit", seed, one]))
    return [dealt[n::FOLDS] for n in range(min(FOLDS, len(dealt)))]


def chosen(
    groups: Sequence[GroupSums], names: Sequence[str], choosing: Choosing, known: Nearness
) -> list[str]:
    """What is in force after the last step where decisions follow from these attempts."""
    steps: dict[int, list[GroupSums]] = {}
    for one in groups:
        steps.setdefault(int(one.group.partition("/")[0]), []).append(one)
    advantages, taken = Advantages(), list(choosing.start)
    apart = -(-len(steps) // LOOKS)
    for left, step in zip(range(len(steps))[::-1], sorted(steps), strict=True):
        advantages.add_groups(steps[step])
        if left % apart:
            continue
        seen = advantages.effects()
        new = (name for name in names if name not in (*taken, *choosing.start))
        there = [name for name in new if name in seen]
        effects = {name: seen[name] for name in there}
        effects |= effects_in_use(seen, choosing.in_use(tuple(taken)), known)
        decided = choosing.rule(step).decide(effects, there, taken)
        surest = sorted(decided.promoted, key=lambda name: -effects[name].chance)
        taken = [name for name in (*taken, *surest) if name not in decided.dropped]
        fitting = choosing.compatible(taken)
        taken = [name for name in taken if name in fitting]
    return taken
