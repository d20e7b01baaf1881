"""What an experiment with `--auto` comes to by itself: promoted, or rolled back, on record.

The proxy looks every few seconds, in a process of its own (`proxy/experiment_decider.py`): no
request waits for a sum over all calls. Looking often costs no certainty, for the tests are made for
that.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from tfgrpo.production.experiment import (
    RUNNING,
    Experiment,
    at_work,
    experiments,
    promote,
    roll_back,
)
from tfgrpo.production.experiment_evidence import evidence
from tfgrpo.production.webhook import WEBHOOK, post_webhook
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.terminal_safe import complain


class Settled(NamedTuple):
    """What became of an experiment, and why."""

    name: str
    state: str
    why: str


def settle(store: Store, experiment: Experiment) -> Settled | None:
    """Promotes an experiment whose benefit is shown and that nothing stands against, or rolls
    back one whose harm is shown, with the evidence on record; returns None where it is too early.

    Raises StoreError, and InvalidOperation where somebody else has just ended it.
    """
    shown = evidence(store, experiment)
    verdict, record = shown.verdict, shown.as_object()
    why = f"auto: {verdict.said}"
    if verdict.kind == "harm":
        ended = roll_back(store, experiment.name, evidence=record, why=why, only_running=True)
        return Settled(experiment.name, ended.state, why)
    if verdict.kind == "benefit" and not verdict.doubts:
        return Settled(
            experiment.name, promote(store, experiment.name, evidence=record, why=why).state, why
        )
    return None


def settle_all(path: str) -> list[Settled]:
    """Settles the experiments in a store that may be settled by themselves, each in the name of
    who started it. Raises StoreError."""
    settled = []
    with Store.open(path) as store:
        due = [one for one in experiments(store) if one.state == RUNNING and one.plan.auto]
    for one in due:
        with Store.open(path, author=f"{one.author} (auto)") as store:
            if at_work(store, one.control.revision) == one:
                done = settle(store, one)
                settled += [done] if done is not None else []
    return settled


def main(path: str) -> None:
    """Settles what can be in the store at `path`, and says what, to the webhook of the environment
    too: for a process of its own."""
    webhook = os.environ.get(WEBHOOK)
    try:
        for one in settle_all(path):
            text = f"experiment {one.name} was {one.state}: {one.why}"
            complain(text)
            if webhook:
                event = {"event": "experiment", **one._asdict(), "text": text}
                trouble = post_webhook(webhook, event)
                if trouble is not None:
                    complain(f"the webhook was not told: {trouble}")
    except TfgrpoError as error:
        complain(f"experiments are not settled: {error}")
        sys.exit(1)
