"""Where attempts part: long ones are compared from the step on at which they act differently.

Attempts that made the same calls and got the same results are in the same state, and their rewards
can be attributed to what they do next, as in GiGPO (arXiv 2505.10978). The same results alone do
not make the same state: a tool that writes says "ok" whatever was written.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import NamedTuple

from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.store.records import Json

BEFORE = "before"
"""The role of the message that stands for what attempts share."""
SHOWN = 160
"""Characters that are shown of what attempts share: of their calls, and of the last result."""


class Step(NamedTuple):
    """What an attempt did in a state, as messages and in words, and the results that it got."""

    messages: tuple[Json, ...]
    did: str
    got: str


def parted(group: Group, long: int) -> Group:
    """A group in which each attempt of more than `long` characters begins where it parts from the
    attempt of the other side (winners or losers) that shares the longest beginning with it, if that
    is shorter. An attempt that neither won nor lost, or shares no beginning, stays whole."""
    winners, losers = group.winners, group.losers
    steps = {one.sample: _steps(one.messages) for one in (*winners, *losers)}
    begun: dict[int, Rollout] = {}
    for side, others, word in ((winners, losers, "worse"), (losers, winners, "better")):
        for one in side:
            if len(one.transcript) <= long:
                continue
            own = steps[one.sample]
            common = max(_in_common(own, steps[other.sample]) for other in others)
            begun[one.sample] = _beginning_after(one, own, common, word)
    return replace(group, rollouts=tuple(begun.get(one.sample, one) for one in group.rollouts))


def is_parted(rollout: Rollout) -> bool:
    """Whether an attempt begins where it parts from another one."""
    return bool(rollout.messages) and rollout.messages[0].get("role") == BEFORE


def _steps(messages: Sequence[Json]) -> list[Step]:
    starts = [
        place
        for place, one in enumerate(messages)
        if place == 0 or (_acts(one) and not _acts(messages[place - 1]))
    ]
    bounds = pairwise([*starts, len(messages)])
    return [_step(messages[start:end]) for start, end in bounds]


def _step(messages: Sequence[Json]) -> Step:
    acts = [one for one in messages if _acts(one)]
    calls = [call.get("function", call) for one in acts for call in one.get("tool_calls") or ()]
    words = [json.dumps(call, ensure_ascii=False, sort_keys=True) for call in calls]
    did = words or [one_line(str(one.get("content") or "")) for one in acts]  # thoughts may differ
    got = [one_line(str(one.get("content") or "")) for one in messages if not _acts(one)]
    return Step(tuple(messages), "; ".join(did), "; ".join(got))


def _acts(message: Json) -> bool:
    return message.get("role") == "assistant"


def _in_common(own: Sequence[Step], other: Sequence[Step]) -> int:
    pairs = zip(own[:-1], other[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0][1:] == pair[1][1:], pairs))


def _beginning_after(rollout: Rollout, steps: Sequence[Step], count: int, word: str) -> Rollout:
    if not count:
        return rollout
    calls = "; ".join(step.did for step in steps[:count])
    calls = calls if len(calls) <= SHOWN else f"… {calls[-SHOWN:]}"
    got = steps[count - 1].got
    got = got if len(got) <= SHOWN else f"{got[:SHOWN]} …"
    before = f"{count} {'step' if count == 1 else 'steps'} as in a {word} attempt: {calls} -> {got}"
    rest = [message for step in steps[count:] for message in step.messages]
    begun = replace(rollout, messages=({"role": BEFORE, "content": before}, *rest))
    return begun if len(begun.transcript) < len(rollout.transcript) else rollout
