"""Branching at uncertainty: where further attempts at a problem should leave earlier ones.

Some attempts start from the prompt, others from the middle of one that was made: at the tool
results after which the model was least certain how to go on (ARPO, arXiv 2507.19849). How many
of each follows from how uncertain the model is at the start against after its tools (AEPO, arXiv
2510.14545), and a place near one that was branched at already counts less, so that branches
spread. All of it is decided from recorded figures, so a run that is resumed branches alike.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from tfgrpo.store.records import Json

STEEPNESS = 1.0
"""How strongly the budget follows the difference in uncertainty (AEPO's beta)."""
PENALTY = 0.3
"""What a place loses, in nats, for each branch beside it or at it."""


class BranchPoint(NamedTuple):
    """A place to branch at: after the message number `at` of the attempt `sample`."""

    sample: int
    at: int


def uncertain_results(messages: Sequence[Json]) -> list[tuple[int, float]]:
    """Returns the tool results of a trajectory after which the uncertainty of the next answer is
    known: the index of the result's message, and the uncertainty in nats."""
    results = []
    for index, (message, following) in enumerate(pairwise(messages)):
        known = following.get("uncertainty")
        if "cached" in message and following["role"] == "assistant" and known is not None:
            results.append((index, float(known)))
    return results


def start_uncertainty(messages: Sequence[Json]) -> float | None:
    """Returns the uncertainty of a trajectory's first answer, where it is known."""
    known = messages[0].get("uncertainty") if messages else None
    return None if known is None else float(known)


def count_roots(attempts: int, start: float | None, after_tools: Sequence[float]) -> int:
    """Returns how many of the attempts start from the prompt: at least one, and not all.

    The more certain the model is at the start against after its tools, the fewer. With nothing
    known it is half of them.
    """
    if attempts < 2:
        return attempts
    share = 0.5
    if start is not None and after_tools:
        share = 1 / (1 + math.exp(-STEEPNESS * (start - fmean(after_tools))))
    return min(attempts - 1, max(1, round(attempts * share)))


def choose_branch_points(
    trajectories: Mapping[int, Sequence[Json]],
    branches: int,
    uncertainty: Mapping[BranchPoint, float],
) -> list[BranchPoint]:
    """Returns where to branch, as often as is asked: the most uncertain place first.

    `uncertainty` is that of each place above its trajectory's start. The same place may come
    again, at the price of the penalty. Empty when there is no place.
    """
    taken: Counter[BranchPoint] = Counter()
    order = {
        place: number
        for sample, messages in sorted(trajectories.items())
        for number, place in enumerate(
            place
            for place in (BranchPoint(sample, at) for at in range(len(messages)))
            if place in uncertainty
        )
    }
    picked: list[BranchPoint] = []
    for _ in range(branches if order else 0):

        def worth(place: BranchPoint) -> float:
            near = sum(
                count
                for other, count in taken.items()
                if other.sample == place.sample and abs(order[other] - order[place]) <= 1
            )
            return uncertainty[place] - PENALTY * near

        best = max(sorted(order), key=worth)
        taken[best] += 1
        picked.append(best)
    return picked


def disagreement(actions: Iterable[str]) -> float:
    """Returns how much cheap next actions differ: the entropy of their beginnings, in nats.

    It stands in for the uncertainty of tokens where an endpoint gives no logprobs.
    """
    counts = Counter(" ".join(action.split()[:6]).casefold() for action in actions)
    total = counts.total()
    return -sum(n / total * math.log(n / total) for n in counts.values()) if total else 0.0
