"""A step's groups, each contrasted as soon as it is whole while others are still attempted.

One local model answers everything in a row, so there the contrasts follow the attempts. Either way
the same is asked, and the same comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from tfgrpo.model.gather import gather_all
from tfgrpo.model.prices import LOCAL
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.records import Library
from tfgrpo.training.groups import RunParts
from tfgrpo.training.missed import is_all_wrong, reflect_on_failure
from tfgrpo.training.reflection import Advantage, compare
from tfgrpo.training.rollouts import Batch, Collector


async def contrasted(
    parts: RunParts,
    collector: Collector,
    batch: Batch,
    contrast: Callable[[Group], Awaitable[Advantage | None]],
) -> tuple[list[Group], list[Advantage]]:
    """Returns a batch's groups, and what `contrast` makes of each, in the order of the batch.

    A group that teaches nothing is a contrast of None, and left out. Raises what the collector and
    `contrast` raise.
    """
    progress, loop = parts.progress, asyncio.get_running_loop()
    arrivals: list[asyncio.Future[Group]] = [loop.create_future() for _ in batch.problems]
    overlapping = not parts.reflector.endpoint.model.startswith(LOCAL)

    def arrive(place: int, group: Group) -> None:
        if not arrivals[place].done():  # whoever waits for it may have been ended by an error
            arrivals[place].set_result(group)

    async def collect() -> list[Group]:
        groups = await collector.groups(batch, arrive if overlapping else None)
        progress.enter("reflection")
        progress.announce()
        return groups

    async def one(arrival: asyncio.Future[Group]) -> Advantage | None:
        advantage = await contrast(await arrival)
        if advantage is not None:
            progress.reflected += 1
            progress.lessons += len(advantage.lessons)
            progress.announce()
        return advantage

    if overlapping:
        both: list[Any] = await gather_all([collect(), gather_all(map(one, arrivals))])
        groups, advantages = both
    else:
        groups = await collect()
        for place, group in enumerate(groups):
            arrive(place, group)
        advantages = await gather_all(map(one, arrivals))
    return groups, [advantage for advantage in advantages if advantage is not None]


async def ask_often(
    parts: RunParts, group: Group, library: Library, step: int, times: int
) -> Advantage | None:
    """Returns all that several askings make of a group, one that is mixed or all wrong; None for
    one that teaches nothing. Raises EndpointError, BudgetReached."""
    calls, reflection = parts.reflector, parts.reflection
    missed = reflection.ground_truth and is_all_wrong(group)
    if not (group.mixed or missed):
        return None
    ask = reflect_on_failure if missed else compare
    draws = await gather_all(
        ask(calls, reflection, group, library, step=step, draw=draw) for draw in range(times)
    )
    return replace(
        draws[0],
        lessons=tuple(lesson for one in draws for lesson in one.lessons),
        failures=tuple(dict.fromkeys(f for one in draws for f in one.failures)),
        repaired=any(one.repaired for one in draws),
    )
