"""The automatic end of an experiment with `--auto`: promoted, or rolled back, on record.

The proxy looks every few seconds, in a process of its own (`proxy/running_experiments.py`): no
request waits for a sum over all calls. Looking often costs no certainty, for the tests are made for
that. The command that watches a guarded rollout looks as the proxy does, and the first of the two
that sees a decision makes it. So the rollout goes on when the command ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tfgrpo.production.experiment import (
    RUNNING,
    Experiment,
    all_running,
    at_work,
    experiment,
    promote,
    roll_back,
    stop,
)
from tfgrpo.production.experiment_evidence import Evidence, evidence
from tfgrpo.production.webhook import WEBHOOK, post_webhook
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.errors import InvalidOperation, TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.terminal_safe import complain

LOOK = 5.0
"""Seconds between two looks of who watches."""


class Settled(NamedTuple):
    """What became of an experiment, and why."""

    name: str
    state: str
    why: str


def settle(store: Store, running: Experiment) -> Settled | None:
    """Promotes an experiment whose benefit is shown and that nothing stands against, or rolls back
    one whose harm is shown, with the evidence on record; returns None where it is too early. Raises
    StoreError, and InvalidOperation where somebody else has just ended it."""
    shown = evidence(store, running)
    verdict, record = shown.verdict, shown.as_object()
    why = f"auto: {verdict.said}"
    if verdict.kind == "harm":
        ended = roll_back(store, running.name, evidence=record, why=why, only_running=True)
    elif verdict.kind == "benefit" and not verdict.doubts:
        ended = promote(store, running.name, evidence=record, why=why)
    else:
        return None
    return Settled(running.name, ended.state, why)


def settle_all(path: str) -> list[Settled | str]:
    """Settles the experiments in a store that may be settled automatically, each in the name of the
    person who started it; returns those that were settled, and why others could not be. Raises
    StoreError."""
    settled: list[Settled | str] = []
    with Store.open(path) as store:
        due = [one for one in all_running(store) if one.plan.auto]
    for one in due:
        with Store.open(path, author=f"{one.author} (auto)") as store:
            try:
                done = settle(store, one) if at_work(store, one.control.revision) == one else None
            except TfgrpoError as error:  # the others have their turn
                settled.append(f"experiment {one.name} is not settled: {error}")
                continue
            settled += [done] if done is not None else []
    return settled


def main(path: str) -> None:
    """Settles what can be in the store at `path`, and says what, to the webhook of the environment
    too: for a process of its own."""
    webhook, failed = os.environ.get(WEBHOOK), False
    try:
        for one in settle_all(path):
            if isinstance(one, str):
                complain(one)
                failed = True
                continue
            complain(f"experiment {one.name} was {one.state}: {one.why}")
            trouble = tell(webhook, one) if webhook else None
            if trouble is not None:
                complain(f"the webhook was not told: {trouble}")
    except TfgrpoError as error:
        complain(f"experiments are not settled: {error}")
        failed = True
    if failed:
        sys.exit(1)


def watch(store: Store, name: str, until: float | None = None) -> Iterator[Evidence]:
    """Yields what is found of an experiment until it is over: promoted, rolled back, or stopped by
    anybody. If nothing is decided after so many seconds, this function stops it. Raises
    StoreError."""
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
                stop(store, name, evidence=evidence(store, running).as_object(), why=why)
                return
        except InvalidOperation:  # the proxy, or somebody, has just ended it
            continue
        time.sleep(LOOK)


def outcome(store: Store, name: str) -> Settled:
    """Returns how an experiment ended, and why. Raises UnknownRevision."""
    ended = experiment(store, name)
    last = decisions(store, kind="experiment", subject=name)[-1]
    return Settled(name, ended.state, last.why or "")


def tell(url: str, ended: Settled) -> str | None:
    """Tells a webhook how an experiment ended; returns why that failed, None where it did not."""
    why = f": {ended.why}" if ended.why else ""
    text = f"experiment {ended.name} was {ended.state}{why}"
    return post_webhook(url, {"event": "experiment", **ended._asdict(), "text": text})
