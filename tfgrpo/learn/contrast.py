"""A step's groups, each contrasted as soon as it is whole while others are still attempted.

One local model answers everything in a row, so there the contrasts follow the attempts. Either way
the same is asked, and the same comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from tfgrpo.costs.prices import LOCAL
from tfgrpo.learn.collector import Batch, Collector
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.reflection import Advantage
from tfgrpo.model.gather import gather_all
from tfgrpo.rollout.attempt import Group

Contrast: TypeAlias = Callable[[int, Sequence[Awaitable[Group]]], Awaitable[Advantage | None]]
"""From a place in the batch, and its groups as they become whole, to what that place's teaches; it
waits for those that it looks at."""


async def contrasted(
    parts: RunParts,
    collector: Collector,
    batch: Batch,
    contrast: Contrast,
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

    async def one(place: int) -> Advantage | None:
        advantage = await contrast(place, arrivals)
        if advantage is not None:
            progress.reflected += 1
            progress.lessons += len(advantage.lessons)
            progress.announce()
        return advantage

    places = range(len(batch.problems))
    if overlapping:
        both: list[Any] = await gather_all([collect(), gather_all(map(one, places))])
        groups, advantages = both
    else:
        groups = await collect()
        for place, group in enumerate(groups):
            arrive(place, group)
        advantages = await gather_all(map(one, places))
    return groups, [advantage for advantage in advantages if advantage is not None]
