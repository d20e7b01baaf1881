"""How many calls an attempt by an agent makes, as its earlier attempts tell: for estimates.

Nothing else is known of an agent before it has run. What an answer takes is known by the model, and
each call of an attempt has those before it in its prompt.
"""

from __future__ import annotations

from math import ceil
from statistics import fmean

from tfgrpo.agents.settings import AgentSettings
from tfgrpo.domains.base import Foresee, PlannedAttempt, PlannedCalls, Trajectory
from tfgrpo.model.endpoint import Request
from tfgrpo.store.records import Json
from tfgrpo.store.store import Store

ENOUGH = 200
"""Attempts that are looked at, the latest first."""


def foreseen(store: Store, settings: AgentSettings) -> Foresee | None:
    """Returns what attempts by an agent take, by those on record; None where there are none."""
    counts: list[int] = []
    for run in reversed(store.runs.all()):
        recorded = run.config.get("agent") or {}
        if recorded.get("run") == settings.run and len(counts) < ENOUGH:
            rows = store.runs.rollouts(run)
            counts += [len(row.calls) for row in rows if row.outcome != "failed"]
    if not counts:
        return None
    likely, most = max(1, ceil(fmean(counts))), max(1, *counts)

    def foresee(ahead: PlannedAttempt) -> PlannedCalls:
        turns, requests = list[Json](), list[Request]()
        answer = ahead.text(ahead.max_tokens)
        for _ in range(most if ahead.most else likely):
            requests.append(ahead.request(ahead.messages, turns=tuple(turns)))
            turns.append({"role": "assistant", "content": answer})
        messages = tuple(turns) if len(turns) > 1 else ()
        return PlannedCalls(tuple(requests), Trajectory(answer, messages=messages))

    return foresee
