"""A guarded rollout: an experiment that is started, watched and ended as one act.

It is an experiment that may decide by itself. Whoever watches it looks as the proxy does, and the
first of the two that sees a decision makes it; so it goes on where the watching ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from tfgrpo.production.experiment import RUNNING, Experiment, at_work, experiment, stop
from tfgrpo.production.experiment_end import Settled, settle
from tfgrpo.production.experiment_evidence import Evidence, evidence, recorded
from tfgrpo.production.webhook import post_webhook
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.store import Store

LOOK = 5.0
"""Seconds between two looks."""


def watch(store: Store, name: str, until: float | None = None) -> Iterator[Evidence]:
    """Yields what is found of an experiment, until it is over: promoted, rolled back, or stopped
    by whomever, or, with nothing decided, by this after so many seconds. Raises StoreError."""
    deadline = None if until is None else time.monotonic() + until
    while True:
        running = experiment(store, name)
        if running.state != RUNNING:
            return
        yield evidence(store, running)
        try:
            if at_work(store, running.control.revision) == running and settle(store, running):
                return
            if deadline is not None and time.monotonic() >= deadline:
                why = "nothing was decided in time"
                stop(store, name, evidence=recorded(store, running), why=why)
                return
        except InvalidOperation:  # the proxy, or somebody, has just ended it
            continue
        time.sleep(LOOK)


def outcome(store: Store, name: str) -> Settled:
    """Returns how an experiment ended, and why. Raises UnknownRevision."""
    ended: Experiment = experiment(store, name)
    last = [one for one in decisions(store, kind="experiment") if one.subject == name][-1]
    return Settled(name, ended.state, last.why or "")


def tell(url: str, ended: Settled) -> str | None:
    """Tells a webhook how an experiment ended; returns why that failed, None where it did not."""
    text = f"{ended.name} was {ended.state}" + (f": {ended.why}" if ended.why else "")
    return post_webhook(url, {"event": "experiment", **ended._asdict(), "text": text})
